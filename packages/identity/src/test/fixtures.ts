/** Provides tests with the frozen vectors and two peers. */
import { readFileSync } from 'node:fs'
import { fromHex, type GroupId, type MeshId } from '@sealpost/std'
import { type Correspondent, type Identity, identityFromSeeds } from '../index.ts'
import { sodium } from '../sodium.ts'

export const MESH = 'a0a1a2a3a4a5a6a7a8a9aaabacadaeaf' as MeshId
export const OTHER_MESH = 'b0b1b2b3b4b5b6b7b8b9babbbcbdbebf' as MeshId

// biome-ignore lint/suspicious/noExplicitAny: a vector is compared with what the code makes of it, field by field
export function readVector(name: string): any {
  return JSON.parse(readFileSync(new URL(`../../../protocol/vectors/${name}`, import.meta.url), 'utf8'))
}

/** Returns the nth peer, the same in every run. */
export function peerNumber(n: number): Identity {
  return identityFromSeeds({ signing: new Uint8Array(32).fill(2 * n), box: new Uint8Array(32).fill(2 * n + 1) })
}

export function seeds(vector: { signingSeed: string; boxSeed: string }) {
  return { signing: fromHex(vector.signingSeed), box: fromHex(vector.boxSeed) }
}

export function correspondent(identity: Identity): Correspondent {
  return { peerKey: identity.signing.publicKey, boxKey: identity.box.publicKey, boxEpoch: identity.box.epoch }
}

/** Returns a function whose bytes are the same in every run, for vectors. */
export function countedRandom(): (length: number) => Uint8Array {
  let drawn = 0
  return (length) => {
    drawn += 1
    const input = Uint8Array.of(drawn >> 8, drawn)
    return sodium.crypto_generichash(Math.max(length, 16), input, null).slice(0, length)
  }
}

export const SPACE = 'd0d1d2d3d4d5d6d7d8d9dadbdcdddedf' as GroupId
export const PLACE = { meshId: MESH, spaceId: SPACE, keyEpoch: 3 }
export const KEYS = { nameKey: new Uint8Array(32).fill(0x11), spaceKey: new Uint8Array(32).fill(0x22) }

export const text = (bytes: Uint8Array | null | undefined) => bytes && new TextDecoder().decode(bytes)
export const bytes = (said: string): Uint8Array => new TextEncoder().encode(said)
export const flipped = (from: Uint8Array, at: number) => from.map((byte, i) => (i === at ? byte ^ 1 : byte))
