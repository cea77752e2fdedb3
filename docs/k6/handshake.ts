/** Implements the handshake for k6, which lacks Ed25519. docs/PROTOCOL.md describes the transcript. */
import { ed25519 } from '@noble/curves/ed25519.js'
import { bytesOfHex } from './fresh-id.ts'

export interface Signed {
  readonly version: number
  readonly versionsOffered: readonly number[]
  readonly authority: string
  readonly brokerKey: string
  readonly meshId: string
  readonly peerKey: string
  readonly serverNonce: Uint8Array
  readonly clientNonce: Uint8Array
  readonly connectionId: Uint8Array
  readonly issuedAtMs: number
}

/** Returns the transcript without capabilities. */
export function transcriptOf(signed: Signed): Uint8Array {
  return joined([
    ascii('sealpost-auth/1 client\0'),
    u16(signed.version),
    prefixed(joined(signed.versionsOffered.map(u16))),
    prefixed(ascii(signed.authority)),
    ...[signed.brokerKey, signed.meshId, signed.peerKey].map((hex) => prefixed(bytesOfHex(hex))),
    ...[signed.serverNonce, signed.clientNonce, signed.connectionId].map(prefixed),
    u64(signed.issuedAtMs),
    prefixed(new Uint8Array(0)),
  ])
}

export const signatureOf = (signed: Signed, seed: string): Uint8Array =>
  ed25519.sign(transcriptOf(signed), bytesOfHex(seed))

const ascii = (text: string): Uint8Array => Uint8Array.from(text, (letter) => letter.charCodeAt(0))
const u16 = (value: number): Uint8Array => Uint8Array.of(value >>> 8, value)
const prefixed = (bytes: Uint8Array): Uint8Array => joined([u16(bytes.length), bytes])

function u64(value: number): Uint8Array {
  const bytes = new Uint8Array(8)
  const view = new DataView(bytes.buffer)
  view.setUint32(0, Math.floor(value / 0x1_0000_0000))
  view.setUint32(4, value >>> 0)
  return bytes
}

function joined(parts: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0))
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}
