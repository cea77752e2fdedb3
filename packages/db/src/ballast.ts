/**
 * Bytes that nothing is ever written to: they take no memory, but the collector of garbage counts them. It comes whenever
 * a quarter of what it counts was made anew, which the buffers of a long answer are in 30 ms, and every other time looks
 * through all there is. With the bytes there it comes a sixth as often. The buffers are freed without it.
 */
const BALLAST_BYTES = 256 * 2 ** 20

export class Ballast {
  #holders = 0
  #bytes: ArrayBuffer | null = null

  /** There while anybody holds it. @returns lets it go, once */
  hold(): () => void {
    this.#holders += 1
    // One that can be resized is mapped anew; any other may be memory that was used before, which is written over with zeros.
    this.#bytes ??= new ArrayBuffer(BALLAST_BYTES, { maxByteLength: BALLAST_BYTES })
    return () => {
      this.#holders -= 1
      if (this.#holders === 0) this.#bytes = null
    }
  }
}
