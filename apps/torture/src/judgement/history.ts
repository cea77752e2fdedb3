/** The ledger joined: for every message what happened to it, in order. `checker.ts` judges it. */

import type { Leftover } from '../cluster/postgres.ts'
import type { Kind, LedgerEvent } from './ledger.ts'

/** A delivery that reached its recipient's socket. */
export interface Push {
  readonly atMs: number
  readonly peer: number
  readonly session: number
  readonly deliveryId: number
  readonly sender: number
  readonly attempt: number
}

/** An envelope that reached its recipient's application. */
export interface Got {
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
  /** As its ack or its recipient's application says. */
  envelopeId: string | null
}

/** From its beginning to its end; one that was never repaired ends with the run. */
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
  /** In the order in which its recipient had them. */
  readonly pushes: ReadonlyMap<string, readonly Push[]>
  readonly got: ReadonlyMap<string, readonly Got[]>
  /** Envelopes as each peer first had them, in order: at its socket, and in its application. */
  readonly firstPushed: readonly (readonly [peer: number, envelopeId: string])[]
  readonly firstGot: readonly (readonly [peer: number, envelopeId: string])[]
  /** Of what was said to nobody's knowledge: an application has it, and no peer has sent it. */
  readonly invented: readonly string[]
  readonly putOffAtMs: ReadonlyMap<string, readonly number[]>
  readonly alarms: readonly Extract<LedgerEvent, { e: 'alarm' }>[]
  readonly breaks: readonly Break[]
  /** Times in which something stood still: a fault, or a program that had no processor. */
  readonly stalls: readonly { readonly fromMs: number; readonly untilMs: number }[]
  /** When a broker said that something of its database failed, ascending. */
  readonly brokerFailuresMs: readonly number[]
  readonly leftovers: ReadonlyMap<string, Leftover['reason']>
}

export async function historyOf(
  events: AsyncIterable<LedgerEvent> | Iterable<LedgerEvent>,
  leftovers: readonly Leftover[],
): Promise<History> {
  const scribe = new Scribe()
  for await (const event of events) scribe.note(event)
  return scribe.history(leftovers)
}

type Numbered = Pick<Sent, 'from' | 'to' | 'n'>

class Scribe {
  readonly #sent = new Map<string, Sent>()
  readonly #envelopes: [envelopeId: string, Numbered][] = []
  readonly #pushes = new Map<string, Push[]>()
  readonly #got = new Map<string, Got[]>()
  readonly #firstPushed: [number, string][] = []
  readonly #firstGot: [number, string][] = []
  readonly #putOff = new Map<string, number[]>()
  readonly #alarms: Extract<LedgerEvent, { e: 'alarm' }>[] = []
  readonly #breaks = new Map<number, Break>()
  readonly #stoodStill: { fromMs: number; untilMs: number }[] = []
  readonly #brokerFailures: number[] = []
  readonly #answers: Extract<LedgerEvent, { e: 'acked' | 'refused' }>[] = []
  #lastMs = 0

  note(event: LedgerEvent): void {
    this.#lastMs = Math.max(this.#lastMs, event.atMs)
    switch (event.e) {
      case 'sent':
        return this.#noteSent(event)
      case 'acked':
      case 'refused':
        return void this.#answers.push(event)
      case 'pushed':
        return this.#notePushed(event)
      case 'got':
        return this.#noteGot(event)
      case 'put off':
        return add(this.#putOff, event.envelopeId, event.atMs)
      case 'alarm':
        return void this.#alarms.push(event)
      case 'stood still':
        return void this.#stoodStill.push({ fromMs: event.sinceMs, untilMs: event.atMs })
      case 'fault':
        return void this.#breaks.set(event.no, { ...event, fromMs: event.atMs, untilMs: Infinity })
      case 'repaired':
        this.#breaks.get(event.no)!.untilMs = event.atMs
        return
      case 'broker failed':
        return void this.#brokerFailures.push(event.atMs)
      case 'settled':
        return // for a reader of the ledger
    }
  }

  history(leftovers: readonly Leftover[]): History {
    for (const answer of this.#answers) this.#noteAnswer(answer)
    const byEnvelope = new Map<string, Sent>()
    const invented: string[] = []
    for (const [envelopeId, numbered] of this.#envelopes) {
      const sent = this.#sent.get(keyOf(numbered))
      if (!sent) {
        invented.push(envelopeId)
        continue
      }
      sent.envelopeId ??= envelopeId
      byEnvelope.set(envelopeId, sent)
    }
    const breaks = [...this.#breaks.values()]
    for (const one of breaks) one.untilMs = Math.min(one.untilMs, this.#lastMs)
    return {
      sent: [...this.#sent.values()],
      byEnvelope,
      pushes: this.#pushes,
      got: this.#got,
      firstPushed: this.#firstPushed,
      firstGot: this.#firstGot,
      invented,
      putOffAtMs: this.#putOff,
      alarms: this.#alarms,
      breaks,
      stalls: [...breaks, ...this.#stoodStill],
      brokerFailuresMs: this.#brokerFailures.sort((a, b) => a - b),
      leftovers: new Map(leftovers.map(({ envelopeId, reason }) => [envelopeId, reason])),
    }
  }

  #noteSent({ from, to, n, kind, atMs }: Extract<LedgerEvent, { e: 'sent' }>): void {
    const sent = { from, to, n, kind, sentAtMs: atMs, ackedAtMs: null, refusedWith: null, envelopeId: null }
    this.#sent.set(keyOf(sent), sent)
  }

  #noteAnswer(answer: Extract<LedgerEvent, { e: 'acked' | 'refused' }>): void {
    const sent = this.#sent.get(keyOf(answer))!
    if (answer.e === 'refused') {
      sent.refusedWith = answer.code
      return
    }
    sent.ackedAtMs = answer.atMs
    sent.envelopeId = answer.envelopeId
    this.#envelopes.push([answer.envelopeId, sent])
  }

  #notePushed({ peer, session, atMs, items }: Extract<LedgerEvent, { e: 'pushed' }>): void {
    for (const [deliveryId, envelopeId, sender, attempt] of items) {
      if (!this.#pushes.has(envelopeId)) this.#firstPushed.push([peer, envelopeId])
      add(this.#pushes, envelopeId, { atMs, peer, session, deliveryId, sender, attempt })
    }
  }

  #noteGot({ atMs, peer, life, envelopeId, isWhole, from, to, n }: Extract<LedgerEvent, { e: 'got' }>): void {
    if (!this.#got.has(envelopeId)) this.#firstGot.push([peer, envelopeId])
    add(this.#got, envelopeId, { atMs, peer, life, isWhole })
    this.#envelopes.push([envelopeId, { from, to, n }])
  }
}

const keyOf = ({ from, to, n }: Numbered): string => `${from}>${to}#${n}`

function add<T>(map: Map<string, T[]>, key: string, value: T): void {
  const list = map.get(key)
  if (list) list.push(value)
  else map.set(key, [value])
}
