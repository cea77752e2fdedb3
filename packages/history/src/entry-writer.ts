/**
 * Writes entries in batches: while one commit runs, new writes queue for the next. Two changes of one key never share a
 * commit, because the second depends on the first.
 */
import { DatabaseError, NEW_PARTITION, type Pipeline, type PipelineStep, type TextRow } from '@sealpost/pg'
import { assert, type Micros, OperatingError, type PeerNo, type SpaceRef } from '@sealpost/std'

import { LOCK_SPACES, WRITE_ENTRIES } from './sql-spaces.ts'

/** An entry with a parsed header. Its author is the writer. */
export interface EntryWrite extends SpaceRef {
  /** 32 bytes in hex, as are `hash` and `formerHash`. */
  readonly keyHash: string
  readonly revision: number
  readonly formerHash: string
  readonly hash: string
  readonly author: PeerNo
  readonly isDeleted: boolean
  readonly keyEpoch: number
  readonly bytes: Uint8Array
}

export type EntryOutcome =
  | { readonly status: 'done'; readonly seq: number; readonly at: Micros; readonly isNew: boolean }
  /** `standing` is the key's current entry, if there is one. */
  | { readonly status: 'conflict'; readonly standing: Uint8Array | null }
  | { readonly status: 'stale_key_epoch' | 'quota' | 'away' | 'unknown_space' }

export interface EntryLimits {
  /** The maximum number of keys in one space, including deleted ones. */
  readonly entriesMax: number
  /** The maximum size of a space's current entries in bytes. */
  readonly spaceBytesMax: number
  /** The maximum size of a mesh's entries and history in bytes. */
  readonly meshBytesMax: number
}

const WRITES_MAX = 500
const BYTES_MAX = 4 * 1024 * 1024
const WAITING_MAX = 10_000

interface Waiter extends PromiseWithResolvers<EntryOutcome> {
  readonly write: EntryWrite
}

export class EntryWriter {
  readonly #db: Pipeline
  readonly #limits: EntryLimits
  #waiting: Waiter[] = []
  #isWriting = false

  constructor(db: Pipeline, limits: EntryLimits) {
    this.#db = db
    this.#limits = limits
  }

  /**
   * Returns outcomes in the order of the writes. After an error, repeat the writes: one that was stored returns `done`.
   * @throws OperatingError; `state_busy`, retryable, if too many writes are waiting; none of these was then written
   */
  write(writes: readonly EntryWrite[]): Promise<EntryOutcome[]> {
    if (this.#waiting.length + writes.length > WAITING_MAX)
      throw new OperatingError('state_busy', 'Too many entries are waiting to be written.', { retryable: true })
    const waiters = writes.map((write): Waiter => ({ write, ...Promise.withResolvers<EntryOutcome>() }))
    this.#waiting.push(...waiters)
    if (!this.#isWriting) void this.#writeWaiting()
    return Promise.all(waiters.map(({ promise }) => promise))
  }

  async #writeWaiting(): Promise<void> {
    this.#isWriting = true
    await Promise.resolve() // lets other writes of the same turn join the batch
    while (this.#waiting.length > 0) {
      const taken = this.#take()
      try {
        const outcomes = await this.#commit(taken.map(({ write }) => write))
        for (const [i, { resolve }] of taken.entries()) resolve(outcomes[i]!)
      } catch (error) {
        for (const { reject } of taken) reject(error)
      }
    }
    this.#isWriting = false
  }

  /** Takes the oldest write of each key, up to the limit. */
  #take(): Waiter[] {
    const keys = new Set<string>()
    const taken: Waiter[] = []
    const left: Waiter[] = []
    let bytes = 0
    for (const waiter of this.#waiting) {
      const key = keyOf(waiter.write)
      const isTaken = !keys.has(key) && taken.length < WRITES_MAX && bytes < BYTES_MAX
      keys.add(key) // later writes of the key must wait
      if (isTaken) bytes += waiter.write.bytes.length
      ;(isTaken ? taken : left).push(waiter)
    }
    this.#waiting = left
    return taken
  }

  async #commit(writes: readonly EntryWrite[]): Promise<EntryOutcome[]> {
    const steps = writeSteps(writes, this.#limits)
    const write = () => this.#db.run((pipe) => pipe.run(steps))
    const [, rows] = await write().catch((error) => {
      if (error instanceof DatabaseError && error.sqlstate === NEW_PARTITION) return write() // the missing partition now exists, so retry
      throw error
    })
    assert(rows?.length === writes.length, 'one answer for each entry')
    return rows.map(outcomeOf)
  }
}

const spaceKeyOf = ({ meshId, spaceId }: SpaceRef): string => `${meshId} ${spaceId}`
const keyOf = (write: EntryWrite): string => `${spaceKeyOf(write)} ${write.keyHash}`

/** Formats an array of numbers, ids or flags, which need no quotes. */
const arrayOf = (items: readonly (string | number | boolean)[]): string => `{${items.join()}}`
const bytesArray = (items: readonly string[]): string => `{${items.map((hex) => `"\\\\x${hex}"`).join()}}`

function writeSteps(writes: readonly EntryWrite[], limits: EntryLimits): PipelineStep[] {
  const spaces = [...new Map(writes.map((write) => [spaceKeyOf(write), write]))].sort(([a], [b]) => (a < b ? -1 : 1))
  const places = new Map(spaces.map(([key], i) => [key, i + 1])) // Postgres counts from 1
  const locked = [arrayOf(spaces.map(([, { meshId }]) => meshId)), arrayOf(spaces.map(([, { spaceId }]) => spaceId))]
  const parameters = [
    ...locked,
    arrayOf(writes.map((write) => places.get(spaceKeyOf(write))!)),
    bytesArray(writes.map(({ keyHash }) => keyHash)),
    arrayOf(writes.map(({ revision }) => revision)),
    bytesArray(writes.map(({ formerHash }) => formerHash)),
    bytesArray(writes.map(({ hash }) => hash)),
    arrayOf(writes.map(({ author }) => author)),
    arrayOf(writes.map(({ isDeleted }) => isDeleted)),
    arrayOf(writes.map(({ keyEpoch }) => keyEpoch)),
    arrayOf(writes.map(({ bytes }) => bytes.length)),
    Buffer.concat(writes.map(({ bytes }) => bytes)),
    String(limits.entriesMax),
    String(limits.spaceBytesMax),
    String(limits.meshBytesMax),
  ]
  return [
    { text: LOCK_SPACES, parameters: locked },
    { text: WRITE_ENTRIES, parameters },
  ]
}

function outcomeOf([status, seq, at, standing]: TextRow): EntryOutcome {
  switch (status) {
    case '+':
    case '=':
      return { status: 'done', seq: Number(seq), at: Math.round(Number(at)), isNew: status === '+' }
    case '!':
      return { status: 'conflict', standing: standing == null ? null : new Uint8Array(Buffer.from(standing, 'hex')) }
    case 'k':
      return { status: 'stale_key_epoch' }
    case 'q':
      return { status: 'quota' }
    case '<':
      return { status: 'away' }
    default:
      return { status: 'unknown_space' }
  }
}
