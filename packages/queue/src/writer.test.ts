import type { Append, DeliveryRef } from '@sealpost/protocol'
import type { DeliveryId } from '@sealpost/std'
import { beforeEach, expect, test } from 'vitest'
import { envelopeIdOf, MESH } from './conformance-world.ts'
import type { Batch } from './queue.ts'
import { Writer } from './writer.ts'

const LIMITS = { appendsMax: 3, appendBytesMax: 100, settlesMax: 2, settlesDueAt: 1 }

let batches: Batch[]
let writer: Writer
beforeEach(() => {
  batches = []
  writer = new Writer((batch) => batches.push(batch), LIMITS)
})

test('the first flush starts at once, with all that waits', () => {
  writer.append(append(1))
  writer.append(append(2))
  writer.settle(settle(1))
  writer.flush()
  expect(batches.map(idsOf)).toEqual([{ appends: [1, 2], settles: [1] }])
})

test('few settles join no commit and start none until they are called; many do', () => {
  writer = new Writer((batch) => batches.push(batch), { ...LIMITS, settlesMax: 9, settlesDueAt: 3 })
  writer.settle(settle(1))
  writer.append(append(1))
  writer.flush()
  expect(batches.map(idsOf)).toEqual([{ appends: [1], settles: [] }])
  writer.succeeded()
  writer.flush()
  expect(batches).toHaveLength(1)
  expect(writer.isIdle).toBe(false)
  writer.callSettles()
  writer.flush()
  expect(batches.map(idsOf)[1]).toEqual({ appends: [], settles: [1] })
  writer.succeeded()
  for (let n = 2; n <= 4; n++) writer.settle(settle(n))
  writer.flush()
  expect(batches.map(idsOf)[2]).toEqual({ appends: [], settles: [2, 3, 4] })
})

test('who waits for settles is called when those taken before are committed, and not for later ones', () => {
  const done: string[] = []
  writer.whenSettled(() => done.push('nothing waits'))
  for (const n of [1, 2, 3]) writer.settle(settle(n))
  writer.whenSettled(() => done.push('three'))
  writer.settle(settle(4))
  writer.whenSettled(() => done.push('four'))
  writer.flush()
  writer.failed()
  for (const expected of [['nothing waits'], ['nothing waits', 'three', 'four']]) {
    writer.flush()
    writer.succeeded()
    expect(done).toEqual(expected)
  }
})

test('whose settles wait, or are under way, is known by recipient, and by member of a pool', () => {
  const peer = settle(1).recipient
  const other = (peer + 1) as typeof peer
  const owes = () => [peer, other].map((who) => writer.hasSettlesOf({ meshId: MESH, peer: who }))
  writer.settle(settle(1))
  expect(owes()).toEqual([true, false])
  writer.flush()
  writer.settle({ ...settle(2), recipient: 99 as typeof peer, holder: other })
  expect(owes()).toEqual([true, true])
  writer.succeeded()
  expect(owes()).toEqual([false, true])
})

test('a flush with nothing to write starts nothing', () => {
  writer.flush()
  expect(batches).toEqual([])
  expect(writer.isIdle).toBe(true)
})

test('one commit is in flight at a time, and what came meanwhile is the next one', () => {
  writer.append(append(1))
  writer.flush()
  writer.append(append(2))
  writer.settle(settle(1))
  writer.flush()
  expect(batches).toHaveLength(1)
  writer.succeeded()
  expect(writer.isIdle).toBe(false)
  writer.flush()
  expect(batches.map(idsOf)[1]).toEqual({ appends: [2], settles: [1] })
  writer.succeeded()
  expect(writer.isIdle).toBe(true)
})

test('a batch is bounded in appends, in bytes and in settles', () => {
  for (let n = 1; n <= 4; n++) writer.append(append(n))
  for (let n = 1; n <= 3; n++) writer.settle(settle(n))
  writer.append(append(5, 90))
  writer.append(append(6, 90))
  writer.append(append(7, 500))
  for (let i = 0; i < 5; i++) {
    writer.flush()
    writer.succeeded()
  }
  expect(batches.map(idsOf)).toEqual([
    { appends: [1, 2, 3], settles: [1, 2] },
    { appends: [4, 5], settles: [3] },
    { appends: [6, 7], settles: [] },
  ])
})

test('a broadcast goes with one commit, past the bounds', () => {
  const body = { bodyId: 'b0'.repeat(32), bytes: new Uint8Array(10) }
  writer = new Writer((batch) => void batches.push(batch), { ...LIMITS, appendsMax: 2 })
  for (let n = 1; n <= 6; n++) writer.append({ ...append(n), body: n > 1 && n < 5 ? body : null })
  for (let n = 1; n <= 2; n++) {
    writer.flush()
    writer.succeeded()
  }
  expect(batches.map((batch) => idsOf(batch).appends)).toEqual([[1, 2, 3, 4], [5, 6]]) // biome-ignore format: short
})

test('a failed commit gives back its appends and all behind them, in order, and keeps the settles', () => {
  for (let n = 1; n <= 4; n++) writer.append(append(n))
  writer.settle(settle(1))
  writer.flush()
  writer.settle(settle(2))
  expect(writer.failed().map(numberOf)).toEqual([1, 2, 3, 4])
  writer.append(append(5))
  writer.flush()
  expect(batches.map(idsOf)[1]).toEqual({ appends: [5], settles: [1, 2] })
})

const append = (n: number, byteCount = 10): Append => ({
  meshId: MESH,
  sender: 1 as Append['sender'],
  recipient: 2 as Append['recipient'],
  envelopeId: envelopeIdOf(n),
  priority: 1,
  ttlSeconds: 60,
  envelope: new Uint8Array(byteCount),
  birthEpoch: 0,
  birthFloor: 0,
  epochElsewhere: 0,
  terms: null,
  notBeforeMs: 0,
  body: null,
})
const settle = (n: number): DeliveryRef => ({
  meshId: MESH,
  recipient: 2 as DeliveryRef['recipient'],
  priority: 1,
  id: n as DeliveryId,
})
const numberOf = ({ envelopeId }: Append) => Number.parseInt(envelopeId, 16)
const idsOf = ({ appends, settles }: Batch) => ({
  appends: appends.map(numberOf),
  settles: settles.map(({ id }) => id),
})
