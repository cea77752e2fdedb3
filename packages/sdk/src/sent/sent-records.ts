/** Keeps the records of sent messages: finds them by id and by send, stores changes, and forgets the oldest sends. */
import type { EnvelopeId, Millis } from '@sealpost/std'
import type { SealpostError } from '../errors.ts'
import type { SentRecord, StoreRecord } from '../stores/records.ts'
import type { StoreWriter } from '../stores/store.ts'
import type { SentMessage, WaitGoal } from './sent-states.ts'

export interface Waiter {
  readonly goal: WaitGoal
  readonly reached: (sent: SentMessage) => void
  readonly failed: (error: SealpostError) => void
}

/** A record with the fields that earlier versions did not store. */
export type FullRecord = SentRecord & SentMessage

export interface Entry {
  record: FullRecord
  readonly waiters: Set<Waiter>
}

/** The number of sends that a log keeps. */
const SENDS_MAX = 500
/** The number of recipients of all sends that a log keeps, besides those of the newest send. */
const RECIPIENTS_MAX = 2_000

export type NewRecord = Omit<FullRecord, 'kind' | 'no' | 'outboxNo' | 'envelopeId' | 'sentAtMs' | UnknownYet>
type UnknownYet = 'user' | 'deviceLabel' | 'state' | 'isSigned' | 'reason' | 'signer' | 'reply' | 'atMs'

export class SentRecords {
  /** The messages by number, oldest first. */
  readonly #entries = new Map<number, Entry>()
  readonly #byId = new Map<EnvelopeId, Entry>()
  readonly #sends = new Map<number, Set<Entry>>()
  readonly #writer: StoreWriter | null
  #lastNo: number

  /** `records`: all records of the store. */
  constructor(records: readonly StoreRecord[], writer: StoreWriter | null) {
    this.#writer = writer
    const sent = records.filter((record) => record.kind === 'sent').sort((a, b) => a.no - b.no)
    for (const record of sent) this.#adopt(fullRecord(record))
    this.#lastNo = Math.max(Date.now() * 1000, ...this.#entries.keys())
  }

  /** Reserves the number of a send. */
  nextNo(): number {
    this.#lastNo += 1
    return this.#lastNo
  }

  /** Adds a message that is about to be sent. A `sendNo` of 0 begins a send. */
  add({ sendNo, ...facts }: NewRecord): Entry {
    const no = this.nextNo()
    const atMs = Date.now()
    const state = { state: 'sending', isSigned: false, reason: '', signer: null, sentAtMs: atMs, atMs } as const
    const named = { ...facts, user: facts.to, deviceLabel: null, sendNo: sendNo || no }
    const entry = this.#adopt({ kind: 'sent', no, outboxNo: 0, envelopeId: null, ...named, ...state, reply: null })
    this.#store(entry)
    this.#forgetOld()
    return entry
  }

  change(entry: Entry, change: Partial<FullRecord>): void {
    const { envelopeId } = entry.record
    entry.record = { ...entry.record, ...change }
    const { envelopeId: id } = entry.record
    if (envelopeId !== id && envelopeId !== null) this.#byId.delete(envelopeId)
    if (id !== null) this.#byId.set(id, entry)
    this.#store(entry)
  }

  /** Forgets a message. */
  remove(entry: Entry): void {
    const { no, envelopeId, sendNo } = entry.record
    this.#entries.delete(no)
    if (envelopeId !== null) this.#byId.delete(envelopeId)
    const send = this.#sends.get(sendNo)
    send?.delete(entry)
    if (send?.size === 0) this.#sends.delete(sendNo)
    this.#writer?.remove(keyOf(no))
  }

  find(envelopeId: EnvelopeId): Entry | undefined {
    return this.#byId.get(envelopeId)
  }

  /** Returns the messages of the same send, in the order of the recipients. */
  siblings({ record }: Entry): Entry[] {
    return [...(this.#sends.get(record.sendNo) ?? [])]
  }

  /** Returns all messages, oldest first. */
  all(): Entry[] {
    return [...this.#entries.values()]
  }

  #adopt(record: FullRecord): Entry {
    const entry: Entry = { record, waiters: new Set() }
    this.#entries.set(record.no, entry)
    if (record.envelopeId !== null) this.#byId.set(record.envelopeId, entry)
    const send = this.#sends.get(record.sendNo) ?? new Set()
    this.#sends.set(record.sendNo, send.add(entry))
    return entry
  }

  #store(entry: Entry): void {
    this.#writer?.put(keyOf(entry.record.no), () => entry.record)
  }

  /** Forgets complete sends, so that no send lacks some of its recipients. */
  #forgetOld(): void {
    while (this.#sends.size > 1 && (this.#sends.size > SENDS_MAX || this.#entries.size > RECIPIENTS_MAX))
      for (const entry of this.#sends.values().next().value!) this.remove(entry)
  }
}

/**
 * Returns the sent messages in the records of a store, newest first, for a store that another process may have open.
 * @internal
 */
export function sentMessagesIn(records: readonly StoreRecord[]): SentMessage[] {
  const own = records.filter((record) => record.kind === 'sent').sort((a, b) => b.no - a.no)
  return own.map((record) => messageOf(fullRecord(record)))
}

export function messageOf(record: FullRecord): SentMessage {
  const { kind: _, no: __, outboxNo: ___, contentHash: ____, poolMembers: _____, ...sent } = record
  return sent
}

function fullRecord(record: SentRecord): FullRecord {
  return { sendNo: record.no, audience: null, isRequest: false, inReplyTo: null, reply: null, ...record }
}

const keyOf = (no: number): string => `sent ${no}`

/** Timers accept at most 2^31 - 1 ms. */
const TIMER_MAX_MS = 2 ** 31

interface WaitTerms {
  readonly goal: WaitGoal
  readonly timeoutMs: Millis
  readonly timedOut: (sent: SentMessage) => SealpostError
}

/** Waits for the entry that `start` returns. The caller wakes its waiters. */
export function waitFor(
  { goal, timeoutMs, timedOut }: WaitTerms,
  start: (failed: Waiter['failed']) => Entry,
  wake: (entry: Entry) => void,
): Promise<SentMessage> {
  return new Promise((resolve, reject) => {
    let timer: ReturnType<typeof setTimeout> | undefined
    const reached = (sent: SentMessage) => {
      clearTimeout(timer)
      resolve(sent)
    }
    const failed = (error: SealpostError) => {
      clearTimeout(timer)
      reject(error)
    }
    const waiter: Waiter = { goal, reached, failed }
    const entry = start(failed)
    entry.waiters.add(waiter)
    wake(entry)
    if (timeoutMs >= TIMER_MAX_MS) return
    timer = setTimeout(() => {
      entry.waiters.delete(waiter)
      reject(timedOut(messageOf(entry.record)))
    }, timeoutMs)
  })
}
