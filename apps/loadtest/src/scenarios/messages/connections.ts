/** This scenario opens many connections in steps, which send to each other, partly reconnect, and close. */

import type { ProcessFacts } from '@sealpost/harness/programs/machine'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count, figure, orDash, percent } from '@sealpost/harness/report/text'
import { type ConnectResult, IdlePeers } from '../../generators/idle-peers.ts'
import { planOf } from '../../generators/plan.ts'
import { brokerFacts, memoryText, restingFacts, SETTLE_MS } from '../../run/idle.ts'
import { isClean, type LoadResult } from '../../run/result.ts'
import { newMesh, type RunContext, runPlan } from '../../run/run.ts'
import {
  type Check,
  costCheck,
  type Findings,
  generatorCheck,
  mailCheck,
  memoryGraph,
  percentileCheck,
  percentilesGraph,
  type Scenario,
  sizeOf,
} from '../scenario.ts'

const STEPS = [500, 1_000, 2_000, 10_000]
const TALKERS = 100
const RATE = 1_000
const CHURN_SHARE = 0.1
const KB_EACH_MAX = 20
/** The number of peers below which the runtime's fluctuations exceed their memory. */
const MEASURABLE = 1_000
const P99_MS_MAX = 50
const LEAVE_WITHIN_MS = 15_000
/** The number of descriptors that the runtime opens for timers and threads. */
const DESCRIPTORS_SPARE = 8

export const connections: Scenario = {
  name: 'connections',
  summary:
    'open 500, 1,000, 2,000, then 10,000 connections, hold them while other peers send messages, and reconnect some',
  bar: `all connected, none disconnected, p99 ≤ ${P99_MS_MAX} ms`,
  reported: '1,984 of 2,000 connected; 10,000 failed',
  run,
}

interface ConnectStep {
  readonly peers: number
  readonly connected: ConnectResult
  readonly seconds: number
  readonly broker: ProcessFacts
}

async function run(context: RunContext, teardown: Teardown): Promise<Findings> {
  const { target, options, display } = context
  const { peers, seconds } = sizeOf(context, { peers: 10_000, seconds: 30 }, { peers: 1_000, seconds: 5 })
  display.step(`creating ${peers} peers`)
  const mesh = await newMesh(planOf({ peers }), target, teardown)
  const { failed, shards } = target
  const { generators, runtimeArgs } = options
  const setup = { mesh, broker: shards[0]!, programs: generators, failed, runtimeArgs }
  const idle = await IdlePeers.open(setup, teardown)
  await settle(context)
  const before = brokerFacts(target)
  const steps: ConnectStep[] = []
  for (const to of stepsTo(peers)) steps.push(await grow(context, idle, to))
  await settle(context)
  display.step(`holding them for ${seconds} s`)
  const held = await restingFacts(target, seconds)
  const talk = await talkAmong(context, { peers: Math.min(TALKERS, peers), seconds }, teardown)
  display.step(`reconnecting ${Math.ceil(peers * CHURN_SHARE)}`)
  const status = await idle.look()
  const churn = await idle.churn(Math.ceil(peers * CHURN_SHARE))
  display.step('disconnecting all')
  await idle.leave()
  const after = await untilGone(context, before)
  return findingsOf({ peers, steps, before, held, after, talk, status, churn })
}

const stepsTo = (peers: number): number[] => [...STEPS.filter((step) => step < peers), peers]

async function settle({ display, options }: RunContext): Promise<void> {
  display.step('waiting for the broker to become idle')
  await Bun.sleep(options.isQuick ? SETTLE_MS / 5 : SETTLE_MS)
}

async function grow({ display, target }: RunContext, idle: IdlePeers, to: number): Promise<ConnectStep> {
  display.step(`connecting up to ${to} peers`)
  const startMs = performance.now()
  const connected = await idle.grow(to)
  return { peers: to, connected, seconds: (performance.now() - startMs) / 1000, broker: brokerFacts(target) }
}

/** Makes another hundred peers send to each other. */
async function talkAmong(
  context: RunContext,
  { peers, seconds }: { readonly peers: number; readonly seconds: number },
  teardown: Teardown,
): Promise<LoadResult> {
  const rate = (RATE * peers) / TALKERS
  const { result } = await runPlan(context, { plan: planOf({ peers, total: rate * seconds, rate }) }, teardown)
  return result
}

/** Waits until the kernel has freed the descriptors. */
async function untilGone({ target }: RunContext, before: ProcessFacts): Promise<ProcessFacts> {
  const giveUpMs = performance.now() + LEAVE_WITHIN_MS
  for (;;) {
    const facts = brokerFacts(target)
    const isBack = (facts.descriptors ?? 0) <= (before.descriptors ?? 0) + DESCRIPTORS_SPARE
    if (isBack || performance.now() > giveUpMs) return facts
    await Bun.sleep(100)
  }
}

interface ConnectionFigures {
  readonly peers: number
  readonly steps: readonly ConnectStep[]
  readonly before: ProcessFacts
  readonly held: Awaited<ReturnType<typeof restingFacts>>
  readonly after: ProcessFacts
  readonly talk: LoadResult
  readonly status: { readonly online: number; readonly dropped: number }
  readonly churn: ConnectResult
}

function findingsOf(measured: ConnectionFigures): Findings {
  const { peers, steps, before, held, after, talk, status, churn } = measured
  const kbPerSession = ((held.rssMb - before.rssMb) * 1024) / peers
  const last = steps.at(-1)!.connected.connectMs
  const outcome = `${count(status.online)} of ${count(peers)}`
  const p99 = figure(talk.e2eMs.p99)
  const sent = `${count(talk.total)} at ${count(talk.rate!)}/s in the meantime`
  const open = [before, held, after].map(descriptors)
  return {
    headline: `${outcome} connected, ${count(status.dropped)} disconnected`,
    shown: `${outcome}, ${count(status.dropped)} disconnected, p99 ${p99} ms`,
    sheets: [sheetOf(steps)],
    facts: [
      ['memory', memoryText(before.rssMb, held.rssMb, kbPerSession)],
      ['messages', `${sent}: due → push p50 ${figure(talk.e2eMs.p50)}, p99 ${p99} ms`],
      ['idle', `${percent(held.cpuShare)} of a core while no connection sends`],
      ['churn', `${count(churn.connectMs.count)} reconnected: p95 ${figure(churn.connectMs.at(95))} ms`],
      ['files', `${open[0]} descriptors before, ${open[1]} with the connections, ${open[2]} after`],
    ],
    checks: checksOf(measured, kbPerSession),
    graphs: [
      percentilesGraph(
        'Time to connect',
        'connections',
        steps.map((step) => [step.peers, step.connected.connectMs.percentiles]),
      ),
      memoryGraph('connections', [[0, before.rssMb], ...steps.map((step) => [step.peers, step.broker.rssMb] as const)]),
    ],
    figures: {
      ...{ connected: status.online, dropped: status.dropped, connectMsP50: last.at(50), connectMsP95: last.at(95) },
      ...{ kbPerSession, rssMb: held.rssMb, cpuShareHeld: held.cpuShare },
      ...{ e2eMsP50: talk.e2eMs.p50, e2eMsP99: talk.e2eMs.p99, churnMsP95: churn.connectMs.at(95) },
      descriptorsBefore: before.descriptors ?? 0,
      descriptorsHeld: held.descriptors ?? 0,
      descriptorsAfter: after.descriptors ?? 0,
      generatorShare: talk.loadgenCpuShareMax,
    },
  }
}

const descriptors = ({ descriptors: open }: ProcessFacts): string => orDash(open, count)

function sheetOf(steps: readonly ConnectStep[]): Findings['sheets'][number] {
  const head = ['connections', 'new', 'failed', 'connections/s', 'p50', 'p95', 'p99 ms', 'broker RSS MB', 'descriptors']
  const rows = steps.map(({ peers, connected, seconds, broker }) => {
    const { connectMs, failed } = connected
    const perSecond = connectMs.count / Math.max(0.001, seconds)
    const times = [50, 95, 99].map((percent) => figure(connectMs.at(percent)))
    const counts = [peers, connectMs.count, failed, perSecond].map(count)
    return [...counts, ...times, figure(broker.rssMb), descriptors(broker)]
  })
  return { head, rows }
}

function checksOf({ peers, before, after, talk, status, churn }: ConnectionFigures, kbEach: number): Check[] {
  const memory = costCheck(kbEach <= KB_EACH_MAX, `A session uses at most ${KB_EACH_MAX} kB (${figure(kbEach)}).`)
  const spare = (after.descriptors ?? 0) - (before.descriptors ?? 0)
  const bound = { percent: 99, samples: talk.delivered, ms: talk.e2eMs.p99, maxMs: P99_MS_MAX }
  return [
    mailCheck(status.online === peers, `All ${count(peers)} are connected.`),
    mailCheck(status.dropped === 0, 'None was disconnected.'),
    mailCheck(churn.failed === 0, 'All of them reconnected.'),
    ...(peers < MEASURABLE ? [] : [memory]),
    mailCheck(isClean(talk), 'Every message that was sent in the meantime arrived once and in order.'),
    percentileCheck({ ...bound, of: 'messages in the meantime' }),
    costCheck(spare <= DESCRIPTORS_SPARE, 'The number of descriptors returned to its initial value.'),
    generatorCheck(talk.loadgenCpuShareMax),
  ]
}
