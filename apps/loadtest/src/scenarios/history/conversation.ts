/** A group whose members react to its messages, while others keep the counts: all in this process. */

import type { MeshAddress } from '@sealpost/harness/members/http-sender'
import { identityOf, type MeshMembers } from '@sealpost/harness/members/mesh'
import { Latencies } from '@sealpost/harness/report/latencies'
import { clockMs, connect } from '@sealpost/sdk'
import { openReactions, openState, type Reactions, type State, setSpace } from '@sealpost/sdk/state'
import type { PeerKey } from '@sealpost/std'

const REACTIONS = ['👍', '🎉', '❤️', '🚀', '👀', '😄']

export interface ConversationSize {
  readonly writers: number
  /** Messages that are reacted to; all of them grow alike. */
  readonly messages: number
}

/** What one aggregate takes with this number of reactions. */
export interface Look {
  readonly reactions: number
  /** Of the message that has the most. */
  readonly most: number
  /** Of a member that hears every change: the mean over all messages. */
  readonly aggregateMs: number
  /** Of a member that begins: until the counts of all messages are there. */
  readonly openingMs: number
  /** The same by reading every event of the history. */
  readonly historyMs: number
}

export class Conversation {
  /** From when a reaction was due until it was stored. */
  readonly writes = new Latencies()
  /** From when it was due until another member had counted it. */
  readonly counted = new Latencies()
  readonly aggregates = new Latencies()
  readonly looks: Look[] = []
  errors = 0
  stored = 0
  readonly #size: ConversationSize
  readonly #states: readonly State[]
  readonly #writers: readonly Reactions[]
  readonly #live: readonly Reactions[]
  /** A member that begins again and again. */
  readonly #newcomer: State
  readonly #tampers: string[]
  readonly #underWay = new Set<Promise<void>>()
  /** Reactions that the first of the live ones has not counted: by message, by author, when they were due. */
  readonly #awaited = new Map<string, Map<PeerKey, number>>()

  /** The first of the mesh write, the last but one hear every change, and the last one is the newcomer. */
  static async open(place: MeshAddress, mesh: MeshMembers, size: ConversationSize): Promise<Conversation> {
    const tampers: string[] = []
    const onEvent = ({ reason }: { reason: string }) => void tampers.push(reason)
    const places = mesh.secrets.map((keys) => ({ ...place, identity: identityOf(keys) }))
    const [owner] = places as [(typeof places)[number]]
    const peer = await connect(owner)
    const { id: group } = await peer.groups.create('conversation', mesh.peerKeys)
    await peer.close()
    await setSpace({ ...owner, group }, { historyFor: 'all' })
    const stateOf = (of: typeof owner) => openState({ ...of, group, onEvent, maintainKeysEveryMs: 0 })
    const first = await stateOf(owner) // which makes the keys, for all
    const states = [first, ...(await Promise.all(places.slice(1).map(stateOf)))]
    const writers = await Promise.all(states.slice(0, size.writers).map((state) => openReactions(state)))
    await Promise.all(writers.map((reactions) => reactions.close())) // they write, and hear nothing
    const conversation = new Conversation({ size, states, writers, tampers })
    await conversation.#openLive(states.slice(size.writers, -1))
    return conversation
  }

  private constructor(parts: {
    readonly size: ConversationSize
    readonly states: readonly State[]
    readonly writers: readonly Reactions[]
    readonly tampers: string[]
  }) {
    this.#size = parts.size
    this.#states = parts.states
    this.#writers = parts.writers
    this.#live = []
    this.#newcomer = parts.states.at(-1)!
    this.#tampers = parts.tampers
  }

  async #openLive(states: readonly State[]): Promise<void> {
    const live = this.#live as Reactions[]
    for (const [i, state] of states.entries()) {
      const onChange = i === 0 ? (message: string) => this.#heard(message) : () => undefined
      live.push(await openReactions(state, { onChange }))
    }
  }

  /** Each turn is another member's, who reacts to another message each time, until it has reacted to all. */
  write(turn: number, dueAtMs: number): Promise<void> {
    const { writers, messages } = this.#size
    const [writer, round] = [turn % writers, Math.floor(turn / writers)]
    const message = `message ${(writer + round) % messages}`
    const reaction = REACTIONS[(writer + round) % REACTIONS.length]!
    return this.#begin(async () => {
      const awaited = this.#awaited.get(message) ?? new Map<PeerKey, number>()
      this.#awaited.set(message, awaited.set(this.#states[writer]!.self, dueAtMs))
      await this.#writers[writer]!.add(message, reaction)
      this.writes.note(clockMs() - dueAtMs)
      this.stored += 1
    })
  }

  /** Every live member asks for the counts of every message. */
  aggregate(): void {
    for (const live of this.#live)
      for (const message of live.targets) {
        const startMs = performance.now()
        live.of(message)
        this.aggregates.note(performance.now() - startMs)
      }
  }

  /** What an aggregate takes now. */
  async look(): Promise<void> {
    const [live] = this.#live as [Reactions]
    const messages = live.targets
    const startMs = performance.now()
    for (const message of messages) live.of(message)
    const aggregateMs = (performance.now() - startMs) / Math.max(1, messages.length)
    const openedAtMs = performance.now()
    const opened = await openReactions(this.#newcomer)
    const openingMs = performance.now() - openedAtMs
    const counts = opened.targets.map((message) => sumOf(opened, message))
    await opened.close()
    const walkedAtMs = performance.now()
    for await (const _ of this.#newcomer.history());
    const historyMs = performance.now() - walkedAtMs
    const reactions = counts.reduce((a, b) => a + b, 0)
    this.looks.push({ reactions, most: Math.max(0, ...counts), aggregateMs, openingMs, historyMs })
  }

  /** Resolves when all that was begun is answered, and counted by the first live member or given up on. */
  async settled(withinMs: number): Promise<void> {
    await Promise.all(this.#underWay)
    const untilMs = clockMs() + withinMs
    while (this.uncounted > 0 && clockMs() < untilMs) await Bun.sleep(20)
  }

  /** Of those that were written, how many the first live member has not counted. */
  get uncounted(): number {
    return [...this.#awaited.values()].reduce((sum, { size }) => sum + size, 0)
  }

  /** How many reactions a member counts that begins now; 0 after what a broker may not do. */
  async count(): Promise<number> {
    const opened = await openReactions(this.#newcomer)
    const found = opened.targets.reduce((sum, message) => sum + sumOf(opened, message), 0)
    await opened.close()
    return this.#tampers.length === 0 ? found : 0
  }

  async close(): Promise<void> {
    await Promise.all(this.#live.map((live) => live.close()))
    await Promise.all(this.#states.map((state) => state.close()))
  }

  #heard(message: string): void {
    const awaited = this.#awaited.get(message)
    if (!awaited) return
    const atMs = clockMs()
    for (const { authors } of this.#live[0]!.of(message).values())
      for (const [author, dueAtMs] of awaited)
        if (authors.has(author) && awaited.delete(author)) this.counted.note(atMs - dueAtMs)
    if (awaited.size === 0) this.#awaited.delete(message)
  }

  async #begin(act: () => Promise<void>): Promise<void> {
    const begun = act().catch(() => {
      this.errors += 1
    })
    this.#underWay.add(begun)
    await begun
    this.#underWay.delete(begun)
  }
}

function sumOf(reactions: Reactions, message: string): number {
  return [...reactions.of(message).values()].reduce((sum, { count }) => sum + count, 0)
}
