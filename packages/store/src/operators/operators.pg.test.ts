/** Tests the operators' queries with the privileges of the admin role. */
import { randomBytes } from 'node:crypto'
import { type Database, openDatabase } from '@sealpost/pg'
import { type ScratchDatabase, unhurried } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import { loginsOf, type RoleLogins } from '@sealpost/schema/testing-roles'
import { type InviteId, type MeshId, type PeerKey, type PeerNo, toHex } from '@sealpost/std'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { readDatabaseStats } from '../cluster/database-stats.ts'
import { pinMesh, unpinMesh } from '../cluster/shards.ts'
import { countDeadLetters, DEAD_COUNTED_MAX } from '../mail/dead-letters.ts'
import {
  CENSUS_START,
  countAttachments,
  listSpaceViews,
  type RecipientBacklog,
  readCensusPage,
  readRetentionStats,
} from '../mail/usage.ts'
import {
  addMembers,
  countMembers,
  createMesh,
  findMeshes,
  listGroupViews,
  listInvites,
  listMeshes,
  listPeers,
  revokeInvite,
  revokePeer,
} from '../meshes/meshes.ts'
import { addAdminToken, findAdminToken, listAdminTokens, listAudit, revokeAdminToken } from './operators.ts'

let scratch: ScratchDatabase
let logins: RoleLogins
let db: Database
let owner: Database

beforeAll(async () => {
  scratch = await scratchDatabase()
  logins = await loginsOf(scratch.url)
  db = await openDatabase(logins.admin, { ...unhurried, connections: 1 })
  owner = await openDatabase(scratch.url, { ...unhurried, connections: 1 })
})
afterAll(async () => {
  await db.close()
  await owner.close()
  await logins.drop()
  await scratch.drop()
})

const key = (): PeerKey => toHex(randomBytes(32)) as PeerKey

async function meshOf(...names: string[]): Promise<{ meshId: MeshId; keys: PeerKey[]; numbers: PeerNo[] }> {
  const meshId = toHex(randomBytes(16)) as MeshId
  await createMesh(owner, { meshId, name: 'home' })
  const keys = names.map(key)
  const rest = { boxKey: randomBytes(32), boxEpoch: 1, notAfterMs: 1_900_000_000_000, signature: randomBytes(64) }
  const numbers = await addMembers(
    owner,
    meshId,
    names.map((name, i) => ({ ...rest, peerKey: keys[i]!, name })),
  )
  return { meshId, keys, numbers }
}

test('a token is found by its secret, records its use, and ends with its revocation', async () => {
  const meshId = toHex(randomBytes(16)) as MeshId
  const { id, token } = await addAdminToken(db, { name: 'ada', scope: 'read', meshId, ttlSeconds: 60 })
  expect(await findAdminToken(db, token)).toMatchObject({ name: 'ada', scope: 'read', meshId })
  const other = token.at(-2) === 'A' ? 'B' : 'A'
  for (const wrong of [`${token.slice(0, -2)}${other}${token.at(-1)}`, token.slice(0, -1), `${token}x`, ''])
    expect(await findAdminToken(db, wrong)).toBeUndefined()
  const [kept] = await owner.run((sql) => sql<{ row: string }[]>`select t::text as row from admin_token t`)
  expect(kept!.row).not.toContain(token.split('_').at(-1))
  expect((await listAdminTokens(db))[0]).toMatchObject({ id, isRevoked: false, lastUsedAtMs: expect.any(Number) })
  expect([await revokeAdminToken(db, id), await revokeAdminToken(db, 'absent')]).toEqual([true, false])
  expect(await findAdminToken(db, token)).toBeUndefined()
  const actions = (await listAudit(db, { meshId, limit: 10 })).map(({ action, actor }) => `${action} ${actor}`)
  expect(actions).toEqual([`token.revoke database:${logins.prefix}_admin_login`, `token.create database:${logins.prefix}_admin_login`]) // biome-ignore format: one thing
})

test('creating, pinning and unpinning a mesh is audited once', async () => {
  const meshId = toHex(randomBytes(16)) as MeshId
  await createMesh(db, { meshId, name: 'home' })
  expect([await pinMesh(db, meshId, 'one'), await pinMesh(db, meshId, 'one'), await pinMesh(db, meshId, 'two')]).toEqual([true, true, true]) // biome-ignore format: one thing
  expect([await unpinMesh(db, meshId), await unpinMesh(db, meshId)]).toEqual([true, false])
  await expect(createMesh(db, { meshId, name: 'twice' })).rejects.toMatchObject({ code: 'db_refused' })
  const lines = (await listAudit(db, { meshId, limit: 10 })).map(({ action, subject }) => `${action} ${subject}`)
  expect(lines).toEqual(['mesh.unpin two', 'mesh.pin two', 'mesh.pin one', 'mesh.create home'])
  const absent = toHex(randomBytes(16)) as MeshId
  expect([await pinMesh(db, absent, 'one'), await listAudit(db, { meshId: absent, limit: 1 })]).toEqual([false, []])
})

test('neither an operator nor a broker can delete an audit entry', async () => {
  const broker = await openDatabase(logins.broker, { ...unhurried, connections: 1 })
  for (const who of [db, broker])
    for (const statement of [
      'delete from admin_audit',
      "update admin_audit set actor = 'nobody'",
      'truncate admin_audit',
    ])
      await expect(who.run((sql) => sql.unsafe(statement))).rejects.toMatchObject({ sqlstate: '42501' })
  await expect(
    broker.run(
      (sql) => sql`insert into admin_token (token_id, hash, name, scope, expires_at)
      values ('mine', '', 'mine', 'operate', now())`,
    ),
  ).rejects.toMatchObject({ sqlstate: '42501' })
  await broker.close()
})

test('a repeated revocation is audited once; a pool or a stranger is ignored', async () => {
  const { meshId, keys, numbers } = await meshOf('bob', 'carol')
  const [bob] = keys as [PeerKey]
  expect(await revokePeer(db, 'ada', { meshId, peerKey: bob })).toEqual([{ peer: numbers[0], peerKey: bob }])
  expect(await revokePeer(db, 'ada', { meshId, peerKey: bob })).toHaveLength(1)
  expect(await revokePeer(db, 'ada', { meshId, peerKey: key() })).toEqual([])
  const inviteId = toHex(randomBytes(16)) as InviteId
  for (const _ of [1, 2]) expect(await revokeInvite(db, 'ada', { meshId, inviteId })).toBe(true)
  expect(await revokeInvite(db, 'ada', { meshId: toHex(randomBytes(16)) as MeshId, inviteId })).toBe(false)
  expect((await listAudit(db, { meshId, limit: 10 })).map(({ action }) => action)).toEqual(['invite.revoke', 'peer.revoke', 'mesh.enrol', 'mesh.create']) // biome-ignore format: one thing
  expect(await countMembers(db, meshId)).toBe(1)
  const peers = await listPeers(db, meshId, { after: null, limit: 10 })
  expect(peers.map(({ peerKey }) => peerKey)).toEqual([...keys].sort())
  expect(peers.find(({ name }) => name === 'bob')?.revokedAtMs).toEqual(expect.any(Number))
  expect(await listPeers(db, meshId, { after: peers[0]!.peerKey, limit: 10 })).toEqual(peers.slice(1))
  expect(await listInvites(db, meshId, 10)).toMatchObject([{ inviteId, uses: 0, revokedAtMs: expect.any(Number) }])
  expect(await listGroupViews(db, meshId, 10)).toEqual([])
  expect(await findMeshes(db, [meshId])).toMatchObject([{ meshId, name: 'home' }])
  expect((await listMeshes(db, { after: null, limit: 10 })).map((mesh) => mesh.meshId)).toContain(meshId)
})

test('the census counts each delivery once, in pages of any size', async () => {
  const { meshId, numbers } = await meshOf('bob', 'carol')
  await owner.run((sql) => sql`delete from message_queue`)
  await owner.run(
    (sql) => sql`
      insert into message_queue (mesh_id, recipient, priority, id, sender, envelope_id, enqueued_at, expires_at, lease_until, envelope)
      select ${meshId}::uuid, r.no, n % 3, n, 1, gen_random_uuid(), now() - make_interval(secs => n), now() + interval '1 day',
        case when n <= 4 then now() + interval '1 minute' end, ''
      from unnest(${`{${numbers.join()}}`}::int[]) as r (no), generate_series(1, 10) as n`,
  )
  for (const rows of [1, 3, 7, 100]) {
    const seen: RecipientBacklog[] = []
    for (let place = CENSUS_START; ; ) {
      const look = await readCensusPage(db, place, rows)
      seen.push(...look.backlogs)
      if (!look.next) break
      place = look.next
    }
    const of = (recipient: PeerNo) => seen.filter((one) => one.recipient === recipient)
    for (const recipient of numbers) {
      expect(of(recipient).reduce((sum, { depth }) => sum + depth, 0)).toBe(10)
      expect(of(recipient).reduce((sum, { held }) => sum + held, 0)).toBe(4)
    }
  }
})

test('dead letters are counted per mesh, with the age of the newest', async () => {
  const [one, two] = [await meshOf('bob'), await meshOf('carol')]
  const bury = ({ meshId, numbers }: typeof one, count: number) =>
    owner.run(
      (sql) => sql`
        insert into dead_letter (mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id, enqueued_at, died_at, reason)
        select ${meshId}::uuid, ${numbers[0]!}::int, n, 1, ${numbers[0]!}::int, 1, 0, gen_random_uuid(), now(), now() - make_interval(hours => n), 'expired'
        from generate_series(1, ${count}::int) n`,
    )
  await bury(one, 3)
  await bury(two, DEAD_COUNTED_MAX + 1)
  const counted = await countDeadLetters(db)
  const of = ({ meshId }: typeof one) => counted.find((found) => found.meshId === meshId)
  expect([of(one)?.count, of(two)?.count]).toEqual([3, DEAD_COUNTED_MAX])
  expect(Math.floor(of(one)!.latestAgeMs / 3_600_000)).toBe(1)
})

test('usage reports sizes and ages of state, history and attachments', async () => {
  const { meshId, numbers } = await meshOf('bob')
  const [bob] = numbers as [PeerNo]
  const broker = await openDatabase(logins.broker, { ...unhurried, connections: 1 })
  expect([await listSpaceViews(db, meshId, 9), (await countAttachments(db, meshId)).files]).toEqual([[], 0])
  const before = await readRetentionStats(broker)
  await owner.run((sql) =>
    sql
      .unsafe(
        `insert into space (mesh_id, space_id, owner, epoch, statement, history_for, keeps_messages, keep_seconds, keep_bytes,
             kept_since, last_at, entries, entry_bytes, history_bytes)
           values ('${meshId}', '${meshId}', ${bob}, 1, '', 'all', false, 60, 1000, now() - interval '1 hour', now(), 2, 300, 500),
             ('${meshId}', gen_random_uuid(), ${bob}, 1, '', 'none', false, 60, 1000, null, null, 1, 7, 0);
         insert into snapshot values ('${meshId}', '${meshId}', 40, now() - interval '2 hours', 1, 150, now()),
           ('${meshId}', '${meshId}', 41, now() - interval '1 hour', 2, 299, now()),
           ('${meshId}', '${meshId}', 42, now(), 0, 0, null);
         insert into attachment (mesh_id, attachment_id, owner, recipients, bytes, chunk_bytes, store, keep_seconds, completed_at, expires_at)
           select '${meshId}', gen_random_uuid(), ${bob}, '{}', 5000, 4096, 'postgres', 60, at, now()
           from unnest(array[now(), now(), null]) at;`,
      )
      .simple(),
  )
  const [ofMesh, ofGroup] = await listSpaceViews(db, meshId, 9)
  expect(ofMesh).toMatchObject({
    ...{ spaceId: meshId, ownerName: 'bob', historyFor: 'all', entries: 2, entryBytes: 300 },
    ...{ historyBytes: 500, historyBytesMax: 1000, snapshot: { entries: 2, bytes: 299 } },
  })
  expect(Math.round(ofMesh!.snapshot!.ageMs / 3_600_000)).toBe(1)
  expect(ofGroup).toMatchObject({ entries: 1, keptSinceMs: null, changedAtMs: null, snapshot: null, days: 0 })
  expect(await countAttachments(db, meshId)).toEqual({ files: 3, bytes: 15_000, unfinished: 1 })
  const after = await readRetentionStats(broker)
  expect(after).toMatchObject({ spaces: before.spaces + 2, entries: before.entries + 3, files: before.files + 3 })
  expect(Math.round(after.snapshotSeconds / 3600)).toBe(1)
  await broker.close()
})

test('the role for admins may read the database statistics', async () => {
  const { tables, walBytes, connectionsMax } = await readDatabaseStats(db)
  expect(tables.map(({ name }) => name)).toContain('message_queue')
  expect(tables.filter(({ name }) => name.startsWith('history_event')).map(({ partitions }) => partitions > 0)).toEqual([true]) // biome-ignore format: one thing
  expect(walBytes).toBeGreaterThan(0)
  expect(connectionsMax).toBeGreaterThan(0)
})
