import { expect, test } from 'vitest'
import { sendOf, world } from '../test/testing-world.ts'

/** More than one part of a scan, but fewer than three. */
const SESSIONS = 450

function crowd() {
  const its = world()
  for (let n = 2; n <= SESSIONS; n++) its.enter(n)
  return its
}

test('many sessions are scanned in parts, each once a round', () => {
  const { engine, pings } = crowd()
  engine.advance(15_000)
  engine.tick()
  expect(pings.length).toBeLessThan(SESSIONS / 2)
  let parts = 1
  for (; engine.isScanning; parts++) engine.continueScan()
  expect(parts).toBe(3)
  expect(new Set(pings).size).toBe(SESSIONS)
  expect(pings.length).toBe(SESSIONS)
})

test('a late round resumes where it stopped', () => {
  const { engine, pings } = crowd()
  engine.advance(15_000)
  engine.tick()
  const before = pings.length
  engine.advance(16_000)
  engine.tick()
  expect(pings.length).toBe(2 * before)
})

test('a session that ends during a round is not scanned', () => {
  const { engine, pings } = crowd()
  engine.advance(15_000)
  engine.tick()
  engine.closed(SESSIONS)
  while (engine.isScanning) engine.continueScan()
  expect(pings).not.toContain(SESSIONS)
  expect(pings.length).toBe(SESSIONS - 1)
})

test('a pause of the process does not count as silence, not even for sessions scanned last', () => {
  const { engine } = crowd()
  engine.advance(15_000)
  engine.tick()
  while (engine.isScanning) engine.continueScan()
  engine.advance(100_000)
  engine.tick()
  while (engine.isScanning) engine.continueScan()
  expect(engine.sessionCount).toBe(SESSIONS)
})

test('a sender whose socket is not read gets a pong each second: its own pings wait unread', () => {
  const { engine, sent, enter, send } = world({ inFlightMax: 2 })
  enter(2)
  const pongs = () => sent.filter(({ type }) => type === 'pong').length
  send(sendOf(1, 2), sendOf(2, 2))
  engine.advance(1_000)
  engine.tick()
  expect(pongs()).toBe(0)
  send(sendOf(3, 2))
  engine.advance(2_000)
  engine.tick()
  expect(pongs()).toBe(1)
})
