/** Creates members for tests, with random signatures, which the database does not verify. */
import { randomBytes } from 'node:crypto'
import type { Database } from '@sealpost/pg'
import { type MeshId, type PeerKey, type PeerNo, toHex } from '@sealpost/std'
import type { MemberBinding } from '../members/key-bindings.ts'
import { addMembers, createMesh, revokePeer } from '../meshes/meshes.ts'

export const newKey = () => toHex(randomBytes(32)) as PeerKey

export async function newMesh(db: Database, name = 'a mesh'): Promise<MeshId> {
  const meshId = toHex(randomBytes(16)) as MeshId
  await createMesh(db, { meshId, name })
  return meshId
}

export async function newMeshOf(
  db: Database,
  bindings: readonly MemberBinding[],
): Promise<{ meshId: MeshId; numbers: PeerNo[]; owner: { meshId: MeshId; peer: PeerNo } }> {
  const meshId = await newMesh(db)
  const numbers = await addMembers(db, meshId, bindings)
  return { meshId, numbers, owner: { meshId, peer: numbers[0]! } }
}

export const randomBinding = (peerKey: PeerKey = newKey(), boxEpoch = 1) => ({
  ...{ peerKey, boxKey: randomBytes(32), boxEpoch, notAfterMs: 1_900_000_000_000, signature: randomBytes(64) },
})

export async function makeDevice(db: Database, meshId: MeshId, peer: PeerNo, person: PeerNo): Promise<void> {
  await db.run(
    (sql) => sql`
      with made as (update member set person = ${person} where mesh_id = ${meshId} and peer_no = ${peer})
      insert into device (mesh_id, peer_no, person, invite_key, statement)
      values (${meshId}, ${peer}, ${person}, ${randomBytes(32)}, '')`,
  )
}

export async function revokeMember(db: Database, meshId: MeshId, peerKey: PeerKey): Promise<PeerNo | undefined> {
  const revoked = await revokePeer(db, null, { meshId, peerKey })
  return revoked.find((each) => each.peerKey === peerKey)?.peer
}
