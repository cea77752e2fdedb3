/** Tests how a broker may attack uploads and downloads, and that they resume after a process has ended. */

import type { Attachment } from '@sealpost/identity'
import type { PeerKey } from '@sealpost/std'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { MemoryAttachments, MemoryLog } from '../test/attachments.ts'
import { download } from './attachments.ts'
import { inPieces, type RemoteStatus, sourceOf, type UploadOptions, upload } from './upload.ts'

const BOB = 'b'.repeat(64) as PeerKey
const PLAIN = 4096 - 17
const options = (changed: Partial<UploadOptions> = {}): UploadOptions => ({
  ...{ to: BOB, name: 'plan.pdf', chunkBytes: 4096, ...changed },
})
const bytesOf = (length: number) => Uint8Array.from({ length }, (_, i) => (i * 7 + (i >> 8)) & 255)
const THREE = bytesOf(2 * PLAIN + 5)

const send = (broker: MemoryAttachments, bytes: Uint8Array, changed: Partial<UploadOptions> = {}) =>
  upload(broker, sourceOf(new Blob([bytes as Uint8Array<ArrayBuffer>])), options(changed))

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes
}

/** Returns the chunks that the download yielded, and its error if it failed. */
async function fetched(broker: MemoryAttachments, attachment: Attachment, from?: Uint8Array) {
  const got: number[] = []
  try {
    for await (const piece of download(broker, attachment, { from: from && once(from) })) got.push(...piece)
    return { got: Uint8Array.from(got), code: 'whole' }
  } catch (error) {
    return { got: Uint8Array.from(got), code: (error as { code: string }).code }
  }
}

test.each([0, 1, PLAIN - 1, PLAIN, PLAIN + 1, 3 * PLAIN, 3 * PLAIN + 100])(
  'a file of %d bytes arrives unchanged',
  async (length) => {
    const broker = new MemoryAttachments()
    const sent = await send(broker, bytesOf(length))
    expect(await fetched(broker, sent)).toEqual({ got: bytesOf(length), code: 'whole' })
  },
)

test('a stream is cut into chunks independent of its own pieces', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.uint8Array({ maxLength: 40 })),
      fc.integer({ min: 1, max: 50 }),
      async (parts, size) => {
        const pieces: Uint8Array[] = []
        const stream = (async function* () {
          yield* parts
        })()
        for await (const piece of inPieces(stream, size)) pieces.push(piece)
        expect(Buffer.concat(pieces)).toEqual(Buffer.concat(parts))
        expect(pieces.slice(0, -1).every(({ length }) => length === size)).toBe(true)
        expect(pieces.length).toBe(Math.max(1, Math.ceil(Buffer.concat(parts).length / size)))
      },
    ),
  )
})

describe('a hostile broker', () => {
  type Lie = (broker: MemoryAttachments, chunks: Uint8Array[], other: Uint8Array[]) => void
  const withStatus =
    (change: (status: RemoteStatus) => Partial<RemoteStatus>): Lie =>
    (broker) => {
      broker.lie.status = (status) => ({ ...status, ...change(status) })
    }
  const withChunk = (chosen: (chunk: number, chunks: Uint8Array[], other: Uint8Array[]) => Uint8Array | undefined): Lie =>
    (broker, chunks, other) => {
      broker.lie.chunk = (chunk) => chosen(chunk, chunks, other)
    } // biome-ignore format: as the one above
  const hashes = (change: (hashes: Uint8Array) => Uint8Array) =>
    withStatus((status) => ({ hashes: change(status.hashes!) }))

  test.each<[string, string, number, Lie]>([
    ['swaps two chunks', 'attachment_changed', 0, withChunk((chunk, chunks) => chunks[[1, 0, 2][chunk]!])],
    ['sends one chunk twice', 'attachment_changed', 1, withChunk((chunk, chunks) => chunks[chunk === 1 ? 0 : chunk])],
    ['omits a chunk', 'attachment_changed', 1, withChunk((chunk, chunks) => chunks[chunk === 0 ? 0 : 2])],
    ["sends another file's chunk", 'attachment_changed', 0, withChunk((chunk, _, other) => other[chunk])],
    ['flips a bit', 'attachment_changed', 2, withChunk((chunk, chunks) => (chunk === 2 ? chunks[2]!.with(9, chunks[2]![9]! ^ 1) : undefined))],
    ['truncates a chunk', 'attachment_changed', 1, withChunk((chunk, chunks) => (chunk === 1 ? chunks[1]!.subarray(1) : undefined))],
    ['sends empty chunks', 'attachment_changed', 0, withChunk(() => new Uint8Array(0))],
    ['reports fewer chunks', 'attachment_truncated', 0, hashes((all) => all.slice(0, 64))],
    ['reports more chunks', 'attachment_changed', 0, hashes((all) => Uint8Array.from([...all, ...all]))],
    ['reports other hashes', 'attachment_changed', 0, hashes((all) => all.with(40, all[40]! ^ 1))],
    ['reports the hashes in another order', 'attachment_changed', 0, hashes((all) => Uint8Array.from([...all.slice(32), ...all.slice(0, 32)]))],
    ['reports the file as incomplete', 'attachment_truncated', 0, withStatus(() => ({ hashes: null }))],
  ])('is detected: it %s', async (_, code, whole, lie) => {
    const broker = new MemoryAttachments()
    const [sent, other] = [await send(broker, THREE), await send(broker, THREE)]
    lie(broker, broker.chunksOf(sent.id), broker.chunksOf(other.id))
    const { got, code: told } = await fetched(broker, sent)
    expect([told, got]).toEqual([code, THREE.slice(0, whole * PLAIN)])
  }) // biome-ignore format: a table

  test('is detected: it substitutes a different file of the same sender, with its list of hashes', async () => {
    const broker = new MemoryAttachments()
    const [sent, other] = [await send(broker, THREE), await send(broker, THREE)]
    expect((await fetched(broker, { ...sent, id: other.id })).code).toBe('attachment_changed')
  })
})

test('a sender whose final chunk is not the last one is detected', async () => {
  const broker = new MemoryAttachments()
  const sent = await send(broker, THREE)
  const chunks = broker.kept.get(sent.id)!.chunks
  expect(chunks.size).toBe(3)
  const short = { ...sent, bytes: 2 * PLAIN }
  expect((await fetched(broker, short)).code).toBe('attachment_changed')
})

describe('a process that ends', () => {
  const dying = async (after: number) => {
    const [broker, resume] = [new MemoryAttachments(), new MemoryLog()]
    broker.beforePut = () => {
      if (broker.puts === after) throw new Error('the end')
    }
    await expect(send(broker, THREE, { resume })).rejects.toThrow('the end')
    broker.beforePut = () => undefined
    return { broker, resume }
  }

  test.each([0, 1, 2])('after %d chunks is resumed by the next process', async (after) => {
    const { broker, resume } = await dying(after)
    const sent = await send(broker, THREE, { resume })
    expect([broker.puts, broker.kept.size]).toEqual([3, 1])
    expect((await fetched(broker, sent)).got).toEqual(THREE)
    expect(await send(broker, THREE, { resume })).toEqual(sent)
    expect(broker.puts).toBe(3)
  })

  test('never causes different bytes to be sealed for a chunk, not even for the chunk in flight', async () => {
    const { broker, resume } = await dying(1)
    for (const at of [0, PLAIN + 3]) {
      const changed = THREE.with(at, THREE[at]! ^ 1)
      await expect(send(broker, changed, { resume })).rejects.toMatchObject({ code: 'source_changed' })
    }
    expect(broker.puts).toBe(1)
  })

  test('in the middle of a log line is resumed by the next process', async () => {
    const { broker, resume } = await dying(1)
    resume.bytes = resume.bytes!.slice(0, -5)
    await send(broker, THREE, { resume })
    expect([broker.puts, broker.kept.size]).toEqual([3, 1])
  })

  test.each<[string, Partial<UploadOptions>, (life: { broker: MemoryAttachments; resume: MemoryLog }) => void]>([
    ['for others', { to: [BOB, 'c'.repeat(64) as PeerKey] }, () => undefined],
    ['with another name', { name: 'other.pdf' }, () => undefined],
    ['with an invalid log', {}, ({ resume }) => void resume.start(new Uint8Array(200))],
    ['that the broker has dropped', {}, ({ broker }) => broker.kept.clear()],
  ])('is not resumed by an upload %s, which gets its own key', async (_, asked, change) => {
    const { broker, resume } = await dying(1)
    const before = [...broker.kept.keys()]
    change({ broker, resume })
    const sent = await send(broker, THREE, { resume, ...asked })
    expect(before).not.toContain(sent.id)
    expect((await fetched(broker, sent)).got).toEqual(THREE)
  })

  test('in a download leaves data that the next process verifies and need not fetch', async () => {
    const broker = new MemoryAttachments()
    const sent = await send(broker, THREE)
    const there = THREE.slice(0, 2 * PLAIN)
    expect(await fetched(broker, sent, there)).toEqual({ got: THREE.slice(2 * PLAIN), code: 'whole' })
    expect(broker.gets).toBe(1)
    expect((await fetched(broker, sent, there.with(5, there[5]! ^ 1))).code).toBe('part_differs')
    expect(await fetched(broker, sent, THREE)).toEqual({ got: new Uint8Array(0), code: 'whole' })
  })
})

test('a chunk is not requested before its reader has the previous one if nothing is fetched ahead', async () => {
  const broker = new MemoryAttachments()
  const sent = await send(broker, THREE)
  const asked: number[] = []
  for await (const _ of download(broker, sent, { ahead: 1 })) asked.push(broker.gets)
  expect(asked).toEqual([1, 2, 3])
})

test.each<[string, Partial<UploadOptions>]>([
  ['to nobody', { to: [] }],
  ['without a name', { name: '' }],
  ['of a two-line type', { type: 'a\nb' }],
  ['in chunks of size 0', { chunkBytes: 0 }],
])('an upload %s throws', async (_, changed) => {
  await expect(send(new MemoryAttachments(), THREE, changed)).rejects.toThrow(RangeError)
})
