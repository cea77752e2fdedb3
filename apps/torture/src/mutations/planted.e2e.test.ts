/** Tests that the checker finds each planted bug, and none without one. */
import { join } from 'node:path'
import { Teardown } from '@sealpost/harness/programs/teardown'
import { scratchDatabase } from '@sealpost/schema/testing'
import { afterEach, expect, test } from 'vitest'
import type { Rule } from '../judgement/checker.ts'
import type { VerdictLine } from '../judgement/verdict.ts'
import type { TortureScenario } from '../run.ts'
import { runScenarios } from '../run.ts'
import { answerLost } from '../scenarios/networks.ts'
import { brokerKill } from '../scenarios/servers.ts'
import { PLANT_NAMES, type Plant } from './test/plants.ts'

const PRELOAD = ['--preload', join(import.meta.dirname, 'test/plants.ts')]
const SLOW = 240_000

/** Injects no fault. */
const calm: TortureScenario = {
  name: 'calm',
  summary: '',
  inject: async (stage, fault) => {
    fault.begins()
    await stage.acks(400)
    fault.ends()
  },
}

/** Lets messages for an absent peer expire. */
const expiry: TortureScenario = {
  name: 'expiry',
  summary: '',
  inject: async (stage, fault) => {
    const [to, from] = [stage.sleepers[0]!.no, stage.writers[0]!.no]
    fault.begins()
    stage.population.pace(0)
    await stage.population.burst({ from, to, count: 20, kind: 'brief' })
    await stage.until('all brief messages have expired', async () => (await stage.postgres.countBrief()) === 0)
    fault.ends()
    stage.flow()
  },
}

/** Loses several replies, because a lost commit must contain envelopes to reveal the bug. */
const manyAnswersLost: TortureScenario = {
  ...answerLost,
  inject: async (stage, fault) => {
    for (let i = 0; i < 4; i++) await answerLost.inject(stage, fault)
  },
}

/** The rule that each bug breaks, and the scenario that reveals it. */
const NOTICED: Readonly<Record<Plant, { readonly rule: Rule; readonly during?: TortureScenario }>> = {
  'acks before the commit': { rule: 'lost', during: brokerKill },
  'drops a push': { rule: 'misordered' },
  'pushes twice': { rule: 'duplicated' },
  'swaps recipients': { rule: 'misdelivered' },
  'turns a pair round': { rule: 'misordered' },
  'names another sender': { rule: 'misdelivered' },
  'spoils a body': { rule: 'tampered' },
  'throws away what expired': { rule: 'lost', during: expiry },
  'forgets what it stored': { rule: 'duplicated', during: manyAnswersLost },
}

const teardowns: Teardown[] = []
afterEach(async () => {
  for (const teardown of teardowns.splice(0)) await teardown.run()
})

async function run(
  scenario: TortureScenario,
  planted: { runtimeArgs?: string[]; env?: Record<string, string> },
): Promise<VerdictLine> {
  const teardown = new Teardown()
  teardowns.push(teardown)
  const database = await scratchDatabase()
  teardown.add({ end: () => database.drop() })
  const setting = {
    brokers: 1,
    casts: [{ peers: 6, isWriting: true, sleepers: 1 }],
    meshes: 1,
    rate: 400,
    bodyBytes: 64,
    seed: 1,
    postgres: { url: database.url },
    ...planted,
    env: { ...planted.env, LEASE_MS: '2000' },
  }
  const options = { seed: 1, measure: 'short', endMs: null, recoveryMs: null, tell: () => {} } as const
  const [line] = await runScenarios([scenario], setting, options, teardown)
  return line!
}

test('a broker without a planted bug breaks no rule', { timeout: SLOW }, async () => {
  const line = await run(calm, {})
  expect(line.reasons).toEqual([])
  expect(line.outcome).toBe('held')
  expect(line.acked).toBeGreaterThanOrEqual(400)
})

test.for(PLANT_NAMES)('the checker detects a broker that %s', { timeout: SLOW }, async (plant) => {
  const { rule, during = calm } = NOTICED[plant]
  const line = await run(during, { runtimeArgs: PRELOAD, env: { PLANTED: plant } })
  expect(line.outcome).toBe('broken')
  expect(line.breaches[rule], line.reasons.join('\n')).toBeGreaterThan(0)
})
