/** Answers that come in lines, taken up again where they were cut; each line is believed or refused on its way. */
import { openBody, openRecord, readRecord } from '@sealpost/identity'
import { type Millis, type PeerKey, toHex } from '@sealpost/std'
import { Chains } from './chains.ts'
import type { EntryReader, StateChange } from './entry-reader.ts'
import type { KeyRing } from './key-ring.ts'
import { type EventLine, timeText } from './lines.ts'
import { eventLines } from './resuming.ts'
import type { SpaceCalls, StreamQuestion } from './space-calls.ts'
import type { KnownEntry, SpaceMemory } from './space-memory.ts'
import { type Told, tampered } from './state-errors.ts'

/** A message to the group that was kept. */
export interface KeptMessage {
  readonly type: 'message'
  /** The caller's own. */
  readonly body: Uint8Array
  readonly thread: string | null
  /** The reference to a file that goes with it, as of a `Message`. */
  readonly attachment: string | null
  /** Proven by a signature. */
  readonly author: PeerKey
  /** By the author's clock. */
  readonly sentAtMs: Millis
  readonly seq: number
  readonly atUs: number
}

/** One that was sealed under a key this member was not given. */
export interface SealedMessage extends Pick<KeptMessage, 'author' | 'sentAtMs' | 'seq' | 'atUs'> {
  readonly type: 'sealed'
  readonly keyHash: null
}

export type HistoryEvent = StateChange | KeptMessage | SealedMessage

export interface ReadingParts {
  readonly calls: SpaceCalls
  readonly ring: KeyRing
  readonly memory: SpaceMemory
  readonly reader: EntryReader
  readonly tell: (told: Told) => void
  readonly tend: () => Promise<unknown>
  readonly pause: (tries: number, signal?: AbortSignal) => Promise<void>
}

export interface HistoryQuestion {
  readonly fromUs?: number | undefined
  readonly toUs?: number | undefined
  readonly after?: number | undefined
  readonly limit?: number | undefined
  readonly signal?: AbortSignal | undefined
}

export interface WatchQuestion {
  readonly after: number
  readonly isWhole: boolean
  readonly signal?: AbortSignal | undefined
}

/** Events that are worth a page; more are read as they come, and no further than wanted. */
const PAGE_MAX = 500
/** As long as between two attempts, 1 s on average. */
const POLL_PAUSE = 2

export class Reading {
  readonly #parts: ReadingParts

  constructor(parts: ReadingParts) {
    this.#parts = parts
  }

  /** Every entry at that moment, the last one of each key; null: now. Also such as were deleted. */
  async *entries(atUs: number | null, signal?: AbortSignal): AsyncGenerator<StateChange> {
    const known = atUs === null ? this.#parts.memory.snapshot() : NOTHING
    const atLeast = (keyHash: string) => known.get(keyHash)?.revision ?? 0
    const seen = new Set<string>()
    const chains = new Chains(null)
    const question = { of: 'state', query: { ...(atUs !== null && { at: timeText(atUs) }) }, signal } as const
    for await (const line of this.#lines(question)) {
      this.#tell(chains.passed(line.seq, false))
      if (atUs !== null && line.atUs > atUs)
        this.#refuse({ type: 'entry_forged', reason: 'an entry is of later than the moment that was asked for' })
      const change = this.#parts.reader.read(line, { atLeast })
      const keyHash = keyHashOf(line)
      // What is read now may change on the way, and come again when the answer was cut.
      if (atUs !== null && seen.has(keyHash)) this.#tell({ type: 'entry_forged', reason: 'a key comes twice', keyHash })
      seen.add(keyHash)
      yield await this.#tried(line, change)
    }
    this.#checkAll(known, seen)
  }

  async one(keyHash: string): Promise<StateChange | null> {
    const { memory, reader } = this.#parts
    const known = memory.find(keyHash)?.revision ?? 0
    let found: StateChange | null = null
    for await (const line of this.#lines({ of: 'state', query: { keys: keyHash } }))
      found = await this.#tried(line, reader.read(line, { atLeast: () => known, keyHash }))
    return found ?? (known > 0 ? reader.missing(keyHash) : null)
  }

  async *history(question: HistoryQuestion): AsyncGenerator<HistoryEvent> {
    const { fromUs, toUs, after, limit = Infinity, signal } = question
    const bounds = {
      ...(fromUs !== undefined && { from: timeText(fromUs) }),
      ...(toUs !== undefined && { to: timeText(toUs) }),
      ...(limit <= PAGE_MAX && { limit }),
    }
    const { seq: newest } = this.#parts.memory.pin ?? { seq: 0 }
    let [left, last] = [limit, 0]
    const lines = this.#lines({ of: 'history', query: { ...bounds, after }, signal })
    for await (const event of this.#events(lines, { after: after ?? null, isWhole: true })) {
      yield event
      last = event.seq
      left -= 1
      if (left === 0) return
    }
    // What is kept no longer goes from the front, so an answer without any event proves nothing.
    if (last > 0 && last < newest && toUs === undefined)
      this.#tell({ type: 'history_gap', reason: `events ${last + 1} to ${newest} are missing` })
  }

  /** What comes behind an event. `isWhole`: a history is kept; else the last value of each key that has changed since. */
  async *watch({ after, isWhole, signal }: WatchQuestion): AsyncGenerator<HistoryEvent> {
    const query = { after, follow: 1 }
    const lines = isWhole ? this.#lines({ of: 'history', query, signal }) : this.#polled(after, signal)
    yield* this.#events(lines, { after, isWhole })
  }

  async *#events(
    lines: AsyncGenerator<EventLine>,
    { after, isWhole }: { after: number | null; isWhole: boolean },
  ): AsyncGenerator<HistoryEvent> {
    const chains = new Chains(after)
    for await (const line of lines) {
      this.#tell(chains.passed(line.seq, isWhole))
      yield line.kind === 3 ? await this.#message(line, chains) : await this.#change(line, { chains, isWhole })
    }
  }

  /** Where no history is kept there is nothing to follow. */
  async *#polled(after: number, signal: AbortSignal | undefined): AsyncGenerator<EventLine> {
    for (let seq = after; !signal?.aborted; await this.#parts.pause(POLL_PAUSE, signal))
      for await (const line of this.#lines({ of: 'state', query: { after: seq }, signal })) {
        seq = line.seq
        yield line
      }
  }

  async #change(line: EventLine, { chains, isWhole }: { chains: Chains; isWhole: boolean }): Promise<StateChange> {
    const change = this.#parts.reader.read(line)
    this.#tell(chains.entry(line.value, isWhole))
    return this.#tried(line, change)
  }

  /** Sealed under a newer key than we have: it may have been granted meanwhile. */
  async #tried(line: EventLine, change: StateChange): Promise<StateChange> {
    if (change.type !== 'sealed' || !(await this.#hasNewKeys())) return change
    return this.#parts.reader.read(line)
  }

  async #hasNewKeys(): Promise<boolean> {
    const { ring, tend } = this.#parts
    const before = ring.newest
    if (before !== this.#triedAt) await tend()
    this.#triedAt = before
    return ring.newest > before
  }

  /** With which newest key the space was looked at for newer ones: once for each, however much is sealed. */
  #triedAt = -1

  async #message(line: EventLine, chains: Chains): Promise<KeptMessage | SealedMessage> {
    const { calls, ring } = this.#parts
    const { seq, atUs } = line
    const record = readRecord(line.value)
    if (!record || record.meshId !== calls.meshId || record.spaceId !== calls.spaceId)
      return this.#refuse({ type: 'entry_forged', reason: 'a message is not signed by its author for this space' })
    const { author, sentAtMs, keyEpoch } = record
    if (!ring.find(keyEpoch)) await this.#hasNewKeys()
    const spaceKey = ring.find(keyEpoch)
    if (!spaceKey) return { type: 'sealed', keyHash: null, author, sentAtMs, seq, atUs }
    const opened = openRecord(record, spaceKey)
    const body = opened && openBody(line.body!, opened.ticket)
    if (!body) return this.#refuse({ type: 'entry_forged', reason: 'a message does not open', author })
    this.#tell(chains.record(record, opened))
    const { thread = null, attachment = null } = opened.note ?? {}
    return { type: 'message', body, thread, attachment, author, sentAtMs, seq, atUs }
  }

  /** A gap is told; everything else ends the reading. */
  #tell(told: Told | null): void {
    if (told?.type === 'history_gap') this.#parts.tell(told)
    else if (told) this.#refuse(told)
  }

  #refuse(told: Told): never {
    this.#parts.tell(told)
    throw tampered(told)
  }

  /** What was known before the question and has not changed since must be among the answers. */
  #checkAll(known: ReadonlyMap<string, KnownEntry>, seen: ReadonlySet<string>): void {
    for (const [keyHash, { revision, isDeleted }] of known) {
      const isUnchanged = this.#parts.memory.find(keyHash)?.revision === revision
      if (!seen.has(keyHash) && !isDeleted && isUnchanged) this.#parts.reader.missing(keyHash)
    }
  }

  #lines(question: StreamQuestion): AsyncGenerator<EventLine> {
    return eventLines(this.#parts, question)
  }
}

const NOTHING: ReadonlyMap<string, KnownEntry> = new Map()

/** Of an entry that was read. */
const keyHashOf = ({ value }: EventLine): string => toHex(value.subarray(37, 69))
