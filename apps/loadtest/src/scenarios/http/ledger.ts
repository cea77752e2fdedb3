/** Messages that are sent and received in one process: which arrived, how often, how late, and when. */
import { Latencies } from '@sealpost/harness/report/latencies'

/** Of the messages due in one second of the run. */
export interface Second {
  readonly second: number
  readonly delivered: number
  readonly p50: number
  readonly p99: number
}

export class Ledger {
  readonly ack = new Latencies()
  readonly e2e = new Latencies()
  /** Refusals and lost connections by their code. */
  readonly failures: Record<string, number> = {}
  acked = 0
  twice = 0
  wrong = 0
  readonly #startMs: number
  readonly #dueAtMs: number[] = []
  readonly #arrived = new Set<number>()
  readonly #seconds: Latencies[] = []
  #waiting: { readonly count: number; readonly isThere: () => void } | undefined

  constructor(startMs: number) {
    this.#startMs = startMs
  }

  /** @returns its number; those of one ledger count up from 0 */
  due(atMs: number): number {
    return this.#dueAtMs.push(atMs) - 1
  }

  answered(number: number, atMs: number): void {
    this.acked += 1
    this.ack.note(atMs - this.#dueAtMs[number]!)
  }

  failed(code: string): void {
    this.failures[code] = (this.failures[code] ?? 0) + 1
  }

  arrived(number: number, atMs: number): void {
    const dueAtMs = this.#dueAtMs[number]
    if (dueAtMs === undefined) this.wrong += 1
    else if (this.#arrived.has(number)) this.twice += 1
    else this.#note(number, { dueAtMs, atMs })
  }

  #note(number: number, { dueAtMs, atMs }: { readonly dueAtMs: number; readonly atMs: number }): void {
    this.#arrived.add(number)
    this.e2e.note(atMs - dueAtMs)
    const second = Math.max(0, Math.floor((dueAtMs - this.#startMs) / 1000))
    for (let next = this.#seconds.length; next <= second; next++) this.#seconds.push(new Latencies())
    this.#seconds[second]!.note(atMs - dueAtMs)
    if (this.#waiting && this.delivered >= this.#waiting.count) this.#waiting.isThere()
  }

  get sent(): number {
    return this.#dueAtMs.length
  }
  get delivered(): number {
    return this.#arrived.size
  }
  get failedCount(): number {
    return Object.values(this.failures).reduce((a, b) => a + b, 0)
  }

  /** Resolves when this number has arrived, or after a while without them. */
  async until(count: number, withinMs: number): Promise<void> {
    if (this.delivered >= count) return
    const there = new Promise<void>((isThere) => {
      this.#waiting = { count, isThere }
    })
    await Promise.race([there, Bun.sleep(withinMs)])
  }

  get seconds(): Second[] {
    return this.#seconds.map((of, second) => ({ second, delivered: of.count, p50: of.at(50), p99: of.at(99) }))
  }
}
