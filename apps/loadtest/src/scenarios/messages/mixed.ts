/**
 * All the other workloads at once, smaller, on one broker, but for `attachments`, which kills some; beside them one peer that
 * sends all the time. How fast they are then is told and not asked: what is asked is that no mail suffers, and that there is no
 * second in which nobody is served.
 */

import { Teardown } from '@sealpost/harness/programs/teardown'
import { count, figure } from '@sealpost/harness/report/text'
import { clockMs } from '@sealpost/sdk'
import type { Display } from '../../command/progress.ts'
import { Effort, generatorCheck } from '../effort.ts'
import { listing } from '../history/listing.ts'
import { reactions } from '../history/reactions.ts'
import { replay } from '../history/replay.ts'
import { httpCeiling } from '../http/http-ceiling.ts'
import { httpGroupSend } from '../http/http-group-send.ts'
import { httpSend } from '../http/http-send.ts'
import { roundtrip } from '../http/roundtrip.ts'
import { HttpStage } from '../http/stage.ts'
import { votes } from '../http/votes.ts'
import { failuresOf, graphOf } from '../latency.ts'
import { paced } from '../paced.ts'
import { type Check, type Findings, type Scenario, type ScenarioSetup, sizeOf } from '../scenario.ts'
import { burst } from './burst.ts'
import { connections } from './connections.ts'
import { hotGroup } from './hot-group.ts'
import { soak } from './soak.ts'
import { stream } from './stream.ts'
import { sweep } from './sweep.ts'
import { throughput } from './throughput.ts'

const SHARE_MIN = 0.999

export const mixed: Scenario = {
  name: 'mixed',
  summary: 'all of the others at once, smaller, and one who sends all the time',
  bar: `0 lost; ${SHARE_MIN * 100} % of seconds with a successful send`,
  reported: 'never run together',
  run,
}

interface Part {
  readonly scenario: Scenario
  readonly peers: number
  /** Of each peer. */
  readonly messages?: number
  /** A second, of all. */
  readonly rate?: number
}

const PARTS: readonly Part[] = [
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

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { peers, seconds } = sizeOf(setup, { peers: 100, seconds: 60 }, { peers: 100, seconds: 10 })
  const probe = new Probe(await HttpStage.open(setup, { listeners: 1, senders: 1 }, teardown))
  await probe.prepare()
  setup.display.step(`${PARTS.length} workloads at once`)
  const effort = new Effort()
  const probing = probe.begin()
  const untilMs = clockMs() + seconds * 1000
  const parts = PARTS.map((part) => ({ ...part, peers: Math.min(part.peers, peers) }))
  const all = Promise.all(parts.map((part) => playPart(setup, { part, seconds, untilMs }, teardown)))
  const played = await Promise.race([all, setup.target.failed])
  probe.end()
  await probing
  return findingsOf(played, await probe.result(), effort.share)
}

interface Played {
  readonly name: string
  readonly rounds: readonly Findings[]
}

interface Playing {
  readonly part: Part
  readonly seconds: number
  readonly untilMs: number
}

/** What is over before the time is begins again. */
async function playPart(
  setup: ScenarioSetup,
  { part, seconds, untilMs }: Playing,
  teardown: Teardown,
): Promise<Played> {
  const { scenario, peers, messages = null, rate = null } = part
  const asked = { peers, messages, seconds }
  const own = { ...setup, display: silent, options: { ...setup.options, asked, rate, isQuick: true } }
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

/** Sends to one listener, come what may, and knows of each second whether one of its sends was stored in it. */
class Probe {
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

  /** Resolves when it was ended, and all it sent is answered. */
  async begin(): Promise<void> {
    const { ledger, startMs } = this.#stage.begin()
    this.#startMs = startMs
    const sending: Promise<void>[] = []
    for (let second = 0; this.#endMs === 0; second++) {
      const beat = { startMs: startMs + second * 1000, perSecond: PROBES_A_SECOND, seconds: 1 }
      await paced(beat, (_, dueAtMs) => sending.push(this.#send(dueAtMs)))
    }
    await Promise.all(sending)
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

  /** Whole seconds only. */
  result() {
    const { sent, delivered, failedCount, ack } = this.#stage.ledger
    const seconds = Math.max(1, Math.floor((this.#endMs - this.#startMs) / 1000))
    const good = Array.from({ length: seconds }, (_, second) => this.#good.has(second)).filter(Boolean).length
    return {
      sent,
      delivered,
      failed: failedCount,
      failures: failuresOf(this.#stage.ledger),
      ackMsP99: ack.at(99),
      seconds,
      share: good / seconds,
      graph: graphOf(this.#stage.ledger),
    }
  }
}

type Probed = ReturnType<Probe['result']>

function findingsOf(played: readonly Played[], probe: Probed, generatorShare: number): Findings {
  const { sent, delivered, failed, failures, seconds, share } = probe
  const unmet = played.map(({ rounds }) => unmetOf(rounds))
  const whole = unmet.filter((sentences) => sentences.length === 0).length
  const percent = `${figure(share * 100)} %`
  const suffered = played.length - whole + (delivered < sent ? 1 : 0)
  return {
    headline: `${played.length} workloads at once, mail of ${count(suffered)} suffered; a send succeeded in ${percent} of ${count(seconds)} seconds`,
    shown: `${suffered === 0 ? '0 lost' : `mail of ${count(suffered)} suffered`}, ${percent} of ${count(seconds)} s`,
    sheets: [{ head: ['workload', 'rounds', 'found'], rows: played.map(rowOf) }],
    facts: [
      [
        'beside',
        `${count(sent)} sends of one peer, ${PROBES_A_SECOND} a second, p99 ${figure(probe.ackMsP99)} ms; failed: ${failures}`,
      ],
    ],
    checks: [
      ...played.map(({ name }, i) => partCheck(name, unmet[i]!)),
      {
        about: 'mail',
        isMet: delivered === sent && failed === 0,
        sentence: `Of the one who sent all the time every message arrived (${count(delivered)} of ${count(sent)}).`,
      },
      {
        about: 'cost',
        isMet: share >= SHARE_MIN,
        sentence: `A send succeeded in at least ${SHARE_MIN * 100} % of the seconds (${percent}).`,
      },
      generatorCheck(generatorShare),
    ],
    graphs: [probe.graph],
    figures: {
      parts: played.length,
      partsWhole: whole,
      secondsServedShare: share,
      probes: sent,
      probesDelivered: delivered,
      probeMsP99: probe.ackMsP99,
      generatorShare,
    },
  }
}

const unmetOf = (rounds: readonly Findings[]): string[] =>
  rounds
    .flatMap(({ checks }) => checks.filter(({ about, isMet }) => about === 'mail' && !isMet))
    .map(({ sentence }) => sentence)

function partCheck(name: string, unmet: readonly string[]): Check {
  const sentence =
    unmet.length === 0 ? `${name}: all its mail is well.` : `${name}, not met: ${[...new Set(unmet)].join(' ')}`
  return { about: 'mail', isMet: unmet.length === 0, sentence }
}

const rowOf = ({ name, rounds }: Played): string[] => [name, count(rounds.length), rounds.at(-1)!.headline]
