/** For tests: members with random signatures, which the database does not check. */
import { randomBytes } from 'node:crypto'
import type { Database } from '@sealpost/pg'
import type { MeshId, PeerKey, PeerNo } from '@sealpost/std'
import { revokePeer } from '../meshes/meshes.ts'

/** The binding of a random box key. */
export const randomBinding = (peerKey: PeerKey) => ({
  ...{ peerKey, boxKey: randomBytes(32), boxEpoch: 1, notAfterMs: 1_900_000_000_000, signature: randomBytes(64) },
})

/** Turns a member into a device of another member. */
export async function makeDevice(db: Database, meshId: MeshId, peer: PeerNo, person: PeerNo): Promise<void> {
  await db.run(
    (sql) => sql`
      with made as (update member set person = ${person} where mesh_id = ${meshId} and peer_no = ${peer})
      insert into device (mesh_id, peer_no, person, invite_key, statement)
      values (${meshId}, ${peer}, ${person}, ${randomBytes(32)}, '')`,
  )
}

/** Returns the number of the member, or undefined without one. */
export async function revokeMember(db: Database, meshId: MeshId, peerKey: PeerKey): Promise<PeerNo | undefined> {
  const revoked = await revokePeer(db, null, { meshId, peerKey })
  return revoked.find((each) => each.peerKey === peerKey)?.peer
}
