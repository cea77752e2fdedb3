/** Messages to a group by HTTP at a steady rate: one request each, sealed once, for every member. */

import { identityOf } from '@sealpost/harness/members/mesh'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { Latencies } from '@sealpost/harness/report/latencies'
import { count, figure } from '@sealpost/harness/report/text'
import { clockMs, connect } from '@sealpost/sdk'
import type { GroupId } from '@sealpost/std'
import { Effort, generatorCheck } from '../effort.ts'
import { failuresOf, graphOf, latencySheet } from '../latency.ts'
import { paced } from '../paced.ts'
import { latencyCheck, secondsFor } from '../percentiles.ts'
import { type Findings, type Scenario, type ScenarioSetup, sizeOf } from '../scenario.ts'
import { broadcast, type Roster, rosterOf } from './http-broadcast.ts'
import type { Ledger } from './ledger.ts'
import { HttpStage } from './stage.ts'

const SENDERS = 5
/** Of all senders together. */
const PER_SECOND = 10
const P95_MS_MAX = 300
const LATE_MS = 15_000
/** A group has 256 members at most, and the sender is one. */
const MEMBERS_MAX = 255

export const httpGroupSend: Scenario = {
  name: 'http-group-send',
  summary: `5 peers send ${PER_SECOND} messages a second by HTTP, each to a group of 50 others, for a minute`,
  bar: `none lost, p95 ≤ ${P95_MS_MAX} ms`,
  reported: null,
  run,
}

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { target, display } = setup
  const full = { peers: 50, seconds: Math.max(60, secondsFor(95, PER_SECOND)) }
  const { peers, seconds } = sizeOf(setup, full, { peers: 20, seconds: 5 })
  const members = Math.min(peers, MEMBERS_MAX)
  const stage = await HttpStage.open(
    setup,
    { listeners: members, senders: SENDERS, others: 1, isToAll: true },
    teardown,
  )
  display.step(`${SENDERS} groups of ${members} members and their sender`)
  const crew = new Crew(stage, await Promise.race([groupsOf(setup, stage), target.failed]))
  await crew.exchange()
  display.step(`${PER_SECOND} messages a second for ${seconds} s`)
  const effort = new Effort()
  const { startMs } = crew.begin()
  const sending: Promise<void>[] = []
  await paced({ startMs, perSecond: PER_SECOND, seconds }, (turn, dueAtMs) => {
    sending.push(crew.send(turn % SENDERS, dueAtMs))
  })
  await Promise.race([Promise.all(sending), target.failed])
  await crew.ledger.until(crew.ledger.sent, LATE_MS)
  return findingsOf(crew, { members, messages: sending.length, seconds, share: effort.share })
}

/** The one beside them owns the groups: one for each sender, with all who listen. */
async function groupsOf({ target }: ScenarioSetup, { mesh, listeners, others, senders }: HttpStage): Promise<Roster[]> {
  const [place] = target.shards
  const [keys] = others.secrets
  const owner = await connect({ ...place!, meshId: mesh.meshId, identity: identityOf(keys!) })
  const rosters: Roster[] = []
  for (const [i, sender] of senders.entries()) {
    const members = [...mesh.peerKeys.slice(0, listeners.count), mesh.peerKeys[listeners.count + i]!]
    const { id } = await owner.groups.create(`by HTTP ${i + 1}`, members)
    rosters.push(await rosterOf(sender, id as GroupId))
  }
  await owner.close()
  return rosters
}

/** Numbers of the ledger: `members` in a row for each message, one for each delivery of it. */
class Crew {
  /** From when a message was due until it was stored for all. */
  answers = new Latencies()
  readonly #stage: HttpStage
  readonly #rosters: readonly Roster[]

  constructor(stage: HttpStage, rosters: readonly Roster[]) {
    this.#stage = stage
    this.#rosters = rosters
  }

  get ledger(): Ledger {
    return this.#stage.ledger
  }

  get dropped(): number {
    return this.#stage.listeners.dropped
  }

  begin(): { readonly startMs: number } {
    this.answers = new Latencies()
    return this.#stage.begin()
  }

  /** What the first message between two peers costs is no part of the figures. */
  async exchange(): Promise<void> {
    this.begin()
    for (let sender = 0; sender < this.#rosters.length; sender++) await this.send(sender, clockMs())
    await this.ledger.until(this.ledger.sent, LATE_MS)
  }

  async send(sender: number, dueAtMs: number): Promise<void> {
    const { ledger, answers } = this
    const members = this.#stage.listeners.count
    const numbers = Array.from({ length: members }, () => ledger.due(dueAtMs))
    const body = this.#stage.body(numbers[0]! / members)
    const to = this.#stage.mesh.bindings.slice(0, members)
    const outcomes = await broadcast(this.#stage.senders[sender]!, this.#rosters[sender]!, { to, body })
    const atMs = clockMs()
    for (const [i, outcome] of outcomes.entries()) {
      if (outcome === 'stored') ledger.answered(numbers[i]!, atMs)
      else ledger.failed(outcome)
    }
    if (outcomes.every((outcome) => outcome === 'stored')) answers.note(atMs - dueAtMs)
  }
}

interface Shape {
  readonly members: number
  readonly messages: number
  readonly seconds: number
  readonly share: number
}

function findingsOf({ answers, ledger, dropped }: Crew, { members, messages, seconds, share }: Shape): Findings {
  const [p95, pushP95] = [answers.at(95), ledger.e2e.at(95)]
  const deliveries = `${count(ledger.delivered)} of ${count(ledger.sent)} deliveries`
  return {
    headline: `${count(messages)} messages to ${count(members)} members each: ${deliveries}, stored in p95 ${figure(p95)} ms`,
    shown: `${deliveries}, p95 ${figure(p95)} ms`,
    sheets: [
      latencySheet([
        ['due → stored for all', answers],
        ['due → push to a member', ledger.e2e],
      ]),
    ],
    facts: [
      [
        'shape',
        `${SENDERS} senders, ${PER_SECOND} messages a second in all: ${count(ledger.sent / seconds)} deliveries a second`,
      ],
      ['failed', failuresOf(ledger)],
    ],
    checks: [
      {
        about: 'mail',
        isMet: ledger.delivered === ledger.sent && ledger.failedCount === 0,
        sentence: `Every member got every message (${deliveries}).`,
      },
      { about: 'mail', isMet: ledger.twice + ledger.wrong === 0, sentence: 'None arrived twice or damaged.' },
      { about: 'mail', isMet: dropped === 0, sentence: 'No member was dropped.' },
      latencyCheck(answers, { percent: 95, maxMs: P95_MS_MAX, of: 'messages, due → stored,' }),
      latencyCheck(ledger.e2e, { percent: 95, maxMs: P95_MS_MAX, of: 'deliveries, due → push,' }),
      generatorCheck(share),
    ],
    graphs: [graphOf(ledger)],
    figures: {
      messages,
      deliveries: ledger.sent,
      delivered: ledger.delivered,
      failed: ledger.failedCount,
      storedMsP50: answers.at(50),
      storedMsP95: p95,
      e2eMsP95: pushP95,
      generatorShare: share,
    },
  }
}
