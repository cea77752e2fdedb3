import { databaseOfFile } from '@sealpost/schema/testing'
import { GROUP_EPOCH_LAST, type GroupId, type PeerKey } from '@sealpost/std'
import { expect, test } from 'vitest'
import { makeDevice, newKey, newMeshOf, randomBinding, revokeMember } from '../test/members.ts'
import { GROUPS_MAX, type GroupRow, listGroups, putGroup } from './groups.ts'

const db = await databaseOfFile({ connections: 4 })

const NONE = '0'.repeat(32) as GroupId
const groupOf = (n: number) => n.toString(16).padStart(32, '0') as GroupId
const record = (groupId: GroupId, epoch: number, said = `${groupId} ${epoch}`): GroupRow => ({
  groupId,
  epoch,
  statement: new TextEncoder().encode(said),
})

async function mesh() {
  const keys = [newKey(), newKey()]
  const { meshId, numbers } = await newMeshOf(
    db,
    keys.map((key) => randomBinding(key)),
  )
  const [ann, bob] = numbers.map((peer) => ({ meshId, peer }))
  const epochs = async (after = NONE, limit = 99) =>
    (await listGroups(db, meshId, { after, limit })).map(({ groupId, epoch }) => [groupId, epoch])
  return { meshId, keys, ann: ann!, bob: bob!, epochs }
}

test('founding a group stores its statement, which a newer one replaces', async () => {
  const { ann, meshId, epochs } = await mesh()
  expect(await putGroup(db, ann, record(groupOf(1), 1))).toBe('done')
  expect(await putGroup(db, ann, record(groupOf(1), 3))).toBe('done')
  expect(await epochs()).toEqual([[groupOf(1), 3]])
  const [existing] = await listGroups(db, meshId, { after: NONE, limit: 1 })
  expect(new TextDecoder().decode(existing!.statement)).toBe(`${groupOf(1)} 3`)
})

test('an older statement and another one of the same epoch are stale; repeating a statement succeeds', async () => {
  const { ann, epochs } = await mesh()
  await putGroup(db, ann, record(groupOf(1), 5))
  expect(await putGroup(db, ann, record(groupOf(1), 4))).toBe('stale')
  expect(await putGroup(db, ann, record(groupOf(1), 5, 'other members'))).toBe('stale')
  expect(await putGroup(db, ann, record(groupOf(1), 5))).toBe('done')
  expect(await epochs()).toEqual([[groupOf(1), 5]])
})

test('only the owner changes a group, and only while it is a member', async () => {
  const { ann, bob, meshId, keys, epochs } = await mesh()
  await putGroup(db, ann, record(groupOf(1), 1))
  expect(await putGroup(db, bob, record(groupOf(1), 2))).toBe('not_owner')
  await revokeMember(db, meshId, keys[0]!)
  expect(await putGroup(db, ann, record(groupOf(1), 2))).toBe('not_owner')
  expect(await putGroup(db, ann, record(groupOf(2), 1))).toBe('not_owner')
  expect(await epochs()).toEqual([[groupOf(1), 1]])
})

test('of concurrent changes the one with the highest epoch remains, and one per epoch succeeds', async () => {
  const { ann, epochs } = await mesh()
  const said = Array.from({ length: 12 }, (_, i) => record(groupOf(1), 1 + (i % 3), `way ${i}`))
  const outcomes = await Promise.all(said.map((one) => putGroup(db, ann, one)))
  expect(await epochs()).toEqual([[groupOf(1), 3]])
  expect(outcomes.filter((outcome) => outcome === 'done').length).toBeLessThanOrEqual(3)
  expect(new Set(outcomes)).toEqual(new Set(['done', 'stale']))
})

test('two concurrent calls with the same statement both succeed', async () => {
  const { ann } = await mesh()
  for (let n = 1; n <= 20; n++) {
    const twice = [putGroup(db, ann, record(groupOf(n), 1)), putGroup(db, ann, record(groupOf(n), 1))]
    expect(await Promise.all(twice)).toEqual(['done', 'done'])
  }
})

test('a mesh has a limit of groups, but existing ones can still change', async () => {
  const { ann, meshId, epochs } = await mesh()
  await db.run(
    (driver) => driver`
      insert into peer_group (mesh_id, group_id, owner, epoch, statement)
      select ${meshId}::uuid, lpad(to_hex(n), 32, '0')::uuid, ${ann.peer}, 1, '' from generate_series(1, ${GROUPS_MAX}) n`,
  )
  expect(await putGroup(db, ann, record(groupOf(GROUPS_MAX + 1), 1))).toBe('too_many')
  expect(await putGroup(db, ann, record(groupOf(1), 2))).toBe('done')
  expect(await epochs(NONE, 2)).toEqual([[groupOf(1), 2], [groupOf(2), 1]]) // biome-ignore format: two rows
  expect(await epochs(groupOf(GROUPS_MAX - 1))).toEqual([[groupOf(GROUPS_MAX), 1]])
})

test('an owner has a limit of groups, and an ended one makes room', async () => {
  const { ann, bob, epochs } = await mesh()
  const put = (n: number, epoch = 1) => putGroup(db, ann, record(groupOf(n), epoch), 2)
  expect([await put(1), await put(2), await put(3)]).toEqual(['done', 'done', 'too_many_own'])
  expect(await putGroup(db, bob, record(groupOf(4), 1), 2)).toBe('done')
  expect(await put(1, GROUP_EPOCH_LAST)).toBe('done')
  expect(await put(3)).toBe('done')
  expect(await put(5)).toBe('too_many_own')
  expect((await epochs()).map(([, epoch]) => epoch)).toEqual([GROUP_EPOCH_LAST, 1, 1, 1])
})

test('the groups of a user and its devices count together', async () => {
  const { ann, bob, meshId } = await mesh()
  await makeDevice(db, meshId, bob.peer, ann.peer)
  const put = (owner: typeof ann, n: number) => putGroup(db, owner, record(groupOf(n), 1), 2)
  expect([await put(ann, 1), await put(bob, 2)]).toEqual(['done', 'done'])
  expect([await put(bob, 3), await put(ann, 3)]).toEqual(['too_many_own', 'too_many_own'])
})

test('the end of a group is final, and repeating it succeeds', async () => {
  const { ann, bob, epochs } = await mesh()
  await putGroup(db, ann, record(groupOf(1), 3))
  expect(await putGroup(db, bob, record(groupOf(1), GROUP_EPOCH_LAST))).toBe('not_owner')
  for (const _ of ['said', 'said again'])
    expect(await putGroup(db, ann, record(groupOf(1), GROUP_EPOCH_LAST))).toBe('done')
  expect(await putGroup(db, ann, record(groupOf(1), 4))).toBe('stale')
  expect(await putGroup(db, ann, record(groupOf(1), GROUP_EPOCH_LAST, 'another end'))).toBe('stale')
  expect(await epochs()).toEqual([[groupOf(1), GROUP_EPOCH_LAST]])
})

test('an end that arrives before the founding is stored', async () => {
  const { ann, epochs } = await mesh()
  expect(await putGroup(db, ann, record(groupOf(1), GROUP_EPOCH_LAST))).toBe('done')
  expect(await putGroup(db, ann, record(groupOf(1), 1))).toBe('stale')
  expect(await epochs()).toEqual([[groupOf(1), GROUP_EPOCH_LAST]])
})

test('the oldest ended groups are deleted, and active groups are kept', async () => {
  const { meshId, ann, epochs } = await mesh()
  await putGroup(db, ann, record(groupOf(1), 1))
  await db.run(
    (driver) => driver`
      insert into peer_group (mesh_id, group_id, owner, epoch, statement, over_at)
      select ${meshId}::uuid, lpad(to_hex(n), 32, '0')::uuid, ${ann.peer}, ${GROUP_EPOCH_LAST}, '',
        clock_timestamp() - make_interval(secs => n) from generate_series(2, ${GROUPS_MAX} + 1) n`,
  )
  await putGroup(db, ann, record(groupOf(0xffff), 1))
  await putGroup(db, ann, record(groupOf(0xffff), GROUP_EPOCH_LAST))
  const kept = (await epochs(NONE, 2 * GROUPS_MAX)).map(([groupId]) => groupId)
  expect(kept).toHaveLength(GROUPS_MAX + 1)
  expect([groupOf(1), groupOf(GROUPS_MAX), groupOf(0xffff)].every((id) => kept.includes(id))).toBe(true)
  expect(kept).not.toContain(groupOf(GROUPS_MAX + 1))
})

test('a peer finds the active groups that list it, but no ended ones', async () => {
  const { meshId, ann, keys } = await mesh()
  const naming = (n: number, epoch: number, key: PeerKey) => ({
    ...record(groupOf(n), epoch),
    statement: Buffer.concat([Buffer.from('said of '), Buffer.from(key, 'hex'), Buffer.from(String(n))]),
  })
  await putGroup(db, ann, naming(1, 1, keys[0]!))
  await putGroup(db, ann, naming(2, 1, keys[1]!))
  await putGroup(db, ann, naming(3, 1, keys[0]!))
  await putGroup(db, ann, naming(3, GROUP_EPOCH_LAST, keys[0]!))
  await putGroup(db, ann, naming(4, 1, keys[0]!))
  const found = (after: GroupId, limit: number) => listGroups(db, meshId, { after, limit, naming: keys[0]! })
  expect((await found(NONE, 99)).map(({ groupId }) => groupId)).toEqual([groupOf(1), groupOf(4)])
  expect((await found(groupOf(1), 1)).map(({ groupId }) => groupId)).toEqual([groupOf(4)])
})

test('each mesh has its own groups', async () => {
  const [here, there] = [await mesh(), await mesh()]
  await putGroup(db, here.ann, record(groupOf(1), 7))
  expect(await there.epochs()).toEqual([])
  expect(await putGroup(db, there.ann, record(groupOf(1), 1))).toBe('done')
})
