/**
 * A cache of the hex names of recent keys. The same few peers appear in frame after frame: comparing 32 bytes with a
 * cached key costs 0.03 µs, building the string again and hashing it for map lookups 0.10 µs.
 */
import { toHex } from '@sealpost/std'

const PLACES = 1024
export const KEY_BYTES = 32

interface Known {
  readonly bytes: Uint8Array
  readonly name: string
}

const known: (Known | undefined)[] = new Array(PLACES).fill(undefined)

export function keyName(from: Uint8Array, at: number): string {
  const place = ((from[at + 30]! << 8) | from[at + 31]!) % PLACES
  const there = known[place]
  if (there && holds(from, at, there.bytes)) return there.name
  const bytes = new Uint8Array(KEY_BYTES) // not `slice`: for a Buffer it is a view, whose bytes may change
  for (let i = 0; i < KEY_BYTES; i++) bytes[i] = from[at + i]!
  const name = toHex(bytes)
  known[place] = { bytes, name }
  return name
}

function holds(from: Uint8Array, at: number, bytes: Uint8Array): boolean {
  for (let i = 0; i < KEY_BYTES; i++) if (from[at + i] !== bytes[i]) return false
  return true
}
