/** Tests chunks in an S3 store: the real client, against an S3 server on this machine. */
import { randomBytes } from 'node:crypto'
import { hash256, ready } from '@sealpost/identity'
import { type Database, openDatabase } from '@sealpost/pg'
import { type ScratchDatabase, unhurried } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import { type AttachmentId, type MeshId, type PeerKey, toHex } from '@sealpost/std'
import { addMembers, createAttachment, createMesh, expireAttachment, listExpiredAttachments } from '@sealpost/store'
import { randomBinding } from '@sealpost/store/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { readConfig } from '../config/config.ts'
import { type TestingS3, testingS3 } from '../test/s3.ts'
import { AttachmentExpiry, type ChunkStore, postgresChunks } from './attachments.ts'
import { s3Chunks } from './s3-chunks.ts'

const CHUNK_BYTES = 4096

let scratch: ScratchDatabase
let db: Database
let server: TestingS3
let s3: ChunkStore

beforeAll(async () => {
  await ready()
  scratch = await scratchDatabase()
  db = await openDatabase(scratch.url, { ...unhurried, connections: 2 })
  server = await testingS3()
  s3 = s3Chunks(db, configOf(server.env))
})
afterAll(async () => {
  await server.close()
  await db.close()
  await scratch.drop()
})

function configOf(env: TestingS3['env']) {
  const read = readConfig({ DATABASE_URL: scratch.url, ...env })
  if (!read.ok) throw new Error(read.errors.join(' '))
  return read.config
}

async function newFile(store: ChunkStore) {
  const meshId = toHex(randomBytes(16)) as MeshId
  await createMesh(db, { meshId, name: 'a mesh' })
  const peerKey = toHex(randomBytes(32)) as PeerKey
  const [owner] = await addMembers(db, meshId, [randomBinding(peerKey)])
  const of = { meshId, id: toHex(randomBytes(16)) as AttachmentId }
  const shape = { bytes: 3 * CHUNK_BYTES, chunkBytes: CHUNK_BYTES, keepSeconds: 60, finishSeconds: 60 }
  await createAttachment(db, { ...of, owner: owner!, to: [peerKey], store: store.name, ...shape }, null)
  return { of, owner: owner! }
}

const newChunk = (chunkNo: number) => {
  const content = new Uint8Array(randomBytes(CHUNK_BYTES))
  return { chunkNo, content, hash: hash256(content) }
}

describe.each([['postgres'], ['s3']] as const)('a store of chunks: %s', (name) => {
  const store = () => (name === 's3' ? s3 : postgresChunks(db))

  test('returns each chunk unchanged after its upload', async () => {
    const { of } = await newFile(store())
    const [first, third] = [newChunk(0), newChunk(2)]
    expect([await store().put(of, third), await store().put(of, first)]).toEqual(['done', 'done'])
    expect(Buffer.compare((await store().get(of, 2))!.content, third.content)).toBe(0)
    expect(await store().get(of, 1)).toBe(undefined)
  })

  test('accepts the same chunk twice, and no different chunk at its index', async () => {
    const { of, owner } = await newFile(store())
    const chunk = newChunk(1)
    expect([await store().put(of, chunk), await store().put(of, chunk)]).toEqual(['done', 'done'])
    expect(await store().put(of, newChunk(1))).toBe('differs')
    expect(Buffer.compare((await store().get(of, 1))!.content, chunk.content)).toBe(0)
    await expireAttachment(db, of, owner)
    expect(await store().put(of, newChunk(2))).toBe('gone')
  })
})

test('expired chunks are deleted from the store, including those that a crash left without a row', async () => {
  const { of, owner } = await newFile(s3)
  const before = await server.objects()
  for (const n of [0, 1]) await s3.put(of, newChunk(n))
  await expireAttachment(db, of, owner)
  await s3.put(of, newChunk(2)) // the object is stored, but the database refuses its row
  expect((await server.objects()) - before).toBe(3)
  const failures: unknown[] = []
  const failed = (error: unknown) => failures.push(error)
  const ports = { db, stores: [s3], forgotten: () => undefined, failed }
  const expiry = new AttachmentExpiry(ports, { everyMs: 20, sinceSeconds: 0 })
  await expect.poll(() => listExpiredAttachments(db, { sinceSeconds: 0, max: 10 })).toEqual([])
  await expiry.stop()
  expect(failures).toEqual([])
  expect(await server.objects()).toBeLessThanOrEqual(before)
})

test('an unavailable store causes a retryable error that contains no keys', async () => {
  const away = s3Chunks(db, configOf({ ...server.env, S3_ENDPOINT: 'http://127.0.0.1:1' }))
  const { of } = await newFile(away)
  const failed = await away.put(of, newChunk(0)).catch((error: unknown) => error)
  expect(failed).toMatchObject({ code: 'store_unavailable', retryable: true })
  expect(String((failed as Error).stack)).not.toContain('S3RVER')
})
