import type { Priority } from '@sealpost/protocol'
import type { DeliveryId, PeerKey } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { BEHIND_MAX_MS, Deferrals, GRACE_MS } from './dispatcher.ts'

const ALICE = 'a'.repeat(64) as PeerKey
const CAROL = 'c'.repeat(64) as PeerKey
const delivery = (id: number, sender = ALICE, priority: Priority = 'next') => ({
  id: id as DeliveryId,
  sender,
  priority,
})

describe('a deferred delivery', () => {
  test('delays later deliveries of its lane, and no others', () => {
    const putOffs = new Deferrals()
    putOffs.defer(delivery(5), { afterMs: 10_000, nowMs: 0 })
    const others = [delivery(4), delivery(5), delivery(6, CAROL), delivery(6, ALICE, 'now')]
    expect(others.map((other) => putOffs.waitMs(other, 4_000))).toEqual([0, 0, 0, 0])
    expect(putOffs.waitMs(delivery(6), 4_000)).toBe(6_000)
  })

  test('delays nothing once it is done', () => {
    const putOffs = new Deferrals()
    for (const id of [5, 6]) putOffs.defer(delivery(id), { afterMs: 10_000, nowMs: 0 })
    putOffs.release(ALICE, delivery(5).id)
    expect([6, 7].map((id) => putOffs.waitMs(delivery(id), 1_000))).toEqual([0, 9_000])
    putOffs.release(ALICE, delivery(6).id)
    expect(putOffs.waitMs(delivery(7), 1_000)).toBe(0)
  })

  test('is awaited in growing pauses when it is due, and given up after thirty seconds', () => {
    const putOffs = new Deferrals()
    putOffs.defer(delivery(5), { afterMs: 10_000, nowMs: 0 })
    let pauses = 0
    let nowMs = 10_000
    for (let waitMs = 1; waitMs > 0; nowMs += waitMs) {
      waitMs = putOffs.waitMs(delivery(6), nowMs)
      putOffs.defer(delivery(6), { afterMs: waitMs, nowMs })
      pauses += 1
    }
    expect(pauses).toBeLessThan(10)
    expect(nowMs).toBeGreaterThanOrEqual(10_000 + GRACE_MS)
    expect(nowMs).toBeLessThan(10_000 + 2 * GRACE_MS + 2_000)
  })

  test('that is deferred repeatedly delays others for at most two minutes', () => {
    const putOffs = new Deferrals()
    for (let nowMs = 0; nowMs < BEHIND_MAX_MS; nowMs += 10_000) {
      putOffs.defer(delivery(5), { afterMs: 10_000, nowMs })
      expect(putOffs.waitMs(delivery(6), nowMs)).toBe(10_000)
    }
    putOffs.defer(delivery(5), { afterMs: 10_000, nowMs: BEHIND_MAX_MS })
    expect(putOffs.waitMs(delivery(6), BEHIND_MAX_MS)).toBe(0)
  })

  test('is tracked if it is among the first thousand of its sender', () => {
    const putOffs = new Deferrals()
    for (let id = 1; id <= 1_025; id++) putOffs.defer(delivery(id), { afterMs: 10_000, nowMs: 0 })
    for (let id = 1; id < 1_024; id++) putOffs.release(ALICE, delivery(id).id)
    expect(putOffs.waitMs(delivery(2_000), 0)).toBe(10_000)
    putOffs.release(ALICE, delivery(1_024).id)
    expect(putOffs.waitMs(delivery(2_000), 0)).toBe(0)
  })

  test('is forgotten when the ids change', () => {
    const putOffs = new Deferrals()
    putOffs.defer(delivery(5), { afterMs: 10_000, nowMs: 0 })
    putOffs.clear()
    expect(putOffs.waitMs(delivery(6), 0)).toBe(0)
  })
})
