/** A peer that only reads, over HTTP, and discards what it has read. */
import { HttpSender, type MeshAddress } from './http-sender.ts'
import type { SecretKeys } from './mesh.ts'

export interface Reading {
  readonly status: number
  readonly bytes: number
  /** The response reached its end mark. */
  readonly isWhole: boolean
  readonly firstByteMs: number
  readonly ms: number
}

const END = '"end":true'
const END_OF_RECORDS = Buffer.from([0xff, 0xff])

export class HttpReader {
  readonly #url: string
  readonly #token: string

  private constructor(url: string, token: string) {
    this.#url = url
    this.#token = token
  }

  /** @throws OperatingError `no_token` */
  static async enter(address: MeshAddress, keys: SecretKeys): Promise<HttpReader> {
    const { token } = await HttpSender.enter(address, keys)
    return new HttpReader(new URL(address.url.replace(/^ws/, 'http')).origin, token)
  }

  /** Never rejects: a response that breaks off is not whole. */
  async read(path: string, accept = 'application/x-ndjson'): Promise<Reading> {
    const startMs = performance.now()
    let bytes = 0
    let firstByteMs = 0
    let last: Uint8Array = new Uint8Array()
    let status = 0
    try {
      const headers = { authorization: `Bearer ${this.#token}`, accept, 'accept-encoding': 'identity' }
      const response = await fetch(`${this.#url}${path}`, { headers, signal: AbortSignal.timeout(600_000) })
      status = response.status
      for await (const chunk of response.body as unknown as AsyncIterable<Uint8Array>) {
        firstByteMs ||= performance.now() - startMs
        bytes += chunk.length
        last = chunk.length < 64 ? Buffer.concat([last.subarray(-64), chunk]) : chunk
      }
    } catch {
      // the missing end mark shows it
    }
    const end = Buffer.from(last).subarray(-64)
    const isWhole = end.includes(END) || (accept !== 'application/x-ndjson' && end.subarray(-2).equals(END_OF_RECORDS))
    return { status, bytes, isWhole: status === 200 && isWhole, firstByteMs, ms: performance.now() - startMs }
  }
}
