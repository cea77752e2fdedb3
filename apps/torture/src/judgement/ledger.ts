/**
 * Records what happened to every message, as JSON lines in a file per program. `historyOf` joins the files, and
 * `checker.ts` judges them. Times are by a clock that no test sets (`clockMs`).
 */
import { appendFileSync, createReadStream } from 'node:fs'
import { createInterface } from 'node:readline'
import type { Leftover } from '../cluster/postgres.ts'

export type Kind =
  | 'plain'
  /** expires after two seconds */
  | 'brief'
  /** the recipient's handler always throws */
  | 'poison'

export type PushedItem = readonly [id: number, envelopeId: string, sender: number, attempt: number]

/** `n`: the message's number from this sender to this recipient. */
interface Numbered {
  readonly from: number
  readonly to: number
  readonly n: number
}

export type LedgerEvent = { readonly atMs: number } & (
  | ({ readonly e: 'sent'; readonly kind: Kind } & Numbered)
  | ({ readonly e: 'acked'; readonly envelopeId: string } & Numbered)
  | ({ readonly e: 'refused'; readonly code: string } & Numbered)
  /** Deliveries have reached this peer's socket, its `session`th. */
  | { readonly e: 'pushed'; readonly peer: number; readonly session: number; readonly items: readonly PushedItem[] }
  | { readonly e: 'settled'; readonly peer: number; readonly session: number; readonly ids: readonly number[] }
  /** The peer has closed the connection with 1000, which returns the deliveries that it has not touched. */
  | { readonly e: 'finished'; readonly peer: number; readonly session: number }
  /**
   * The application has the message. `isWhole`: whether it matches the send. `life`: how often the peer was started.
   */
  | ({
      readonly e: 'got'
      readonly peer: number
      readonly life: number
      readonly envelopeId: string
      readonly kind: Kind
      readonly isWhole: boolean
    } & Numbered)
  /** The application asked for another attempt. */
  | { readonly e: 'put off'; readonly peer: number; readonly envelopeId: string }
  /** The SDK detected tampering. */
  | { readonly e: 'alarm'; readonly peer: number; readonly what: string; readonly envelopeId: string }
  /** This program has not run since `sinceMs`. */
  | { readonly e: 'stood still'; readonly sinceMs: number }
  /** `peers`: the affected ones; null for all. */
  | { readonly e: 'fault'; readonly no: number; readonly scenario: string; readonly peers: readonly number[] | null }
  | { readonly e: 'repaired'; readonly no: number }
  /** The broker logged a failed database operation. */
  | { readonly e: 'broker failed'; readonly event: string }
)

const FLUSH_BYTES = 64 * 1024

/** Buffers lines; `flush` must precede the program's end. */
export class LedgerWriter {
  readonly #file: string
  #lines: string[] = []
  #bytes = 0

  constructor(file: string) {
    this.#file = file
    appendFileSync(file, '')
  }

  write(event: LedgerEvent): void {
    const line = JSON.stringify(event)
    this.#lines.push(line)
    this.#bytes += line.length
    if (this.#bytes >= FLUSH_BYTES) this.flush()
  }

  flush(): void {
    if (this.#lines.length === 0) return
    appendFileSync(this.#file, `${this.#lines.join('\n')}\n`)
    this.#lines = []
    this.#bytes = 0
  }
}

export async function* readLedger(files: readonly string[]): AsyncGenerator<LedgerEvent> {
  for (const file of files)
    for await (const line of createInterface({ input: createReadStream(file) })) yield JSON.parse(line) as LedgerEvent
}

export interface Push {
  readonly atMs: number
  readonly peer: number
  readonly session: number
  readonly deliveryId: number
  readonly sender: number
  readonly attempt: number
}

interface Got {
  readonly atMs: number
  readonly peer: number
  readonly life: number
  readonly isWhole: boolean
}

export interface Sent {
  readonly from: number
  readonly to: number
  readonly n: number
  readonly kind: Kind
  readonly sentAtMs: number
  ackedAtMs: number | null
  refusedWith: string | null
  /** From the message's ack, or from the recipient. */
  envelopeId: string | null
}

/** A fault, which without a repair ends with the run. */
export interface Break {
  readonly no: number
  readonly scenario: string
  readonly peers: readonly number[] | null
  readonly fromMs: number
  untilMs: number
}

export interface History {
  readonly sent: readonly Sent[]
  readonly byEnvelope: ReadonlyMap<string, Sent>
  /** Deliveries by envelope, in the order of arrival. */
  readonly pushes: ReadonlyMap<string, readonly Push[]>
  readonly got: ReadonlyMap<string, readonly Got[]>
  /** The order of first arrivals at the socket. */
  readonly firstPushed: readonly (readonly [peer: number, envelopeId: string])[]
  readonly firstGot: readonly (readonly [peer: number, envelopeId: string])[]
  /** Received envelopes that no peer sent. */
  readonly invented: readonly string[]
  readonly putOffAtMs: ReadonlyMap<string, readonly number[]>
  /** The sessions that their peers closed normally, by `sessionOf`. */
  readonly finished: ReadonlySet<string>
  readonly alarms: readonly Extract<LedgerEvent, { e: 'alarm' }>[]
  readonly breaks: readonly Break[]
  /** When a program may not have run, because of a fault or a lack of CPU time. */
  readonly stalls: readonly { readonly fromMs: number; readonly untilMs: number }[]
  /** The times of logged failures, ascending. */
  readonly brokerFailuresMs: readonly number[]
  readonly leftovers: ReadonlyMap<string, Leftover['reason']>
}

type Event<E extends LedgerEvent['e']> = Extract<LedgerEvent, { e: E }>

/** Joins the events of all programs, each in order. */
export async function historyOf(
  events: AsyncIterable<LedgerEvent> | Iterable<LedgerEvent>,
  leftovers: readonly Leftover[],
): Promise<History> {
  const joined = new JoinedEvents()
  for await (const event of events) joined.add(event)
  const { pushes, got, firstPushed, firstGot, putOffAtMs, finished, alarms, brokerFailuresMs } = joined
  const breaks = joined.breaksUntilEnd()
  return {
    ...{ pushes, got, firstPushed, firstGot, putOffAtMs, finished, alarms, breaks },
    ...joined.bySender(),
    stalls: [...breaks, ...joined.stoodStill],
    brokerFailuresMs: brokerFailuresMs.sort((a, b) => a - b),
    leftovers: new Map(leftovers.map(({ envelopeId, reason }) => [envelopeId, reason])),
  }
}

class JoinedEvents {
  readonly pushes = new Map<string, Push[]>()
  readonly got = new Map<string, Got[]>()
  readonly firstPushed: [number, string][] = []
  readonly firstGot: [number, string][] = []
  readonly putOffAtMs = new Map<string, number[]>()
  readonly finished = new Set<string>()
  readonly alarms: Event<'alarm'>[] = []
  readonly brokerFailuresMs: number[] = []
  readonly stoodStill: { fromMs: number; untilMs: number }[] = []
  readonly #sent = new Map<string, Sent>()
  readonly #envelopes: [envelopeId: string, Numbered][] = []
  readonly #breaks = new Map<number, Break>()
  readonly #replies: Event<'acked' | 'refused'>[] = []
  #lastMs = 0

  add(event: LedgerEvent): void {
    this.#lastMs = Math.max(this.#lastMs, event.atMs)
    switch (event.e) {
      case 'sent':
        return this.#addSent(event)
      case 'acked':
      case 'refused':
        return void this.#replies.push(event)
      case 'pushed':
        return this.#addPushed(event)
      case 'got':
        return this.#addGot(event)
      case 'put off':
        return append(this.putOffAtMs, event.envelopeId, event.atMs)
      case 'finished':
        return void this.finished.add(sessionOf(event))
      case 'alarm':
        return void this.alarms.push(event)
      case 'stood still':
        return void this.stoodStill.push({ fromMs: event.sinceMs, untilMs: event.atMs })
      case 'fault':
        return void this.#breaks.set(event.no, { ...event, fromMs: event.atMs, untilMs: Infinity })
      case 'repaired':
        this.#breaks.get(event.no)!.untilMs = event.atMs
        return
      case 'broker failed':
        return void this.brokerFailuresMs.push(event.atMs)
      case 'settled':
        return // only for people who read the ledger
    }
  }

  breaksUntilEnd(): Break[] {
    return [...this.#breaks.values()].map((one) => ({ ...one, untilMs: Math.min(one.untilMs, this.#lastMs) }))
  }

  /** The recipient's program may have recorded an envelope first. */
  bySender(): Pick<History, 'sent' | 'byEnvelope' | 'invented'> {
    for (const reply of this.#replies) this.#addReply(reply)
    const byEnvelope = new Map<string, Sent>()
    const invented: string[] = []
    for (const [envelopeId, numbered] of this.#envelopes) {
      const sent = this.#sent.get(keyOf(numbered))
      if (sent) {
        sent.envelopeId ??= envelopeId
        byEnvelope.set(envelopeId, sent)
      } else invented.push(envelopeId)
    }
    return { sent: [...this.#sent.values()], byEnvelope, invented }
  }

  #addSent({ from, to, n, kind, atMs }: Event<'sent'>): void {
    const sent = { from, to, n, kind, sentAtMs: atMs, ackedAtMs: null, refusedWith: null, envelopeId: null }
    this.#sent.set(keyOf(sent), sent)
  }

  #addReply(reply: Event<'acked' | 'refused'>): void {
    const sent = this.#sent.get(keyOf(reply))!
    if (reply.e === 'refused') {
      sent.refusedWith = reply.code
      return
    }
    sent.ackedAtMs = reply.atMs
    sent.envelopeId = reply.envelopeId
    this.#envelopes.push([reply.envelopeId, sent])
  }

  #addPushed({ peer, session, atMs, items }: Event<'pushed'>): void {
    for (const [deliveryId, envelopeId, sender, attempt] of items) {
      if (!this.pushes.has(envelopeId)) this.firstPushed.push([peer, envelopeId])
      append(this.pushes, envelopeId, { atMs, peer, session, deliveryId, sender, attempt })
    }
  }

  #addGot({ atMs, peer, life, envelopeId, isWhole, from, to, n }: Event<'got'>): void {
    if (!this.got.has(envelopeId)) this.firstGot.push([peer, envelopeId])
    append(this.got, envelopeId, { atMs, peer, life, isWhole })
    this.#envelopes.push([envelopeId, { from, to, n }])
  }
}

export const sessionOf = ({ peer, session }: Pick<Push, 'peer' | 'session'>): string => `${peer}/${session}`

const keyOf = ({ from, to, n }: Numbered): string => `${from}>${to}#${n}`

function append<T>(map: Map<string, T[]>, key: string, value: T): void {
  const list = map.get(key)
  if (list) list.push(value)
  else map.set(key, [value])
}
