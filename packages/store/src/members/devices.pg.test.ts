import { randomBytes } from 'node:crypto'
import { databaseOfFile } from '@sealpost/schema/testing'
import { asciiName, type MeshId, type PeerKey, toHex } from '@sealpost/std'
import { expect, test } from 'vitest'
import { addMembers } from '../meshes/meshes.ts'
import { newKey, newMeshOf, randomBinding, revokeMember } from '../test/members.ts'
import { enrolDevice, findUserRecords, removeDevice, type VerifiedDeviceInvite } from './devices.ts'
import { findSuccessors, rotateIdentity } from './key-bindings.ts'
import { changeConsent, findConsent } from './membership.ts'

const db = await databaseOfFile({ connections: 4 })

const FAR_MS = 4e12

async function person(name?: string) {
  const key = newKey()
  const { meshId, owner } = await newMeshOf(db, [{ ...randomBinding(key), ...(name === undefined ? {} : { name }) }])
  const claim = (changed: Partial<VerifiedDeviceInvite> = {}): VerifiedDeviceInvite => ({
    ...{ meshId, person: key, inviteKey: newKey(), label: 'phone', joinByMs: FAR_MS, notAfterMs: FAR_MS },
    ...{ statement: randomBytes(200), ...changed },
  })
  const add = (changed: Partial<VerifiedDeviceInvite> = {}, device = newKey(), max = 16) =>
    enrolDevice(db, claim(changed), randomBinding(device), { devicesMax: max })
  return { meshId, key, owner, claim, add }
}

test('a device has the name of its user and its label, truncated', async () => {
  const { add } = await person('alice')
  expect(await add()).toEqual({ status: 'enrolled', name: 'alice/phone' })
  const long = await person('n'.repeat(64))
  expect(await long.add({ label: 'b'.repeat(32) })).toEqual({
    status: 'enrolled',
    name: `${'n'.repeat(31)}/${'b'.repeat(32)}`,
  })
  const nameless = await person()
  expect(await nameless.add()).toEqual({ status: 'enrolled', name: `${nameless.key.slice(0, 8)}/phone` })
})

test('a Unicode name is not cut, and no two devices look alike', async () => {
  const { add } = await person('Zoë')
  expect(await add({ label: asciiName('ноутбук') })).toEqual({ status: 'enrolled', name: asciiName('Zoë/ноутбук') })
  expect(await add({ label: asciiName('НОУТБУК') })).toEqual({ status: 'name_taken' })
  expect(await add({ label: 'scope' })).toMatchObject({ status: 'enrolled' })
  expect(await add({ label: asciiName('\u0455\u0441\u043e\u0440\u0435') })).toEqual({ status: 'name_taken' })
  const long = await person('é'.repeat(50))
  expect(await long.add({ label: 'b'.repeat(32) })).toEqual({
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
  expect(await removeDevice(db, owner, { device: laptop, removal })).toMatchObject({ peerKey: laptop })
  expect(await removeDevice(db, owner, { device: laptop, removal: randomBytes(100) })).toMatchObject({
    peerKey: laptop,
  })
  expect(await removeDevice(db, owner, { device: key, removal })).toBe(null)
  const known = { statements: [statement], removals: [removal], successions: [] }
  const none = { statements: [], removals: [], successions: [] }
  const of = (peerKey: PeerKey, isKnown = true, at = meshId) => ({ meshId: at, peerKey, isKnown })
  const strangers = [of(newKey(), false), of(key, false, toHex(randomBytes(16)) as MeshId)]
  for (const asked of [[of(key)], [of(phone)], [of(laptop)], [...strangers, of(key), of(phone), of(key)]])
    expect(await findUserRecords(db, asked)).toEqual(asked.map(({ isKnown }) => (isKnown ? known : none)))
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
