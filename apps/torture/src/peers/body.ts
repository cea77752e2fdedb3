/** What the messages say: who sent it to whom, which one it is, and a filling that follows from that. */
import type { Kind } from '../judgement/ledger.ts'

export interface Said {
  readonly from: number
  readonly to: number
  readonly n: number
  readonly kind: Kind
}

const KINDS: readonly Kind[] = ['plain', 'brief', 'poison']
const HEAD_BYTES = 16

export function bodyOf({ from, to, n, kind }: Said, bytes: number): Uint8Array {
  const body = new Uint8Array(Math.max(bytes, HEAD_BYTES))
  const head = new DataView(body.buffer)
  head.setUint32(0, from)
  head.setUint32(4, to)
  head.setUint32(8, n)
  head.setUint32(12, KINDS.indexOf(kind))
  for (let at = HEAD_BYTES; at < body.length; at++) body[at] = fillingAt(at, n + from)
  return body
}

/** `null`: no such message was ever made. */
export function saidIn(body: Uint8Array): Said | null {
  if (body.length < HEAD_BYTES) return null
  const head = new DataView(body.buffer, body.byteOffset, body.length)
  const [from, to, n] = [head.getUint32(0), head.getUint32(4), head.getUint32(8)]
  const kind = KINDS[head.getUint32(12)]
  for (let at = HEAD_BYTES; at < body.length; at++) if (body[at] !== fillingAt(at, n + from)) return null
  return kind === undefined ? null : { from, to, n, kind }
}

const fillingAt = (at: number, seed: number): number => (at * 31 + seed * 7) & 0xff
