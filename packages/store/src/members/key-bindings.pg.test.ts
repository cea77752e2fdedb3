import { randomBytes } from 'node:crypto'
import { databaseOfFile } from '@sealpost/schema/testing'
import { type PeerKey, toHex } from '@sealpost/std'
import { expect, test } from 'vitest'
import { newKey, newMeshOf, revokeMember } from '../test/members.ts'
import { type BindingRecord, findKeyHistory, replaceBinding } from './key-bindings.ts'

const db = await databaseOfFile({ connections: 4 })

const binding = (boxEpoch: number): BindingRecord => ({
  ...{ boxEpoch, boxKey: randomBytes(32), notAfterMs: 1_900_000_000_000 + boxEpoch, signature: randomBytes(64) },
})

async function newMember() {
  const peerKey = newKey()
  const first = binding(1)
  const { meshId, owner } = await newMeshOf(db, [{ ...first, peerKey }])
  const history = () => findKeyHistory(db, meshId, peerKey)
  return { meshId, peerKey, owner, first, history }
}

test('a newer binding replaces the current one, which becomes a former one', async () => {
  const { owner, peerKey, first, history } = await newMember()
  const [second, third] = [binding(2), binding(7)]
  expect(await replaceBinding(db, owner, second)).toBe('done')
  expect(await replaceBinding(db, owner, third)).toBe('done')
  expect(await history()).toEqual([third, second, first].map((one) => ({ ...one, peer: peerKey })))
})

test('a lower or equal epoch changes nothing; repeating a binding succeeds', async () => {
  const { owner, peerKey, first, history } = await newMember()
  const second = binding(2)
  await replaceBinding(db, owner, second)
  expect(await replaceBinding(db, owner, second)).toBe('done')
  expect(await replaceBinding(db, owner, binding(2))).toBe('stale_epoch')
  expect(await replaceBinding(db, owner, first)).toBe('stale_epoch')
  expect(await history()).toEqual([second, first].map((one) => ({ ...one, peer: peerKey })))
})

test('a binding of the current key with a later expiry extends it, without a former binding; an earlier one does not', async () => {
  const { owner, peerKey, first, history } = await newMember()
  const later = { ...first, notAfterMs: first.notAfterMs + 1, signature: randomBytes(64) }
  expect(await replaceBinding(db, owner, later)).toBe('done')
  expect(await replaceBinding(db, owner, first)).toBe('done')
  expect(await history()).toEqual([{ ...later, peer: peerKey }])
  const foreign = { ...later, boxKey: randomBytes(32), notAfterMs: first.notAfterMs + 2 }
  expect(await replaceBinding(db, owner, foreign)).toBe('stale_epoch')
  const second = binding(2)
  expect(await replaceBinding(db, owner, second)).toBe('done')
  expect(await history()).toEqual([second, later].map((one) => ({ ...one, peer: peerKey })))
})

test('of concurrent rotations each applied one is kept, and the newest is current', async () => {
  const { owner, history } = await newMember()
  const outcomes = await Promise.all([2, 3, 4, 5].map((epoch) => replaceBinding(db, owner, binding(epoch))))
  const epochs = (await history()).map(({ boxEpoch }) => boxEpoch)
  expect(epochs[0]).toBe(5)
  expect(epochs).toHaveLength(1 + outcomes.filter((outcome) => outcome === 'done').length)
})

test('the latest former bindings are kept', async () => {
  const { owner, history } = await newMember()
  for (let epoch = 2; epoch <= 30; epoch++) await replaceBinding(db, owner, binding(epoch))
  expect((await history()).map(({ boxEpoch }) => boxEpoch)).toEqual(Array.from({ length: 17 }, (_, i) => 30 - i))
})

test('the next rotation deletes old bindings', async () => {
  const { owner, history } = await newMember()
  await replaceBinding(db, owner, binding(2))
  await db.run((sql) => sql`update former_binding set retired_at = now() - interval '61 days'`)
  await replaceBinding(db, owner, binding(3))
  expect((await history()).map(({ boxEpoch }) => boxEpoch)).toEqual([3, 2])
})

test('a revoked member rotates nothing and has no history, like a stranger', async () => {
  const { meshId, peerKey, owner, history } = await newMember()
  await revokeMember(db, meshId, peerKey)
  expect(await replaceBinding(db, owner, binding(2))).toBe('stale_epoch')
  expect(await history()).toEqual([])
  expect(await findKeyHistory(db, meshId, toHex(randomBytes(32)) as PeerKey)).toEqual([])
})
