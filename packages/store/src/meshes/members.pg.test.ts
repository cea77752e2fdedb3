import { randomBytes } from 'node:crypto'
import { databaseOfFile } from '@sealpost/schema/testing'
import { type MeshId, type PeerKey, toHex } from '@sealpost/std'
import { expect, test } from 'vitest'
import type { MemberBinding } from '../members/key-bindings.ts'
import { newKey, newMesh, randomBinding, revokeMember } from '../test/members.ts'
import { addMembers } from './meshes.ts'

const db = await databaseOfFile()

const binding = (peerKey: PeerKey | Uint8Array = newKey()): MemberBinding => ({ ...randomBinding(), peerKey })

test('members are numbered in order, each with a session row of epoch 0', async () => {
  const meshId = await newMesh(db)
  const bindings = [binding(), binding(randomBytes(32)), binding()]
  const numbers = await addMembers(db, meshId, bindings)
  const rows = await db.run(
    (sql) => sql`
      select encode(m.peer_key, 'hex') as key, m.box_key, m.box_epoch, m.binding_not_after_ms, m.binding_signature, s.epoch
      from member m join session s using (mesh_id, peer_no)
      where m.mesh_id = ${meshId} order by array_position(${numbers}::int4[], m.peer_no)`,
  )
  expect(rows.map((row) => ({ ...row }))).toEqual(
    bindings.map((b) => ({
      key: typeof b.peerKey === 'string' ? b.peerKey : toHex(b.peerKey),
      box_key: b.boxKey,
      box_epoch: 1,
      binding_not_after_ms: 1_900_000_000_000,
      binding_signature: b.signature,
      epoch: 0,
    })),
  )
})

test('ten thousand members are one statement', async () => {
  const bindings = Array.from({ length: 10_000 }, () => binding())
  const meshId = await newMesh(db)
  const numbers = await addMembers(db, meshId, bindings)
  expect(new Set(numbers).size).toBe(10_000)
  const last = await db.run(
    (sql) =>
      sql`select encode(peer_key, 'hex') as key from member where mesh_id = ${meshId} and peer_no = ${numbers[9_999] as number}`,
  )
  expect(last[0]?.key).toBe(bindings[9_999]?.peerKey)
})

test('one bad binding enrols none', async () => {
  const meshId = await newMesh(db)
  const known = binding()
  await addMembers(db, meshId, [known])
  await expect(addMembers(db, meshId, [binding(), known])).rejects.toMatchObject({
    code: 'db_refused',
    sqlstate: '23505',
    constraint: 'member_peer_key',
  })
  await expect(addMembers(db, meshId, [{ ...binding(), boxKey: randomBytes(31) }])).rejects.toMatchObject({
    constraint: 'member_lengths',
  })
  const [row] = await db.run((sql) => sql`select count(*)::int as count from member where mesh_id = ${meshId}`)
  expect(row?.count).toBe(1)
})

test('a member without a mesh is refused, and an empty list does nothing', async () => {
  const nowhere = toHex(randomBytes(16)) as MeshId
  await expect(addMembers(db, nowhere, [binding()])).rejects.toMatchObject({ sqlstate: '23503' })
  expect(await addMembers(db, nowhere, [])).toEqual([])
})

test('a revoked member keeps its row, its number and the time of its first revocation', async () => {
  const meshId = await newMesh(db)
  const peerKey = toHex(randomBytes(32)) as PeerKey
  const [peerNo] = await addMembers(db, meshId, [binding(peerKey), binding()])
  const revokedAt = () =>
    db.run((sql) => sql`select peer_no, revoked_at from member where revoked_at is not null and mesh_id = ${meshId}`)
  expect(await revokeMember(db, meshId, peerKey)).toBe(peerNo)
  const first = await revokedAt()
  expect(first.map((row) => row.peer_no)).toEqual([peerNo])
  await revokeMember(db, meshId, peerKey)
  expect((await revokedAt())[0]).toEqual(first[0])
  expect(await revokeMember(db, meshId, toHex(randomBytes(32)) as PeerKey)).toBeUndefined()
})
