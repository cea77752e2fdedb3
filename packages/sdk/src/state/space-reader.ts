/** Reads streamed replies, resumes them after a cut, and verifies each line as it arrives. */
import {
  entryFields,
  hash256,
  type OpenRecord,
  openBody,
  openRecord,
  readRecord,
  type SignedRecord,
} from '@sealpost/identity'
import { isSameBytes, type Millis, type PeerKey, toHex } from '@sealpost/std'
import {
  type EntryVerifier,
  type KnownEntry,
  type SpaceMemory,
  type StateChange,
  type TamperReport,
  tampered,
} from './entry-verifier.ts'
import { type EventLine, eventLines, pageOf, type StreamQuery, timeText } from './event-stream.ts'
import type { SpaceKeyRing, SpaceService } from './space-service.ts'

/** A message to the group, as its history contains it. */
export interface HistoryMessage {
  readonly type: 'message'
  /** The body. The caller owns the bytes. */
  readonly body: Uint8Array
  readonly thread: string | null
  /** The reference to an attached file, as in `Message`. */
  readonly attachment: string | null
  /** The author, authenticated by a signature. */
  readonly author: PeerKey
  /** When the message was sent, according to the author's clock. */
  readonly sentAtMs: Millis
  readonly seq: number
  readonly atUs: number
}

/** A message that is sealed under a key that this member does not have. */
export interface SealedMessage extends Pick<HistoryMessage, 'author' | 'sentAtMs' | 'seq' | 'atUs'> {
  readonly type: 'sealed'
  readonly keyHash: null
}

export type HistoryEvent = StateChange | HistoryMessage | SealedMessage

export interface SpaceReaderParts {
  readonly calls: SpaceService
  readonly ring: SpaceKeyRing
  readonly memory: SpaceMemory
  readonly reader: EntryVerifier
  readonly tell: (told: TamperReport) => void
  readonly tend: () => Promise<unknown>
  readonly pause: (tries: number, signal?: AbortSignal) => Promise<void>
}

export interface HistoryRange {
  readonly fromUs?: number | undefined
  readonly toUs?: number | undefined
  readonly after?: number | undefined
  readonly limit?: number | undefined
  readonly signal?: AbortSignal | undefined
}

export interface RecentQuery {
  readonly before?: number | undefined
  readonly limit?: number | undefined
  readonly signal?: AbortSignal | undefined
}

export interface WatchQuery {
  readonly after: number
  readonly isWhole: boolean
  readonly signal?: AbortSignal | undefined
}

/** The number of events per page. */
const PAGE_MAX = 500
/** The argument of `pause` between two polls, which lasts 1 s on average. */
const POLL_PAUSE = 2

export class SpaceReader {
  readonly #parts: SpaceReaderParts

  constructor(parts: SpaceReaderParts) {
    this.#parts = parts
  }

  /** Yields the last entry of each key, including deletions, at that time; null means now. */
  async *entries(atUs: number | null, signal?: AbortSignal): AsyncGenerator<StateChange> {
    const known = atUs === null ? this.#parts.memory.snapshot() : NOTHING
    const atLeast = (keyHash: string) => known.get(keyHash)?.revision ?? 0
    const seen = new Set<string>()
    const chains = new EventOrder(null)
    const question = { of: 'state', query: { ...(atUs !== null && { at: timeText(atUs) }) }, signal } as const
    for await (const line of this.#lines(question)) {
      this.#report(chains.passed(line.seq, false))
      if (atUs !== null && line.atUs > atUs)
        this.#refuse({ type: 'entry_forged', reason: 'an entry is later than the requested time' })
      const change = this.#parts.reader.read(line, { atLeast })
      const keyHash = keyHashOf(line)
      // Only a read of a past state must not repeat a key: current entries may change, or be resent after a
      // reconnect.
      if (atUs !== null && seen.has(keyHash))
        this.#report({ type: 'entry_forged', reason: 'a key was returned twice', keyHash })
      seen.add(keyHash)
      yield await this.#openWithNewerKey(line, change)
    }
    this.#checkAll(known, seen)
  }

  async one(keyHash: string): Promise<StateChange | null> {
    const { memory, reader } = this.#parts
    const known = memory.find(keyHash)?.revision ?? 0
    let found: StateChange | null = null
    for await (const line of this.#lines({ of: 'state', query: { keys: keyHash } }))
      found = await this.#openWithNewerKey(line, reader.read(line, { atLeast: () => known, keyHash }))
    return found ?? (known > 0 ? reader.missing(keyHash) : null)
  }

  async *history(question: HistoryRange): AsyncGenerator<HistoryEvent> {
    const { fromUs, toUs, after, limit = Infinity, signal } = question
    const bounds = {
      ...(fromUs !== undefined && { from: timeText(fromUs) }),
      ...(toUs !== undefined && { to: timeText(toUs) }),
      ...(limit <= PAGE_MAX && { limit }),
    }
    let [left, last] = [limit, 0]
    const lines = this.#lines({ of: 'history', query: { ...bounds, after }, signal })
    for await (const event of this.#events(lines, { after: after ?? null, isWhole: true })) {
      yield event
      last = event.seq
      left -= 1
      if (left === 0) return
    }
    if (toUs === undefined) this.#checkNewest(last)
  }

  /** Yields the events before a number, newest first. Checks each page, and that the pages follow one another. */
  async *recent({ before, limit = Infinity, signal }: RecentQuery): AsyncGenerator<HistoryEvent> {
    let [end, left, newer] = [before ?? Number.MAX_SAFE_INTEGER, limit, null as EventOrder | null]
    for (let hasMore = true; hasMore && left > 0; ) {
      const query = { before: end, limit: Math.min(left, PAGE_MAX) }
      const page = await pageOf(this.#parts, { of: 'history', query, signal })
      const order = new EventOrder(null)
      const events: HistoryEvent[] = []
      for await (const event of this.#checked(page.lines, { order, isWhole: true })) events.push(event)
      if (events.length === 0) return
      if (newer) for (const misconduct of newer.after(order)) this.#report(misconduct)
      else if (before === undefined) this.#checkNewest(order.seq)
      for (const event of events.toReversed()) yield event
      ;[hasMore, left, end, newer] = [page.hasMore, left - events.length, events[0]!.seq, order]
    }
  }

  /** The oldest events expire, so a reply without any does not reveal a gap. */
  #checkNewest(last: number): void {
    const { seq: newest } = this.#parts.memory.pin ?? { seq: 0 }
    if (last > 0 && last < newest)
      this.#report({ type: 'history_gap', reason: `events ${last + 1} to ${newest} are missing` })
  }

  /**
   * Yields the events after a number. If `isWhole` is false, yields only the last value of each changed key, because
   * there is no history.
   */
  async *watch({ after, isWhole, signal }: WatchQuery): AsyncGenerator<HistoryEvent> {
    const query = { after, follow: 1 }
    const lines = isWhole ? this.#lines({ of: 'history', query, signal }) : this.#poll(after, signal)
    yield* this.#events(lines, { after, isWhole })
  }

  #events(
    lines: AsyncGenerator<EventLine>,
    { after, isWhole }: { after: number | null; isWhole: boolean },
  ): AsyncGenerator<HistoryEvent> {
    return this.#checked(lines, { order: new EventOrder(after), isWhole })
  }

  async *#checked(
    lines: AsyncIterable<EventLine> | Iterable<EventLine>,
    { order, isWhole }: { order: EventOrder; isWhole: boolean },
  ): AsyncGenerator<HistoryEvent> {
    for await (const line of lines) {
      this.#report(order.passed(line.seq, isWhole))
      yield line.kind === 3 ? await this.#message(line, order) : await this.#change(line, { chains: order, isWhole })
    }
  }

  /** Polls the current values, because without a history there are no events to follow. */
  async *#poll(after: number, signal: AbortSignal | undefined): AsyncGenerator<EventLine> {
    for (let seq = after; !signal?.aborted; await this.#parts.pause(POLL_PAUSE, signal))
      for await (const line of this.#lines({ of: 'state', query: { after: seq }, signal })) {
        seq = line.seq
        yield line
      }
  }

  async #change(line: EventLine, { chains, isWhole }: { chains: EventOrder; isWhole: boolean }): Promise<StateChange> {
    const change = this.#parts.reader.read(line)
    this.#report(chains.entry(line.value, isWhole))
    return this.#openWithNewerKey(line, change)
  }

  /** Opens a change sealed under a newer key, which may have been granted in the meantime. */
  async #openWithNewerKey(line: EventLine, change: StateChange): Promise<StateChange> {
    if (change.type !== 'sealed' || !(await this.#hasNewKeys())) return change
    return this.#parts.reader.read(line)
  }

  async #hasNewKeys(): Promise<boolean> {
    const { ring, tend } = this.#parts
    const before = ring.newest
    if (before !== this.#newestTried) await tend()
    this.#newestTried = before
    return ring.newest > before
  }

  /** The newest key epoch for which keys were requested, which happens once per epoch. */
  #newestTried = -1

  async #message(line: EventLine, chains: EventOrder): Promise<HistoryMessage | SealedMessage> {
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
    if (!body) return this.#refuse({ type: 'entry_forged', reason: "a message can't be opened", author })
    this.#report(chains.record(record, opened))
    const { thread = null, attachment = null } = opened.note ?? {}
    return { type: 'message', body, thread, attachment, author, sentAtMs, seq, atUs }
  }

  /** Reports a gap; throws on other misconduct. */
  #report(told: TamperReport | null): void {
    if (told?.type === 'history_gap') this.#parts.tell(told)
    else if (told) this.#refuse(told)
  }

  #refuse(told: TamperReport): never {
    this.#parts.tell(told)
    throw tampered(told)
  }

  /** Checks that the reply contains all entries that were known before the request and are unchanged. */
  #checkAll(known: ReadonlyMap<string, KnownEntry>, seen: ReadonlySet<string>): void {
    for (const [keyHash, { revision, isDeleted }] of known) {
      const isUnchanged = this.#parts.memory.find(keyHash)?.revision === revision
      if (!seen.has(keyHash) && !isDeleted && isUnchanged) this.#parts.reader.missing(keyHash)
    }
  }

  #lines(question: StreamQuery): AsyncGenerator<EventLine> {
    return eventLines(this.#parts, question)
  }
}

const NOTHING: ReadonlyMap<string, KnownEntry> = new Map()

const keyHashOf = ({ value }: EventLine): string => toHex(value.subarray(37, 69))

/**
 * The last event number, and the last event of each key and author, in one reading of the history. They reveal missing
 * and inserted events.
 */
interface Link {
  readonly place: number
  readonly hash: Uint8Array
}

export class EventOrder {
  readonly #entries = new Map<string, Link>()
  readonly #streams = new Map<string, Link>()
  /** Repeats the checks of the first event of each key and stream after older events. */
  readonly #openings: ((older: EventOrder) => TamperReport | null)[] = []
  #seq: number

  /** `after`: the number of the event before the first one; null if any event may be first. */
  constructor(after: number | null) {
    this.#seq = after ?? -1
  }

  get seq(): number {
    return Math.max(0, this.#seq)
  }

  /**
   * Checks that these events follow older ones, which were read later. A first event without a predecessor in `older`
   * is checked again after the events before `older`.
   */
  after(older: EventOrder): TamperReport[] {
    return this.#openings.map((check) => check(older)).filter((found) => found !== null)
  }

  /** Checks the next event's number. `isWhole`: whether all events are expected, not only the last one of each key. */
  passed(seq: number, isWhole: boolean): TamperReport | null {
    const former = this.#seq
    if (seq <= former) return { type: 'state_rolled_back', reason: `event ${seq} comes after event ${former}` }
    this.#seq = seq
    if (former === -1) this.#openings.push((older) => older.passed(seq, isWhole))
    const isGap = isWhole && former >= 0 && seq !== former + 1
    return isGap ? { type: 'history_gap', reason: `events ${former + 1} to ${seq - 1} are missing` } : null
  }

  entry(bytes: Uint8Array, isWhole: boolean): TamperReport | null {
    const { keyHash, revision, prevHash, author } = entryFields(bytes)!
    const former = this.#entries.get(keyHash)
    this.#entries.set(keyHash, { place: revision, hash: hash256(bytes) })
    if (!former) this.#openings.push((older) => older.entry(bytes, isWhole))
    if (!former) return null
    const about = { keyHash, author }
    if (revision <= former.place)
      return { type: 'state_rolled_back', reason: `revision ${revision} comes after ${former.place}`, ...about }
    if (revision === former.place + 1)
      return isSameBytes(prevHash, former.hash)
        ? null
        : { type: 'state_rolled_back', reason: `revision ${revision} does not follow the one before it`, ...about }
    return isWhole
      ? { type: 'history_gap', reason: `revisions between ${former.place} and ${revision} are missing`, ...about }
      : null
  }

  record(signed: SignedRecord, opened: OpenRecord): TamperReport | null {
    const { author, hash } = signed
    const { streamId, seq, prevHash } = opened
    const name = author + streamId
    const former = this.#streams.get(name)
    this.#streams.set(name, { place: seq, hash })
    if (!former) this.#openings.push((older) => older.record(signed, opened))
    if (!former) return null
    if (seq <= former.place) return { type: 'state_rolled_back', reason: 'a message was returned twice', author }
    const isNext = seq === former.place + 1 && isSameBytes(prevHash, former.hash)
    return isNext ? null : { type: 'history_gap', reason: 'messages from this author are missing', author }
  }
}
