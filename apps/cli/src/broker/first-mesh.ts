/** What `up` makes at the first start: a mesh, and the chosen profile as its first admin. Each step is safe to repeat. */

import { userInfo } from 'node:os'
import { bindBoxKey, type Identity } from '@sealpost/identity'
import { openDatabase } from '@sealpost/pg'
import { isChosenName, type MeshId, NAME_LENGTH_MAX, type PeerKey, tidyName, toHex } from '@sealpost/std'
import { addMembers, createMesh } from '@sealpost/store'
import type { Membership, Profile } from '../profile/profile.ts'

export interface FirstMesh {
  readonly databaseUrl: string
  readonly meshId: MeshId
  readonly meshName: string
  /** Of the admin in it. */
  readonly name: string
  /** As peers dial the broker. */
  readonly url: string
  readonly brokerKey: PeerKey
}

const BINDING_FOR_MS = 10 * 365 * 86_400_000

export const newMeshId = (): MeshId => toHex(crypto.getRandomValues(new Uint8Array(16))) as MeshId

/** Makes keys for the profile unless it has some. @returns its key */
export async function ensureKeys(profile: Profile): Promise<PeerKey> {
  const identity = profile.hasKeys ? (await profile.readKeys()).identity : await profile.makeKeys()
  return identity.signing.publicKey
}

/** @returns the admin's membership, also kept in the profile */
export async function enrolFirstAdmin(profile: Profile, mesh: FirstMesh): Promise<Membership> {
  const { identity } = await profile.readKeys()
  const { meshId, url, brokerKey } = mesh
  const name = await enrol(identity, mesh)
  const membership = { url, brokerKey, meshId, name }
  await profile.writeMembership(membership)
  return membership
}

async function enrol(identity: Identity, { databaseUrl, meshId, meshName, name }: FirstMesh): Promise<string> {
  const db = await openDatabase(databaseUrl, { connections: 1 })
  try {
    const meshes = await db.run((sql) => sql`select from mesh where mesh_id = ${meshId}`)
    if (meshes.length === 0) await createMesh(db, { meshId, name: meshName })
    const { publicKey } = identity.signing
    const [member] = await db.run(
      (sql) => sql<{ name: string | null }[]>`
        select name from member where mesh_id = ${meshId} and encode(peer_key, 'hex') = ${publicKey}`,
    )
    if (member) return member.name ?? ''
    const binding = bindBoxKey(identity, meshId, Date.now() + BINDING_FOR_MS)
    const chosen = tidyName(name)
    await addMembers(db, meshId, [{ ...binding, name: chosen, role: 'admin' }])
    return chosen
  } finally {
    await db.close()
  }
}

/** The name of the account, without what a name of a member may not have. */
export function userName(account = userInfo().username): string {
  const given = account
    .replace(/[^ -~]|[/,*()]/g, '')
    .replace(/^[ -]+/, '')
    .slice(0, NAME_LENGTH_MAX)
  const name = tidyName(given)
  return isChosenName(name) ? name : 'somebody'
}
