import { type AttachmentId, fromHex, toHex } from '@sealpost/std'
import { beforeAll, describe, expect, test } from 'vitest'
import {
  type Attachment,
  attachmentHash,
  attachmentText,
  CHUNKS_MAX,
  ChunkStream,
  chunkLayout,
  hash256,
  readAttachment,
  ready,
} from '../index.ts'
import { sodium } from '../sodium.ts'
import { readVector } from '../test/fixtures.ts'

beforeAll(ready)

const text = (said: string) => new TextEncoder().encode(said)
const key = new Uint8Array(32).fill(7)
const header = new Uint8Array(24).fill(9)
const attachment: Attachment = {
  ...{ id: '0123456789abcdef0123456789abcdef' as AttachmentId, key, header, bytes: 12, chunkBytes: 4096 },
  ...{ hash: new Uint8Array(32).fill(5), name: 'Plän.pdf', type: 'application/pdf' },
}

const sealedOf = (...pieces: readonly string[]): Uint8Array[] => {
  const stream = new ChunkStream({ key, header })
  return pieces.map((piece, i) => stream.seal(text(piece), i === pieces.length - 1))
}

const openAll = (chunks: readonly Uint8Array[]) => {
  const stream = new ChunkStream({ key, header })
  return chunks.map((chunk) => {
    const opened = stream.open(chunk)
    return opened && `${new TextDecoder().decode(opened.bytes)}${opened.isLast ? '.' : ''}`
  })
}

describe('chunks', () => {
  test('open in order, and the last one is marked as the last', () => {
    expect(openAll(sealedOf('one', 'two', 'three'))).toEqual(['one', 'two', 'three.'])
    expect(openAll(sealedOf(''))).toEqual(['.'])
  })

  test('are identical to those of libsodium', () => {
    const { state, header: drawn } = sodium.crypto_secretstream_xchacha20poly1305_init_push(key)
    const push = (said: string, tag: number) =>
      sodium.crypto_secretstream_xchacha20poly1305_push(state, text(said), null, tag)
    const chunks = [push('one', 0), push('two', sodium.crypto_secretstream_xchacha20poly1305_TAG_FINAL)]
    const again = new ChunkStream({ key, header: drawn })
    expect([again.seal(text('one'), false), again.seal(text('two'), true)]).toEqual(chunks)
    const stream = new ChunkStream({ key, header: drawn })
    expect(chunks.map((chunk) => stream.open(chunk)?.isLast)).toEqual([false, true])
  })

  test.each<[string, (chunks: Uint8Array[]) => Uint8Array]>([
    ['the second chunk first', ([, second]) => second!],
    ['a chunk of another file', () => new ChunkStream(ChunkStream.newKey()).seal(text('one'), false)],
    ['a chunk with a flipped bit', ([first]) => first!.with(3, first![3]! ^ 1)],
    ['a truncated chunk', ([first]) => first!.subarray(0, -1)],
    ['nothing', () => new Uint8Array(0)],
  ])('do not open: %s', (_, chosen) => {
    expect(openAll([chosen(sealedOf('one', 'two', 'three'))])).toEqual([null])
  })
})

test.each([
  [0, 4096, 1, 17],
  [1, 4096, 1, 18],
  [4079, 4096, 1, 4096],
  [4080, 4096, 2, 4096 + 18],
  [100 * 2 ** 20, 262_144, 401, 100 * 2 ** 20 + 401 * 17],
])('a file of %d bytes in chunks of %d has %d chunks, %d bytes in all', (bytes, chunkBytes, chunks, sealedBytes) => {
  expect(chunkLayout(bytes, chunkBytes)).toMatchObject({ chunks, sealedBytes })
})

describe('a reference', () => {
  test('is read as it was written', () => {
    expect(readAttachment(attachmentText(attachment))).toEqual(attachment)
  })

  test.each<[string, string]>([
    ['nothing', ''],
    ['another version', attachmentText(attachment).replace(/^A/, 'B')],
    ['additional text', `${attachmentText(attachment)}AAAA`],
    ['a truncated reference', attachmentText(attachment).slice(0, -4)],
    ['invalid base64url', '*'],
  ])('is refused: %s', (_, said) => {
    expect(readAttachment(said)).toBe(null)
  })

  test.each<[string, Partial<Attachment>]>([
    ['no name', { name: '' }],
    ['a long name', { name: 'ä'.repeat(128) }],
    ['a type with a line break', { type: 'text/plain\n' }],
    ['chunks that are too small', { chunkBytes: 4095 }],
    ['chunks that are too large', { chunkBytes: 2 ** 18 + 1 }],
    ['too many chunks', { bytes: CHUNKS_MAX * 4096 }],
  ])('cannot be written with %s', (_, changed) => {
    expect(() => attachmentText({ ...attachment, ...changed })).toThrow()
  })
})

test('the vector', () => {
  const vector = readVector('attachment.json')
  const parts = { key: fromHex(vector.key), header: fromHex(vector.header) }
  const stream = new ChunkStream(parts)
  const chunks = vector.pieces.map((piece: string, i: number) =>
    stream.seal(fromHex(piece), i === vector.pieces.length - 1),
  )
  expect(chunks.map(toHex)).toEqual(vector.chunks)
  const hash = attachmentHash(vector.sealedBytes, vector.chunkBytes, chunks.map(hash256))
  expect(toHex(hash)).toBe(vector.hash)
  const { id, bytes, chunkBytes, name, type } = vector
  expect(attachmentText({ ...parts, id, bytes, chunkBytes, hash, name, type })).toBe(vector.text)
})
