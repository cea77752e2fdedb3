import { expect, test } from 'vitest'
import { clockNotes, deliveriesText, framesText, keysText, latencyRows, wholeLatency } from './report.ts'

const of = (ms: number) => ({ p50: ms, p95: ms, p99: ms, max: ms })
const times = { ackMs: of(1), e2eMs: of(2), sendCallMs: of(3), callToPushMs: of(4), callLateMs: null }

test('a burst shows both latency measures', () => {
  expect(latencyRows({ ...times, rate: null })).toEqual([
    ['call → ack', of(3)],
    ['call → push', of(4)],
    ['send → ack', of(1)],
    ['send → push', of(2)],
  ])
  expect(wholeLatency({ ...times, rate: null })).toEqual({ name: 'call → push', of: of(4) })
})

test('the open loop has one latency measure, and shows how late the generator was', () => {
  const paced = { ...times, rate: 1000, callLateMs: of(5) }
  expect(latencyRows(paced)).toEqual([
    ['due → ack', of(1)],
    ['due → push', of(2)],
    ['due → call', of(5)],
  ])
  expect(wholeLatency(paced)).toEqual({ name: 'due → push', of: of(2) })
})

test('each latency measure is explained, and so is a burst whose calls are not all made at once', () => {
  const [call, send] = clockNotes({ rate: null, window: 64, messagesPerPeer: 1000, isPacking: true })
  expect(call).toContain("from the application's call of send() and includes the wait for the window")
  expect(call).toContain('makes all 1,000 calls at once')
  expect(send).toContain('the window of 64 admits a message, before it is sealed')
  expect(clockNotes({ rate: null, window: 64, messagesPerPeer: 1001, isPacking: true })[0]).toContain(
    'keeps 1,000 calls open',
  )
  expect(clockNotes({ rate: 50, window: 64, messagesPerPeer: 10, isPacking: true })).toEqual([
    expect.stringContaining('"due"'),
  ])
})

test('the report of a burst without packing states that packing is off', () => {
  const unpacked = { rate: null, window: 8, messagesPerPeer: 1000, isPacking: false }
  expect(clockNotes(unpacked)[0]).toContain('each peer starts one call in a turn of its event loop and keeps 8 open')
  expect(framesText({ isPacking: false, framesPerMessage: 1 })).toBe(
    'one send per turn (--pack off): 1.00 frames a message',
  )
  expect(framesText({ isPacking: true, framesPerMessage: 0.127 })).toBe('0.13 frames a message')
})

test('the report says whether the latency includes the key exchange', () => {
  expect(keysText({ keyExchange: { messages: 9900, ms: 1234 } })).toBe(
    'exchanged before the clock starts: 9,900 messages in 1.23 s, not counted; --cold counts it',
  )
  expect(keysText({ keyExchange: null })).toContain('not exchanged before the clock starts (--cold)')
})

test('the report counts deliveries by path, or marks them as unknown', () => {
  expect(deliveriesText({ deliveries: { leasedOnInsert: 99_709, claimed: 291, collected: 0 } })).toBe(
    '99,709 leased on insert, 291 claimed, 0 collected from another broker',
  )
  expect(deliveriesText({ deliveries: null })).toContain('unknown')
})
