import { fromHex, type PeerKey, toHex } from '@sealpost/std'
import * as fc from 'fast-check'
import { beforeAll, expect, test } from 'vitest'
import {
  createDeviceInvite,
  type DeviceVoucher,
  generateSigningKeys,
  readDevice,
  readDeviceInvite,
  readIdentityRotation,
  readRemoval,
  ready,
  signDevice,
  signIdentityRotation,
  signingKeysFromSeed,
  signRemoval,
  signVoucher,
} from '../index.ts'
import { MESH, OTHER_MESH, peerNumber, readVector } from '../test/fixtures.ts'

beforeAll(ready)

const user = () => peerNumber(1).signing
const phone = () => peerNumber(2).signing
const thief = () => peerNumber(3).signing
const once = () => peerNumber(4).signing
const voucherOf = (change: Partial<DeviceVoucher> = {}): DeviceVoucher => ({
  meshId: MESH,
  user: user().publicKey,
  inviteKey: once().publicKey,
  label: 'phone',
  joinByMs: 5_000,
  notAfterMs: 9_000,
  ...change,
})
const statement = () => signDevice(phone(), once(), signVoucher(user(), voucherOf()))

test('a statement names the user of the device', () => {
  const bytes = statement()
  expect(readDevice(bytes)).toEqual({ ...voucherOf(), device: phone().publicKey, bytes })
})

test('a statement with a changed, missing or additional byte is refused', () => {
  const bytes = statement()
  for (let at = 0; at < bytes.length; at++) {
    const other = bytes.slice()
    other[at]! ^= 1
    expect(readDevice(other)).toBe(null)
    expect(readDevice(bytes.subarray(0, at))).toBe(null)
  }
  expect(readDevice(Uint8Array.of(...bytes, 0))).toBe(null)
})

test('all three signatures are required', () => {
  const voucher = signVoucher(user(), voucherOf())
  expect(readDevice(signDevice(phone(), thief(), voucher))).toBe(null)
  // The thief signs another device's statement, which contains the phone's key.
  const stolen = signDevice(thief(), once(), voucher)
  stolen.set(fromHex(phone().publicKey), voucher.length + 2)
  expect(readDevice(stolen)).toBe(null)
  // The user's invite key signs for a peer that never agreed.
  const claimed = signDevice({ ...thief(), publicKey: phone().publicKey }, once(), voucher)
  expect(readDevice(claimed)).toBe(null)
  // The thief signs a voucher in another user's name.
  const forged = signVoucher(thief(), voucherOf({ user: thief().publicKey })).slice()
  forged.set(fromHex(user().publicKey), 2 + 16 + 2)
  expect(readDevice(signDevice(phone(), once(), forged))).toBe(null)
})

test('a user cannot be its own device', () => {
  expect(readDevice(signDevice(user(), once(), signVoucher(user(), voucherOf())))).toBe(null)
})

test.each<[string, Partial<DeviceVoucher>]>([
  ['no label', { label: '' }],
  ['a long label', { label: 'x'.repeat(33) }],
  ['a label with control characters', { label: 'a\u001b[31m' }],
  ['a label with two parts', { label: 'a/b' }],
  ['an expiry that is not a number', { notAfterMs: Number.NaN }],
  ['a time beyond the safe integers', { joinByMs: 2 ** 53 }],
  ['another user', { user: 'ab'.repeat(32) as PeerKey }],
])('a voucher with %s cannot be signed', (_, flaw) => {
  expect(() => signVoucher(user(), voucherOf(flaw))).toThrow()
})

test('arbitrary bytes never cause an exception', () => {
  return fc.assert(
    fc.property(fc.uint8Array({ maxLength: 500 }), (bytes) => {
      expect(readDevice(bytes)).toBe(null)
      expect(readRemoval(bytes)).toBe(null)
    }),
  )
})

test('only the user can sign a removal', () => {
  const removal = { meshId: MESH, user: user().publicKey, device: phone().publicKey }
  const bytes = signRemoval(user(), removal)
  expect(readRemoval(bytes)).toEqual(removal)
  expect(readRemoval(signRemoval(thief(), { ...removal, user: thief().publicKey }))).toMatchObject({
    user: thief().publicKey,
  })
  for (let at = 0; at < bytes.length; at++) {
    const other = bytes.slice()
    other[at]! ^= 1
    expect(readRemoval(other)).toBe(null)
  }
  expect(() => signRemoval(thief(), removal)).toThrow()
})

test('an invite is one line, from which a new device makes its statement', () => {
  const brokerKey = thief().publicKey
  const url = 'wss://broker.example:8443'
  const text = createDeviceInvite(user(), { meshId: OTHER_MESH, url, brokerKey, label: 'phone' })
  expect(text).not.toMatch(/\s/)
  const invite = readDeviceInvite(` ${text}\n`)
  expect(invite).toMatchObject({ url, brokerKey, voucher: { meshId: OTHER_MESH, label: 'phone' } })
  const device = generateSigningKeys()
  expect(readDevice(invite.statement(device))).toMatchObject({ user: user().publicKey, device: device.publicKey })
  expect(() => readDeviceInvite(text.slice(0, -2))).toThrow(expect.objectContaining({ code: 'invite_malformed' }))
  expect(() => createDeviceInvite(user(), { meshId: OTHER_MESH, url: 'https://x?y', brokerKey, label: 'p' })).toThrow()
})

test('the bytes are those of the vector', () => {
  const { seeds, voucher, device, successor, atMs, ...bytes } = readVector('device.json')
  const keys = (seed: string) => signingKeysFromSeed(fromHex(seed))
  const [by, invite, own, next] = [seeds.user, seeds.invite, seeds.device, seeds.successor].map(keys) as [
    ReturnType<typeof keys>,
    ReturnType<typeof keys>,
    ReturnType<typeof keys>,
    ReturnType<typeof keys>,
  ]
  const { meshId, user } = voucher
  expect(toHex(signVoucher(by, voucher))).toBe(bytes.voucherBytes)
  expect(toHex(signDevice(own, invite, fromHex(bytes.voucherBytes)))).toBe(bytes.statement)
  expect(readDevice(fromHex(bytes.statement))).toMatchObject({ ...voucher, device })
  expect(toHex(signRemoval(by, { meshId, user, device }))).toBe(bytes.removal)
  expect(toHex(signIdentityRotation({ former: by, successor: next }, { meshId, atMs }))).toBe(bytes.rotation)
  expect(readIdentityRotation(fromHex(bytes.rotation))).toEqual({ meshId, former: user, successor, atMs })
})
