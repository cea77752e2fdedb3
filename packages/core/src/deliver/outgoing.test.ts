import { type Delivery, NO_THREAD, type Terms } from '@sealpost/protocol'
import type { DeliveryId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { idOf, keyOf } from '../test/testing-world.ts'
import { Outgoing } from './outgoing.ts'

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

test('of a peer only the newest presence is told', () => {
  const outgoing = new Outgoing()
  for (const summary of ['one', 'two'])
    outgoing.presence({ peer: keyOf(2), isOnline: true, availability: 'idle', summary })
  const [frame] = outgoing.takeFrames()
  expect(frame).toMatchObject({ type: 'presence', isSnapshot: false, peers: [{ summary: 'two' }] })
})
