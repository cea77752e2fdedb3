/** Decides which state and history a member may read, and from which rows. */
import type { Spaces } from '@sealpost/history'
import type { CopyOutPool, Database, Pipeline } from '@sealpost/pg'
import { Batcher } from '@sealpost/queue'
import {
  awaitOpenWrites,
  CopyRowReader,
  type EventPage,
  eventsBetween,
  findBase,
  formatTimestamp,
  HeaderStrip,
  type HistoryBounds,
  horizonOf,
  JsonLineWriter,
  jsonLine,
  type PageRequest,
  type ReplayRow,
  readEntries,
  readPage,
  rowLine,
  stateAt,
  stateNow,
  timeRefusal,
} from '@sealpost/replay'
import { type Micros, OperatingError, type SpaceRef } from '@sealpost/std'
import { type HttpRefusal, isRefused, shareNameOf, type TokenHolder } from '../http/tokens.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import type { Followers } from './followers.ts'
import { begun } from './replay-body.ts'

/** Limits long responses: a few run at a time, one per member. Others queue, and members take turns. */
interface ReplaySlotLimits {
  readonly atATime: number
  readonly waitingMax: number
  readonly waitingEachMax: number
}

const RETRY_AFTER_MS = 5_000

interface Waiter {
  readonly who: string
  call(): void
}

export class ReplaySlots {
  readonly #limits: ReplaySlotLimits
  /** The queued requests by member, in the order of turns. */
  readonly #waiting = new Map<string, Set<Waiter>>()
  #waitingCount = 0
  readonly #running = new Set<string>()

  constructor(limits: ReplaySlotLimits) {
    this.#limits = limits
  }

  get running(): number {
    return this.#running.size
  }
  get waiting(): number {
    return this.#waitingCount
  }

  /** Waits for a slot. Returns a function that releases it. @throws the reason in `signal` if it aborts first */
  async begin(who: string, signal: AbortSignal): Promise<(() => void) | HttpRefusal> {
    signal.throwIfAborted()
    const { atATime, waitingMax, waitingEachMax } = this.#limits
    if (this.#running.size < atATime && !this.#running.has(who)) {
      this.#running.add(who)
      return this.#ender(who)
    }
    const isLineFull = this.#waitingCount >= waitingMax || (this.#waiting.get(who)?.size ?? 0) >= waitingEachMax
    if (isLineFull) return { code: 'replay_busy', retryAfterMs: RETRY_AFTER_MS }
    await this.#stand(who, signal)
    return this.#ender(who)
  }

  #stand(who: string, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const gone = () => {
        this.#leave(waiter)
        reject(signal.reason)
      }
      const waiter: Waiter = {
        who,
        call: () => {
          signal.removeEventListener('abort', gone)
          this.#leave(waiter)
          resolve()
        },
      }
      signal.addEventListener('abort', gone, { once: true })
      const others = this.#waiting.get(who) ?? new Set()
      this.#waiting.set(who, others.add(waiter))
      this.#waitingCount += 1
    })
  }

  #leave(waiter: Waiter): void {
    const others = this.#waiting.get(waiter.who)
    if (!others?.delete(waiter)) return
    this.#waitingCount -= 1
    this.#waiting.delete(waiter.who)
    if (others.size > 0) this.#waiting.set(waiter.who, others) // moves the member to the end
  }

  /** Returns a function that gives the slot to the next member. */
  #ender(who: string): () => void {
    let isOver = false
    return () => {
      if (isOver) return
      isOver = true
      this.#running.delete(who)
      const [next, waiters] = [...this.#waiting].find(([member]) => !this.#running.has(member)) ?? []
      if (next === undefined) return
      this.#running.add(next)
      const [waiter] = waiters!
      waiter!.call()
    }
  }
}

export interface ReplaysParts {
  readonly db: Database
  readonly copies: CopyOutPool
  readonly slots: ReplaySlots
  readonly pages: HistoryPages
  readonly followers: Followers
  readonly metrics: Pick<Metrics, 'replayed'>
  readonly spaces: Pick<Spaces, 'find'>
}

export interface ReplayRequest {
  readonly holder: TokenHolder
  readonly space: SpaceRef
  readonly form: ReplayForm
  readonly isHolderGood: () => Promise<boolean>
  readonly signal: AbortSignal
}

export interface StateQuery {
  readonly at: Micros | null
  readonly after: number
  readonly keys: readonly string[] | null
}

export interface HistoryQuery {
  readonly from: Micros | null
  readonly to: Micros | null
  readonly after: number
  readonly before: number | null
  readonly limit: number | null
  readonly follows: boolean
}

export type Parts = AsyncGenerator<Uint8Array>

const FOLLOWERS_TOO_MANY: HttpRefusal = { code: 'too_many_requests' }
const SPACE_UNKNOWN: HttpRefusal = { code: 'space_unknown' }
const CODES = { in_future: 'moment_in_future', before_horizon: 'before_horizon' } as const

export class Replays {
  readonly #parts: ReplaysParts

  constructor(parts: ReplaysParts) {
    this.#parts = parts
  }

  state(asked: ReplayRequest, query: StateQuery): Promise<Parts | HttpRefusal> {
    return this.#timed('state', this.#state(asked, query))
  }

  history(asked: ReplayRequest, query: HistoryQuery): Promise<Parts | HttpRefusal> {
    const parts = this.#history(asked, query)
    return query.follows ? parts : this.#timed('history', parts)
  }

  async #state(asked: ReplayRequest, { at, after, keys }: StateQuery): Promise<Parts | HttpRefusal> {
    const facts = await this.#find(asked)
    if (isRefused(facts)) return facts
    const { space } = asked
    const { db } = this.#parts
    if (keys) return few(startOf(facts.now, facts), await readEntries(db, space, keys), { seq: facts.lastSeq })
    if (at === null) return this.#long(asked, stateNow(space, after), startOf(facts.now, facts), facts.lastSeq)
    const refused = timeRefusal(facts, at)
    if (refused) return { code: CODES[refused] }
    const base = await findBase(db, space, at)
    if (!base) return { code: 'before_horizon' }
    await awaitOpenWrites(db, space, facts, at)
    return this.#long(asked, stateAt({ space, at, after, base }), startOf(at, facts), after)
  }

  async #history(asked: ReplayRequest, query: HistoryQuery): Promise<Parts | HttpRefusal> {
    const facts = await this.#find(asked)
    if (isRefused(facts)) return facts
    const { space } = asked
    const { after, before, limit } = query
    const horizon = horizonOf(facts)
    if (horizon === null) return { code: 'before_horizon' }
    const [from, to] = [query.from ?? horizon, query.to ?? facts.now]
    const refused = timeRefusal(facts, Math.min(from, to)) ?? timeRefusal(facts, to)
    if (refused) return { code: CODES[refused] }
    const start = startOf(to, facts)
    if (query.follows) return this.#follow(asked, after, start)
    if (query.to !== null) await awaitOpenWrites(this.#parts.db, space, facts, to)
    if (limit === null) return this.#long(asked, eventsBetween({ space, after, from, to }), start, after)
    const page = await this.#parts.pages.find({ space, after, before, from: query.from, to: query.to, limit })
    return page ? only(page) : SPACE_UNKNOWN
  }

  async #timed(kind: 'state' | 'history', asking: Promise<Parts | HttpRefusal>): Promise<Parts | HttpRefusal> {
    const startedAtMs = performance.now()
    const parts = await asking
    if (isRefused(parts)) return parts
    return watchEnd(parts, () => this.#parts.metrics.replayed(kind, performance.now() - startedAtMs))
  }

  async #find({ holder, space }: ReplayRequest): Promise<HistoryBounds | HttpRefusal> {
    const isOfTheirMesh = space.meshId === holder.meshId
    return (isOfTheirMesh && (await this.#parts.spaces.find(holder, space.spaceId))) || SPACE_UNKNOWN
  }

  async #long(asked: ReplayRequest, query: string, start: Start, cursor: number): Promise<Parts | HttpRefusal> {
    const { copies, slots } = this.#parts
    const { form, signal } = asked
    const done = await slots.begin(shareNameOf(asked.holder), signal)
    if (isRefused(done)) return done
    return begun(endingWith(replayStream({ copies, query, form, start, cursor, signal }), done))
  }

  async #follow(
    { holder, space, isHolderGood, signal }: ReplayRequest,
    after: number,
    start: Start,
  ): Promise<Parts | HttpRefusal> {
    const { followers, spaces } = this.#parts
    if (followers.isFull) return FOLLOWERS_TOO_MANY
    const mayStill = async () => (await isHolderGood()) && (await spaces.find(holder, space.spaceId)) !== null
    return begun(followers.follow({ space, after, start, mayRead: mayStill, signal }))
  }
}

type Start = Readonly<Record<string, unknown>>

const startOf = (at: Micros, { lastSeq }: HistoryBounds): Start => ({ at: formatTimestamp(at), lastSeq })

async function* few(start: Start, rows: readonly ReplayRow[], end: Start): Parts {
  yield Buffer.from(jsonLine({ start: true, ...start }) + rows.map(rowLine).join('') + jsonLine({ end: true, ...end }))
}

async function* only(bytes: Uint8Array): Parts {
  yield bytes
}

async function* endingWith(parts: Parts, done: () => void): Parts {
  try {
    yield* parts
  } finally {
    done()
  }
}

/** Calls `ended` when the parts have ended. Not a generator: if never read, it would not run its `finally`. */
function watchEnd(parts: Parts, ended: () => void): Parts {
  let isOver = false
  const report = () => {
    if (!isOver) ended()
    isOver = true
  }
  const watched = async (step: Promise<IteratorResult<Uint8Array, void>>) => {
    const result = await step.catch((error) => {
      report()
      throw error
    })
    if (result.done) report()
    return result
  }
  const ways = { next: () => watched(parts.next()), return: () => watched(parts.return(undefined)) }
  return {
    ...ways,
    throw: (error: unknown) => watched(parts.throw(error)),
    [Symbol.asyncIterator]() {
      return this
    },
    [Symbol.asyncDispose]: async () => void (await ways.return()),
  }
}

export type ReplayForm = 'lines' | 'records'

export interface ReplayStream {
  readonly copies: CopyOutPool
  readonly query: string
  readonly form: ReplayForm
  readonly start: Readonly<Record<string, unknown>>
  readonly cursor: number
  readonly signal: AbortSignal
}

const PIECE_BYTES = 64 * 1024

export function replayStream(answer: ReplayStream): AsyncGenerator<Uint8Array> {
  return answer.form === 'lines' ? asLines(answer) : asRecords(answer)
}

async function* asLines({ copies, query, start, cursor, signal }: ReplayStream): AsyncGenerator<Uint8Array> {
  const reader = new CopyRowReader()
  const lines = new JsonLineWriter(PIECE_BYTES)
  let seq = cursor
  const write = (row: ReplayRow) => {
    lines.row(row)
    seq = Math.max(seq, row.seq)
  }
  let text = jsonLine({ start: true, ...start })
  for await (const bytes of copies.read(copied(query), signal)) {
    reader.take(bytes, write)
    const piece = lines.take()
    if (piece.length > 0) yield text === '' ? piece : Buffer.concat([Buffer.from(text, 'latin1'), piece])
    if (piece.length > 0) text = ''
  }
  if (!reader.isAtEnd) throw cut()
  yield Buffer.from(text + jsonLine({ end: true, seq }), 'latin1')
}

/** Forwards rows unread: after the header, each message of a binary `COPY` is a record or the end. */
async function* asRecords({ copies, query, signal }: ReplayStream): AsyncGenerator<Uint8Array> {
  const strip = new HeaderStrip()
  for await (const bytes of copies.read(copied(query), signal)) {
    const records = strip.take(bytes)
    if (records.length > 0) yield records
  }
}

const copied = (query: string): string => `copy (${query}) to stdout (format binary)`

const cut = () => new OperatingError('db_unavailable', 'A response of the database ended early')

export class HistoryPages {
  readonly #db: Pipeline
  /** Reads single pages. Requests during a read share the next one, which sees every earlier write. */
  readonly #reads = new Map<string, Batcher<PageRequest, Buffer | null>>()

  constructor(db: Pipeline) {
    this.#db = db
  }

  /** Returns the page as of the request or later; null if the space does not exist. @throws DatabaseError */
  async find(request: PageRequest): Promise<Buffer | null> {
    const key = JSON.stringify(request)
    const reads = this.#reads.get(key) ?? new Batcher(() => this.#read(request), { max: 1, keyOf: () => key })
    this.#reads.set(key, reads)
    try {
      return await reads.add(request)
    } finally {
      if (reads.isIdle && this.#reads.get(key) === reads) this.#reads.delete(key)
    }
  }

  async #read(request: PageRequest): Promise<[Buffer | null]> {
    const page = await readPage(this.#db, request)
    return [page && answerOf(page, request)]
  }
}

/** One string and one buffer, because allocation costs more than copying. */
function answerOf({ at, lastSeq, rows, hasMore }: EventPage, { to, after }: PageRequest): Buffer {
  const start = jsonLine({ start: true, at: formatTimestamp(to ?? at), lastSeq })
  const end = jsonLine({ end: true, seq: rows.at(-1)?.seq ?? after, more: hasMore })
  return Buffer.from(start + rows.map(({ line }) => line).join('') + end, 'latin1')
}
