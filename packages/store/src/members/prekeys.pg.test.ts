import { randomBytes } from 'node:crypto'
import { databaseOfFile } from '@sealpost/schema/testing'
import type { MeshId, PeerKey, PeerNo } from '@sealpost/std'
import { expect, test } from 'vitest'
import { makeDevice, newKey, newMeshOf, randomBinding, revokeMember } from '../test/members.ts'
import { rotateIdentity } from './key-bindings.ts'
import { changeConsent } from './membership.ts'
import {
  claimPrekey,
  ONE_TIME_PREKEYS_MAX,
  PREKEYS_PER_CLAIMER_MAX,
  PREKEYS_PER_TARGET_MAX,
  type PrekeyPublication,
  type PublishedPrekey,
  publishPrekeys,
} from './prekeys.ts'

const db = await databaseOfFile({ connections: 8 })

const statementOf = (issuedAtMs: number) => ({ statement: randomBytes(200), issuedAtMs })
const keys = (count: number, from = 4_000_000_000): PublishedPrekey[] =>
  Array.from({ length: count }, (_, i) => ({ id: from + i, publicKey: randomBytes(32) }))

/** Creates a mesh: the first peer publishes, and the others claim. */
async function newPeers(count = 3) {
  const names = Array.from({ length: count }, newKey)
  const { meshId, numbers, owner } = await newMeshOf(
    db,
    names.map((name) => randomBinding(name)),
  )
  const [target] = names as [PeerKey]
  const first = statementOf(1)
  const publish = (oneTime: PublishedPrekey[], other: Partial<PrekeyPublication> = {}) =>
    publishPrekeys(db, { ...owner, peerKey: target }, { ...first, replaces: false, ...other, oneTime })
  const claim = (user: PeerNo = numbers[1]!) => claimPrekey(db, { meshId, user }, target)
  return { meshId, names, numbers, owner, target, first, publish, claim }
}

const rowsOf = async (meshId: MeshId): Promise<number> => {
  const [row] = await db.run(
    (sql) => sql<{ count: number }[]>`
      select (select count(*) from one_time_prekey where mesh_id = ${meshId})::int
        + (select count(*) from prekey_statement where mesh_id = ${meshId})::int as count`,
  )
  return row!.count
}

test('each one-time prekey is handed out once, then the signed prekey alone, which the owner sees', async () => {
  const { first, publish, claim } = await newPeers()
  expect(await claim()).toEqual({ status: 'no_prekeys' })
  const published = keys(2)
  expect(await publish(published)).toEqual({ status: 'done', oneTimeLeft: 2, lastResorts: 0 })
  const claims = [await claim(), await claim()]
  for (const one of claims) expect(one).toMatchObject({ status: 'claimed', statement: first.statement })
  const handed = claims.flatMap((one) => (one.status === 'claimed' ? [one.oneTime] : []))
  expect(handed.sort((a, b) => a.id - b.id)).toEqual(published)
  expect(await claim()).toEqual({ status: 'last_resort', statement: first.statement, reason: 'none_left' })
  expect(await publish([])).toEqual({ status: 'done', oneTimeLeft: 0, lastResorts: 1 })
  expect(await publish(keys(1, 7), statementOf(2))).toEqual({ status: 'done', oneTimeLeft: 1, lastResorts: 0 })
})

test('concurrent claims never get the same key', async () => {
  const { numbers, publish, claim } = await newPeers(5)
  await publish(keys(60))
  const claims = await Promise.all(Array.from({ length: 80 }, (_, i) => claim(numbers[1 + (i % 4)]!)))
  const handed = claims.flatMap((one) => (one.status === 'claimed' ? [one.oneTime.id] : []))
  expect(new Set(handed).size).toBe(handed.length)
  const [row] = await db.run(
    (sql) => sql<{ count: number }[]>`
      select count(*)::int as count from one_time_prekey where mesh_id = (
        select mesh_id from member where peer_no = ${numbers[0]!}) and claimed_at is not null`,
  )
  expect(row!.count).toBe(handed.length)
})

test('a repeated publication offers no key again', async () => {
  const { publish, claim } = await newPeers()
  const published = keys(3)
  await publish(published)
  await claim()
  expect(await publish(published)).toMatchObject({ oneTimeLeft: 2 })
  expect(await publish(published, { replaces: true })).toMatchObject({ oneTimeLeft: 2 })
  expect(await publish(published.slice(0, 1), { replaces: true })).toMatchObject({ status: 'done' })
  const statuses = [await claim(), await claim(), await claim()].map(({ status }) => status)
  expect(statuses.filter((status) => status === 'claimed').length).toBeLessThanOrEqual(1)
})

test('an older statement, or another one of the same time, changes nothing', async () => {
  const { publish, first, claim } = await newPeers()
  await publish([], { issuedAtMs: 5 })
  expect(await publish(keys(1), statementOf(4))).toEqual({ status: 'prekey_rolled_back' })
  expect(await publish(keys(1), statementOf(5))).toEqual({ status: 'prekey_rolled_back' })
  expect(await claim()).toEqual({ status: 'last_resort', statement: first.statement, reason: 'none_left' })
})

test('a peer has a limited number of unclaimed keys, and can replace them', async () => {
  const { publish } = await newPeers()
  expect(await publish(keys(ONE_TIME_PREKEYS_MAX))).toMatchObject({ oneTimeLeft: ONE_TIME_PREKEYS_MAX })
  expect(await publish(keys(1, 1))).toEqual({ status: 'too_many_prekeys' })
  expect(await publish(keys(2, 1), { replaces: true })).toMatchObject({ status: 'done', oneTimeLeft: 2 })
})

test('a user can claim a limited number of one peer and in total, and old claims no longer count', async () => {
  const { meshId, numbers, publish, claim } = await newPeers()
  await publish(keys(PREKEYS_PER_TARGET_MAX + 3))
  for (let i = 0; i < PREKEYS_PER_TARGET_MAX; i++) expect((await claim()).status).toBe('claimed')
  expect(await claim()).toMatchObject({ status: 'last_resort', reason: 'claimed_too_many' })
  expect(await publish([])).toMatchObject({ oneTimeLeft: 3, lastResorts: 0 })
  expect((await claim(numbers[2]!)).status).toBe('claimed')
  await db.run(
    (sql) => sql`update one_time_prekey set claimed_at = claimed_at - interval '25 hours' where mesh_id = ${meshId}
      and claimed_at is not null`,
  )
  expect((await claim()).status).toBe('claimed')
  await publish([]) // forgets the old claims
  expect(await rowsOf(meshId)).toBe(1 + 2)
  await db.run(
    (sql) => sql`
      insert into one_time_prekey (mesh_id, peer_no, key_id, public_key, claimer, claimed_at)
      select ${meshId}::uuid, ${numbers[2]!}, i, '', ${numbers[1]!}, now() from generate_series(1, ${PREKEYS_PER_CLAIMER_MAX}) i`,
  )
  expect(await claim()).toMatchObject({ status: 'last_resort', reason: 'claimed_too_many' })
})

test('a key that is no longer the key of its member publishes nothing', async () => {
  const { meshId, owner, first } = await newPeers()
  const former = { ...owner, peerKey: newKey() }
  const published = publishPrekeys(db, former, { ...first, oneTime: keys(1), replaces: false })
  expect(await published).toEqual({ status: 'revoked' })
  expect(await rowsOf(meshId)).toBe(0)
})

test('a device has prekeys of its own, its claims count for its user, and consent is between users', async () => {
  const { meshId, names, numbers, owner, publish, claim } = await newPeers()
  await makeDevice(db, meshId, numbers[2]!, numbers[0]!)
  const device = { meshId, peer: numbers[2]!, peerKey: names[2]! }
  await publishPrekeys(db, device, { ...statementOf(1), oneTime: keys(3), replaces: false })
  await publish(keys(3))
  const ofDevice = (user: PeerNo) => claimPrekey(db, { meshId, user }, names[2]!)
  await changeConsent(db, owner, { policy: null, verdicts: [{ peer: names[1]!, verdict: 'blocked' }] })
  expect([await claim(), await ofDevice(numbers[1]!)]).toEqual(Array(2).fill({ status: 'not_allowed' }))
  expect((await ofDevice(numbers[0]!)).status).toBe('claimed')
  await changeConsent(db, owner, { policy: 'contacts', verdicts: [{ peer: names[1]!, verdict: 'forgotten' }] })
  expect(await claim()).toEqual({ status: 'not_allowed' })
  await changeConsent(db, owner, { policy: null, verdicts: [{ peer: names[1]!, verdict: 'allowed' }] })
  expect((await claim()).status).toBe('claimed')
})

test('a revocation and a rotation of the identity key delete the prekeys', async () => {
  const [revoked, rotated] = [await newPeers(), await newPeers()]
  for (const { publish, claim } of [revoked, rotated]) {
    await publish(keys(3))
    await claim()
  }
  await revokeMember(db, revoked.meshId, revoked.target)
  expect(await rowsOf(revoked.meshId)).toBe(0)
  expect(await revoked.publish(keys(1))).toEqual({ status: 'revoked' })
  expect(await revoked.claim()).toEqual({ status: 'recipient_unknown' })
  const rotation = { former: rotated.target, statement: randomBytes(9), binding: randomBinding(newKey(), 2) }
  expect(await rotateIdentity(db, rotated.owner, rotation)).toBe('done')
  expect(await rowsOf(rotated.meshId)).toBe(0)
})
