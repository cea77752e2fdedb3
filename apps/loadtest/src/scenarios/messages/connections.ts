/** Many connections on one broker: they come in steps, stay, write among each other, go and come again, and leave. */

import { type ProcessFacts, processFacts } from '@sealpost/harness/programs/process-facts'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count, figure, orDash } from '@sealpost/harness/report/text'
import { OperatingError } from '@sealpost/std'
import { profileWords } from '../../command/profile.ts'
import { type Arrival, Crowds } from '../../generators/crowds.ts'
import type { Plan } from '../../generators/plan.ts'
import { ALONE } from '../../generators/spread.ts'
import { isClean, resultOf } from '../../run/result.ts'
import { newMeshes, runOnce } from '../../run/run.ts'
import { generatorCheck } from '../effort.ts'
import { percentileCheck } from '../percentiles.ts'
import type { Check, Findings, Scenario, ScenarioSetup } from '../scenario.ts'
import { sizeOf } from '../scenario.ts'

const STEPS = [500, 1_000, 2_000, 10_000]
/** A start and thousands of handshakes leave garbage and compiled code behind; this long after them the figures stand. */
const SETTLE_MS = 5_000
const TALKERS = 100
const RATE = 1_000
const CHURN_SHARE = 0.1
const KB_EACH_MAX = 20
/** Of fewer peers the memory drowns in what the platform takes and gives by itself. */
const MEASURABLE = 1_000
const P99_MS_MAX = 50
const LEAVE_WITHIN_MS = 15_000
/** The platform opens some by itself: for a timer, a pool of threads. */
const DESCRIPTORS_SPARE = 8

export const connections: Scenario = {
  name: 'connections',
  summary: 'ramp 500, 1,000, 2,000, 10,000 connections, hold, messages among them, churn',
  bar: `all connected, none dropped, p99 ≤ ${P99_MS_MAX} ms`,
  reported: '1,984 of 2,000 connected; 10,000 failed',
  run,
}

interface Step {
  readonly peers: number
  readonly arrival: Arrival
  readonly seconds: number
  readonly broker: ProcessFacts
}

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { target, options, display } = setup
  const { peers, seconds } = sizeOf(setup, { peers: 10_000, seconds: 30 }, { peers: 1_000, seconds: 5 })
  const crowd = { peers, total: peers, rate: null, payloadBytes: options.payloadBytes, seed: options.seed }
  const plan: Plan = { ...crowd, isOneWay: false, spread: ALONE }
  display.step(`inventing ${peers} peers`)
  const [mesh] = await newMeshes({ plan, target }, teardown)
  const programs = options.generators
  const {
    failed,
    shards: [place],
  } = target
  const crowds = await Crowds.open(
    { mesh: mesh!, place: place!, programs, failed, words: profileWords(options) },
    teardown,
  )
  await settle(setup)
  const before = brokerFacts(setup)
  const steps: Step[] = []
  for (const to of stepsTo(peers)) steps.push(await grow(setup, crowds, to))
  await settle(setup)
  const held = await hold(setup, seconds)
  const talk = await talkAmong(setup, { crowd: peers, seconds, teardown })
  display.step(`${Math.ceil(peers * CHURN_SHARE)} go and come again`)
  const standing = await crowds.look()
  const churn = await crowds.churn(Math.ceil(peers * CHURN_SHARE))
  display.step('all leave')
  await crowds.leave()
  const after = await untilGone(setup, before)
  return findingsOf({ peers, steps, before, held, after, talk, standing, churn })
}

const stepsTo = (peers: number): number[] => [...STEPS.filter((step) => step < peers), peers]

async function settle({ display, options }: ScenarioSetup): Promise<void> {
  display.step('letting the broker settle')
  await Bun.sleep(options.isQuick ? SETTLE_MS / 5 : SETTLE_MS)
}

/** They are there, and do nothing but their heartbeat. */
async function hold(setup: ScenarioSetup, seconds: number): Promise<ProcessFacts & { readonly cpuShare: number }> {
  setup.display.step(`holding them for ${seconds} s`)
  const first = brokerFacts(setup)
  await Promise.race([Bun.sleep(seconds * 1000), setup.target.failed])
  const last = brokerFacts(setup)
  return { ...last, cpuShare: (last.cpuSeconds - first.cpuSeconds) / seconds }
}

async function grow(setup: ScenarioSetup, crowds: Crowds, to: number): Promise<Step> {
  setup.display.step(`connecting up to ${to} peers`)
  const startMs = performance.now()
  const arrival = await crowds.grow(to)
  return { peers: to, arrival, seconds: (performance.now() - startMs) / 1000, broker: brokerFacts(setup) }
}

interface Talk {
  /** How many are there beside them. */
  readonly crowd: number
  readonly seconds: number
  readonly teardown: Teardown
}

/** A hundred more write to each other while the crowd is there. */
async function talkAmong(setup: ScenarioSetup, { crowd, seconds, teardown }: Talk) {
  const { target, options, display } = setup
  const { payloadBytes, seed } = options
  const peers = Math.min(TALKERS, crowd)
  const rate = (RATE * peers) / TALKERS
  const talk = { peers, total: rate * seconds, rate, payloadBytes, seed }
  const plan: Plan = { ...talk, isOneWay: false, spread: ALONE }
  const meshes = await newMeshes({ plan, target }, teardown)
  return resultOf(await runOnce({ plan, meshes, target, options, display }, teardown), target, options)
}

/** Closing is the kernel's work too: descriptors are back a moment after the last goodbye. */
async function untilGone(setup: ScenarioSetup, before: ProcessFacts): Promise<ProcessFacts> {
  const giveUpMs = performance.now() + LEAVE_WITHIN_MS
  for (;;) {
    const facts = brokerFacts(setup)
    const isBack = (facts.descriptors ?? 0) <= (before.descriptors ?? 0) + DESCRIPTORS_SPARE
    if (isBack || performance.now() > giveUpMs) return facts
    await Bun.sleep(100)
  }
}

function brokerFacts({ target }: ScenarioSetup): ProcessFacts {
  const pid = target.shards[0]?.pid ?? null
  const facts = pid === null ? null : processFacts(pid)
  if (!facts) throw new OperatingError('broker_unknown', 'The system tells nothing about the broker.')
  return facts
}

interface Measured {
  readonly peers: number
  readonly steps: readonly Step[]
  readonly before: ProcessFacts
  readonly held: Awaited<ReturnType<typeof hold>>
  readonly after: ProcessFacts
  readonly talk: ReturnType<typeof resultOf>
  readonly standing: { readonly online: number; readonly dropped: number }
  readonly churn: Arrival
}

function findingsOf(measured: Measured): Findings {
  const { peers, steps, before, held, after, talk, standing, churn } = measured
  const kbEach = ((held.rssMb - before.rssMb) * 1024) / peers
  const last = steps.at(-1)!
  const figures = {
    connected: standing.online,
    dropped: standing.dropped,
    connectMsP50: last.arrival.connectMs.at(50),
    connectMsP95: last.arrival.connectMs.at(95),
    kbPerSession: kbEach,
    rssMb: held.rssMb,
    cpuShareHeld: held.cpuShare,
    e2eMsP50: talk.e2eMs.p50,
    e2eMsP99: talk.e2eMs.p99,
    churnMsP95: churn.connectMs.at(95),
    descriptorsBefore: before.descriptors ?? 0,
    descriptorsHeld: held.descriptors ?? 0,
    descriptorsAfter: after.descriptors ?? 0,
    generatorShare: talk.loadgenCpuShareMax,
  }
  return {
    headline: `${count(standing.online)} of ${count(peers)} connected, ${count(standing.dropped)} dropped`,
    shown: `${count(standing.online)} of ${count(peers)}, ${count(standing.dropped)} dropped, p99 ${figure(talk.e2eMs.p99)} ms`,
    sheets: [sheetOf(steps)],
    facts: [
      ['memory', `${figure(before.rssMb)} MB before, ${figure(held.rssMb)} MB with them: ${figure(kbEach)} kB each`],
      [
        'messages',
        `${count(talk.total)} at ${count(talk.rate!)}/s among them: due → push p50 ${figure(talk.e2eMs.p50)}, p99 ${figure(talk.e2eMs.p99)} ms`,
      ],
      ['held', `${figure(held.cpuShare * 100)} % of a core while they are silent`],
      ['churn', `${count(churn.connectMs.count)} went and came again: p95 ${figure(churn.connectMs.at(95))} ms`],
      [
        'files',
        `${descriptors(before)} descriptors before, ${descriptors(held)} with them, ${descriptors(after)} after`,
      ],
    ],
    checks: checksOf(measured, figures),
    graphs: [
      {
        title: 'Time to connect',
        x: 'connections',
        y: 'ms',
        lines: [50, 95, 99].map((percent) => ({
          name: `p${percent}`,
          points: steps.map((step) => [step.peers, step.arrival.connectMs.at(percent)] as const),
        })),
      },
      {
        title: "The broker's memory",
        x: 'connections',
        y: 'MB',
        lines: [
          {
            name: 'RSS',
            points: [[0, before.rssMb], ...steps.map((step) => [step.peers, step.broker.rssMb] as const)],
          },
        ],
      },
    ],
    figures,
  }
}

const descriptors = ({ descriptors: open }: ProcessFacts): string => orDash(open, count)

function sheetOf(steps: readonly Step[]): Findings['sheets'][number] {
  const head = ['connections', 'new', 'failed', 'a second', 'p50', 'p95', 'p99 ms', 'broker RSS MB', 'descriptors']
  const rows = steps.map(({ peers, arrival, seconds, broker }) => {
    const { connectMs, failed } = arrival
    const speed = count(connectMs.count / Math.max(0.001, seconds))
    const times = [50, 95, 99].map((percent) => figure(connectMs.at(percent)))
    return [
      count(peers),
      count(connectMs.count),
      count(failed),
      speed,
      ...times,
      figure(broker.rssMb),
      descriptors(broker),
    ]
  })
  return { head, rows }
}

function checksOf({ peers, before, after, talk, standing, churn }: Measured, figures: Record<string, number>): Check[] {
  const kbEach = figures.kbPerSession!
  const sentence = `A session takes at most ${KB_EACH_MAX} kB (${figure(kbEach)}).`
  const spare = (after.descriptors ?? 0) - (before.descriptors ?? 0)
  return [
    { about: 'mail', isMet: standing.online === peers, sentence: `All ${count(peers)} are connected.` },
    { about: 'mail', isMet: standing.dropped === 0, sentence: 'None was dropped.' },
    { about: 'mail', isMet: churn.failed === 0, sentence: 'All that went came again.' },
    ...(peers < MEASURABLE ? [] : [{ about: 'cost' as const, isMet: kbEach <= KB_EACH_MAX, sentence }]),
    { about: 'mail', isMet: isClean(talk), sentence: 'Every message among them arrived once, in order.' },
    percentileCheck({
      ...{ percent: 99, samples: talk.delivered, ms: talk.e2eMs.p99, maxMs: P99_MS_MAX },
      of: 'messages among them',
    }),
    { about: 'cost', isMet: spare <= DESCRIPTORS_SPARE, sentence: 'The descriptors are back where they were.' },
    generatorCheck(talk.loadgenCpuShareMax),
  ]
}
