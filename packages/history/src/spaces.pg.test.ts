import type { GroupId, PeerKey } from '@sealpost/std'
import { revokeMember } from '@sealpost/store/testing'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { Grants } from './spaces.ts'
import { COUNT_MEMBERS, FIND_LACKING } from './sql-spaces.ts'
import { GROUP, MESH, peerKeyOf, SpaceStage, termsOf } from './test/spaces.ts'

let stage: SpaceStage
let grants: Grants
beforeEach(async () => {
  stage = await SpaceStage.open()
  grants = new Grants(stage.asking)
})
afterEach(() => stage.close())

const put = (peer: 'ann' | 'bob' | 'cat', changes: Parameters<typeof termsOf>[0] = {}) =>
  stage.spaces.put(stage.asker(stage[peer]), termsOf(changes))
const find = (peer: 'ann' | 'bob' | 'cat', space: typeof MESH | GroupId = MESH) =>
  stage.spaces.find(stage.asker(stage[peer]), space)

describe('a space', () => {
  test('of the mesh is defined by an admin, and open to every member', async () => {
    expect(await find('bob')).toBeNull()
    expect(await put('bob')).toBe('not_owner')
    expect(await put('ann')).toBe('done')
    expect(await find('cat')).toMatchObject({
      ...termsOf(),
      keyEpoch: 0,
      lastSeq: 0,
      lastAt: null,
      keptSince: expect.any(Number),
    })
  })

  test('of a group is defined by its owner, and open to the members of its newest statement', async () => {
    expect(await put('bob', { spaceId: GROUP })).toBe('not_owner')
    expect(await put('ann', { spaceId: GROUP })).toBe('done')
    expect([await find('bob', GROUP), await find('cat', GROUP)]).toMatchObject([{ spaceId: GROUP }, null])
    await stage.setGroup(2, 1, 3)
    expect([await find('bob', GROUP), await find('cat', GROUP)]).toMatchObject([null, { spaceId: GROUP }])
  })

  test('of an ended or unknown group is open to no peer', async () => {
    expect(await put('ann', { spaceId: 'ff'.repeat(16) as GroupId })).toBe('not_owner')
    await put('ann', { spaceId: GROUP })
    await stage.setGroup(2 ** 31 - 1, 1, 2)
    expect(await put('ann', { spaceId: GROUP, epoch: 2 })).toBe('not_owner')
    expect(await find('bob', GROUP)).toBeNull()
  })

  test('accepts later terms, and refuses earlier ones', async () => {
    expect(await put('ann', { epoch: 2 })).toBe('done')
    expect(await put('ann', { epoch: 2 })).toBe('done')
    expect(await put('ann', { epoch: 2, keepSeconds: 1, statement: Uint8Array.of(9) })).toBe('stale')
    expect(await put('ann', { epoch: 1 })).toBe('stale')
    expect(await put('ann', { epoch: 3, keepsMessages: false })).toBe('done')
    expect(await find('bob')).toMatchObject({ epoch: 3, keepsMessages: false })
  })

  test('created concurrently is created once, with the latest terms', async () => {
    for (let last = 3; last < 60; last += 3) {
      const outcomes = await Promise.all([2, 1, 0, 0].map((behind) => put('ann', { epoch: last - behind })))
      expect(outcomes.slice(2)).toEqual(['done', 'done'])
      expect(await find('bob')).toMatchObject({ epoch: last })
    }
  })

  test('is neither created nor changed while the mesh is frozen', async () => {
    await put('ann')
    await stage.admin.run((sql) => sql`update mesh set frozen_at = now()`)
    await stage.admin.run((sql) => sql`update space set last_seq = -1 - last_seq`)
    await expect(put('ann', { epoch: 2 })).rejects.toMatchObject({ code: 'mesh_away', retryable: true })
    await expect(put('ann', { spaceId: GROUP })).rejects.toMatchObject({ code: 'mesh_away', retryable: true })
    expect(await put('bob')).toBe('not_owner')
    expect(await put('ann', { epoch: 1, statement: Uint8Array.of(9) })).toBe('stale')
  })

  test('that stops keeping history starts a new one when it resumes', async () => {
    await put('ann')
    const first = (await find('ann'))!.keptSince!
    await put('ann', { epoch: 2, historyFor: 'joined' })
    expect((await find('ann'))!.keptSince).toBe(first)
    await put('ann', { epoch: 3, historyFor: 'none', keepsMessages: false, keepSeconds: 0, keepBytes: 0 })
    expect((await find('ann'))!.keptSince).toBeNull()
    await put('ann', { epoch: 4 })
    expect((await find('ann'))!.keptSince).toBeGreaterThan(first)
  })

  test('is closed to revoked members', async () => {
    await put('ann')
    await revokeMember(stage.admin, MESH, peerKeyOf(2))
    expect(await find('bob')).toBeNull()
  })

  test('is open to the devices of its members', async () => {
    await put('ann', { spaceId: GROUP })
    await stage.admin.run((sql) => sql`update member set person = ${stage.bob} where peer_no = ${stage.cat}`)
    expect(await find('cat', GROUP)).toMatchObject({ spaceId: GROUP })
    await stage.admin.run((sql) => sql`update member set vouched_until = now() where peer_no = ${stage.cat}`)
    expect(await find('cat', GROUP)).toBeNull()
  })
})

describe('the keys of a space', () => {
  const box = (n: number) => Uint8Array.of(n, n)
  const boxFor = (peer: number, n: number) => ({ peer: peerKeyOf(peer), box: box(n) })
  const needs = async (max = 10) => stage.spaces.findGrantNeeds((await find('ann', GROUP))!, max)
  const give = (expects: number, keyEpoch: number, ...given: { peer: PeerKey; box: Uint8Array }[]) =>
    grants.put(stage.asker(stage.ann), { meshId: MESH, spaceId: GROUP }, { expects, keyEpoch, grants: given })
  const of = (peer: 'bob' | 'cat') => grants.list(stage.asker(stage[peer]), { meshId: MESH, spaceId: GROUP })
  const key = (keyEpoch: number) => ({ meshId: MESH, spaceId: GROUP, keyEpoch })
  beforeEach(() => put('ann', { spaceId: GROUP }))

  test('are stored until they are fetched, and members without a key are listed', async () => {
    expect(await needs()).toEqual({
      memberCount: 2,
      departed: 0,
      lacking: [1, 2].map((n) => ({ peer: peerKeyOf(n), keyEpoch: 0 })),
    })
    expect(await give(0, 1, boxFor(1, 1), boxFor(3, 3))).toBe(0)
    expect(await needs()).toMatchObject({ lacking: [{ peer: peerKeyOf(2), keyEpoch: 0 }] })
    expect(await give(1, 1, boxFor(2, 2))).toBe(1)
    expect(await of('bob')).toEqual([{ keyEpoch: 1, granter: peerKeyOf(1), box: box(2) }])
    expect(await of('cat')).toEqual([])
    await grants.markFetched(stage.asker(stage.bob), key(1))
    expect([await of('bob'), (await needs()).lacking]).toEqual([[], []])
  })

  test('that two members rotate at once are rotated once', async () => {
    const turned = await Promise.all([give(0, 1, boxFor(2, 1)), give(0, 1, boxFor(2, 2))])
    expect(turned.sort()).toEqual([0, 1])
    expect(await of('bob')).toHaveLength(1)
  })

  test('are not rotated by a member with an outdated epoch', async () => {
    await give(0, 1, boxFor(2, 1))
    expect(await give(0, 1, boxFor(1, 1))).toBe(1)
    expect((await find('ann', GROUP))!.keyEpoch).toBe(1)
    expect(await of('bob')).toMatchObject([{ box: box(1) }])
  })

  test('that a member could not open can be granted again', async () => {
    await give(0, 1, boxFor(1, 1), boxFor(2, 66))
    await grants.discard(stage.asker(stage.bob), key(1))
    expect(await needs()).toMatchObject({ lacking: [{ peer: peerKeyOf(2) }] })
    await give(1, 1, boxFor(2, 2))
    expect(await of('bob')).toMatchObject([{ box: box(2) }])
  })

  test('of a departed member are deleted at the next rotation, and counted until then', async () => {
    await give(0, 1, boxFor(1, 1), boxFor(2, 2))
    await stage.setGroup(2, 1, 3)
    expect(await needs()).toEqual({ memberCount: 2, departed: 1, lacking: [{ peer: peerKeyOf(3), keyEpoch: 0 }] })
    await give(1, 2, boxFor(1, 1), boxFor(3, 3))
    expect(await needs()).toEqual({ memberCount: 2, departed: 0, lacking: [] })
    await stage.setGroup(3, 1, 2)
    expect(await needs()).toMatchObject({ departed: 1, lacking: [{ peer: peerKeyOf(2), keyEpoch: 0 }] })
  })

  test('are not returned again once the member has confirmed them', async () => {
    await give(0, 1, boxFor(2, 1))
    await give(1, 2, boxFor(2, 2))
    expect((await of('bob')).map(({ keyEpoch }) => keyEpoch)).toEqual([1, 2])
    await grants.markFetched(stage.asker(stage.bob), key(2))
    expect(await of('bob')).toEqual([])
    expect(await stage.spaces.members({ meshId: MESH, spaceId: GROUP }, '0'.repeat(64) as PeerKey, 10)).toEqual([
      { peer: peerKeyOf(1), keyEpoch: 0 },
      { peer: peerKeyOf(2), keyEpoch: 2 },
    ])
  })

  test('are counted in a large mesh without comparing all pairs, even before Postgres has statistics', async () => {
    const count = 600
    await stage.addMembers(count)
    await stage.found()
    await stage.admin.run(
      (sql) => sql`insert into space_grant (mesh_id, space_id, peer_no, key_epoch, granter, box)
        select mesh_id, mesh_id, peer_no, 1, peer_no, '\\x01' from member`,
    )
    for (const statement of [COUNT_MEMBERS, FIND_LACKING.replace('$4::int', String(count))]) {
      const plan = await stage.admin.run((sql) =>
        sql.unsafe<{ 'QUERY PLAN': string }[]>(`explain (analyze, timing off) ${statement}`, [MESH, MESH, 1]),
      )
      const steps = plan.map((row) => /rows=([\d.]+) loops=(\d+)/.exec(row['QUERY PLAN']) ?? [])
      const most = Math.max(...steps.map(([, rows, loops]) => Number(rows ?? 0) * Number(loops ?? 0)))
      expect(most, plan.map((row) => row['QUERY PLAN']).join('\n')).toBeLessThan(4 * count)
    }
  })

  test('are not changed while the mesh is frozen', async () => {
    await give(0, 1, boxFor(2, 1))
    await stage.admin.run((sql) => sql`update space set last_seq = -1 - last_seq`)
    await expect(give(1, 2)).rejects.toMatchObject({ code: 'mesh_away', retryable: true })
    await expect(grants.markFetched(stage.asker(stage.bob), key(1))).rejects.toMatchObject({ code: 'mesh_away' })
    expect(await of('bob')).toHaveLength(1)
  })
})
