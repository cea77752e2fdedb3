import { fromHex, GROUP_EPOCH_LAST, type MeshId, type PeerKey, toHex } from '@sealpost/std'
import * as fc from 'fast-check'
import { beforeAll, expect, test } from 'vitest'
import { u16, u32 } from '../byte-fields.ts'
import {
  changeGroup,
  createGroup,
  endGroup,
  type GroupFields,
  groupIdOf,
  hash256,
  isGroupEnded,
  readGroup,
  ready,
  sign,
  signingKeysFromSeed,
} from '../index.ts'
import { MESH, OTHER_MESH, peerNumber, readVector } from '../test/fixtures.ts'
import { signGroup } from './group.ts'

beforeAll(ready)

const keyOf = (n: number) => n.toString(16).padStart(64, '0') as PeerKey
const owner = () => peerNumber(1).signing
const found = (members = [keyOf(2), keyOf(1)]) => createGroup(owner(), { meshId: MESH, name: 'crew', members })
/** Signs fields as a group statement. */
const signed = (keys: ReturnType<typeof owner>, fields: Uint8Array) => {
  const text = Buffer.concat([Buffer.from('sealpost-group/1\0'), fields])
  return new Uint8Array(Buffer.concat([fields, sign(keys, text)]))
}
const fieldsOf = (bytes: Uint8Array) => bytes.slice(0, -64)

test('a statement returns its fields, with sorted and distinct members', () => {
  const group = found([keyOf(2), keyOf(1), keyOf(2)])
  expect(readGroup(group.bytes)).toEqual(group)
  expect(group).toMatchObject({ meshId: MESH, epoch: 1, owner: owner().publicKey, name: 'crew' })
  expect(group.members).toEqual([keyOf(1), keyOf(2)])
  expect(found().groupId).not.toBe(found().groupId)
})

test('a change keeps the group id and raises the epoch', () => {
  const group = found()
  const changed = changeGroup(owner(), group, { members: [keyOf(3)] })
  expect(readGroup(changed.bytes)).toMatchObject({ ...group, epoch: 2, members: [keyOf(3)], bytes: changed.bytes })
})

test('the last statement has no members, and no statement can follow it', () => {
  const group = found()
  const end = endGroup(owner(), group)
  expect(readGroup(end.bytes)).toMatchObject({ ...group, epoch: 2 ** 31 - 1, members: [], bytes: end.bytes })
  expect([isGroupEnded(group), isGroupEnded(end)]).toEqual([false, true])
  expect(() => changeGroup(owner(), end, { members: [keyOf(1)] })).toThrow()
})

test('a statement with a changed, missing or additional byte is refused', () => {
  const { bytes } = found()
  for (let at = 0; at < bytes.length; at++) {
    const other = bytes.slice()
    other[at]! ^= 1
    expect(readGroup(other)).toBe(null)
    expect(readGroup(bytes.subarray(0, at))).toBe(null)
  }
  expect(readGroup(Uint8Array.of(...bytes, 0))).toBe(null)
})

test("nobody can sign for another owner's group, in the owner's name or their own", () => {
  const group = found()
  const thief = peerNumber(2).signing
  expect(readGroup(signed(thief, fieldsOf(group.bytes)))).toBe(null)
  const fields = Buffer.from(fieldsOf(group.bytes))
  const at = fields.indexOf(Buffer.from(owner().publicKey, 'hex'))
  fields.set(fromHex(thief.publicKey), at)
  expect(readGroup(signed(thief, fields))).toBe(null)
})

test('a group of another mesh has another id', () => {
  const { nonce, groupId } = found()
  expect(groupIdOf(OTHER_MESH, owner().publicKey, nonce)).not.toBe(groupId)
})

test.each<[string, Partial<GroupFields>]>([
  ['no members', { members: [] }],
  ['members in the last epoch', { epoch: GROUP_EPOCH_LAST }],
  ['257 members', { members: Array.from({ length: 257 }, (_, n) => keyOf(n)) }],
  ['no name', { name: '' }],
  ['a name with control characters', { name: 'a\u001b[31m' }],
  ['a long name', { name: 'x'.repeat(65) }],
  ['epoch 0', { epoch: 0 }],
  ['an epoch beyond the largest database integer', { epoch: 2 ** 31 }],
  ['another mesh', { meshId: OTHER_MESH as MeshId }],
])('a group with %s cannot be signed', (_, flaw) => {
  expect(() => signGroup(owner(), { ...found(), ...flaw })).toThrow()
})

test('a form that no version writes is refused even if its owner signed it', () => {
  const { bytes } = found([keyOf(1), keyOf(2)])
  const fields = fieldsOf(bytes)
  const head = fields.slice(0, -66)
  const made = (...parts: Uint8Array[]) => readGroup(signed(owner(), new Uint8Array(Buffer.concat(parts))))
  const [one, two] = [fromHex(keyOf(1)), fromHex(keyOf(2))]
  expect(made(head, u16(2), one, two)).not.toBe(null)
  expect(made(head, u16(2), two, one)).toBe(null)
  expect(made(head, u16(2), one, one)).toBe(null)
  expect(made(head, u16(3), one, two)).toBe(null)
  expect(made(head, u16(0))).toBe(null)
  const epochAt = 36
  const atEnd = [head.slice(0, epochAt), u32(GROUP_EPOCH_LAST), head.slice(epochAt + 4)] as const
  expect(made(...atEnd, u16(0))).not.toBe(null)
  expect(made(...atEnd, u16(1), one)).toBe(null)
  expect(made(...atEnd, u16(300))).toBe(null)
  expect(made(head.slice(0, epochAt), u32(0), head.slice(epochAt + 4), u16(1), one)).toBe(null)
})

test('arbitrary bytes are read or refused without an exception', () => {
  return fc.assert(
    fc.property(fc.uint8Array({ maxLength: 400 }), (bytes) => {
      expect(readGroup(bytes)).toBe(null)
      expect(readGroup(signed(owner(), bytes))).toBe(null)
    }),
  )
})

test('the largest group has 256 members', () => {
  const members = Array.from({ length: 256 }, (_, n) => keyOf(n))
  expect(readGroup(found(members).bytes)?.members).toEqual(members)
})

test('the vector', () => {
  const vector = readVector('group.json')
  const keys = signingKeysFromSeed(fromHex(vector.ownerSeed))
  const group = signGroup(keys, vector.group)
  expect(toHex(group.bytes)).toBe(vector.bytes)
  expect(readGroup(fromHex(vector.bytes))).toEqual(group)
  expect(toHex(endGroup(keys, group).bytes)).toBe(vector.end)
  const idText = Buffer.from(`sealpost-group-id/1\0`).toString('hex') + vector.group.meshId + vector.group.owner
  expect(toHex(hash256(fromHex(idText + vector.group.nonce))).slice(0, 32)).toBe(vector.group.groupId)
})
