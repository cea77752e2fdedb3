import { fromHex, type GroupId, toHex } from '@sealpost/std'
import * as fc from 'fast-check'
import { beforeAll, expect, test } from 'vitest'
import {
  NO_ENTRY,
  openBody,
  openRecord,
  readRecord,
  ready,
  recordFields,
  sealBody,
  sealRecord,
  sign,
  signingKeysFromSeed,
} from '../index.ts'
import { bytes, flipped, KEYS, PLACE, peerNumber, readVector, SPACE, text } from '../test/fixtures.ts'
import { sealRecordWith } from './content.ts'

beforeAll(ready)

const ann = () => peerNumber(1).signing
const note = { group: SPACE as GroupId, groupEpoch: 2 }
const place = { streamId: 'ee'.repeat(16), seq: 1, prevHash: NO_ENTRY }
const made = (change: object = {}, body = sealBody(bytes('hello all'))) => ({
  body,
  record: sealRecord(ann(), { ...PLACE, ...place, ticket: body.ticket, sentAtMs: 7, note, ...change }, KEYS.spaceKey),
})

test('a record opens with the key of the space, and its body with the contents of the record', () => {
  const { body, record } = made()
  expect(recordFields(record.bytes)).toEqual({ ...PLACE, author: ann().publicKey, bodyId: body.bodyId, sentAtMs: 7 })
  const opened = openRecord(readRecord(record.bytes)!, KEYS.spaceKey)!
  expect(opened).toMatchObject({ ...place, note })
  expect(text(openBody(body.bytes, opened.ticket))).toBe('hello all')
  expect(openBody(sealBody(bytes('hello all')).bytes, opened.ticket)).toBe(null)
  expect(openRecord(made({ note: null }).record, KEYS.spaceKey)?.note).toBe(null)
})

test('a record with a changed, missing or additional byte has no valid signature, and another key does not open it', () => {
  const { record } = made()
  for (let at = 0; at < record.bytes.length; at++) {
    expect(readRecord(flipped(record.bytes, at))).toBe(null)
    expect(readRecord(record.bytes.subarray(0, at))).toBe(null)
  }
  expect(readRecord(Uint8Array.of(...record.bytes, 0))).toBe(null)
  expect(openRecord(record, KEYS.nameKey)).toBe(null)
})

test("nobody can sign another member's box as their own", () => {
  const { record } = made()
  const thief = peerNumber(2).signing
  const fields = record.bytes.slice(0, -64)
  fields.set(fromHex(thief.publicKey), 37)
  const signed = Buffer.concat([Buffer.from('sealpost-record/1\0'), fields])
  const stolen = readRecord(Uint8Array.of(...fields, ...sign(thief, signed)))!
  expect(stolen.author).toBe(thief.publicKey)
  expect(openRecord(stolen, KEYS.spaceKey)).toBe(null)
})

test('the first record of a stream has no predecessor, and every other one has one', () => {
  const { hash } = made().record
  expect(openRecord(made({ seq: 2, prevHash: hash }).record, KEYS.spaceKey)).toMatchObject({ seq: 2, prevHash: hash })
  for (const flaw of [{ seq: 0 }, { seq: 2 }, { prevHash: hash }, { streamId: 'ee' }, { keyEpoch: 0 }])
    expect(() => made(flaw)).toThrow()
})

test('arbitrary bytes are read or refused without an exception', () => {
  return fc.assert(
    fc.property(fc.uint8Array({ maxLength: 700 }), (any) => {
      expect(readRecord(any)).toBe(null)
      expect(readRecord(Uint8Array.of(...made().record.bytes.slice(0, 5), ...any))).toBe(null)
    }),
  )
})

test('the vector', () => {
  const { authorSeed, spaceKey, draft, nonce, ...expected } = readVector('record.json')
  const record = sealRecordWith(
    signingKeysFromSeed(fromHex(authorSeed)),
    { ...draft, ticket: fromHex(draft.ticket), prevHash: fromHex(draft.prevHash) },
    fromHex(spaceKey),
    fromHex(nonce),
  )
  expect([toHex(record.bytes), toHex(record.hash)]).toEqual([expected.bytes, expected.hash])
})
