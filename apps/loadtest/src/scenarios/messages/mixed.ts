/**
 * Runs scaled-down versions of all other workloads except `attachments` concurrently, plus one extra sender. Requires
 * that no message is lost or duplicated and that sends succeed nearly every second. Speed is only reported.
 */

import { atRate } from '@sealpost/harness/programs/pace'
import { Teardown } from '@sealpost/harness/programs/teardown'
import { count, figure, percent } from '@sealpost/harness/report/text'
import { clockMs } from '@sealpost/sdk'
import type { Display } from '../../command/progress.ts'
import type { RunContext } from '../../run/run.ts'
import { soak } from '../../soak/soak.ts'
import { httpCeiling, throughput } from '../ceiling.ts'
import { listing } from '../history/listing.ts'
import { reactions } from '../history/reactions.ts'
import { replay } from '../history/replay.ts'
import { httpGroupSend } from '../http/http-group-send.ts'
import { httpSend } from '../http/http-send.ts'
import { roundtrip } from '../http/roundtrip.ts'
import { failuresOf, HttpStage } from '../http/stage.ts'
import { votes } from '../http/votes.ts'
import {
  type Check,
  costCheck,
  Effort,
  type Findings,
  generatorCheck,
  mailCheck,
  type Scenario,
  sizeOf,
} from '../scenario.ts'
import { burst, sweep } from './burst.ts'
import { connections } from './connections.ts'
import { hotGroup } from './hot-group.ts'
import { stream } from './stream.ts'

const SHARE_MIN = 0.999

export const mixed: Scenario = {
  name: 'mixed',
  summary: 'run all other workloads at once, smaller, beside one peer that sends continuously',
  bar: `0 lost; ${SHARE_MIN * 100} % of seconds with a successful send`,
  reported: 'never run together',
  run,
}

interface MixedPart {
  readonly scenario: Scenario
  readonly peers: number
  readonly messages?: number
  /** Messages per second of all peers. */
  readonly rate?: number
}

const PARTS: readonly MixedPart[] = [
  { scenario: burst, peers: 20, messages: 50 },
  { scenario: sweep, peers: 20, messages: 20 },
  { scenario: roundtrip, peers: 60 },
  { scenario: connections, peers: 100 },
  { scenario: throughput, peers: 20, rate: 200 },
  { scenario: hotGroup, peers: 16 },
  { scenario: votes, peers: 10 },
  { scenario: httpSend, peers: 2 },
  { scenario: httpCeiling, peers: 4, rate: 20 },
  { scenario: httpGroupSend, peers: 6 },
  { scenario: stream, peers: 20 },
  { scenario: reactions, peers: 10 },
  { scenario: replay, peers: 4 },
  { scenario: listing, peers: 6 },
  { scenario: soak, peers: 10, rate: 100 },
]

const PROBES_A_SECOND = 10
const LATE_MS = 15_000

async function run(context: RunContext, teardown: Teardown): Promise<Findings> {
  const { peers, seconds } = sizeOf(context, { peers: 100, seconds: 60 }, { peers: 100, seconds: 10 })
  const probe = new SendProbe(await HttpStage.open(context, { listeners: 1, senders: 1 }, teardown))
  await probe.prepare()
  context.display.step(`${PARTS.length} workloads at once`)
  const effort = new Effort()
  const probing = probe.begin()
  const untilMs = clockMs() + seconds * 1000
  const parts = PARTS.map((part) => ({ ...part, peers: Math.min(part.peers, peers) }))
  const all = Promise.all(parts.map((part) => runPart(context, { part, seconds, untilMs }, teardown)))
  const results = await Promise.race([all, context.target.failed])
  probe.end()
  await probing
  return findingsOf(results, probe.result(), effort.share)
}

interface PartResult {
  readonly name: string
  readonly rounds: readonly Findings[]
}

interface PartSetup {
  readonly part: MixedPart
  readonly seconds: number
  readonly untilMs: number
}

/** Runs a workload, repeatedly if it ends early. */
async function runPart(
  context: RunContext,
  { part, seconds, untilMs }: PartSetup,
  teardown: Teardown,
): Promise<PartResult> {
  const { scenario, peers, messages = null, rate = null } = part
  const asked = { peers, messages, seconds }
  const own = { ...context, display: silent, options: { ...context.options, asked, rate, isQuick: true } }
  const rounds: Findings[] = []
  do {
    const ending = new Teardown()
    const end = teardown.add({ end: () => ending.run(), kill: () => ending.kill() })
    rounds.push(await scenario.run(own, ending))
    await end()
  } while (clockMs() < untilMs)
  return { name: scenario.name, rounds }
}

const silent: Display = { step: () => undefined, begin: () => undefined, update: () => undefined, end: () => undefined }

/** Sends to one listener, and records in which seconds a send succeeded. */
class SendProbe {
  readonly #stage: HttpStage
  readonly #good = new Set<number>()
  #startMs = 0
  #endMs = 0

  constructor(stage: HttpStage) {
    this.#stage = stage
  }

  prepare(): Promise<void> {
    return this.#stage.exchange([[0, 0]])
  }

  /** Sends until `end`. Resolves once everything is answered and has arrived. */
  async begin(): Promise<void> {
    const { ledger, startMs } = this.#stage.begin()
    this.#startMs = startMs
    const rate = { startMs, perSecond: PROBES_A_SECOND, until: () => this.#endMs > 0 }
    await atRate(rate, (_, dueAtMs) => this.#send(dueAtMs))
    await ledger.until(ledger.sent, LATE_MS)
  }

  end(): void {
    this.#endMs = clockMs()
  }

  async #send(dueAtMs: number): Promise<void> {
    const { ledger } = this.#stage
    const before = ledger.failedCount
    await this.#stage.send(0, 0, dueAtMs)
    if (ledger.failedCount === before) this.#good.add(Math.floor((clockMs() - this.#startMs) / 1000))
  }

  /** Returns the result for whole seconds. */
  result() {
    const { ledger } = this.#stage
    const { sent, delivered, failedCount, ack, graph } = ledger
    const seconds = Math.max(1, Math.floor((this.#endMs - this.#startMs) / 1000))
    const good = Array.from({ length: seconds }, (_, second) => this.#good.has(second)).filter(Boolean).length
    const failures = failuresOf(ledger)
    return {
      sent,
      delivered,
      failed: failedCount,
      failures,
      ackMsP99: ack.at(99),
      seconds,
      share: good / seconds,
      graph,
    }
  }
}

type ProbeResult = ReturnType<SendProbe['result']>

function findingsOf(results: readonly PartResult[], probe: ProbeResult, generatorShare: number): Findings {
  const { sent, delivered, failed, failures, seconds, share, ackMsP99 } = probe
  const unmet = results.map(({ rounds }) => unmetOf(rounds))
  const intact = unmet.filter((sentences) => sentences.length === 0).length
  const suffered = results.length - intact + (delivered < sent ? 1 : 0)
  const served = `${percent(share)} of ${count(seconds)}`
  const arrived = `(${count(delivered)} of ${count(sent)})`
  const probes = `${count(sent)} sends of one peer, ${PROBES_A_SECOND} per second`
  return {
    headline: `${results.length} workloads at once, ${count(suffered)} failed; a send succeeded in ${served} seconds`,
    shown: `${suffered === 0 ? '0 lost' : `${count(suffered)} failed`}, ${served} s`,
    sheets: [{ head: ['workload', 'rounds', 'found'], rows: results.map(rowOf) }],
    facts: [['beside', `${probes}, p99 ${figure(ackMsP99)} ms; failed: ${failures}`]],
    checks: [
      ...results.map(({ name }, i) => partCheck(name, unmet[i]!)),
      mailCheck(delivered === sent && failed === 0, `Every message of the continuous sender arrived ${arrived}.`),
      costCheck(
        share >= SHARE_MIN,
        `A send succeeded in at least ${SHARE_MIN * 100} % of the seconds (${percent(share)}).`,
      ),
      generatorCheck(generatorShare),
    ],
    graphs: [probe.graph],
    figures: {
      ...{ parts: results.length, partsWhole: intact, secondsServedShare: share },
      ...{ probes: sent, probesDelivered: delivered, probeMsP99: ackMsP99, generatorShare },
    },
  }
}

const unmetOf = (rounds: readonly Findings[]): string[] =>
  rounds
    .flatMap(({ checks }) => checks.filter(({ about, isMet }) => about === 'mail' && !isMet))
    .map(({ sentence }) => sentence)

function partCheck(name: string, unmet: readonly string[]): Check {
  if (unmet.length === 0) return mailCheck(true, `${name}: all messages arrived.`)
  return mailCheck(false, `${name} failed: ${[...new Set(unmet)].join(' ')}`)
}

const rowOf = ({ name, rounds }: PartResult): string[] => [name, count(rounds.length), rounds.at(-1)!.headline]
