import type { DeliveryId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { Leases } from './leases.ts'
import type { Message } from './message.ts'

const SESSION = 3
const message = (deliveryId: number, receivedAtMs: number, sessionNo = SESSION) =>
  ({ deliveryId: deliveryId as DeliveryId, receivedAtMs, sessionNo }) as Message

function world(leaseMs = 1000): Leases {
  const leases = new Leases()
  leases.connected(leaseMs)
  return leases
}

test('a message in work is extended at half its lease, again and again, until it is released', () => {
  const leases = world()
  const one = message(1, 100)
  expect(leases.hold(one)).toBe(true)
  expect(leases.wakeAtMs).toBe(600)
  expect(leases.takeFrames(599, SESSION)).toEqual([])
  expect(leases.takeFrames(600, SESSION)).toEqual([{ type: 'extend', ids: [1], forMs: 1000 }])
  expect(leases.takeFrames(600, SESSION)).toEqual([])
  expect(leases.takeFrames(1100, SESSION)).toHaveLength(1)
  leases.release(one)
  expect(leases.takeFrames(9999, SESSION)).toEqual([])
  expect(leases.wakeAtMs).toBe(Infinity)
})

test('those that are due together are one frame, and the others wait', () => {
  const leases = world()
  for (const [id, atMs] of [[1, 0], [2, 0], [3, 400]] as const) leases.hold(message(id, atMs)) // biome-ignore format: a row
  expect(leases.takeFrames(500, SESSION)).toEqual([{ type: 'extend', ids: [1, 2], forMs: 1000 }])
  expect(leases.wakeAtMs).toBe(900)
})

test('one that waited long for its handler is extended at once', () => {
  const leases = world()
  leases.hold(message(1, 5000))
  expect(leases.hold(message(2, 0))).toBe(true)
  expect(leases.takeFrames(5001, SESSION)).toEqual([{ type: 'extend', ids: [2], forMs: 1000 }])
})

test('what was pushed in a session that ended is extended once it was pushed again', () => {
  const leases = world()
  const one = message(1, 0)
  leases.hold(one)
  leases.disconnected()
  expect(leases.takeFrames(600, SESSION + 1)).toEqual([])
  Object.assign(one, { deliveryId: 8, sessionNo: SESSION + 1 })
  expect(leases.takeFrames(1100, SESSION + 1)).toEqual([{ type: 'extend', ids: [8], forMs: 1000 }])
})

test('no lease is longer than a broker gives', () => {
  const leases = world(300_000)
  leases.extend(message(1, 0), null)
  leases.extend(message(2, 0), 1e9)
  leases.extend(message(3, 0), -5)
  expect(leases.takeFrames(0, SESSION).map(({ forMs }) => forMs)).toEqual([240_000, 1])
})

test('a broker that gives leases of no length does not make us ask without a pause', () => {
  const leases = world(0)
  leases.hold(message(1, 100))
  expect(leases.wakeAtMs).toBe(110)
  expect(leases.takeFrames(110, SESSION)).toEqual([{ type: 'extend', ids: [1], forMs: 20 }])
  expect(leases.wakeAtMs).toBe(120)
})
