/** One side of messages whose other side is not known yet: a time and an envelope id for each number, as plain arrays. */
import { ID_BYTES } from './journal.ts'

export class Waiting {
  readonly #slots = new Map<number, number>()
  readonly #free: number[] = []
  #times = new Float64Array(1024)
  #ids = Buffer.alloc(1024 * ID_BYTES)
  #used = 0

  has(number: number): boolean {
    return this.#slots.has(number)
  }

  put(number: number, atMs: number, id: Buffer): void {
    const slot = this.#free.pop() ?? this.#used++
    if (slot === this.#times.length) this.#grow()
    this.#slots.set(number, slot)
    this.#times[slot] = atMs
    id.copy(this.#ids, slot * ID_BYTES)
  }

  isUnder(number: number, id: Buffer): boolean {
    const at = this.#slots.get(number)! * ID_BYTES
    return this.#ids.compare(id, 0, ID_BYTES, at, at + ID_BYTES) === 0
  }

  /** @returns its time */
  take(number: number): number {
    const slot = this.#slots.get(number)!
    this.#slots.delete(number)
    this.#free.push(slot)
    return this.#times[slot]!
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
    const ids = Buffer.alloc(this.#ids.length * 2)
    times.set(this.#times)
    this.#ids.copy(ids)
    this.#times = times
    this.#ids = ids
  }
}
