import {
  generateIdentity,
  ready,
  type SigningKeys,
  signDevice,
  signIdentityRotation,
  signRemoval,
  signVoucher,
} from '@sealpost/identity'
import type { MeshId, PeerKey } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import { sodiumUsers } from '../keys/sodium-crypto.ts'
import type { PeerEvent } from '../ports.ts'
import { seenStoreOf } from '../stores/store.ts'
import { UserStatements } from './user-statements.ts'

beforeAll(ready)

const MESH = 'a0'.repeat(16) as MeshId
const OTHER_MESH = 'b0'.repeat(16) as MeshId
const keys = () => generateIdentity().signing

class Told {
  readonly events: PeerEvent[] = []
  readonly statements = new UserStatements({
    crypto: sodiumUsers(MESH),
    emit: (event) => this.events.push(event),
    seen: seenStoreOf(null),
  })

  devices(statements: Uint8Array[], removals: Uint8Array[] = []): void {
    this.statements.devicesPushed({ type: 'deviceList', ref: 0, statements, removals })
  }

  successions(...statements: Uint8Array[]): void {
    this.statements.rotationsPushed({ type: 'successions', statements })
  }

  get tampers(): string[] {
    return this.events.flatMap((event) => (event.type === 'user_tamper' ? [event.reason] : []))
  }
}

function vouch(
  user: SigningKeys,
  device: SigningKeys,
  { once = keys(), label = 'phone', notAfterMs = 9_000, meshId = MESH } = {},
): Uint8Array {
  const names = { meshId, user: user.publicKey, inviteKey: once.publicKey }
  return signDevice(device, once, signVoucher(user, { ...names, label, joinByMs: 1, notAfterMs }))
}

const removal = (user: SigningKeys, device: SigningKeys) =>
  signRemoval(user, { meshId: MESH, user: user.publicKey, device: device.publicKey })
const succession = (former: SigningKeys, successor: SigningKeys, atMs = 1) =>
  signIdentityRotation({ former, successor }, { meshId: MESH, atMs })

test('a device acts for its user while the voucher is valid', () => {
  const [alice, phone] = [keys(), keys()]
  const told = new Told()
  expect(told.statements.senderUser(phone.publicKey, 1)).toEqual({ user: phone.publicKey, deviceLabel: null })
  told.devices([vouch(alice, phone)])
  expect(told.statements.senderUser(phone.publicKey, 9_000)).toEqual({ user: alice.publicKey, deviceLabel: 'phone' })
  expect(told.statements.devicesOf(alice.publicKey, 1)).toEqual([
    { key: phone.publicKey, label: 'phone', notAfterMs: 9_000 },
  ])
  expect(told.statements.senderUser(phone.publicKey, 9_001)).toEqual({ user: phone.publicKey, deviceLabel: null })
  expect(told.statements.devicesOf(alice.publicKey, 9_001)).toEqual([])
  told.devices([vouch(alice, keys(), { meshId: OTHER_MESH }), new Uint8Array(9)])
  expect(told.tampers).toEqual(['statement_forged', 'statement_forged'])
})

test("a device's device acts for the user, until a voucher of the chain expires or the device in between is removed", () => {
  const [alice, laptop, session, deeper] = [keys(), keys(), keys(), keys()]
  const told = new Told()
  const statements = [
    vouch(alice, laptop, { label: 'laptop' }),
    vouch(laptop, session, { label: 'laptop-1', notAfterMs: 5_000 }),
    vouch(session, deeper),
  ]
  told.devices(statements)
  const isAlice = (label: string) => ({ user: alice.publicKey, deviceLabel: label })
  const isItself = (of: SigningKeys) => ({ user: of.publicKey, deviceLabel: null })
  expect(told.statements.senderUser(session.publicKey, 1)).toEqual(isAlice('laptop-1'))
  expect(told.statements.senderUser(deeper.publicKey, 1)).toEqual(isItself(deeper))
  expect(told.statements.devicesOf(alice.publicKey, 1).map(({ label }) => label)).toEqual(['laptop', 'laptop-1'])
  expect(told.statements.senderUser(session.publicKey, 5_001)).toEqual(isItself(session))
  expect(told.events).toContainEqual(
    expect.objectContaining({ type: 'device_changed', user: alice.publicKey, label: 'laptop-1' }),
  )
  told.devices([], [removal(alice, laptop)])
  expect(told.statements.senderUser(session.publicKey, 1)).toEqual(isItself(session))
  expect(told.statements.devicesOf(alice.publicKey, 1)).toEqual([])
})

test('the user and the vouching device can remove a device of a device, and nobody else can', () => {
  const [alice, mallory, laptop, tablet] = [keys(), keys(), keys(), keys()]
  for (const [by, isRemoved] of [
    [alice, true],
    [laptop, true],
    [tablet, false],
    [mallory, false],
  ] as const) {
    // biome-ignore format: pairs
    const [told, session] = [new Told(), keys()]
    told.devices([vouch(alice, laptop), vouch(alice, tablet), vouch(laptop, session, { label: 'a' })])
    told.devices([vouch(laptop, session, { label: 'a' })], [removal(by, session)])
    expect(told.statements.senderUser(session.publicKey, 1).user === alice.publicKey).toBe(!isRemoved)
    expect(told.tampers).toEqual(isRemoved ? ['device_removed'] : [])
  }
})

test('one invite admits one device', () => {
  const [alice, once, phone, second] = [keys(), keys(), keys(), keys()]
  const told = new Told()
  const first = vouch(alice, phone, { once })
  told.devices([first, first, vouch(alice, second, { once })])
  expect(told.tampers).toEqual(['invite_used_twice'])
  expect(told.statements.devicesOf(alice.publicKey, 1).map(({ key }) => key)).toEqual([phone.publicKey])
})

test('a device with vouchers from two users stays with the first', () => {
  const [alice, mallory, phone] = [keys(), keys(), keys()]
  const told = new Told()
  told.devices([vouch(alice, phone), vouch(mallory, phone)])
  expect(told.tampers).toEqual(['device_of_another'])
  expect(told.statements.senderUser(phone.publicKey, 1).user).toBe(alice.publicKey)
})

test('a voucher is renewed by its user, also after a rotation of the identity key', () => {
  const [alice, next, phone] = [keys(), keys(), keys()]
  const told = new Told()
  told.devices([vouch(alice, phone)])
  told.successions(succession(alice, next))
  told.devices([vouch(next, phone, { notAfterMs: 20_000 })])
  expect(told.tampers).toEqual([])
  expect(told.statements.senderUser(phone.publicKey, 20_000)).toEqual({ user: next.publicKey, deviceLabel: 'phone' })
})

test('a removal overrides every statement, in any order, and counts only if its user signed it', () => {
  const [alice, mallory, phone, laptop] = [keys(), keys(), keys(), keys()]
  const told = new Told()
  const statement = vouch(alice, phone)
  told.devices([statement, vouch(alice, laptop)], [removal(mallory, phone)])
  expect(told.statements.devicesOf(alice.publicKey, 1)).toHaveLength(2)
  told.devices([], [removal(alice, phone)])
  told.devices([statement])
  expect(told.statements.devicesOf(alice.publicKey, 1).map(({ key }) => key)).toEqual([laptop.publicKey])
  expect(told.tampers).toEqual(['device_removed'])
  const late = new Told()
  late.devices([statement], [removal(alice, phone)])
  expect(late.statements.devicesOf(alice.publicKey, 1)).toEqual([])
})

test('keys succeed one another, and devices and their removals follow', () => {
  const [first, second, third, phone, tablet] = [keys(), keys(), keys(), keys(), keys()]
  const told = new Told()
  told.devices([vouch(first, phone), vouch(third, tablet)])
  told.successions(succession(second, third), succession(first, second))
  expect(told.statements.current(first.publicKey)).toBe(third.publicKey)
  expect(told.statements.senderUser(phone.publicKey, 1).user).toBe(third.publicKey)
  expect(told.statements.devicesOf(first.publicKey, 1)).toHaveLength(2)
  told.devices([], [removal(third, phone)])
  expect(told.statements.devicesOf(third.publicKey, 1).map(({ key }) => key)).toEqual([tablet.publicKey])
  told.successions(succession(first, second))
  expect(told.events.filter(({ type }) => type === 'identity_changed')).toHaveLength(2)
})

test('a second successor and a cycle of successors are refused, and the first successor stays', () => {
  const [first, second, third] = [keys(), keys(), keys()]
  const told = new Told()
  told.successions(succession(first, second), succession(first, third), succession(second, first), new Uint8Array(3))
  expect(told.tampers).toEqual(['succession_forked', 'succession_forked', 'statement_forged'])
  expect(told.statements.current(first.publicKey)).toBe(second.publicKey)
  expect(told.statements.current('ab'.repeat(32) as PeerKey)).toBe('ab'.repeat(32))
})
