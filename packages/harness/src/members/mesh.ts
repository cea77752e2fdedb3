/** Creates a mesh of members with real keys and signed key bindings. */

import {
  bindBoxKey,
  boxKeysFromSecret,
  generateIdentity,
  type Identity,
  type KeyBinding,
  ready,
  signingKeysFromSeed,
} from '@sealpost/identity'
import { type Database, openDatabase } from '@sealpost/pg'
import { fromHex, type MeshId, type PeerKey, toHex } from '@sealpost/std'
import { addMembers, createMesh } from '@sealpost/store'

/** An identity's keys as strings, sent only through a private channel and never written to a disk. */
export interface SecretKeys {
  readonly signing: string
  readonly box: string
}

export interface BrokerAddress {
  readonly url: string
  readonly brokerKey: PeerKey
}

/** The members, as parallel arrays. */
export interface MeshMembers {
  readonly meshId: MeshId
  readonly peerKeys: readonly PeerKey[]
  readonly secrets: readonly SecretKeys[]
  readonly bindings: readonly KeyBinding[]
}

const DAY_MS = 86_400_000
/** Longer than the time in which a peer renews its binding, which would be a request at each start. */
const BINDING_DAYS = 90
const MEMBERS_AT_ONCE = 1000

export const newMeshId = (): MeshId => toHex(crypto.getRandomValues(new Uint8Array(16))) as MeshId

export async function generateMesh(members: number, meshId: MeshId = newMeshId()): Promise<MeshMembers> {
  await ready()
  const identities = Array.from({ length: members }, generateIdentity)
  return {
    meshId,
    peerKeys: identities.map(({ signing }) => signing.publicKey),
    secrets: identities.map(({ signing, box }) => ({
      signing: toHex(signing.secretKey.subarray(0, 32)),
      box: toHex(box.secretKey),
    })),
    bindings: identities.map((identity) => bindBoxKey(identity, meshId, Date.now() + BINDING_DAYS * DAY_MS)),
  }
}

export const identityOf = ({ signing, box }: SecretKeys): Identity => ({
  signing: signingKeysFromSeed(fromHex(signing)),
  box: boxKeysFromSecret(fromHex(box), 1),
})

/** Returns the members from `first` to before `end`. */
export function sliceOf(
  { meshId, peerKeys, secrets, bindings }: MeshMembers,
  first: number,
  end?: number,
): MeshMembers {
  return {
    meshId,
    peerKeys: peerKeys.slice(first, end),
    secrets: secrets.slice(first, end),
    bindings: bindings.slice(first, end),
  }
}

export async function enrolMesh(database: Database | string, mesh: MeshMembers, name: string): Promise<void> {
  const db = typeof database === 'string' ? await openDatabase(database, { connections: 1 }) : database
  try {
    await createMesh(db, { meshId: mesh.meshId, name })
    await enrolMembers(db, mesh)
  } finally {
    if (typeof database === 'string') await db.close()
  }
}

export async function enrolMembers(db: Database, { meshId, bindings }: MeshMembers): Promise<void> {
  for (let at = 0; at < bindings.length; at += MEMBERS_AT_ONCE)
    await addMembers(db, meshId, bindings.slice(at, at + MEMBERS_AT_ONCE))
}
