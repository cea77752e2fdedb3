import { randomBytes } from 'node:crypto'
import { databaseOfFile } from '@sealpost/schema/testing'
import { type AttachmentId, type GroupId, type PeerKey, type PeerNo, toHex } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { makeDevice, newKey, newMeshOf, randomBinding, revokeMember } from '../test/members.ts'
import {
  type AttachmentSpec,
  completeAttachment,
  createAttachment,
  deleteAttachment,
  expireAttachment,
  findAttachment,
  listChunks,
  listExpiredAttachments,
  putChunk,
  readChunk,
  readChunkHashes,
} from './attachments.ts'

const db = await databaseOfFile({ connections: 4 })

const newId = () => toHex(randomBytes(16)) as AttachmentId
const QUOTA = { perPeer: 3, bytesPerPeer: 30_000, perMesh: 4, bytesPerMesh: 100_000 }

async function mesh() {
  const keys = [newKey(), newKey(), newKey()]
  const { meshId, numbers } = await newMeshOf(
    db,
    keys.map((key) => randomBinding(key)),
  )
  const [ann, bob, eve] = numbers as [PeerNo, PeerNo, PeerNo]
  const terms = (changed: Partial<AttachmentSpec> = {}): AttachmentSpec => ({
    ...{ meshId, id: newId(), owner: ann, to: [keys[1]!], bytes: 10_000, chunkBytes: 4096, store: 'postgres' },
    ...{ keepSeconds: 3600, finishSeconds: 60, ...changed },
  })
  const made = async (changed: Partial<AttachmentSpec> = {}) => {
    const asked = terms(changed)
    const { outcome } = await createAttachment(db, asked, QUOTA)
    return { outcome, of: { meshId, id: asked.id }, asked }
  }
  const seenBy = (id: AttachmentId, peer: PeerNo) => findAttachment(db, { meshId, id }, { peer, person: peer })
  return { meshId, keys, ann, bob, eve, made, seenBy }
}

const chunk = (chunkNo: number, said = `chunk ${chunkNo}`) => ({
  ...{ chunkNo, hash: new Uint8Array(32).fill(chunkNo), content: new TextEncoder().encode(said) },
})

describe('a new attachment', () => {
  test('is created once, however often its owner asks, and no other file can use its id', async () => {
    const { made, asked, meshId, bob } = await mesh().then(async (mesh) => ({ ...mesh, ...(await mesh.made()) }))
    expect((await createAttachment(db, asked, QUOTA)).outcome).toBe('done')
    expect((await createAttachment(db, { ...asked, owner: bob }, QUOTA)).outcome).toBe('taken')
    expect((await createAttachment(db, { ...asked, bytes: 1 }, QUOTA)).outcome).toBe('taken')
    expect((await made({ id: asked.id })).of.meshId).toBe(meshId)
  })

  test('can only be for members that are not revoked', async () => {
    const { made, keys, meshId } = await mesh()
    expect((await made({ to: [toHex(randomBytes(32)) as PeerKey] })).outcome).toBe('unknown_recipient')
    expect((await made({ to: keys })).outcome).toBe('done')
    await revokeMember(db, meshId, keys[2]!)
    expect((await made({ to: keys })).outcome).toBe('unknown_recipient')
  })

  test('counts in the quotas of its owner and the mesh until it is deleted', async () => {
    const { made, ann, bob } = await mesh()
    expect((await made({ bytes: 30_001 })).outcome).toBe('peer_quota')
    const first = await made()
    expect([(await made()).outcome, (await made({ bytes: 10_001 })).outcome]).toEqual(['done', 'peer_quota'])
    expect([(await made()).outcome, (await made({ bytes: 1 })).outcome]).toEqual(['done', 'peer_quota'])
    expect([(await made({ owner: bob })).outcome, (await made({ owner: bob })).outcome]).toEqual(['done', 'mesh_quota'])
    expect(await expireAttachment(db, first.of, bob)).toBe(false)
    expect(await expireAttachment(db, first.of, ann)).toBe(true)
    expect((await made()).outcome).toBe('done')
  })
})

test('the files of a user and its devices count together, including those of a removed device', async () => {
  const { made, meshId, keys, ann, bob, eve } = await mesh()
  await makeDevice(db, meshId, bob, ann)
  expect((await made({ owner: bob, to: [keys[2]!], bytes: 20_000 })).outcome).toBe('done')
  await revokeMember(db, meshId, keys[1]!)
  const more = { to: [keys[2]!], bytes: 10_001 }
  expect([(await made(more)).outcome, (await made({ ...more, owner: eve })).outcome]).toEqual(['peer_quota', 'done'])
})

test('a peer finds the attachments that it owns or may receive, with the newest statement of a recipient group', async () => {
  const { made, seenBy, ann, bob, eve, meshId } = await mesh()
  const { of } = await made()
  expect(await seenBy(of.id, ann)).toMatchObject({ isOwner: true, isRecipient: false, bytes: 10_000 })
  expect(await seenBy(of.id, bob)).toMatchObject({ isOwner: false, isRecipient: true, isComplete: false })
  expect(await seenBy(of.id, eve)).toMatchObject({ isOwner: false, isRecipient: false, groupStatement: null })
  expect(await findAttachment(db, of, { peer: eve, person: bob })).toMatchObject({ isRecipient: true })
  const group = toHex(randomBytes(16)) as GroupId
  await db.run((sql) => sql`insert into peer_group values (${meshId}, ${group}, ${ann}, 3, '\\x0708')`)
  const shared = await made({ to: group })
  expect([...(await seenBy(shared.of.id, eve))!.groupStatement!]).toEqual([7, 8])
})

describe('chunks', () => {
  test('arrive in any order and repeatedly, but do not replace others', async () => {
    const { of } = await (await mesh()).made()
    const outcomes = [
      await putChunk(db, of, chunk(2)),
      await putChunk(db, of, chunk(0)),
      await putChunk(db, of, chunk(2)),
    ]
    expect(outcomes).toEqual(['done', 'done', 'done'])
    expect(await putChunk(db, of, { ...chunk(2), hash: new Uint8Array(32) })).toBe('differs')
    expect(await listChunks(db, of)).toEqual([[0, 0], [2, 2]]) // biome-ignore format: two ranges
    await putChunk(db, of, chunk(1))
    expect(await listChunks(db, of)).toEqual([[0, 2]])
    expect(new TextDecoder().decode((await readChunk(db, of, 1))!.content!)).toBe('chunk 1')
    expect([...(await readChunkHashes(db, of))]).toEqual([0, 1, 2].flatMap((n) => Array(32).fill(n)))
  })

  test('that arrive twice concurrently are stored once', async () => {
    const { of } = await (await mesh()).made()
    for (let n = 0; n < 20; n++) {
      const twice = [putChunk(db, of, chunk(n)), putChunk(db, of, chunk(n))]
      expect(await Promise.all(twice)).toEqual(['done', 'done'])
    }
  })

  test('are accepted until the file is complete or expired', async () => {
    const { made, seenBy, ann } = await mesh()
    const [{ of }, other] = [await made(), await made()]
    await putChunk(db, of, chunk(0))
    await completeAttachment(db, of, new Uint8Array(32))
    expect(await putChunk(db, of, chunk(1))).toBe('gone')
    expect(await putChunk(db, of, chunk(0))).toBe('done')
    const { isComplete, expiresAtMs } = (await seenBy(of.id, ann))!
    expect([isComplete, expiresAtMs - Date.now() > 3_000_000]).toEqual([true, true])
    await expireAttachment(db, other.of, ann)
    expect(await putChunk(db, other.of, chunk(0))).toBe('gone')
  })
})

test('attachments are deleted in steps, and only after they have expired', async () => {
  const { made, ann, meshId } = await mesh()
  const [{ of }, kept] = [await made(), await made()]
  for (const { of: one } of [{ of }, kept]) for (const n of [0, 1, 2]) await putChunk(db, one, chunk(n))
  await expireAttachment(db, of, ann)
  const mine = async (sinceSeconds: number) =>
    (await listExpiredAttachments(db, { sinceSeconds, max: 100 })).filter((each) => each.meshId === meshId)
  expect(await mine(3600)).toEqual([])
  expect(await mine(0)).toEqual([{ ...of, store: 'postgres', chunks: 3 }])
  await db.run((sql) => sql`update mesh set frozen_at = now() where mesh_id = ${meshId}`)
  expect(await mine(0)).toEqual([])
  await db.run((sql) => sql`update mesh set frozen_at = null where mesh_id = ${meshId}`)
  expect([await deleteAttachment(db, of, 2), await deleteAttachment(db, of, 2)]).toEqual([false, true])
  expect([await mine(0), await listChunks(db, of), await listChunks(db, kept.of)]).toEqual([[], [], [[0, 2]]])
})
