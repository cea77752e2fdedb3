/** A mesh of real members: ed25519 keys, box keys of their own, and the signed binding between the two. */
import {
  bindBoxKey,
  boxKeysFromSecret,
  generateIdentity,
  type Identity,
  type KeyBinding,
  ready,
  signingKeysFromSeed,
} from '@sealpost/identity'
import { fromHex, type MeshId, type PeerKey, toHex } from '@sealpost/std'
import type { SecretKeys } from './orders.ts'

export interface Mesh {
  readonly meshId: MeshId
  readonly peerKeys: readonly PeerKey[]
  readonly secrets: readonly SecretKeys[]
  readonly bindings: readonly KeyBinding[]
}

const DAY_MS = 86_400_000

export const inventMesh = (peers: number): Promise<Mesh> => inventMembers(newMeshId(), peers)

/** Of a mesh that may have others. */
export async function inventMembers(meshId: MeshId, peers: number): Promise<Mesh> {
  await ready()
  const identities = Array.from({ length: peers }, generateIdentity)
  return {
    meshId,
    peerKeys: identities.map(({ signing }) => signing.publicKey),
    secrets: identities.map(({ signing, box }) => ({
      signing: toHex(signing.secretKey.subarray(0, 32)),
      box: toHex(box.secretKey),
    })),
    bindings: identities.map((identity) => bindBoxKey(identity, meshId, Date.now() + DAY_MS)),
  }
}

export const identityOf = ({ signing, box }: SecretKeys): Identity => ({
  signing: signingKeysFromSeed(fromHex(signing)),
  box: boxKeysFromSecret(fromHex(box), 1),
})

export const newMeshId = (): MeshId => toHex(crypto.getRandomValues(new Uint8Array(16))) as MeshId
