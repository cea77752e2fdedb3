import { randomBytes } from 'node:crypto'
import { databaseOfFile } from '@sealpost/schema/testing'
import { asciiName, type InviteId, type MeshId, type PeerKey, type PeerNo, toHex } from '@sealpost/std'
import { skeletonOf } from '@sealpost/std/confusables'
import { expect, test } from 'vitest'
import { addMembers } from '../meshes/meshes.ts'
import { newKey, newMeshOf, randomBinding, revokeMember } from '../test/members.ts'
import { enrolByInvite, listMembers, revokeMembers, type VerifiedInvite } from './membership.ts'

const db = await databaseOfFile({ connections: 8 })

const ZERO = '0'.repeat(64) as PeerKey
const newInviteId = () => toHex(randomBytes(16)) as InviteId
const candidate = (name = `peer ${toHex(randomBytes(4))}`, peerKey = newKey()) => ({ ...randomBinding(peerKey), name })

async function mesh() {
  const issuer = newKey()
  const { meshId, owner: admin } = await newMeshOf(db, [{ ...randomBinding(issuer), name: 'admin', role: 'admin' }])
  const invite = (changed: Partial<VerifiedInvite> = {}): VerifiedInvite => ({
    ...{ meshId, inviteId: newInviteId(), hash: randomBytes(32), issuer, usesMax: 1, role: 'member' },
    ...{ notAfterMs: Date.now() + 60_000, ...changed },
  })
  const namesOf = async () => (await listMembers(db, meshId, { after: ZERO, limit: 1000 })).map(({ name }) => name)
  return { meshId, admin, issuer, invite, namesOf }
}

const REFUSED = { status: 'invite_refused' }

test('an invite creates a member with a session and a sender mark; only its hash is stored', async () => {
  const { meshId, invite } = await mesh()
  const [claim, who] = [invite({ role: 'admin', usesMax: 3 }), candidate('alice')]
  expect(await enrolByInvite(db, claim, who)).toEqual({ status: 'enrolled', name: 'alice' })
  const rows = await db.run(
    (sql) => sql`
      select m.name, m.role, m.box_key, s.epoch, k.version, i.hash, i.uses, i.uses_max, i.revoked_at,
        extract(epoch from i.not_after)::float8 * 1000 as not_after_ms
      from member m join session s using (mesh_id, peer_no) join sender_mark k on (k.mesh_id, k.sender) = (m.mesh_id, m.peer_no)
        join invite i on (i.mesh_id, i.invite_id) = (m.mesh_id, m.invite_id)
      where m.mesh_id = ${meshId} and m.peer_key = ${Buffer.from(who.peerKey, 'hex')}`,
  )
  expect(rows.map((row) => ({ ...row }))).toEqual([
    {
      ...{ name: 'alice', role: 'admin', box_key: who.boxKey, epoch: 0, version: 0 },
      ...{ hash: claim.hash, uses: 1, uses_max: 3, revoked_at: null, not_after_ms: claim.notAfterMs },
    },
  ])
})

test('an invite enrols exactly as many concurrent members as it has uses', async () => {
  const { invite, namesOf } = await mesh()
  const [single, triple] = [invite(), invite({ usesMax: 3 })]
  const outcomes = await Promise.all([
    ...Array.from({ length: 8 }, () => enrolByInvite(db, single, candidate())),
    ...Array.from({ length: 8 }, () => enrolByInvite(db, triple, candidate())),
  ])
  const enrolled = (from: number) => outcomes.slice(from, from + 8).filter(({ status }) => status === 'enrolled').length
  expect([enrolled(0), enrolled(8)]).toEqual([1, 3])
  expect(outcomes.filter(({ status }) => status === 'invite_refused')).toHaveLength(12)
  expect(await namesOf()).toHaveLength(1 + 1 + 3)
  expect(await enrolByInvite(db, triple, candidate())).toEqual(REFUSED)
})

test('an invite that expired, was altered, or is of another mesh or no admin is refused', async () => {
  const { meshId, invite, namesOf } = await mesh()
  const plain = newKey()
  const former = newKey()
  await addMembers(db, meshId, [randomBinding(plain), { ...randomBinding(former), role: 'admin' }])
  await revokeMember(db, meshId, former)
  const other = await mesh()
  const used = invite({ usesMax: 2 })
  await enrolByInvite(db, used, candidate('first'))
  const before = await namesOf()
  for (const bad of [
    invite({ notAfterMs: Date.now() - 1000 }),
    invite({ notAfterMs: 0 }),
    invite({ meshId: toHex(randomBytes(16)) as MeshId }),
    invite({ issuer: plain }),
    invite({ issuer: former }),
    invite({ issuer: newKey() }),
    invite({ issuer: other.issuer }),
    { ...used, hash: randomBytes(32) },
    { ...used, usesMax: 1 },
  ])
    expect(await enrolByInvite(db, bad, candidate())).toEqual(REFUSED)
  expect(await namesOf()).toEqual(before)
})

test('an invite without expiry works', async () => {
  const { invite } = await mesh()
  const outcome = await enrolByInvite(db, invite({ notAfterMs: Number.MAX_SAFE_INTEGER }), candidate('late'))
  expect(outcome.status).toBe('enrolled')
})

test('names are unique ignoring case, and a conflict does not use the invite', async () => {
  const { invite, namesOf } = await mesh()
  const claim = invite()
  expect(await enrolByInvite(db, claim, candidate('Admin'))).toEqual({ status: 'name_taken' })
  expect(await enrolByInvite(db, claim, candidate('bob'))).toEqual({ status: 'enrolled', name: 'bob' })
  expect((await namesOf()).sort()).toEqual(['admin', 'bob'])
})

test('of two concurrent requests for one name one gets it, and the other may retry', async () => {
  const { invite, namesOf } = await mesh()
  const claims = [invite(), invite(), invite(), invite()]
  const outcomes = await Promise.all(claims.map((claim) => enrolByInvite(db, claim, candidate('same'))))
  expect(outcomes.map(({ status }) => status).sort()).toEqual(['enrolled', 'name_taken', 'name_taken', 'name_taken'])
  const loser = claims[outcomes.findIndex(({ status }) => status === 'name_taken')]!
  expect((await enrolByInvite(db, loser, candidate('other'))).status).toBe('enrolled')
  expect(await namesOf()).toHaveLength(3)
})

const enrolled = (name: string) => candidate(asciiName(name))

test.each([
  ['the same letters, decomposed', 'Zoë', 'zoe\u0308'.normalize('NFC')],
  ['another case', 'Влад', 'ВЛАД'],
  ['letters of another script', 'paypal', '\u0440\u0430\u0443\u0440\u0430\u04cf'],
  ['a capital i', 'paypal', 'paypaI'],
  ['capital letters of another script', 'bot', '\u0412\u041e\u0422'],
  ['two letters for one', 'modem', 'modern'],
  ['a dotted capital i', 'istanbul', 'İstanbul'],
])('a name that looks like a taken one is refused: %s', async (_, taken, name) => {
  const { invite } = await mesh()
  expect(await enrolByInvite(db, invite(), enrolled(taken))).toMatchObject({ status: 'enrolled' })
  expect(await enrolByInvite(db, invite(), enrolled(name))).toEqual({ status: 'name_taken' })
})

test('a name that looks like that of a member of the previous version is refused', async () => {
  const { meshId, invite } = await mesh()
  const names = ['paypal', 'worker-1', 'worker-l', 'Zero-0', 'a"b`c|', 'MoDem']
  await addMembers(
    db,
    meshId,
    names.map((name, i) => ({ ...randomBinding(), ...(i === 2 ? {} : { name }) })),
  )
  // The previous version compares names only by their letters.
  await db.run((sql) => sql`update member set skeleton = null, folded = null where mesh_id = ${meshId}`)
  await db.run((sql) => sql`update member set name = 'worker-l' where mesh_id = ${meshId} and name is null`)
  const rows = await db.run(
    (sql) => sql<{ name: string; skeleton: string }[]>`
      select name, name_skeleton(name) as skeleton from member where mesh_id = ${meshId}`,
  )
  expect(rows).toHaveLength(names.length + 1)
  for (const { name, skeleton } of rows) expect(skeleton).toBe(skeletonOf(name))
  for (const name of ['рауpal'.replace('pal', '\u0440\u0430\u04cf'), 'worker-I', 'zero-O', 'modern', 'Paypal'])
    expect(await enrolByInvite(db, invite(), enrolled(name)), name).toEqual({ status: 'name_taken' })
})

test('of concurrent requests for names that look alike one is enrolled', async () => {
  const { invite } = await mesh()
  const names = ['scope', '\u0455\u0441\u043e\u0440\u0435', 'scope', '\u0405COPE', 'sc0pe']
  const outcomes = await Promise.all(names.map((name) => enrolByInvite(db, invite(), enrolled(name))))
  expect(outcomes.map(({ status }) => status).sort()).toEqual(['enrolled', ...Array(4).fill('name_taken')])
})

test('a repeated enrolment is the same one, even if the invite is used up, expired or revoked', async () => {
  const { admin, invite } = await mesh()
  const [claim, who] = [invite(), candidate('alice')]
  await enrolByInvite(db, claim, who)
  expect(await enrolByInvite(db, claim, { ...who, name: 'alicia' })).toEqual({ status: 'enrolled', name: 'alice' })
  await revokeMembers(db, admin, { members: [], invites: [claim.inviteId] })
  expect(await enrolByInvite(db, claim, who)).toEqual({ status: 'enrolled', name: 'alice' })
  const [row] = await db.run((sql) => sql`select uses from invite where invite_id = ${claim.inviteId}`)
  expect(row?.uses).toBe(1)
})

test('one key with two concurrent invites is one member', async () => {
  const { invite, namesOf } = await mesh()
  const who = candidate('twice')
  const outcomes = await Promise.all([invite(), invite()].map((claim) => enrolByInvite(db, claim, who)))
  expect(outcomes.map(({ status }) => status).sort()).toEqual(['already_member', 'enrolled'])
  expect(await namesOf()).toHaveLength(2)
})

test('an existing member is reported as a member, and a revoked key stays revoked', async () => {
  const { meshId, invite } = await mesh()
  const who = candidate('bob')
  await enrolByInvite(db, invite(), who)
  expect(await enrolByInvite(db, invite(), { ...who, name: 'bobby' })).toEqual({ status: 'already_member' })
  await revokeMember(db, meshId, who.peerKey)
  expect(await enrolByInvite(db, invite(), who)).toEqual({ status: 'revoked' })
})

test('a key may be a member of two meshes, under one name', async () => {
  const [here, there] = [await mesh(), await mesh()]
  const who = candidate('bob')
  expect((await enrolByInvite(db, here.invite(), who)).status).toBe('enrolled')
  expect((await enrolByInvite(db, there.invite(), who)).status).toBe('enrolled')
})

test('a revoked invite is refused, whether or not it was used', async () => {
  const { admin, invite } = await mesh()
  const [unused, used] = [invite({ usesMax: 5 }), invite({ usesMax: 5 })]
  await enrolByInvite(db, used, candidate())
  expect(await revokeMembers(db, admin, { members: [], invites: [unused.inviteId, used.inviteId] })).toEqual([])
  expect(await revokeMembers(db, admin, { members: [], invites: [unused.inviteId] })).toEqual([])
  for (const claim of [unused, used]) expect(await enrolByInvite(db, claim, candidate())).toEqual(REFUSED)
})

test('a revocation affects one mesh', async () => {
  const [here, there] = [await mesh(), await mesh()]
  const claim = here.invite()
  const who = candidate()
  await enrolByInvite(db, here.invite(), who)
  const all = { members: [who.peerKey], invites: [claim.inviteId] }
  expect(await revokeMembers(db, there.admin, all)).toEqual([])
  expect(await here.namesOf()).toContain(who.name)
  expect((await enrolByInvite(db, claim, candidate())).status).toBe('enrolled')
})

test('only an admin that is not revoked may revoke', async () => {
  const { meshId, admin, issuer, invite, namesOf } = await mesh()
  const who = candidate('bob')
  await enrolByInvite(db, invite(), who)
  const [peer] = await db.run(
    (sql) => sql`select peer_no from member where peer_key = ${Buffer.from(who.peerKey, 'hex')}`,
  )
  const bob = { meshId, peer: peer!.peer_no }
  const claim = invite()
  const all = { members: [who.peerKey, issuer], invites: [claim.inviteId] }
  expect(await revokeMembers(db, bob, all)).toBeNull()
  expect((await enrolByInvite(db, claim, candidate())).status).toBe('enrolled')
  expect(await revokeMembers(db, admin, { members: [issuer, newKey()], invites: [] })).toEqual([
    { peer: admin.peer, peerKey: issuer },
  ])
  expect(await revokeMembers(db, admin, all)).toBeNull()
  expect(await namesOf()).toContain('bob')
})

test('a member may revoke itself and nothing else', async () => {
  const { meshId, issuer, invite, namesOf } = await mesh()
  const who = candidate('bob')
  await enrolByInvite(db, invite(), who)
  const key = Buffer.from(who.peerKey, 'hex')
  const [row] = await db.run(
    (sql) => sql<{ peer: PeerNo }[]>`select peer_no as peer from member where peer_key = ${key}`,
  )
  const bob = { meshId, peer: row!.peer }
  const own = [who.peerKey]
  for (const more of [
    { members: [...own, issuer], invites: [] },
    { members: own, invites: [newInviteId()] },
    { members: [], invites: [] },
  ])
    expect(await revokeMembers(db, bob, more)).toBeNull()
  expect(await namesOf()).toContain('bob')
  expect(await revokeMembers(db, bob, { members: own, invites: [] })).toEqual([
    { peer: bob.peer, peerKey: who.peerKey },
  ])
  expect(await namesOf()).not.toContain('bob')
  expect(await revokeMembers(db, bob, { members: own, invites: [] })).toBeNull()
})

test('members are listed by key in pages, without revoked ones', async () => {
  const { meshId, issuer } = await mesh()
  const keys = Array.from({ length: 5 }, newKey)
  await addMembers(
    db,
    meshId,
    keys.map((key, i) => ({ ...randomBinding(key), ...(i === 0 ? {} : { name: `peer ${i}` }) })),
  )
  await revokeMember(db, meshId, keys[4]!)
  const expected = [issuer, ...keys.slice(0, 4)].sort()
  const first = await listMembers(db, meshId, { after: ZERO, limit: 3 })
  const rest = await listMembers(db, meshId, { after: first.at(-1)!.peerKey, limit: 3 })
  expect([...first, ...rest].map(({ peerKey }) => peerKey)).toEqual(expected)
  expect(first).toHaveLength(3)
  const byKey = new Map([...first, ...rest].map((row) => [row.peerKey, row]))
  expect(byKey.get(issuer)).toEqual({ peerKey: issuer, name: 'admin', role: 'admin' })
  expect(byKey.get(keys[0]!)).toEqual({ peerKey: keys[0]!, name: '', role: 'member' })
})
