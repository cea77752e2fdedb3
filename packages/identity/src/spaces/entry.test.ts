import { fromHex, toHex } from '@sealpost/std'
import * as fc from 'fast-check'
import { beforeAll, expect, test } from 'vitest'
import {
  ENTRY_BYTES_MAX,
  type EntryDraft,
  entryFields,
  hash256,
  isEntryKey,
  keyHashOf,
  NO_ENTRY,
  openEntry,
  readEntry,
  ready,
  sealEntry,
  sign,
  signingKeysFromSeed,
} from '../index.ts'
import { bytes, flipped, KEYS, OTHER_MESH, PLACE, peerNumber, readVector, text } from '../test/fixtures.ts'
import { sealEntryWith } from './content.ts'

beforeAll(ready)

const ann = () => peerNumber(1).signing
const first = { ...PLACE, key: 'topic', value: bytes('tea'), revision: 1, prevHash: NO_ENTRY, sentAtMs: 5 }
const sealed = (change: Partial<EntryDraft> = {}) => sealEntry(ann(), { ...first, ...change }, KEYS)

test('an entry opens with the keys of its space, and returns its fields', () => {
  return fc.assert(
    fc.property(
      fc.string({ minLength: 1, maxLength: 40, unit: 'grapheme' }),
      fc.option(fc.uint8Array({ maxLength: 2000 })),
      fc.integer({ min: 1, max: 500 }),
      (key, value, bucketBytes) => {
        const entry = sealEntry(ann(), { ...first, key, value, bucketBytes }, KEYS)
        expect(readEntry(entry.bytes)).toMatchObject({ ...PLACE, revision: 1, isDeleted: value === null })
        expect(entry.keyHash).toBe(keyHashOf(KEYS.nameKey, key))
        expect(toHex(entry.hash)).toBe(toHex(hash256(entry.bytes)))
        const opened = openEntry(readEntry(entry.bytes)!, KEYS)
        expect([opened?.key, opened?.value && toHex(opened.value)]).toEqual([key, value && toHex(value)])
      },
    ),
  )
})

test('padding hides the lengths of key and value', () => {
  const lengthOf = (value: string) => sealEntry(ann(), { ...first, value: bytes(value), bucketBytes: 256 }, KEYS)
  expect(lengthOf('yes').bytes.length).toBe(lengthOf('certainly not').bytes.length)
  expect(text(openEntry(lengthOf('yes'), KEYS)?.value)).toBe('yes')
})

test('an entry with a changed, missing or additional byte has no valid signature', () => {
  const entry = sealed()
  for (let at = 0; at < entry.bytes.length; at++) {
    expect(readEntry(flipped(entry.bytes, at))).toBe(null)
    expect(readEntry(entry.bytes.subarray(0, at))).toBe(null)
  }
  expect(readEntry(Uint8Array.of(...entry.bytes, 0))).toBe(null)
})

test('an entry with another author, key, epoch, space or mesh in its header does not open', () => {
  const entry = sealed()
  const other = new Uint8Array(32).fill(9)
  expect(openEntry(entry, { ...KEYS, spaceKey: other })).toBe(null)
  expect(openEntry(entry, { ...KEYS, nameKey: other })).toBe(null)
  // A member's box from another key, epoch, space or mesh, signed as if it belonged here.
  const swaps = [
    sealed({ key: 'vote' }),
    sealed({ keyEpoch: 4 }),
    sealed({ spaceId: first.meshId as never }),
    sealed({ meshId: OTHER_MESH }),
  ]
  for (const swap of swaps) {
    const swapped = { ...entry, bytes: Uint8Array.of(...entry.bytes.slice(0, 153), ...swap.bytes.slice(153)) }
    expect(openEntry(swapped, KEYS)).toBe(null)
  }
  expect(openEntry(entry, KEYS)).not.toBe(null)
})

test("nobody can sign another member's box as a newer revision or as their own", () => {
  const { bytes: fields, hash } = sealed()
  const thief = peerNumber(2).signing
  const opened = (change: (header: Uint8Array) => void) => {
    const stolen = fields.slice(0, -64)
    change(stolen)
    const signed = Buffer.concat([Buffer.from('sealpost-entry/1\0'), stolen])
    const entry = readEntry(Uint8Array.of(...stolen, ...sign(thief, signed)))!
    expect(entry.author).toBe(thief.publicKey)
    return openEntry(entry, KEYS)
  }
  const asThief = (header: Uint8Array) => header.set(fromHex(thief.publicKey), 113)
  expect(opened(asThief)).toBe(null)
  const asSecond = (header: Uint8Array) => {
    asThief(header)
    header[76] = 2
    header.set(hash, 77)
  }
  expect(opened(asSecond)).toBe(null)
})

test('revision 1 has no predecessor, and every other revision has one', () => {
  expect(() => sealed({ revision: 2 })).toThrow()
  expect(() => sealed({ prevHash: sealed().hash })).toThrow()
  expect(() => sealed({ revision: 0 })).toThrow()
  const second = sealed({ revision: 2, prevHash: sealed().hash })
  expect(entryFields(second.bytes)).toMatchObject({ revision: 2, author: ann().publicKey })
})

test('a key has 1 to 512 bytes and no lone surrogate; a value has at most 64 KiB', () => {
  expect(['', 'x', 'é'.repeat(256), 'é'.repeat(257), '\ud800'].map(isEntryKey)).toEqual([
    false,
    true,
    true,
    false,
    false,
  ])
  const largest = sealEntry(
    ann(),
    { ...first, key: 'x'.repeat(512), value: new Uint8Array(65_536), bucketBytes: 1024 },
    KEYS,
  )
  expect(largest.bytes.length).toBeLessThanOrEqual(ENTRY_BYTES_MAX)
  expect(openEntry(largest, KEYS)?.value?.length).toBe(65_536)
  expect(() => sealed({ value: new Uint8Array(65_537) })).toThrow()
})

test('a deleted key has no value', () => {
  const entry = sealed({ value: null })
  expect(entryFields(entry.bytes)?.isDeleted).toBe(true)
  expect(openEntry(entry, KEYS)).toEqual({ key: 'topic', value: null })
  // A deleted entry must not contain a value.
  expect(openEntry({ ...sealed(), isDeleted: true }, KEYS)).toBe(null)
})

test('arbitrary bytes are read or refused without an exception', () => {
  return fc.assert(
    fc.property(fc.uint8Array({ maxLength: 700 }), (any) => {
      expect(readEntry(any)).toBe(null)
      expect(readEntry(Uint8Array.of(...sealed().bytes.slice(0, 5), ...any))).toBe(null)
    }),
  )
})

test('the vector', () => {
  const { authorSeed, keys, draft, nonce, ...made } = readVector('entry.json')
  const entry = sealEntryWith(
    signingKeysFromSeed(fromHex(authorSeed)),
    { ...draft, value: bytes(draft.value), prevHash: fromHex(draft.prevHash) },
    { nameKey: fromHex(keys.nameKey), spaceKey: fromHex(keys.spaceKey) },
    fromHex(nonce),
  )
  expect([entry.keyHash, toHex(entry.bytes), toHex(entry.hash)]).toEqual([made.keyHash, made.bytes, made.hash])
})
