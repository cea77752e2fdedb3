import type { DeliveryId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { sendOf, world } from '../test/testing-world.ts'

const PING = { type: 'ping', ref: 1 } as const

function tickAt(engine: ReturnType<typeof world>['engine'], ...seconds: number[]) {
  for (const second of seconds) {
    engine.advance(second * 1000)
    engine.tick()
  }
}

test('who says something of itself is pinged only when it falls silent', () => {
  const { engine, pings } = world()
  for (const second of [10, 20, 30]) {
    tickAt(engine, second)
    engine.received(1, PING)
  }
  tickAt(engine, 44)
  expect(pings).toEqual([])
  tickAt(engine, 45, 46)
  expect(pings).toEqual([1])
})

test('who holds deliveries is pinged behind them, whatever it says', () => {
  const { engine, pings, wants, enter, appends, send } = world()
  enter(2)
  engine.claimed(
    wants.splice(0).map((want) => ({ want, claimed: { status: 'claimed', deliveries: [], hasMore: false } })),
  )
  send(sendOf(1, 2))
  engine.committed(appends.splice(0), {
    outcomes: [{ status: 'stored', id: 1 as DeliveryId, isLeased: true, isExpected: true }],
    enqueuedAtMs: 0,
  })
  tickAt(engine, 14)
  for (const socket of [1, 2]) engine.received(socket, PING)
  tickAt(engine, 15)
  expect(pings).toEqual([2])
})
