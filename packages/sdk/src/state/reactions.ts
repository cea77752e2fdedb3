/**
 * Counts reactions as they arrive. One member's reactions to one target share a key, so that many reactions to a target slow
 * down neither writes nor reads. The broker sees neither keys nor values, so it can't count them. A member counts only
 * reactions that their author has signed.
 */
import type { PeerKey } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { StateDeletion, StateEntry } from './entry-verifier.ts'
import type { HistoryEvent } from './space-reader.ts'
import type { State } from './state.ts'

export interface ReactionCount {
  readonly count: number
  /** The members that reacted, each authenticated by a signature. */
  readonly authors: ReadonlySet<PeerKey>
  readonly isOwn: boolean
}

export interface ReactionsOptions {
  readonly onChange?: (target: string) => void
}

/** One member's reactions to one target. */
interface Vote {
  readonly revision: number
  /** Whether the key has a value, even an invalid one. */
  readonly isSet: boolean
  readonly reactions: readonly string[]
}

const PREFIX = 'reactions/'
const AUTHOR_HEX = 64
export const REACTION_BYTES_MAX = 64
/** The maximum number of reactions per member and target. */
export const REACTIONS_MAX = 16
/** The maximum number of attempts, because processes of one member may overwrite each other's value. */
const TRIES_MAX = 16

export class Reactions implements AsyncDisposable {
  readonly #state: State
  readonly #onChange: (target: string) => void
  readonly #stop = new AbortController()
  /** A member's reactions to a target, by key. */
  readonly #votes = new Map<string, Vote>()
  readonly #authors = new Map<string, Map<string, Set<PeerKey>>>()
  /** This member's last pending change, by target. */
  readonly #lanes = new Map<string, Promise<unknown>>()
  #watching: Promise<void> = Promise.resolve()
  #failure: unknown = null

  /** Use `openReactions` instead. @internal */
  constructor(state: State, { onChange = () => undefined }: ReactionsOptions) {
    this.#state = state
    this.#onChange = onChange
  }

  /** @internal */
  async open(): Promise<this> {
    const { lastSeq } = await this.#state.status()
    for await (const entry of this.#state.list()) this.#take(entry)
    this.#watching = this.#watch(lastSeq)
    return this
  }

  /**
   * Returns how often each reaction was given to the target, among the reactions received so far. Sends no request.
   * @throws SealpostError the error that ended the reading of changes, such as `state_rolled_back`
   * @example const count = votes.of('message 1').get('👍')?.count ?? 0
   */
  of(target: string): Map<string, ReactionCount> {
    if (this.#failure) throw this.#failure
    const counts = new Map<string, ReactionCount>()
    for (const [reaction, authors] of this.#authors.get(target) ?? [])
      counts.set(reaction, { count: authors.size, authors, isOwn: authors.has(this.#state.self) })
    return counts
  }

  get targets(): string[] {
    return [...this.#authors.keys()]
  }

  /**
   * Adds a reaction. Resolves when the broker has stored it durably. Has no effect if the reaction was already given.
   * @throws SealpostError `reaction_malformed`, and the errors of `State.set`
   * @example await votes.add('message 1', '👍')
   */
  async add(target: string, reaction: string): Promise<void> {
    if (!isReaction(reaction)) throw malformed(`A reaction has 1 to ${REACTION_BYTES_MAX} bytes as UTF-8.`)
    return this.#change(target, (own) => {
      if (own.includes(reaction)) return own
      if (own.length === REACTIONS_MAX)
        throw malformed(`A member can add at most ${REACTIONS_MAX} reactions to a target.`)
      return [...own, reaction]
    })
  }

  /**
   * Removes a reaction. Has no effect if the reaction was not given. @throws the errors of `State.set`
   * @example await votes.remove('message 1', '👍')
   */
  async remove(target: string, reaction: string): Promise<void> {
    return this.#change(target, (own) => (own.includes(reaction) ? own.filter((each) => each !== reaction) : own))
  }

  /**
   * Stops reading changes. The state stays open.
   * @example await votes.close()
   */
  async close(): Promise<void> {
    this.#stop.abort()
    await this.#watching
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #watch(after: number): Promise<void> {
    try {
      for await (const event of this.#state.watch({ after, signal: this.#stop.signal })) this.#received(event)
    } catch (error) {
      if (!this.#stop.signal.aborted) this.#failure = error
    }
  }

  #received(event: HistoryEvent): void {
    if (event.type !== 'set' && event.type !== 'deleted') return
    const target = this.#take(event)
    if (target !== null) this.#onChange(target)
  }

  /**
   * Changes the reactions to a target. Changes to one target are serialized, because each refers to the previous
   * revision.
   */
  async #change(target: string, next: (own: readonly string[]) => readonly string[]): Promise<void> {
    const former = this.#lanes.get(target)
    const own = Promise.resolve(former)
      .catch(() => undefined) // the caller receives the error
      .then(() => this.#inTurn(target, next))
    this.#lanes.set(target, own)
    return own.finally(() => {
      if (this.#lanes.get(target) === own) this.#lanes.delete(target)
    })
  }

  async #inTurn(target: string, next: (own: readonly string[]) => readonly string[]): Promise<void> {
    const place: Place = { author: this.#state.self, target, key: `${PREFIX}${this.#state.self}/${target}` }
    for (let tries = 1; ; tries++) {
      const { reactions, revision, isSet } = this.#votes.get(place.key) ?? NO_VOTE
      const wanted = next(reactions)
      if (wanted === reactions) return
      try {
        await this.#write(place, wanted, isSet ? revision : 0)
        return
      } catch (error) {
        const isConflict = error instanceof SealpostError && error.code === 'state_conflict'
        if (!isConflict || tries === TRIES_MAX) throw error
        await this.#readCurrent(place)
      }
    }
  }

  async #write(place: Place, reactions: readonly string[], ifRevision: number): Promise<void> {
    const isSet = reactions.length > 0
    const { revision } = await (isSet
      ? this.#state.set(place.key, [...reactions], { ifRevision })
      : this.#state.delete(place.key, { ifRevision }))
    this.#count(place, { revision, isSet, reactions })
  }

  /** Reads the current value, written by another member or by another process of this one. */
  async #readCurrent(place: Place): Promise<void> {
    const entry = await this.#state.get(place.key)
    if (entry) this.#take(entry)
    else this.#count(place, { ...NO_VOTE, revision: this.#votes.get(place.key)?.revision ?? 0 })
  }

  /**
   * Counts an entry. Returns the target whose counts may have changed; null if the entry is not a reaction or not new.
   */
  #take(event: StateEntry | StateDeletion): string | null {
    const place = placeOf(event.key)
    if (!place || (this.#votes.get(place.key)?.revision ?? 0) >= event.revision) return null
    const { revision, author } = event
    const isSet = event.type === 'set'
    const reactions = isSet && author === place.author ? reactionsIn(event.value) : []
    this.#count(place, { revision, isSet, reactions })
    return place.target
  }

  #count({ key, author, target }: Place, vote: Vote): void {
    const before = this.#votes.get(key)?.reactions ?? []
    this.#votes.set(key, vote)
    const authorsOf = this.#authors.get(target) ?? new Map<string, Set<PeerKey>>()
    for (const reaction of before) {
      const authors = authorsOf.get(reaction)
      authors?.delete(author)
      if (authors?.size === 0) authorsOf.delete(reaction)
    }
    for (const reaction of vote.reactions) {
      const authors = authorsOf.get(reaction)
      if (authors) authors.add(author)
      else authorsOf.set(reaction, new Set([author]))
    }
    if (authorsOf.size > 0) this.#authors.set(target, authorsOf)
    else this.#authors.delete(target)
  }
}

/**
 * Reads the existing reactions and, from then on, every change. @throws the errors of `State.list`
 * @example const votes = await openReactions(state)
 */
export const openReactions = (state: State, options: ReactionsOptions = {}): Promise<Reactions> =>
  new Reactions(state, options).open()

interface Place {
  readonly key: string
  readonly author: PeerKey
  readonly target: string
}

const NO_VOTE: Vote = { revision: 0, isSet: false, reactions: [] }

function placeOf(key: string): Place | null {
  const targetAt = PREFIX.length + AUTHOR_HEX + 1
  if (!key.startsWith(PREFIX) || key[targetAt - 1] !== '/') return null
  return { key, author: key.slice(PREFIX.length, targetAt - 1) as PeerKey, target: key.slice(targetAt) }
}

const encoder = new TextEncoder()
const decoder = new TextDecoder()

function isReaction(value: unknown): value is string {
  return typeof value === 'string' && value !== '' && encoder.encode(value).length <= REACTION_BYTES_MAX
}

/** Returns the reactions in a value; none if it is malformed. */
function reactionsIn(value: Uint8Array): string[] {
  try {
    const found: unknown = JSON.parse(decoder.decode(value))
    if (!Array.isArray(found) || found.length > REACTIONS_MAX || !found.every(isReaction)) return []
    return [...new Set(found)]
  } catch {
    return []
  }
}

const malformed = (sentence: string): SealpostError => new SealpostError('reaction_malformed', sentence)
