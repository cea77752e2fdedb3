import type { Append, DeliveryRef } from '@sealpost/protocol'
import type { Batch } from '@sealpost/queue'
import type { DeliveryId, EnvelopeId, MeshId } from '@sealpost/std'
import { beforeEach, expect, test } from 'vitest'
import { CommitBatches } from './commit-loop.ts'

const LIMITS = { appendsMax: 3, appendBytesMax: 100, settlesMax: 2, settlesDueAt: 1 }

const MESH = '1a'.repeat(16) as MeshId

let taken: Batch[]
let batches: CommitBatches
beforeEach(() => {
  taken = []
  batches = new CommitBatches(LIMITS)
})

function take(): void {
  const batch = batches.take()
  if (batch) taken.push(batch)
}

test('the first batch takes everything that waits', () => {
  batches.append(append(1))
  batches.append(append(2))
  batches.settle(settle(1))
  take()
  expect(taken.map(idsOf)).toEqual([{ appends: [1, 2], settles: [1] }])
})

test('few settles join no commit and start none until they are called due; many do', () => {
  batches = new CommitBatches({ ...LIMITS, settlesMax: 9, settlesDueAt: 3 })
  batches.settle(settle(1))
  batches.append(append(1))
  take()
  expect(taken.map(idsOf)).toEqual([{ appends: [1], settles: [] }])
  batches.succeeded()
  take()
  expect(taken).toHaveLength(1)
  expect(batches.isIdle).toBe(false)
  batches.callSettles()
  take()
  expect(taken.map(idsOf)[1]).toEqual({ appends: [], settles: [1] })
  batches.succeeded()
  for (let n = 2; n <= 4; n++) batches.settle(settle(n))
  take()
  expect(taken.map(idsOf)[2]).toEqual({ appends: [], settles: [2, 3, 4] })
})

test('a waiter for settles is called when earlier settles are committed, without waiting for later ones', () => {
  const done: string[] = []
  batches.whenSettled(() => done.push('nothing waits'))
  for (const n of [1, 2, 3]) batches.settle(settle(n))
  batches.whenSettled(() => done.push('three'))
  batches.settle(settle(4))
  batches.whenSettled(() => done.push('four'))
  take()
  batches.failed()
  for (const expected of [['nothing waits'], ['nothing waits', 'three', 'four']]) {
    take()
    batches.succeeded()
    expect(done).toEqual(expected)
  }
})

test('waiting and in-flight settles are found by recipient, and by member of a pool', () => {
  const peer = settle(1).recipient
  const other = (peer + 1) as typeof peer
  const owes = () => [peer, other].map((who) => batches.hasSettlesOf({ meshId: MESH, peer: who }))
  batches.settle(settle(1))
  expect(owes()).toEqual([true, false])
  take()
  batches.settle({ ...settle(2), recipient: 99 as typeof peer, holder: other })
  expect(owes()).toEqual([true, true])
  batches.succeeded()
  expect(owes()).toEqual([false, true])
})

test('no batch is taken when nothing waits', () => {
  take()
  expect(taken).toEqual([])
  expect(batches.isIdle).toBe(true)
})

test('one commit is in flight at a time, and items that arrive meanwhile are the next one', () => {
  batches.append(append(1))
  take()
  batches.append(append(2))
  batches.settle(settle(1))
  take()
  expect(taken).toHaveLength(1)
  batches.succeeded()
  expect(batches.isIdle).toBe(false)
  take()
  expect(taken.map(idsOf)[1]).toEqual({ appends: [2], settles: [1] })
  batches.succeeded()
  expect(batches.isIdle).toBe(true)
})

test('a batch is bounded in appends, in bytes and in settles', () => {
  for (let n = 1; n <= 4; n++) batches.append(append(n))
  for (let n = 1; n <= 3; n++) batches.settle(settle(n))
  batches.append(append(5, 90))
  batches.append(append(6, 90))
  batches.append(append(7, 500))
  for (let i = 0; i < 5; i++) {
    take()
    batches.succeeded()
  }
  expect(taken.map(idsOf)).toEqual([
    { appends: [1, 2, 3], settles: [1, 2] },
    { appends: [4, 5], settles: [3] },
    { appends: [6, 7], settles: [] },
  ])
})

test('a broadcast stays in one commit, even beyond the bounds', () => {
  const body = { bodyId: 'b0'.repeat(32), bytes: new Uint8Array(10) }
  batches = new CommitBatches({ ...LIMITS, appendsMax: 2 })
  for (let n = 1; n <= 6; n++) batches.append({ ...append(n), body: n > 1 && n < 5 ? body : null })
  for (let n = 1; n <= 2; n++) {
    take()
    batches.succeeded()
  }
  expect(taken.map((batch) => idsOf(batch).appends)).toEqual([[1, 2, 3, 4], [5, 6]]) // biome-ignore format: short
})

test('a failed commit returns its appends and all later ones, in order, and keeps the settles', () => {
  for (let n = 1; n <= 4; n++) batches.append(append(n))
  batches.settle(settle(1))
  take()
  batches.settle(settle(2))
  expect(batches.failed().map(numberOf)).toEqual([1, 2, 3, 4])
  batches.append(append(5))
  take()
  expect(taken.map(idsOf)[1]).toEqual({ appends: [5], settles: [1, 2] })
})

const append = (n: number, byteCount = 10): Append => ({
  meshId: MESH,
  sender: 1 as Append['sender'],
  recipient: 2 as Append['recipient'],
  envelopeId: n.toString(16).padStart(32, '0') as EnvelopeId,
  priority: 1,
  ttlSeconds: 60,
  envelope: new Uint8Array(byteCount),
  insertLeaseEpoch: 0,
  insertLeaseFloor: 0,
  remoteLeaseEpoch: 0,
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
