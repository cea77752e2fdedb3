/** Tests the enrolment of a mesh's first admin, whose invite the admin role stores and the broker's role uses. */
import { randomBytes } from 'node:crypto'
import { type Database, openDatabase } from '@sealpost/pg'
import { type ScratchDatabase, unhurried } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import { loginsOf, type RoleLogins } from '@sealpost/schema/testing-roles'
import { type InviteId, type MeshId, type PeerKey, toHex } from '@sealpost/std'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { enrolByInvite, listMembers, type VerifiedInvite } from '../members/membership.ts'
import { listAudit } from '../operators/operators.ts'
import { addOperatorInvite, createMeshWithInvite, listInvites, type OperatorInvite, revokeInvite } from './meshes.ts'

let scratch: ScratchDatabase
let logins: RoleLogins
let admin: Database
let broker: Database

beforeAll(async () => {
  scratch = await scratchDatabase()
  logins = await loginsOf(scratch.url)
  admin = await openDatabase(logins.admin, { ...unhurried, connections: 1 })
  broker = await openDatabase(logins.broker, { ...unhurried, connections: 4 })
})
afterAll(async () => {
  await admin.close()
  await broker.close()
  await logins.drop()
  await scratch.drop()
})

const newMesh = () => toHex(randomBytes(16)) as MeshId
const newInvite = (notAfterMs = Date.now() + 60_000): OperatorInvite => ({
  inviteId: toHex(randomBytes(16)) as InviteId,
  hash: randomBytes(32),
  usesMax: 1,
  notAfterMs,
})
const claimOf = (meshId: MeshId, invite: OperatorInvite): VerifiedInvite => ({
  ...invite,
  meshId,
  issuer: toHex(randomBytes(32)) as PeerKey,
  role: 'admin',
})
const candidate = (name: string) => ({
  ...{ peerKey: toHex(randomBytes(32)) as PeerKey, name, boxKey: randomBytes(32), boxEpoch: 1 },
  ...{ notAfterMs: 1_900_000_000_000, signature: randomBytes(64) },
})
const REFUSED = { status: 'invite_refused' }

test('the invite of a new mesh enrols one admin', async () => {
  const [meshId, invite] = [newMesh(), newInvite()]
  expect(await createMeshWithInvite(admin, { meshId, name: 'home', invite })).toBe(true)
  const outcomes = await Promise.all(
    ['alice', 'bob', 'carol'].map((name) => enrolByInvite(broker, claimOf(meshId, invite), candidate(name))),
  )
  expect(outcomes.map(({ status }) => status).toSorted()).toEqual(['enrolled', 'invite_refused', 'invite_refused'])
  const members = await listMembers(broker, meshId, { after: '0'.repeat(64) as PeerKey, limit: 10 })
  expect(members).toMatchObject([{ role: 'admin' }])
  expect(await listInvites(admin, meshId, 10)).toMatchObject([{ issuer: null, uses: 1, usesMax: 1 }])
  expect(await listAudit(admin, { meshId, limit: 10 })).toMatchObject([{ action: 'mesh.create', subject: 'home' }])
})

test('another invite with its id is refused, and so is one that expired or was revoked', async () => {
  const [meshId, first, over, revoked] = [newMesh(), newInvite(), newInvite(Date.now() - 1), newInvite()]
  await createMeshWithInvite(admin, { meshId, name: 'guarded', invite: first })
  await addOperatorInvite(admin, meshId, over)
  await addOperatorInvite(admin, meshId, revoked)
  await revokeInvite(admin, null, { meshId, inviteId: revoked.inviteId })
  const claims = [
    { ...claimOf(meshId, first), hash: randomBytes(32) },
    claimOf(newMesh(), first),
    claimOf(meshId, newInvite()),
    claimOf(meshId, over),
    claimOf(meshId, revoked),
  ]
  for (const claim of claims) expect(await enrolByInvite(broker, claim, candidate('mallory'))).toEqual(REFUSED)
  expect(await enrolByInvite(broker, claimOf(meshId, first), candidate('alice'))).toMatchObject({ status: 'enrolled' })
})

test('a name belongs to one mesh, and an invite needs a mesh', async () => {
  const twice = { name: 'once', invite: newInvite() }
  expect(await createMeshWithInvite(admin, { ...twice, meshId: newMesh() })).toBe(true)
  expect(await createMeshWithInvite(admin, { ...twice, meshId: newMesh() })).toBe(false)
  expect(await addOperatorInvite(admin, newMesh(), newInvite())).toBe(false)
})
