import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { generateSigningKeys, readShardCertificateText, ready } from '@sealpost/identity'
import { type BrokerKeyFile, readKeyFile, writeKeyFile } from '@sealpost/identity/key-file'
import { type Database, openDatabase } from '@sealpost/pg'
import type { ScratchDatabase } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import type { MeshId, PeerKey, ShardId } from '@sealpost/std'
import { createMesh, renewShardLease } from '@sealpost/store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { jsonLinesOf, runHere } from '../test/cli.ts'

const MESH = '5e'.repeat(16) as MeshId
let folder: string
let scratch: ScratchDatabase
let db: Database

beforeAll(async () => {
  await ready()
  folder = await mkdtemp(join(tmpdir(), 'sealpost-cli-test-'))
  scratch = await scratchDatabase()
  db = await openDatabase(scratch.url, { connections: 1 })
  await createMesh(db, { meshId: MESH, name: 'a mesh' })
})
afterAll(async () => {
  await db.close()
  await scratch.drop()
  await rm(folder, { recursive: true })
})

const shard = (...words: string[]) => runHere(['shard', ...words], { SEALPOST_HOME: folder, DATABASE_URL: scratch.url })

const enter = (name: string, leaseMs: number) =>
  renewShardLease(
    db,
    {
      ...{ name, url: `wss://${name}`, certificate: null },
      shardId: 'aa'.repeat(16) as ShardId,
      brokerKey: 'bb'.repeat(32) as PeerKey,
    },
    { leaseMs, isNew: true },
  )

test('shows which shards are alive, and which meshes are pinned to them', async () => {
  expect((await shard('list')).out).toBe('no brokers\n')
  await enter('a.example', 60_000)
  await enter('b.example', -1)
  expect(await shard('pin', MESH, 'a.example')).toMatchObject({ code: 0, out: 'pinned to a.example\n', err: '' })
  const { out } = await shard('list')
  expect(out).toMatch(new RegExp(`a\\.example +alive +1 +wss://a\\.example +${MESH}`))
  expect(out).toMatch(/b\.example +gone/)
  expect(jsonLinesOf({ stdout: (await shard('list', '--json')).out })).toMatchObject([
    { name: 'a.example', isAlive: true, pinned: [MESH], hasCertificate: false },
    { name: 'b.example', isAlive: false, pinned: [] },
  ])
})

test('a pin to an absent shard applies once that shard starts, and can be removed', async () => {
  const waiting = await shard('pin', MESH, 'later.example')
  expect([waiting.code, waiting.err]).toEqual([0, expect.stringContaining('the pin takes effect when it starts')])
  expect((await shard('unpin', MESH)).out).toBe('unpinned\n')
  expect((await shard('unpin', MESH)).out).toBe('the mesh was not pinned\n')
  expect((await shard('pin', '00'.repeat(16), 'a.example')).code).toBe(3)
  expect((await shard('pin', 'a mesh', 'a.example')).code).toBe(2)
})

test("certifies a broker's own key, and creates the key if there is none", async () => {
  const at = (name: string) => join(folder, name)
  const words = ['--url', 'wss://shard-1.example', '--valid', '1d']
  const missing = await shard('certify', at('own.json'), '--cluster-key', at('cluster.json'), ...words)
  expect(missing.code).toBe(3)
  const cluster = generateSigningKeys()
  await writeKeyFile(at('cluster.json'), { kind: 'broker', signing: cluster })
  const first = await shard('certify', at('own.json'), '--cluster-key', at('cluster.json'), ...words)
  const { contents } = await readKeyFile(at('own.json'))
  const own = (contents as BrokerKeyFile).signing.publicKey
  expect(readShardCertificateText(first.out)).toMatchObject({
    ...{ clusterKey: cluster.publicKey, shardKey: own, authorities: ['shard-1.example:443'] },
  })
  const again = await shard('certify', at('own.json'), '--cluster-key', at('cluster.json'), ...words, '--json')
  expect(JSON.parse(again.out)).toMatchObject({ shardKey: own })
})
