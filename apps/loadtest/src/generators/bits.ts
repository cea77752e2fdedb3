/** A set of message numbers, a bit each: of 2.4 million messages 300 kB, where a Set takes 100 MB. */
export class Bits {
  readonly #words: Uint32Array

  constructor(size: number) {
    this.#words = new Uint32Array(Math.ceil(size / 32))
  }

  has(number: number): boolean {
    return (this.#words[number >>> 5]! & (1 << (number & 31))) !== 0
  }

  add(number: number): void {
    this.#words[number >>> 5]! |= 1 << (number & 31)
  }

  delete(number: number): void {
    this.#words[number >>> 5]! &= ~(1 << (number & 31))
  }
}
