import type { Millis } from '@sealpost/std'
import { expect, test } from 'vitest'
import { Liveness } from './timing.ts'

const HEARTBEAT_MS = 15_000

/** Calls `look` whenever the session requests it, up to `untilMs` or the end of the session. */
function watch(liveness: Liveness, untilMs: Millis, isOwed = false): string[] {
  const log: string[] = []
  for (let atMs = liveness.wakeAtMs(isOwed); atMs <= untilMs; atMs = liveness.wakeAtMs(isOwed)) {
    const verdict = liveness.look(atMs, isOwed)
    if (verdict !== 'alive') log.push(`${verdict} ${atMs}`)
    if (verdict === 'gone') return log
  }
  return log
}

function begun(nowMs: Millis = 0): Liveness {
  const liveness = new Liveness()
  liveness.begin(HEARTBEAT_MS, nowMs)
  return liveness
}

test('an idle session pings after one heartbeat and gives the broker up within 5 s', () => {
  expect(watch(begun(), 60_000)).toEqual(['ping 15000', 'gone 19750'])
})

test('a frame without a following frame leads to a ping after 2 s, whether it needs a reply or not', () => {
  const liveness = begun()
  liveness.sent(7_000)
  liveness.sent(8_500)
  expect(watch(liveness, 60_000)).toEqual(['ping 9000', 'gone 13750'])
})

test('an overdue ack leads to a ping 2 s after the last received frame', () => {
  const liveness = begun()
  liveness.sent(1_000)
  liveness.heard(1_500)
  expect(watch(liveness, 60_000, true)).toEqual(['ping 3500', 'gone 8250'])
})

test('a broker that replies to pings is kept, however late its acks are', () => {
  const liveness = begun()
  liveness.sent(0)
  let pings = 0
  for (let atMs = 0; atMs < 60_000; atMs = liveness.wakeAtMs(true)) {
    const verdict = liveness.look(atMs, true)
    expect(verdict).not.toBe('gone')
    if (verdict === 'alive') continue
    pings += 1
    liveness.heard(atMs + 30)
  }
  expect(pings).toBe(29)
})

test('a process that was busy reads waiting frames before it gives the broker up', () => {
  const liveness = begun()
  liveness.sent(0)
  expect(liveness.look(2_000, true)).toBe('ping')
  expect(liveness.look(30_000, true)).toBe('alive')
  liveness.heard(30_010)
  expect(watch(liveness, 32_000)).toEqual([])
})

test('a process that was asleep pings before it gives the broker up', () => {
  expect(begun().look(100 * HEARTBEAT_MS, true)).toBe('ping')
})

test('each consecutive miss doubles the time for a broker, up to two heartbeats', () => {
  const liveness = begun()
  const waits = [0, 1, 2, 3, 4].map((no) => {
    const fromMs = no * 100_000
    liveness.begin(HEARTBEAT_MS, fromMs)
    liveness.sent(fromMs)
    return watch(liveness, fromMs + 90_000)[1]
  })
  expect(waits).toEqual(['gone 6750', 'gone 111250', 'gone 220250', 'gone 332250', 'gone 432250'])
})

test.each([
  ['a prompt pong', 1, (liveness: Liveness) => liveness.look(101_000, true)],
  ['ten seconds with prompt replies', 10, () => undefined],
])('the count of misses is reset after %s', (_, seconds, prepare) => {
  const liveness = begun()
  liveness.sent(0)
  watch(liveness, 60_000)
  liveness.begin(HEARTBEAT_MS, 99_000)
  liveness.sent(99_000)
  prepare(liveness)
  liveness.heard(100_000 + seconds * 1_000)
  liveness.sent(111_000)
  expect(watch(liveness, 200_000)).toEqual(['ping 113000', 'gone 117750'])
})

test('a slow link keeps the longer time', () => {
  const liveness = begun()
  liveness.sent(0)
  watch(liveness, 60_000)
  liveness.begin(HEARTBEAT_MS, 100_000)
  liveness.sent(100_000)
  expect(liveness.look(102_000, true)).toBe('ping')
  liveness.heard(109_000)
  liveness.sent(109_000)
  expect(watch(liveness, 200_000)).toEqual(['ping 111000', 'gone 120250'])
})
