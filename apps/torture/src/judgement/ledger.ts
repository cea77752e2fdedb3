/**
 * The ledger: what happened to every message, one JSON line an event, each program its own file. Nothing is judged here;
 * `checker.ts` joins the lines afterwards. Peers are named by their number in the population, times are ms since 1970 by
 * a clock that no test sets (`clockMs`).
 */
import { appendFileSync, createReadStream } from 'node:fs'
import { createInterface } from 'node:readline'

/** What the checker needs to know of a message besides who and when. */
export type Kind =
  | 'plain'
  /** Its time to live is a second or two. */
  | 'brief'
  /** Its recipient's handler throws, every time. */
  | 'poison'

/** One delivery as it was pushed: its id in the queue, its envelope, its sender, and which attempt it is. */
export type PushedItem = readonly [id: number, envelopeId: string, sender: number, attempt: number]

/** `n` counts the messages from this sender to this recipient. */
interface Numbered {
  readonly from: number
  readonly to: number
  readonly n: number
}

export type LedgerEvent = { readonly atMs: number } & (
  | ({ readonly e: 'sent'; readonly kind: Kind } & Numbered)
  | ({ readonly e: 'acked'; readonly envelopeId: string } & Numbered)
  | ({ readonly e: 'refused'; readonly code: string } & Numbered)
  /** A frame with deliveries reached this peer's socket; `session` counts its sockets. */
  | { readonly e: 'pushed'; readonly peer: number; readonly session: number; readonly items: readonly PushedItem[] }
  | { readonly e: 'settled'; readonly peer: number; readonly session: number; readonly ids: readonly number[] }
  /**
   * The application has it. `isWhole`: the body is the one that was sent, to whom and by whom it says. `life` counts how
   * often the peer was started: its inbox is as old as that.
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
  /** The SDK found something that no honest broker does. */
  | { readonly e: 'alarm'; readonly peer: number; readonly what: string; readonly envelopeId: string }
  /** This program stood still: by the clock it should have run since `sinceMs`. */
  | { readonly e: 'stood still'; readonly sinceMs: number }
  /** `peers`: whom it reaches; null: all. */
  | { readonly e: 'fault'; readonly no: number; readonly scenario: string; readonly peers: readonly number[] | null }
  | { readonly e: 'repaired'; readonly no: number }
  /** The broker logged that something of the database failed. */
  | { readonly e: 'broker failed'; readonly event: string }
)

const FLUSH_BYTES = 64 * 1024

/** Buffered; a program that ends by itself calls `flush` before. */
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

/** In the order in which each program wrote. */
export async function* readLedger(files: readonly string[]): AsyncGenerator<LedgerEvent> {
  for (const file of files)
    for await (const line of createInterface({ input: createReadStream(file) })) yield JSON.parse(line) as LedgerEvent
}
