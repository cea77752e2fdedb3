/** What several tests of this package share: the frozen vectors and two peers. */
import { readFileSync } from 'node:fs'
import { fromHex, type MeshId } from '@sealpost/std'
import { type Correspondent, type Identity, identityFromSeeds } from './index.ts'

export const MESH = 'a0a1a2a3a4a5a6a7a8a9aaabacadaeaf' as MeshId
export const OTHER_MESH = 'b0b1b2b3b4b5b6b7b8b9babbbcbdbebf' as MeshId

// biome-ignore lint/suspicious/noExplicitAny: a vector is compared with what the code makes of it, field by field
export function readVector(name: string): any {
  return JSON.parse(readFileSync(new URL(`../../protocol/vectors/${name}`, import.meta.url), 'utf8'))
}

/** A peer that is the same in every run. */
export function peerNumber(n: number): Identity {
  return identityFromSeeds({ signing: new Uint8Array(32).fill(2 * n), box: new Uint8Array(32).fill(2 * n + 1) })
}

export function seeds(vector: { signingSeed: string; boxSeed: string }) {
  return { signing: fromHex(vector.signingSeed), box: fromHex(vector.boxSeed) }
}

export function correspondent(identity: Identity): Correspondent {
  return { peerKey: identity.signing.publicKey, boxKey: identity.box.publicKey, boxEpoch: identity.box.epoch }
}
