/** Messages of which one side is missing so far: the time and envelope id of the known side by number, in plain arrays. */
import { ID_BYTES } from '../generators/journal.ts'

export interface Times {
  readonly atMs: number
  readonly calledAtMs: number
}

interface Known {
  readonly atMs: number
  readonly calledAtMs?: number
  readonly id: Buffer
}

export class Waiting {
  readonly #slots = new Map<number, number>()
  readonly #free: number[] = []
  #times = new Float64Array(1024)
  #calls = new Float64Array(1024)
  #ids = Buffer.alloc(1024 * ID_BYTES)
  #used = 0

  has(number: number): boolean {
    return this.#slots.has(number)
  }

  /** @param calledAtMs - when `send()` was called; NaN for a receipt, which does not show it */
  put(number: number, { atMs, calledAtMs = Number.NaN, id }: Known): void {
    const slot = this.#free.pop() ?? this.#used++
    if (slot === this.#times.length) this.#grow()
    this.#slots.set(number, slot)
    this.#times[slot] = atMs
    this.#calls[slot] = calledAtMs
    id.copy(this.#ids, slot * ID_BYTES)
  }

  isUnder(number: number, id: Buffer): boolean {
    const at = this.#slots.get(number)! * ID_BYTES
    return this.#ids.compare(id, 0, ID_BYTES, at, at + ID_BYTES) === 0
  }

  take(number: number): Times {
    const slot = this.#slots.get(number)!
    this.#slots.delete(number)
    this.#free.push(slot)
    return { atMs: this.#times[slot]!, calledAtMs: this.#calls[slot]! }
  }

  *times(): Generator<readonly [number: number, atMs: number]> {
    for (const [number, slot] of this.#slots) yield [number, this.#times[slot]!]
  }

  /** As hex. */
  get ids(): string[] {
    return [...this.#slots.values()].map((slot) =>
      this.#ids.toString('hex', slot * ID_BYTES, slot * ID_BYTES + ID_BYTES),
    )
  }

  #grow(): void {
    const times = new Float64Array(this.#times.length * 2)
    const calls = new Float64Array(this.#calls.length * 2)
    const ids = Buffer.alloc(this.#ids.length * 2)
    times.set(this.#times)
    calls.set(this.#calls)
    this.#ids.copy(ids)
    this.#times = times
    this.#calls = calls
    this.#ids = ids
  }
}
