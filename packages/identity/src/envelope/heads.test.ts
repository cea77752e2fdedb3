import { fromBase64url, fromHex, type GroupId, type PoolId, toBase64url, toHex } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import { ready } from '../sodium.ts'
import { encodeHeads, type Head, readHeads, statementHash } from './heads.ts'
import { encodeNote, readNote, type StreamId } from './inner-header.ts'

beforeAll(ready)

const STREAM = '11'.repeat(16) as StreamId
const HASH = new Uint8Array(16).fill(0xaa)
const LANE: Head = { kind: 'lane', isOwnLane: true, streamId: STREAM, seq: 7, sentAtMs: 0x1234 }
const GROUP: Head = { kind: 'group', id: '22'.repeat(16) as GroupId, epoch: 3, hash: HASH }
const POOL: Head = { kind: 'pool', id: '33'.repeat(32) as PoolId, epoch: 4, hash: HASH }
const CHECKPOINT: Head = { kind: 'checkpoint', bytes: new Uint8Array(140).fill(5) }

const lane = `01 0021 01 ${STREAM} 0000000000000007 0000000000001234`
const group = `02 0024 ${'22'.repeat(16)} 00000003 ${'aa'.repeat(16)}`
const hexOf = (text: string) => toHex(fromBase64url(text))
const textOf = (hex: string) => toBase64url(fromHex(hex.replaceAll(' ', '')))

test('heads have the documented bytes, and are read back', () => {
  expect(hexOf(encodeHeads([LANE, GROUP]))).toBe(`01${lane}${group}`.replaceAll(' ', ''))
  const all = [LANE, GROUP, POOL, CHECKPOINT]
  expect(readHeads(encodeHeads(all))).toEqual(all)
  expect(readHeads(encodeHeads([]))).toEqual([])
})

test('a reader skips unknown kinds, additional bytes, and heads with too few bytes or an impossible number', () => {
  const longer = `02 0026 ${'22'.repeat(16)} 00000003 ${'aa'.repeat(16)} beef`
  expect(readHeads(textOf(`01 09 0002 abcd ${longer}`))).toEqual([GROUP])
  const [short, first] = ['01 0001 01', `01 0021 01 ${STREAM} 0000000000000000 0000000000001234`]
  expect(readHeads(textOf(`01 ${short} ${first} ${lane}`))).toEqual([LANE])
})

test.each(['', 'AQ==', textOf('02'), textOf('01 02'), textOf('01 02 0024 22'), '!'])('%j contains no heads', (text) => {
  expect(readHeads(text)).toBeNull()
})

test('heads are a field of a note', () => {
  const note = { thread: 'ab'.repeat(16), heads: encodeHeads([LANE]) }
  expect(readNote(encodeNote(note))).toEqual(note)
})

test('the hash of a statement is the first half of its BLAKE2b-256', () => {
  expect(toHex(statementHash(new Uint8Array()))).toBe('0e5751c026e543b2e8ab2eb06099daa1')
})
