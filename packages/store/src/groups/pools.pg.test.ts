import { databaseOfFile } from '@sealpost/schema/testing'
import { GROUP_EPOCH_LAST, type PoolId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { makeDevice, newKey, newMeshOf, randomBinding, revokeMember } from '../test/members.ts'
import { listPools, POOLS_MAX, putGroup, putPool } from './groups.ts'

const db = await databaseOfFile({ connections: 4 })

const NONE = '0'.repeat(64) as PoolId
const poolOf = (n: number) => n.toString(16).padStart(64, '0') as PoolId

async function mesh() {
  const keys = [newKey(), newKey()]
  const { meshId, numbers } = await newMeshOf(
    db,
    keys.map((key) => randomBinding(key)),
  )
  const [ann, bob] = numbers.map((peer) => ({ meshId, peer }))
  const record = (n: number, epoch: number) => {
    const statement = new TextEncoder().encode(`${n} ${epoch}`)
    return { poolId: poolOf(n), epoch, statement, members: epoch === GROUP_EPOCH_LAST ? [] : keys }
  }
  const listed = async () =>
    (await listPools(db, meshId, { after: NONE, limit: 99 })).map(({ poolId, epoch }) => [poolId, epoch])
  const endedAgo = (days: number) =>
    db.run(
      (sql) => sql`update member set revoked_at = clock_timestamp() - make_interval(days => ${days}::int)
        where mesh_id = ${meshId} and is_pool and revoked_at is not null`,
    )
  return { meshId, keys, ann: ann!, bob: bob!, record, listed, endedAgo }
}

test('the last statement ends a pool: it has no members, is no recipient, and stays ended', async () => {
  const { ann, meshId, record, listed, endedAgo } = await mesh()
  await putPool(db, ann, record(1, 1))
  expect(await putPool(db, ann, record(1, GROUP_EPOCH_LAST))).toBe('done')
  expect(await putPool(db, ann, record(1, GROUP_EPOCH_LAST))).toBe('done')
  expect(await putPool(db, ann, record(1, 2))).toBe('stale')
  const [row] = await db.run(
    (sql) => sql<Record<string, unknown>[]>`
      select p.members, m.revoked_at is not null as is_over from pool p join member m using (mesh_id, peer_no)
      where p.mesh_id = ${meshId}`,
  )
  expect(row).toEqual({ members: '{}', is_over: true })
  expect(await listed()).toEqual([[poolOf(1), GROUP_EPOCH_LAST]])
  await endedAgo(8)
  expect(await listed()).toEqual([])
})

test('an unknown pool has no end, and only the owner ends a pool', async () => {
  const { ann, bob, record, listed } = await mesh()
  expect(await putPool(db, ann, record(1, GROUP_EPOCH_LAST))).toBe('stale')
  await putPool(db, ann, record(2, 1))
  expect(await putPool(db, bob, record(2, GROUP_EPOCH_LAST))).toBe('not_owner')
  expect(await listed()).toEqual([[poolOf(2), 1]])
})

test('an owner has a limit of pools, in which an ended pool counts for another day', async () => {
  const { ann, bob, record, endedAgo } = await mesh()
  const found = (n: number, owner = ann) => putPool(db, owner, record(n, 1), 2)
  expect([await found(1), await found(2), await found(3)]).toEqual(['done', 'done', 'too_many_own'])
  expect(await found(4, bob)).toBe('done')
  expect(await putPool(db, ann, record(1, 2), 2)).toBe('done')
  await putPool(db, ann, record(1, GROUP_EPOCH_LAST), 2)
  expect(await found(3)).toBe('too_many_own')
  await endedAgo(1)
  expect(await found(3)).toBe('done')
})

test('the pools of a user and its devices count together', async () => {
  const { ann, bob, meshId, record } = await mesh()
  await makeDevice(db, meshId, bob.peer, ann.peer)
  const found = (n: number, owner: typeof ann) => putPool(db, owner, record(n, 1), 2)
  expect([await found(1, ann), await found(2, bob)]).toEqual(['done', 'done'])
  expect([await found(3, bob), await found(3, ann)]).toEqual(['too_many_own', 'too_many_own'])
})

test('pools and groups of a revoked owner do not count in the mesh', async () => {
  const { ann, bob, meshId, keys, record } = await mesh()
  await db.run(
    (sql) => sql`with founded as (
        insert into member (mesh_id, peer_key, box_key, box_epoch, binding_not_after_ms, binding_signature, is_pool)
        select ${meshId}, decode(lpad(to_hex(i), 64, '0'), 'hex'), decode(repeat('00', 32), 'hex'), 0, 0,
          decode(repeat('00', 64), 'hex'), true
        from generate_series(1, ${POOLS_MAX}::int) as i returning mesh_id, peer_no)
      insert into pool (mesh_id, peer_no, owner, epoch, members, statement)
      select mesh_id, peer_no, ${ann.peer}, 1, '{}', '' from founded`,
  )
  await db.run(
    (sql) => sql`insert into peer_group (mesh_id, group_id, owner, epoch, statement)
      select ${meshId}, gen_random_uuid(), ${ann.peer}, 1, '' from generate_series(1, 1000)`,
  )
  const group = { groupId: '1'.repeat(32) as never, epoch: 1, statement: new Uint8Array(1) }
  expect([await putPool(db, bob, record(5000, 1)), await putGroup(db, bob, group)]).toEqual(['too_many', 'too_many'])
  await revokeMember(db, meshId, keys[0]!)
  expect([await putPool(db, bob, record(5000, 1)), await putGroup(db, bob, group)]).toEqual(['done', 'done'])
})
