/** Tests the log that the triggers write against the tree and the proofs that peers compute. */
import {
  bindBoxKey,
  createInvite,
  generateIdentity,
  generateSigningKeys,
  nameRootForMany,
  readAnyInvite,
  ready,
  type SigningKeys,
  signAdmission,
  signHeirs,
  signRecovery,
} from '@sealpost/identity'
import {
  compareCheckpoints,
  entryKindOf,
  entryLeaf,
  isEntrySigned,
  keyBindingStatement,
  type LogEntry,
  readCheckpoint,
  rootOfInclusion,
  TreeBuilder,
} from '@sealpost/identity/log'
import type { Database } from '@sealpost/pg'
import { databaseOfFile } from '@sealpost/schema/testing'
import { type MeshId, type Millis, toHex } from '@sealpost/std'
import { addMembers, adoptRoot, backfillLogs, listLogEntries, readLogHead, replaceBinding } from '@sealpost/store'
import { newKey, newMesh, randomBinding } from '@sealpost/store/testing'
import { expect, test } from 'vitest'
import { type InclusionProof, MeshLogs, type SignedLog } from './mesh-logs.ts'

await ready()
const db = await databaseOfFile({ connections: 8 })
const signing = generateSigningKeys()
const logs = () => new MeshLogs(db, { ...signing, clusterKey: signing.publicKey, certificate: null })
const FAR_MS: Millis = 4_000_000_000_000

const enrolled = (meshId: MeshId, count: number) =>
  addMembers(
    db,
    meshId,
    Array.from({ length: count }, () => randomBinding()),
  )

async function entriesOf(meshId: MeshId): Promise<LogEntry[]> {
  const stored = await listLogEntries(db, meshId, { from: 0, limit: 1000 })
  return stored.map(({ kind, statement }) => ({ kind: entryKindOf(kind)!, statement }))
}

async function checkpointOf(meshId: MeshId) {
  const signed = (await logs().checkpoint(meshId)) as SignedLog
  return readCheckpoint(signed.checkpoint, meshId)!
}

test('every statement has one leaf, and the stored nodes prove each size', async () => {
  const meshId = await newMesh(db)
  const builder = new TreeBuilder()
  expect(await checkpointOf(meshId)).toMatchObject({ size: 0, rootHash: builder.rootHash, signer: signing.publicKey })
  const heads = [await checkpointOf(meshId)]
  for (let size = 1; size <= 20; size++) {
    await enrolled(meshId, 1)
    heads.push(await checkpointOf(meshId))
  }
  const entries = await entriesOf(meshId)
  expect(entries).toHaveLength(20)
  for (const [at, entry] of entries.entries()) {
    builder.append(entryLeaf(entry))
    expect(heads[at + 1]).toMatchObject({ size: at + 1, rootHash: builder.rootHash })
  }
  const leaves = entries.map((entry) => toHex(entryLeaf(entry)))
  for (const { size, rootHash } of heads) {
    const proofs = (await logs().inclusion(meshId, { size, leaves })) as InclusionProof[]
    for (const [index, { leaf, index: place, path }] of proofs.entries()) {
      expect(place).toBe(index < size ? index : null)
      if (place !== null)
        expect(rootOfInclusion({ leaf: entryLeaf(entries[index]!), index, size, path })).toEqual(rootHash)
      expect(leaf).toBe(leaves[index])
    }
    const newest = heads.at(-1)!
    const path = (await logs().consistency(meshId, { from: size, to: newest.size })) as Uint8Array[]
    expect(compareCheckpoints({ size, rootHash }, newest, path)).toBe('consistent')
  }
  expect(await logs().consistency(meshId, { from: 3, to: 21 })).toEqual({ code: 'log_size_unknown' })
  await db.run((sql) => sql`delete from log_node where mesh_id = ${meshId} and position = 0`)
  expect(await logs().inclusion(meshId, { size: 20, leaves: leaves.slice(1, 2) })).toEqual({ code: 'log_broken' })
})

test('a key binding, its renewal and a root are entries, a repeated statement is none', async () => {
  const meshId = await newMesh(db)
  const identity = generateIdentity()
  const binding = bindBoxKey(identity, meshId, FAR_MS)
  const [peer] = await addMembers(db, meshId, [binding])
  const renewed = bindBoxKey(identity, meshId, FAR_MS + 1)
  for (let repeat = 0; repeat < 2; repeat++) await replaceBinding(db, { meshId, peer: peer! }, renewed)
  const root = newKey()
  for (let repeat = 0; repeat < 2; repeat++) await adoptRoot(db, { meshId, root, replaces: null }, null)
  expect((await entriesOf(meshId)).map(({ kind, statement }) => [kind, toHex(statement)])).toEqual([
    ['binding', toHex(keyBindingStatement(binding))],
    ['binding', toHex(keyBindingStatement(renewed))],
    ['root', root],
  ])
})

test('admissions, heirs and recoveries are entries, and a recovery that takes effect is no second one', async () => {
  const meshId = await newMesh(db)
  const user = generateIdentity()
  const [laptop, next, last] = [generateSigningKeys(), generateSigningKeys(), generateSigningKeys()]
  const binding = bindBoxKey(user, meshId, FAR_MS)
  const [peer] = await addMembers(db, meshId, [binding])
  const invite = createInvite(signing, {
    meshId,
    url: 'wss://broker.example',
    brokerKey: signing.publicKey,
    usesMax: 2,
  })
  const line = nameRootForMany(signing, invite, { root: signing.publicKey, revocations: 0 })
  const admission = signAdmission(user.signing, readAnyInvite(line).admission!, { name: 'ben', atMs: 5 })
  const heirsOf = (owner: SigningKeys, epoch: number) =>
    signHeirs(owner, { meshId, epoch, heirs: [{ device: laptop.publicKey, label: 'laptop' }] })
  const heirs = heirsOf(user.signing, 2)
  const recovery = signRecovery({ heir: laptop, successor: next }, { heirs, atMs: 1 })
  const newHeirs = heirsOf(next, 1)
  const later = signRecovery({ heir: laptop, successor: last }, { heirs: newHeirs, atMs: 2 })
  const recover = (former: SigningKeys, epoch: number, successor: SigningKeys, statement: Uint8Array) => `
    insert into key_recovery values ('${meshId}', ${bytes(former)}, ${peer}, ${epoch}, ${bytes(laptop)}, ${bytes(successor)}, ${literal(statement)});
    insert into former_identity (mesh_id, peer_key, peer_no, statement) values ('${meshId}', ${bytes(former)}, ${peer}, ${literal(statement)});`
  for (const statements of [
    `insert into member_proof values ('${meshId}', ${bytes(user.signing)}, 'admission', ${bytes(signing)}, 5, ${literal(admission)})`,
    `insert into heir_statement values ('${meshId}', ${peer}, ${bytes(user.signing)}, 2, ${literal(heirs)})`,
    recover(user.signing, 2, next, recovery),
    `update heir_statement set user_key = ${bytes(next)}, epoch = 1, statement = ${literal(newHeirs)} where mesh_id = '${meshId}'`,
    recover(next, 1, last, later),
  ])
    await db.run((sql) => sql.unsafe(statements).simple())
  const all = [
    ['binding', toHex(keyBindingStatement(binding))],
    ['admission', toHex(admission)],
    ['heirs', toHex(heirs)],
    ['recovery', toHex(recovery)],
    ['heirs', toHex(newHeirs)],
    ['recovery', toHex(later)],
  ]
  const entries = await entriesOf(meshId)
  expect(entries.map(({ kind, statement }) => [kind, toHex(statement)])).toEqual(all)
  expect(entries.filter((entry) => !isEntrySigned(entry, meshId))).toEqual([])

  for (const table of ['log_entry', 'log_node', 'mesh_log'])
    await db.run((sql) => sql.unsafe(`delete from ${table} where mesh_id = '${meshId}'`))
  await db.run((sql) => sql`insert into mesh_log (mesh_id, is_complete) values (${meshId}, false)`)
  while (await backfillLogs(db, 10));
  const [bound, admitted, , first, newest, second] = all
  const again = (await entriesOf(meshId)).map(({ kind, statement }) => [kind, toHex(statement)])
  expect(again).toEqual([bound, admitted, newest, first, second])
})

const literal = (statement: Uint8Array): string => `'\\x${toHex(statement)}'::bytea`
const bytes = ({ publicKey }: SigningKeys): string => `'\\x${publicKey}'::bytea`

test('concurrent statements leave no gap, and one that is rolled back leaves no leaf', async () => {
  const meshId = await newMesh(db)
  const failed = db.run((sql) =>
    sql.begin(async (own) => {
      await own`insert into mesh_root (mesh_id, root_key) values (${meshId}, '\\x01')`
      throw new Error('rolled back')
    }),
  )
  await Promise.all([
    expect(failed).rejects.toMatchObject({ code: 'db_refused' }),
    ...Array.from({ length: 40 }, (_, at) => enrolled(meshId, 1 + (at % 3))),
  ])
  const entries = await entriesOf(meshId)
  const builder = new TreeBuilder()
  for (const entry of entries) builder.append(entryLeaf(entry))
  expect(await checkpointOf(meshId)).toMatchObject({ size: entries.length, rootHash: builder.rootHash })
  expect(entries.filter(({ kind }) => kind === 'root')).toEqual([])
})

test('statements from before the log are appended in batches, and no checkpoint is signed before the last', async () => {
  const meshId = await newMesh(db)
  await withoutTriggers(db, () => enrolled(meshId, 25))
  await db.run((sql) => sql`insert into mesh_log (mesh_id, is_complete) values (${meshId}, false)`)
  await enrolled(meshId, 1)
  expect((await entriesOf(meshId)).length).toBe(1)
  expect(await logs().checkpoint(meshId)).toEqual({ code: 'log_incomplete' })
  const sizes: number[] = []
  while (await backfillLogs(db, 10)) sizes.push((await readLogHead(db, meshId)).size)
  expect(sizes).toEqual([11, 21, 26])
  expect(await checkpointOf(meshId)).toMatchObject({ size: 26 })
})

/** Stores statements as the version before the log did. */
async function withoutTriggers(on: Database, store: () => Promise<unknown>): Promise<void> {
  await on.run((sql) => sql`alter table member disable trigger log_change`)
  await store()
  await on.run((sql) => sql`alter table member enable trigger log_change`)
}
