/** Tests the log that the triggers write against the tree and the proofs that peers compute. */
import { bindBoxKey, generateIdentity, generateSigningKeys, ready } from '@sealpost/identity'
import {
  compareCheckpoints,
  entryKindOf,
  entryLeaf,
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
