import type { Millis } from '@sealpost/std'
import { expect, test } from 'vitest'
import { HELLO, World } from './connection.ts'

const URLS = ['wss://broker.example', 'wss://other.example']
const tickUntil = ({ connection }: World, untilMs: Millis) => {
  while (connection.wakeAtMs <= untilMs) connection.tick(connection.wakeAtMs)
}

test('a broker that hangs with an ack due for 2 s is pinged, and left within 5 s', () => {
  const world = new World(undefined, URLS)
  world.goLive()
  world.connection.sent(10_000)
  world.isOwed = true
  tickUntil(world, 12_000)
  expect(world.log.at(-1)).toBe('ping')
  tickUntil(world, 17_500)
  expect(world.log.slice(-3)).toEqual(['hang up 1', 'lost heartbeat_missed', 'dial 2'])
  expect(world.urls.at(-1)).toBe(URLS[1])
})

test('a broker that hangs after a settle is pinged and left in the same way', () => {
  const world = new World(undefined, URLS)
  world.goLive()
  world.connection.sent(10_000)
  tickUntil(world, 17_500)
  expect(world.urls.at(-1)).toBe(URLS[1])
})

test('a broker that owes an ack but replies to pings is kept: its database is slow', () => {
  const world = new World(undefined, URLS)
  world.goLive()
  world.connection.sent(0)
  world.isOwed = true
  for (let atMs = world.connection.wakeAtMs; atMs < 60_000; atMs = world.connection.wakeAtMs) {
    world.connection.tick(atMs)
    world.connection.received(1, { type: 'pong', ref: 1 }, atMs + 50)
  }
  expect(world.urls).toEqual(['wss://broker.example'])
  expect(world.log).not.toContain('lost heartbeat_missed')
})

test.each([
  ['before the socket opens', (_: World) => undefined],
  ['before the greeting', ({ connection }: World) => connection.opened(1)],
])('a broker that hangs %s is skipped after 5 s', (_, begin) => {
  const world = new World(undefined, URLS)
  world.connection.start(0)
  begin(world)
  tickUntil(world, 5_500)
  expect(world.urls).toEqual(URLS)
})

test('a broker that hangs in the handshake is left 2 s after it should have refused it', () => {
  const world = new World(undefined, URLS)
  world.greet()
  tickUntil(world, HELLO.authWithinMs)
  expect(world.connection.state.name).toBe('proving')
  tickUntil(world, HELLO.authWithinMs + 2_500)
  expect(world.urls).toEqual(URLS)
})

test('the only known broker gets 20 s for the dial, and is dialled again', () => {
  const world = new World()
  world.goLive()
  world.connection.sent(0)
  tickUntil(world, 7_250)
  expect(world.connection.state.name).toBe('connecting')
  tickUntil(world, 26_000)
  expect(world.log.filter((line) => line.startsWith('dial'))).toHaveLength(2)
  tickUntil(world, 28_500)
  expect(world.urls.slice(0, 3)).toEqual(Array(3).fill('wss://broker.example'))
})
