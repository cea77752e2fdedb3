import { type Delivery, NO_THREAD, PRIORITY_COSTS, type Terms } from '@sealpost/protocol'
import type { DeliveryId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { idOf, keyOf } from '../test/testing-world.ts'
import { Outgoing, WeightedFairQueue } from './outgoing.ts'

const TERMS: Terms = { receipts: 'end', thread: NO_THREAD, hops: 0, noAutoReply: false }
const deliveryOf = (n: number, byteCount = 40): Delivery => ({
  id: n as DeliveryId,
  envelopeId: idOf(n),
  sender: keyOf(1),
  priority: 1,
  attempt: 1,
  enqueuedAtMs: 0,
  envelope: new Uint8Array(byteCount),
  terms: null,
  body: null,
})

function pushesOf(outgoing: Outgoing): [type: string, ids: number[]][] {
  return outgoing.takeFrames().map((frame): [string, number[]] => {
    if (frame.type === 'push') return ['push', frame.deliveries.map(({ id }) => id)]
    if (frame.type === 'pushWith' || frame.type === 'pushBody')
      return [frame.type, frame.deliveries.map(({ push }) => push.id)]
    return [frame.type, []]
  })
}

test('deliveries with and without terms or a body keep one order', () => {
  const outgoing = new Outgoing()
  outgoing.push(deliveryOf(1), null)
  outgoing.push(deliveryOf(2), TERMS)
  outgoing.push(deliveryOf(3), TERMS)
  outgoing.pushBody(deliveryOf(4), new Uint8Array(40), null)
  outgoing.push(deliveryOf(5), null)
  expect(pushesOf(outgoing)).toEqual([
    ['push', [1]],
    ['pushWith', [2, 3]],
    ['pushBody', [4]],
    ['push', [5]],
  ])
  expect(outgoing.takeFrames()).toEqual([])
})

test('a frame of bodies stays within the limit of a frame', () => {
  const outgoing = new Outgoing()
  for (const n of [1, 2, 3]) outgoing.pushBody(deliveryOf(n), new Uint8Array(60_000), null)
  expect(pushesOf(outgoing)).toEqual([
    ['pushBody', [1, 2]],
    ['pushBody', [3]],
  ])
})

test('only the newest presence of a peer is sent', () => {
  const outgoing = new Outgoing()
  for (const summary of ['one', 'two'])
    outgoing.presence({ peer: keyOf(2), isOnline: true, availability: 'idle', summary })
  const [frame] = outgoing.takeFrames()
  expect(frame).toMatchObject({ type: 'presence', isSnapshot: false, peers: [{ summary: 'two' }] })
})

/** Returns the deliveries that a claim of `limit` picks from an endless `backlog`. */
function claimOf(times: WeightedFairQueue, limit: number, backlog: readonly number[]): { priority: number }[] {
  const next = [...times.now]
  return Array.from({ length: limit }, () => {
    const ahead = backlog.map((priority) => ({ priority, turn: next[priority]! + PRIORITY_COSTS[priority]! }))
    const { priority, turn } = ahead.reduce((a, b) => (b.turn < a.turn ? b : a))
    next[priority] = turn
    return { priority }
  })
}

function servedOver(
  claims: number,
  limit: number,
  backlog: readonly number[],
  times = new WeightedFairQueue(),
): number[] {
  const counts = [0, 0, 0]
  for (let n = 0; n < claims; n++) {
    const deliveries = claimOf(times, limit, backlog)
    for (const { priority } of deliveries) counts[priority]! += 1
    times.served(deliveries)
  }
  return counts
}

test.each([1, 2, 5, 21])('a flood of everything shares claims of %i as 16 to 4 to 1', (limit) => {
  const counts = servedOver(2100 / limit, limit, [0, 1, 2])
  const shares = counts.map((count) => count / 100)
  for (const [priority, share] of [16, 4, 1].entries()) expect(Math.abs(shares[priority]! - share)).toBeLessThan(0.5)
})

test('a flood of `now` never starves `low`, however small the window', () => {
  const times = new WeightedFairQueue()
  for (let n = 0; n < 100; n++) expect(servedOver(40, 1, [0, 2], times)[2]).toBeGreaterThan(0)
})

test('a priority that was idle for long saves up one delivery and no more', () => {
  const times = new WeightedFairQueue()
  servedOver(1000, 1, [0], times)
  expect(servedOver(1, 1, [0, 2], times)).toEqual([0, 0, 1])
  expect(servedOver(15, 1, [0, 2], times)).toEqual([15, 0, 0])
})
