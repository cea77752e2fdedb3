/** How a mesh gets its first admin, with the rights of the roles: the operator's writes the invite, the broker's uses it. */
import { randomBytes } from 'node:crypto'
import { type InviteId, type MeshId, type PeerKey, toHex } from '@sealpost/std'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { listAudit } from './audit.ts'
import { type Database, openDatabase } from './connect.ts'
import { enrolByInvite, type InviteClaim, listMembers } from './membership.ts'
import { revokeInvite } from './mesh-changes.ts'
import { addOperatorInvite, foundMesh, type OperatorInvite } from './mesh-founding.ts'
import { listInvites } from './mesh-views.ts'
import { type ScratchDatabase, scratchDatabase, unhurried } from './testing.ts'
import { loginsOf, type RoleLogins } from './testing-roles.ts'

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
const claimOf = (meshId: MeshId, invite: OperatorInvite): InviteClaim => ({
  ...invite,
  meshId,
  issuer: toHex(randomBytes(32)) as PeerKey,
  role: 'admin',
})
const newcomer = (name: string) => ({
  ...{ peerKey: toHex(randomBytes(32)) as PeerKey, name, boxKey: randomBytes(32), boxEpoch: 1 },
  ...{ notAfterMs: 1_900_000_000_000, signature: randomBytes(64) },
})
const REFUSED = { status: 'invite_refused' }

test('the invite of a new mesh lets one admin in, and nobody else', async () => {
  const [meshId, invite] = [newMesh(), newInvite()]
  expect(await foundMesh(admin, { meshId, name: 'home', invite })).toBe(true)
  const outcomes = await Promise.all(
    ['alice', 'bob', 'carol'].map((name) => enrolByInvite(broker, claimOf(meshId, invite), newcomer(name))),
  )
  expect(outcomes.map(({ status }) => status).toSorted()).toEqual(['enrolled', 'invite_refused', 'invite_refused'])
  const members = await listMembers(broker, meshId, { after: '0'.repeat(64) as PeerKey, limit: 10 })
  expect(members).toMatchObject([{ role: 'admin' }])
  expect(await listInvites(admin, meshId, 10)).toMatchObject([{ issuer: null, uses: 1, usesMax: 1 }])
  expect(await listAudit(admin, { meshId, limit: 10 })).toMatchObject([{ action: 'mesh.create', subject: 'home' }])
})

test('no other invite goes by its id, and none that is over or revoked lets anybody in', async () => {
  const [meshId, first, over, revoked] = [newMesh(), newInvite(), newInvite(Date.now() - 1), newInvite()]
  await foundMesh(admin, { meshId, name: 'guarded', invite: first })
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
  for (const claim of claims) expect(await enrolByInvite(broker, claim, newcomer('mallory'))).toEqual(REFUSED)
  expect(await enrolByInvite(broker, claimOf(meshId, first), newcomer('alice'))).toMatchObject({ status: 'enrolled' })
})

test('a name is given to one mesh, and an invite to no mesh at all is none', async () => {
  const twice = { name: 'once', invite: newInvite() }
  expect(await foundMesh(admin, { ...twice, meshId: newMesh() })).toBe(true)
  expect(await foundMesh(admin, { ...twice, meshId: newMesh() })).toBe(false)
  expect(await addOperatorInvite(admin, newMesh(), newInvite())).toBe(false)
})
