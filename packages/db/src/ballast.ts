/**
 * Bytes that nothing is ever written to: they take no memory, but the collector of garbage counts them. It comes whenever
 * a quarter of what it counts was made anew, which the buffers of a long answer are in 30 ms, and every other time looks
 * through all there is: two fifths of what such an answer cost, and pauses of 10 to 20 ms. With the bytes there it comes
 * a third as often.
 */
const BALLAST_BYTES = 64 * 2 ** 20

export class Ballast {
  #holders = 0
  #bytes: ArrayBuffer | null = null

  /** There while anybody holds it. @returns lets it go, once */
  hold(): () => void {
    this.#holders += 1
    this.#bytes ??= new ArrayBuffer(BALLAST_BYTES)
    return () => {
      this.#holders -= 1
      if (this.#holders === 0) this.#bytes = null
    }
  }
}
