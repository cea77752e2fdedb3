/** Tests mail between peers of two shards: the hints, and the statements that they cause. */
import type { Append, Delivery } from '@sealpost/protocol'
import type { Hint } from '@sealpost/protocol/hints'
import { type DeliveryId, ID_BLOCK, type PeerNo, type ShardId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { idOf, keyOf, MESH, memberOf, sendOf, world } from '../test/testing-world.ts'

const OTHER = '0f'.repeat(16) as ShardId
const HERE = 1 as PeerNo
const THERE = 2 as PeerNo
const EPOCH = 2
const idIn = (n: number) => (5 * ID_BLOCK + n) as DeliveryId
const serves = (epoch: number, isOn = true): Hint => ({ type: 'serves', meshId: MESH, peer: THERE, epoch, isOn })
const born = (id: DeliveryId, epoch = EPOCH): Hint => ({ type: 'born', meshId: MESH, peer: HERE, epoch, id })
const delivery = (n: number): Delivery => ({
  ...{ id: idIn(n), envelopeId: idOf(n), sender: keyOf(2), priority: 1, attempt: 1, enqueuedAtMs: 0 },
  ...{ envelope: new Uint8Array(40), terms: null, body: null },
})

/** Returns a shard on which one peer has scanned its queue and the other peer is a known member. */
function shard() {
  const its = world()
  const hints: Hint[] = []
  const collects = its.remoteWants
  const effects = {
    hint: (hint: Hint) => void hints.push(hint),
  }
  Object.assign(its.effects, effects)
  const scan = (...deliveries: Delivery[]) => {
    const wants = its.wants.splice(0)
    its.engine.claimed(wants.map((want) => ({ want, claimed: { status: 'claimed', deliveries, hasMore: false } })))
    return wants
  }
  const receive = (...hints: Hint[]) => its.engine.hints.received(OTHER, hints)
  /** Sends to the other peer, and completes the commit with this outcome. */
  const store = (n: number, outcome: { isLeased: boolean; id: DeliveryId }): Append => {
    its.send(sendOf(n, 2))
    if (its.asked.length > 0) its.engine.resolved(1, its.asked.shift()!, [memberOf(2)])
    const append = its.appends.pop()!
    const outcomes = [{ status: 'stored' as const, isExpected: true, ...outcome }]
    its.engine.committed([append], { outcomes, enqueuedAtMs: 0 })
    return append
  }
  scan()
  return { ...its, hints, collects, scan, receive, store }
}

test('mail for a peer that no shard announced waits for a claim, and mail for a peer of another shard is leased to it', () => {
  const { store, receive, hints } = shard()
  expect(store(1, { id: idIn(1), isLeased: false }).remoteLeaseEpoch).toBe(0)
  receive(serves(8))
  expect(store(2, { id: idIn(2), isLeased: true }).remoteLeaseEpoch).toBe(8)
  expect(hints).toEqual([
    { type: 'wake', meshId: MESH, peer: THERE },
    { type: 'born', meshId: MESH, peer: THERE, epoch: 8, id: idIn(2) },
  ])
})

test("an announcement is valid until the session's end or a newer one, and for half a minute", () => {
  const { engine, store, receive } = shard()
  store(1, { id: idIn(1), isLeased: false })
  const epochAfter = (n: number, ...hints: Hint[]) => {
    receive(...hints)
    return store(n, { id: idIn(n), isLeased: false }).remoteLeaseEpoch
  }
  expect([epochAfter(2, serves(8)), epochAfter(3, serves(6)), epochAfter(4, serves(6, false))]).toEqual([8, 8, 8])
  expect([epochAfter(5, serves(8, false)), epochAfter(6, serves(10))]).toEqual([0, 10])
  engine.advance(30_000)
  expect(epochAfter(7)).toBe(0)
})

test('a shard announces a session when it is woken, at most once a second, and the end of the session', () => {
  const { engine, receive, hints } = shard()
  const mine = (isOn: boolean): Hint => ({ type: 'serves', meshId: MESH, peer: HERE, epoch: EPOCH, isOn })
  const wake: Hint = { type: 'wake', meshId: MESH, peer: HERE }
  receive(wake, wake)
  engine.advance(1_000)
  receive(wake, born(idIn(1)))
  engine.advance(11_000)
  receive(born(idIn(2)))
  engine.closed(1)
  expect(hints).toEqual([mine(true), mine(true), mine(true), mine(false)])
})

test('the first delivery of a block is claimed, and the following ones are collected and pushed in order', () => {
  const { engine, receive, scan, wants, collects, pushed } = shard()
  receive(born(idIn(1)))
  expect(collects).toEqual([])
  scan(delivery(1))
  receive(born(idIn(3)))
  expect([wants, collects]).toMatchObject([[], [{ ids: { from: idIn(2), to: 6 * ID_BLOCK - 1 } }]])
  const deliveries = [delivery(2), delivery(3)]
  engine.claimed([{ want: collects[0]!, claimed: { status: 'collected', deliveries, hasMore: false } }])
  expect(pushed()).toEqual([idIn(1), idIn(2), idIn(3)])
  receive(born(idIn(3)))
  expect([wants.length, collects.length]).toEqual([0, 1])
})

test('a claim follows a collect that left deliveries, and names the collected ones', () => {
  const { engine, receive, scan, wants, collects } = shard()
  receive(born(idIn(1)))
  scan(delivery(1))
  receive(born(idIn(3)))
  const deliveries = [delivery(2)]
  engine.claimed([{ want: collects[0]!, claimed: { status: 'collected', deliveries, hasMore: true } }])
  expect(wants).toMatchObject([{ collected: [idIn(2)], ids: { from: 0 } }])
})

test('a failed collect is followed by a claim, not by a fence', () => {
  const { engine, receive, scan, wants, collects } = shard()
  receive(born(idIn(1)))
  scan(delivery(1))
  receive(born(idIn(3)))
  engine.claimFailed(collects)
  expect([wants.length, engine.counters.fences]).toEqual([1, 0])
})

test('H65: a lease under another epoch only makes a session claim', () => {
  const { receive, scan, wants, collects } = shard()
  receive(born(idIn(1)))
  scan(delivery(1))
  receive(born(idIn(2), EPOCH + 2))
  expect([wants.length, collects.length]).toEqual([1, 0])
})

test('a claim finds out why a session is stale', () => {
  const { engine, receive, scan, wants, collects, closes } = shard()
  receive(born(idIn(1)))
  scan(delivery(1))
  receive(born(idIn(2)))
  engine.claimed([{ want: collects[0]!, claimed: { status: 'stale' } }])
  expect([wants.length, closes]).toEqual([1, []])
})
