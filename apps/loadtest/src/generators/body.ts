/**
 * Bodies that their recipient can check byte for byte without having been sent a copy: four bytes of number, then a
 * piece of one long random text whose place depends on the number.
 */
import { seededRandom } from '@sealpost/std'
import { mixed, type Plan } from './plan.ts'

export const BODY_BYTES_MIN = 4
/** Numbers from here on are of the key exchange before the run: `EXCHANGE` plus the sender. */
export const EXCHANGE = 0x8000_0000

const PLACES = 65_536

export class Bodies {
  readonly #text: Buffer
  readonly #seed: number
  readonly #length: number

  constructor({ payloadBytes, seed }: Plan) {
    const random = seededRandom(seed)
    this.#text = Buffer.from(Uint8Array.from({ length: PLACES + payloadBytes }, () => random.below(256)))
    this.#seed = seed
    this.#length = payloadBytes
  }

  make(number: number): Uint8Array {
    const body = new Uint8Array(this.#length)
    const start = this.#place(number)
    this.#text.copy(body, BODY_BYTES_MIN, start, start + this.#length - BODY_BYTES_MIN)
    body[0] = number >>> 24
    body[1] = number >>> 16
    body[2] = number >>> 8
    body[3] = number
    return body
  }

  /** The number a body claims; NaN for a body too short to have one. */
  numberOf(body: Uint8Array): number {
    if (body.length < BODY_BYTES_MIN) return Number.NaN
    return ((body[0]! << 24) | (body[1]! << 16) | (body[2]! << 8) | body[3]!) >>> 0
  }

  /** Whether every byte is what `make` wrote. */
  isIntact(body: Uint8Array, number: number): boolean {
    if (body.length !== this.#length) return false
    const start = this.#place(number)
    return this.#text.compare(body, BODY_BYTES_MIN, this.#length, start, start + this.#length - BODY_BYTES_MIN) === 0
  }

  #place(number: number): number {
    return mixed(number, this.#seed ^ 0x5ea1) % PLACES
  }
}
