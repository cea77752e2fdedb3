import type { DeliveryId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { defaultLimits } from '../limits.ts'
import { memberOf, sendOf, world } from '../test/testing-world.ts'
import { welcomeOf } from './session.ts'

const PING = { type: 'ping', ref: 1 } as const

function tickAt(engine: ReturnType<typeof world>['engine'], ...seconds: number[]) {
  for (const second of seconds) {
    engine.advance(second * 1000)
    engine.tick()
  }
}

test('a peer that sends frames is pinged only when it falls silent', () => {
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

test('a peer that holds deliveries gets a ping after them, whatever it sends', () => {
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

const HERE = '0a'.repeat(16)
const incarnationFor = (lineage?: { incarnation: string; cameIn: string }) =>
  welcomeOf(
    { limits: defaultLimits, incarnation: HERE, durability: 'fsync' },
    { ...memberOf(1), ...(lineage && { lineage }) },
    { epoch: 2, proof: new Uint8Array(64) },
  ).incarnation

test("a moved mesh gets its former incarnation until its cell's incarnation changes", () => {
  const incarnation = '0b'.repeat(16)
  expect(incarnationFor()).toBe(HERE)
  expect(incarnationFor({ incarnation, cameIn: HERE })).toBe(incarnation)
  expect(incarnationFor({ incarnation, cameIn: '0c'.repeat(16) })).toBe(HERE)
})
