import { randomBytes } from 'node:crypto'
import { databaseOfFile } from '@sealpost/schema/testing'
import { asciiName, fromHex, type MeshId, type PeerKey, type PeerNo, toHex } from '@sealpost/std'
import { expect, test } from 'vitest'
import { addMembers } from '../meshes/meshes.ts'
import { newKey, newMeshOf, randomBinding, revokeMember } from '../test/members.ts'
import { enrolDevice, findUserRecords, removeDevice, type VerifiedDeviceInvite } from './devices.ts'
import { findSuccessors, rotateIdentity } from './key-bindings.ts'
import { changeConsent, findConsent, revokeMembers } from './membership.ts'

const db = await databaseOfFile({ connections: 4 })

const FAR_MS = 4e12

async function person(name?: string) {
  const key = newKey()
  const { meshId, owner } = await newMeshOf(db, [{ ...randomBinding(key), ...(name === undefined ? {} : { name }) }])
  const claim = (changed: Partial<VerifiedDeviceInvite> = {}): VerifiedDeviceInvite => ({
    ...{ meshId, voucher: key, inviteKey: newKey(), label: 'phone', joinByMs: FAR_MS, notAfterMs: FAR_MS },
    ...{ statement: randomBytes(200), ...changed },
  })
  const add = (changed: Partial<VerifiedDeviceInvite> = {}, device = newKey(), max = 16) =>
    enrolDevice(db, claim(changed), randomBinding(device), { devicesMax: max })
  return { meshId, key, owner, claim, add }
}

test('a device has the name of its user and its label, truncated', async () => {
  const { add, key } = await person('alice')
  expect(await add()).toEqual({ status: 'enrolled', name: 'alice/phone', user: key })
  const long = await person('n'.repeat(64))
  expect(await long.add({ label: 'b'.repeat(32) })).toEqual({
    status: 'enrolled',
    name: `${'n'.repeat(31)}/${'b'.repeat(32)}`,
    user: long.key,
  })
  const nameless = await person()
  expect(await nameless.add()).toEqual({
    status: 'enrolled',
    name: `${nameless.key.slice(0, 8)}/phone`,
    user: nameless.key,
  })
})

test('a Unicode name is not cut, and no two devices look alike', async () => {
  const { add } = await person('Zoë')
  expect(await add({ label: asciiName('ноутбук') })).toMatchObject({
    status: 'enrolled',
    name: asciiName('Zoë/ноутбук'),
  })
  expect(await add({ label: asciiName('НОУТБУК') })).toEqual({ status: 'name_taken' })
  expect(await add({ label: 'scope' })).toMatchObject({ status: 'enrolled' })
  expect(await add({ label: asciiName('\u0455\u0441\u043e\u0440\u0435') })).toEqual({ status: 'name_taken' })
  const long = await person('é'.repeat(50))
  expect(await long.add({ label: 'b'.repeat(32) })).toMatchObject({
    status: 'enrolled',
    name: `${long.key.slice(0, 8)}/${'b'.repeat(32)}`,
  })
})

test('a device beyond the limit is refused; removed and expired ones make room', async () => {
  const { add, owner } = await person('alice')
  const device = newKey()
  await add({ label: 'a' }, device, 1)
  expect(await add({ label: 'b' }, newKey(), 1)).toEqual({ status: 'too_many_devices' })
  await removeDevice(db, owner, { device, removal: randomBytes(100) })
  expect(await add({ label: 'b' }, newKey(), 1)).toMatchObject({ status: 'enrolled' })
  await db.run((sql) => sql`update member set vouched_until = now() - interval '1 second' where name = 'alice/b'`)
  expect(await add({ label: 'c' }, newKey(), 1)).toMatchObject({ status: 'enrolled' })
})

test('of two concurrent devices with one invite, one is enrolled', async () => {
  const { add } = await person('alice')
  const inviteKey = newKey()
  const outcomes = await Promise.all([1, 2, 3].map((n) => add({ inviteKey, label: `device ${n}` })))
  expect(outcomes.map(({ status }) => status).sort()).toEqual(['enrolled', 'invite_refused', 'invite_refused'])
})

test('the statements about a user are found by each of its keys; removed devices have only their removal', async () => {
  const { add, owner, key, meshId } = await person('alice')
  const [phone, laptop] = [newKey(), newKey()]
  const statement = randomBytes(200)
  await add({ label: 'phone', statement }, phone)
  await add({ label: 'laptop' }, laptop)
  const removal = randomBytes(100)
  expect(await removeDevice(db, owner, { device: laptop, removal })).toMatchObject({
    user: key,
    ended: [{ peerKey: laptop }],
  })
  expect(await removeDevice(db, owner, { device: laptop, removal: randomBytes(100) })).toMatchObject({
    ended: [{ peerKey: laptop }],
  })
  expect(await removeDevice(db, owner, { device: key, removal })).toBe(null)
  const known = { statements: [statement], removals: [removal], successions: [] }
  const none = { statements: [], removals: [], successions: [] }
  const of = (peerKey: PeerKey, isKnown = true, at = meshId) => ({ meshId: at, peerKey, isKnown })
  const strangers = [of(newKey(), false), of(key, false, toHex(randomBytes(16)) as MeshId)]
  for (const asked of [[of(key)], [of(phone)], [of(laptop)], [...strangers, of(key), of(phone), of(key)]])
    expect(await findUserRecords(db, asked)).toEqual(asked.map(({ isKnown }) => (isKnown ? known : none)))
})

/** Returns a statement whose voucher has this key at its place. */
function vouchedBy(key: PeerKey): Uint8Array {
  const statement = randomBytes(200)
  statement.set(fromHex(key), 20)
  return statement
}

/** Returns a user with a laptop and a session for which the laptop vouches. */
async function withSession() {
  const alice = await person('alice')
  const { meshId } = alice
  const [laptop, session] = [newKey(), newKey()]
  await alice.add({ label: 'laptop', statement: vouchedBy(alice.key) }, laptop)
  const vouch = (voucher: PeerKey, device: PeerKey, changed: Partial<VerifiedDeviceInvite> = {}) =>
    alice.add({ voucher, label: device.slice(0, 8), statement: vouchedBy(voucher), ...changed }, device)
  const added = await vouch(laptop, session, { label: 'laptop-1' })
  const refOf = async (key: PeerKey) => {
    const [row] = await db.run(
      (sql) => sql<{ peer: PeerNo }[]>`select peer_no as peer from member where peer_key = ${`\\x${key}`}::bytea`,
    )
    return { meshId, peer: row!.peer }
  }
  const live = async () => {
    const rows = await db.run(
      (sql) => sql<{ key: PeerKey }[]>`select encode(peer_key, 'hex') as key from member
        where mesh_id = ${meshId}::uuid and revoked_at is null`,
    )
    return new Set(rows.map(({ key }) => key))
  }
  return { ...alice, laptop, session, added, vouch, refOf, live }
}

test('a device vouches for devices of its user, and these may not vouch for others', async () => {
  const { key, meshId, laptop, session, added, vouch } = await withSession()
  expect(added).toEqual({ status: 'enrolled', name: 'alice/laptop-1', user: key })
  expect(await vouch(session, newKey())).toEqual({ status: 'invite_refused' })
  const untilMs = async () => {
    const [row] = await db.run(
      (sql) => sql<{ ms: number }[]>`select extract(epoch from vouched_until)::float8 * 1000 as ms from member
        where name = 'alice/late'`,
    )
    return row!.ms
  }
  await db.run((sql) => sql`update member set vouched_until = to_timestamp(3e9) where name = 'alice/laptop'`)
  await vouch(laptop, newKey(), { label: 'late' })
  expect(await untilMs()).toBe(3e12)
  await db.run((sql) => sql`update member set vouched_until = now() where name = 'alice/laptop'`)
  expect(await vouch(laptop, newKey())).toEqual({ status: 'invite_refused' })
  const [records] = await findUserRecords(db, [{ meshId, peerKey: session }])
  expect(records!.statements).toHaveLength(2)
})

test('a device removes only devices that it vouched for, and its own removal ends them', async () => {
  const { key, owner, laptop, session, vouch, refOf, live } = await withSession()
  const [tablet, second] = [newKey(), newKey()]
  await vouch(key, tablet)
  await vouch(laptop, second)
  const removal = randomBytes(100)
  const remove = async (by: PeerKey, device: PeerKey) => removeDevice(db, await refOf(by), { device, removal })
  for (const [by, device] of [[tablet, session], [laptop, tablet], [session, laptop], [laptop, key]] as const) // biome-ignore format: pairs
    expect(await remove(by, device)).toBe(null)
  expect(await remove(laptop, second)).toMatchObject({ user: key, ended: [{ peerKey: second }] })
  const removed = await removeDevice(db, owner, { device: laptop, removal })
  expect(new Set(removed!.ended.map(({ peerKey }) => peerKey))).toEqual(new Set([laptop, session, second]))
  expect(await live()).toEqual(new Set([key, tablet]))
})

/** Returns a statement with a label of one character and the time until which its invite can be used. */
function joinableUntil(joinByMs: number): Uint8Array {
  const statement = randomBytes(200)
  statement.set([0, 1], 86)
  new DataView(statement.buffer, statement.byteOffset).setBigUint64(89, BigInt(joinByMs))
  return statement
}

test('a voucher is renewed by its user, once its invite or the voucher itself has expired', async () => {
  const { add, meshId, key } = await person('alice')
  const device = newKey()
  const untilMs = async () => {
    const [row] = await db.run(
      (sql) => sql<{ ms: number }[]>`select extract(epoch from vouched_until)::float8 * 1000 as ms from member
        where peer_key = ${`\\x${device}`}::bytea`,
    )
    return row!.ms
  }
  const enrolled = { status: 'enrolled', name: 'alice/a', user: key }
  const renew = (notAfterMs: number, changed: Partial<VerifiedDeviceInvite> = {}) =>
    add({ label: 'a', notAfterMs, statement: joinableUntil(1000), ...changed }, device)
  const replaced = { label: 'a', inviteKey: newKey() }
  await add({ ...replaced, notAfterMs: 3.1e12, statement: joinableUntil(FAR_MS) }, device)
  expect(await renew(3.2e12)).toEqual({ status: 'already_member' })
  await db.run((sql) => sql`update member set vouched_until = now() where name = 'alice/a'`)
  expect(await renew(3.2e12)).toEqual(enrolled)
  const statement = joinableUntil(1000)
  expect(await renew(3.3e12, { statement })).toEqual(enrolled)
  expect(await untilMs()).toBe(3.3e12)
  const [records] = await findUserRecords(db, [{ meshId, peerKey: key }])
  expect(records!.statements).toEqual([statement])
  expect(await renew(3.2e12)).toEqual({ status: 'already_member' })
  expect(await renew(3.4e12, { label: 'b' })).toEqual({ status: 'already_member' })
  const other = await person('bob')
  expect(await other.add({ ...replaced, meshId, notAfterMs: 3.4e12 }, device)).toEqual({ status: 'invite_refused' })
  expect(await untilMs()).toBe(3.3e12)
})

test('revoking a device revokes the devices that it vouched for', async () => {
  const { key, meshId, laptop, session, vouch, refOf, live } = await withSession()
  const [tablet, second] = [newKey(), newKey()]
  await vouch(key, tablet)
  await vouch(tablet, second)
  const left = await revokeMembers(db, await refOf(laptop), { members: [laptop], invites: [] })
  expect(new Set(left!.map(({ peerKey }) => peerKey))).toEqual(new Set([laptop, session]))
  expect(await live()).toEqual(new Set([key, tablet, second]))
  await revokeMember(db, meshId, tablet)
  expect(await live()).toEqual(new Set([key]))
})

test('revoking a user revokes its devices', async () => {
  const { add, key, meshId } = await person('alice')
  const phone = newKey()
  await add({}, phone)
  await revokeMember(db, meshId, key)
  const rows = await db.run((sql) => sql`select 1 from member where mesh_id = ${meshId}::uuid and revoked_at is null`)
  expect(rows.length).toBe(0)
  expect(await add()).toEqual({ status: 'invite_refused' })
})

test('a member rotates its key once, and keeps its number', async () => {
  const { key, owner, meshId } = await person('alice')
  const [next, other] = [newKey(), newKey()]
  await addMembers(db, meshId, [randomBinding(other)])
  await changeConsent(db, owner, { policy: null, verdicts: [{ peer: other, verdict: 'blocked' }] })
  const statement = randomBytes(200)
  const turn = (to: PeerKey, epoch = 2) =>
    rotateIdentity(db, owner, { former: key, statement, binding: randomBinding(to, epoch) })
  expect(await turn(other)).toBe('key_taken')
  expect(await turn(next, 1)).toBe('stale')
  expect(await turn(next)).toBe('done')
  expect(await turn(next)).toBe('done')
  expect(await turn(newKey(), 3)).toBe('stale')
  expect((await findConsent(db, owner))!.named).toMatchObject([{ peerKey: other }])
  expect(await findSuccessors(db, meshId, [key, other])).toEqual(new Map([[key, next]]))
  expect(await findUserRecords(db, [{ meshId, peerKey: next }])).toMatchObject([{ successions: [statement] }])
  const third = newKey()
  await rotateIdentity(db, owner, { former: next, statement, binding: randomBinding(third, 3) })
  expect(await findSuccessors(db, meshId, [key, next])).toEqual(new Map([[key, third], [next, third]])) // biome-ignore format: pairs
})
