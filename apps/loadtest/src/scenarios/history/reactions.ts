/** In this scenario, members keep adding reactions to messages, while others maintain the counts. */

import type { MeshAddress } from '@sealpost/harness/members/http-peers'
import { identityOf, type MeshMembers } from '@sealpost/harness/members/mesh'
import { atRate } from '@sealpost/harness/programs/pace'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { Latencies } from '@sealpost/harness/report/latencies'
import { count, figure, sum } from '@sealpost/harness/report/text'
import { clockMs, connect } from '@sealpost/sdk'
import { groupsOf } from '@sealpost/sdk/groups'
import { openReactions, openState, type Reactions, type State, setSpace } from '@sealpost/sdk/state'
import type { PeerKey } from '@sealpost/std'
import { planOf } from '../../generators/plan.ts'
import { newMesh, type RunContext } from '../../run/run.ts'
import {
  Effort,
  type Findings,
  type Graph,
  generatorCheck,
  latencyCheck,
  latencySheet,
  mailCheck,
  type Scenario,
  sizeOf,
  spectrumGraph,
} from '../scenario.ts'

const WRITE_P95_MS_MAX = 500
const COUNTED_P95_MS_MAX = 3_000
const AGGREGATE_P95_MS_MAX = 1
/** The maximum number of writers in a group of 256. */
const WRITERS_MAX = 240
/** The number of members that count, each of which verifies every reaction. */
const COUNTERS = 3
const LOOKS = 5
const LATE_MS = 15_000

export const reactions: Scenario = {
  name: 'reactions',
  summary:
    '100 peers react to 60 messages, one reaction per second each, until every message has 100; 3 others count them',
  bar: `write p95 ≤ ${WRITE_P95_MS_MAX} ms, counted p95 ≤ ${count(COUNTED_P95_MS_MAX)} ms, 0 errors`,
  reported: 'write p95 2,340 ms, read p95 12,680 ms',
  run,
}

async function run(context: RunContext, teardown: Teardown): Promise<Findings> {
  const { target, display } = context
  const { peers, seconds } = sizeOf(context, { peers: 100, seconds: 60 }, { peers: 100, seconds: 5 })
  const writers = Math.min(peers, WRITERS_MAX)
  const members = writers + COUNTERS + 1
  const mesh = await newMesh(planOf({ peers: members }), target, teardown)
  display.step(`${count(members)} members come to a conversation`)
  const address = { ...target.shards[0]!, meshId: mesh.meshId }
  const opening = Conversation.open(address, mesh, { writers, messages: Math.max(1, Math.round(seconds)) })
  const conversation = await Promise.race([opening, target.failed])
  display.step(`${count(writers)} react for ${count(seconds)} s`)
  const effort = new Effort()
  await Promise.race([writeAndLook(conversation, { writers, seconds }), target.failed])
  const { share } = effort
  const found = await conversation.count()
  await conversation.close()
  return findingsOf(conversation, { found, share, seconds })
}

/** Writes in parts and measures in between, because measuring verifies every reaction. */
async function writeAndLook(
  conversation: Conversation,
  { writers, seconds }: { readonly writers: number; readonly seconds: number },
): Promise<void> {
  const total = Math.round(writers * seconds)
  for (let part = 0; part < LOOKS; part++) {
    const [first, end] = [part, part + 1].map((share) => Math.round((total * share) / LOOKS)) as [number, number]
    const time = { startMs: clockMs(), until: (end - first) / writers }
    const writing = atRate({ ...time, perSecond: writers }, (turn, dueAtMs) =>
      conversation.write(first + turn, dueAtMs),
    )
    const reading = atRate({ ...time, perSecond: 1 }, async () => conversation.aggregate())
    await Promise.all([writing, reading])
    await conversation.allCounted(LATE_MS)
    conversation.aggregate()
    await conversation.look()
  }
}

const REACTIONS = ['👍', '🎉', '❤️', '🚀', '👀', '😄']

interface ConversationSize {
  readonly writers: number
  /** The number of messages that receive reactions. */
  readonly messages: number
}

interface AggregateCost {
  readonly reactions: number
  /** The largest number of reactions to one message. */
  readonly most: number
  /** The mean cost per message for a member that receives every change. */
  readonly aggregateMs: number
  /** How long a new member takes to obtain all counts. */
  readonly openingMs: number
  /** How long a new member takes with every event of the history. */
  readonly historyMs: number
}

/** The members: writers first, then counters, then one that opens the counts repeatedly. */
class Conversation {
  /** The time from a reaction's due time until it was stored. */
  readonly writes = new Latencies()
  /** The time from a reaction's due time until another member had counted it. */
  readonly counted = new Latencies()
  readonly aggregates = new Latencies()
  readonly looks: AggregateCost[] = []
  errors = 0
  stored = 0
  readonly #size: ConversationSize
  readonly #states: readonly State[]
  readonly #writers: readonly Reactions[]
  readonly #counters: Reactions[] = []
  readonly #newMember: State
  readonly #tampers: string[]
  /** The due times of uncounted reactions, by message and author. */
  readonly #awaited = new Map<string, Map<PeerKey, number>>()

  static async open(address: MeshAddress, mesh: MeshMembers, size: ConversationSize): Promise<Conversation> {
    const tampers: string[] = []
    const onEvent = ({ reason }: { reason: string }) => void tampers.push(reason)
    const accounts = mesh.secrets.map((keys) => ({ ...address, identity: identityOf(keys) }))
    const owner = accounts[0]!
    const peer = await connect(owner)
    const { id: group } = await groupsOf(peer).create('conversation', mesh.peerKeys)
    await peer.close()
    await setSpace({ ...owner, group }, { historyFor: 'all' })
    const stateOf = (account: typeof owner) => openState({ ...account, group, onEvent, maintainKeysEveryMs: 0 })
    const first = await stateOf(owner) // creates the keys for all members
    const states = [first, ...(await Promise.all(accounts.slice(1).map(stateOf)))]
    const writers = await Promise.all(states.slice(0, size.writers).map((state) => openReactions(state)))
    await Promise.all(writers.map((writer) => writer.close())) // these members only write
    const conversation = new Conversation(size, { states, writers, tampers })
    for (const [i, state] of states.slice(size.writers, -1).entries()) {
      const onChange = i === 0 ? (message: string) => conversation.#changed(message) : () => undefined
      conversation.#counters.push(await openReactions(state, { onChange }))
    }
    return conversation
  }

  private constructor(
    size: ConversationSize,
    parts: { readonly states: readonly State[]; readonly writers: readonly Reactions[]; readonly tampers: string[] },
  ) {
    this.#size = size
    this.#states = parts.states
    this.#writers = parts.writers
    this.#newMember = parts.states.at(-1)!
    this.#tampers = parts.tampers
  }

  /** Adds a reaction. Writers alternate, and each reacts to another message each time. */
  async write(turn: number, dueAtMs: number): Promise<void> {
    const { writers, messages } = this.#size
    const [writer, round] = [turn % writers, Math.floor(turn / writers)]
    const message = `message ${(writer + round) % messages}`
    const reaction = REACTIONS[(writer + round) % REACTIONS.length]!
    const awaited = this.#awaited.get(message) ?? new Map<PeerKey, number>()
    this.#awaited.set(message, awaited.set(this.#states[writer]!.self, dueAtMs))
    try {
      await this.#writers[writer]!.add(message, reaction)
      this.writes.note(clockMs() - dueAtMs)
      this.stored += 1
    } catch {
      this.errors += 1
    }
  }

  aggregate(): void {
    for (const counter of this.#counters)
      for (const message of counter.targets) {
        const startMs = performance.now()
        counter.of(message)
        this.aggregates.note(performance.now() - startMs)
      }
  }

  async look(): Promise<void> {
    const [counter] = this.#counters as [Reactions]
    const messages = counter.targets
    const startMs = performance.now()
    for (const message of messages) counter.of(message)
    const aggregateMs = (performance.now() - startMs) / Math.max(1, messages.length)
    const openedAtMs = performance.now()
    const opened = await openReactions(this.#newMember)
    const openingMs = performance.now() - openedAtMs
    const counts = countsIn(opened)
    await opened.close()
    const walkedAtMs = performance.now()
    for await (const _ of this.#newMember.history());
    const historyMs = performance.now() - walkedAtMs
    this.looks.push({ reactions: sum(counts), most: Math.max(0, ...counts), aggregateMs, openingMs, historyMs })
  }

  /** Resolves when every reaction is counted, or after `withinMs`. */
  async allCounted(withinMs: number): Promise<void> {
    const untilMs = clockMs() + withinMs
    while (this.uncounted > 0 && clockMs() < untilMs) await Bun.sleep(20)
  }

  get uncounted(): number {
    return sum([...this.#awaited.values()].map(({ size }) => size))
  }

  /** Returns the number of reactions that a new member counts; 0 after tampering. */
  async count(): Promise<number> {
    const opened = await openReactions(this.#newMember)
    const found = sum(countsIn(opened))
    await opened.close()
    return this.#tampers.length === 0 ? found : 0
  }

  async close(): Promise<void> {
    await Promise.all(this.#counters.map((counter) => counter.close()))
    await Promise.all(this.#states.map((state) => state.close()))
  }

  #changed(message: string): void {
    const awaited = this.#awaited.get(message)
    if (!awaited) return
    const atMs = clockMs()
    for (const { authors } of this.#counters[0]!.of(message).values())
      for (const [author, dueAtMs] of awaited)
        if (authors.has(author) && awaited.delete(author)) this.counted.note(atMs - dueAtMs)
    if (awaited.size === 0) this.#awaited.delete(message)
  }
}

const countsIn = (opened: Reactions): number[] =>
  opened.targets.map((message) => sum([...opened.of(message).values()].map(({ count }) => count)))

interface ReactionFigures {
  readonly found: number
  readonly share: number
  readonly seconds: number
}

function findingsOf(conversation: Conversation, { found, share, seconds }: ReactionFigures): Findings {
  const { writes, counted, aggregates, errors, stored, uncounted, looks } = conversation
  const [writeP95, countedP95] = [writes.at(95), counted.at(95)]
  const last = looks.at(-1)!
  const microseconds = `${figure(last.aggregateMs * 1000)} µs`
  const claim =
    'Every stored reaction is counted when it arrives, and again by a member that opens the reactions afterwards.'
  return {
    headline: `${count(stored / seconds)} reactions per second; counting a message with ${count(last.most)} takes ${microseconds}`,
    shown: `write p95 ${figure(writeP95)} ms, counted p95 ${figure(countedP95)} ms, ${count(errors)} errors`,
    sheets: [
      latencySheet([
        ['due → stored', writes],
        ['due → counted by another member', counted],
        ['counts of one message', aggregates],
      ]),
      sheetOf(looks),
    ],
    facts: [
      ['aggregate', 'counted by the members: the broker knows neither the message of a reaction nor its content'],
      [
        'from nothing',
        'by a member that opens the reactions again, and by a member that reads every event of the history',
      ],
      ['found', `${count(found)} of ${count(stored)} by a member that opens them afterwards`],
    ],
    checks: [
      mailCheck(errors === 0, `No reaction was refused (${count(errors)}).`),
      mailCheck(found === stored && uncounted === 0, claim),
      latencyCheck(writes, { percent: 95, maxMs: WRITE_P95_MS_MAX, of: 'reactions, due → stored,' }),
      latencyCheck(counted, { percent: 95, maxMs: COUNTED_P95_MS_MAX, of: 'reactions, due → counted,' }),
      latencyCheck(aggregates, { percent: 95, maxMs: AGGREGATE_P95_MS_MAX, of: 'counts of one message' }),
      generatorCheck(share),
    ],
    graphs: [
      spectrumGraph([
        ['stored', writes.spectrum],
        ['counted', counted.spectrum],
      ]),
      graphOf(looks),
    ],
    figures: {
      ...{ updates: writes.count, errors, stored, found, uncounted },
      ...{ writeMsP50: writes.at(50), writeMsP95: writeP95, countedMsP50: counted.at(50), countedMsP95: countedP95 },
      ...{ aggregateMs: last.aggregateMs, openingMs: last.openingMs, historyMs: last.historyMs, generatorShare: share },
    },
  }
}

function sheetOf(looks: readonly AggregateCost[]) {
  const rows = looks.map(({ reactions: all, most, aggregateMs, openingMs, historyMs }) => [
    ...[count(all), count(most), figure(aggregateMs * 1000), figure(openingMs), figure(historyMs)],
  ])
  return { head: ['reactions', 'of one message', 'its counts µs', 'all from nothing ms', 'by the history ms'], rows }
}

function graphOf(looks: readonly AggregateCost[]): Graph {
  const line = (name: string, pick: (look: AggregateCost) => number) => ({
    ...{ name, points: looks.map((look) => [look.reactions, pick(look)] as const) },
  })
  return {
    title: 'Time of counting by number of reactions',
    x: 'reactions',
    y: 'ms',
    lines: [
      line('one message', ({ aggregateMs }) => aggregateMs),
      line('all from nothing', ({ openingMs }) => openingMs),
      line('by the history', ({ historyMs }) => historyMs),
    ],
  }
}
