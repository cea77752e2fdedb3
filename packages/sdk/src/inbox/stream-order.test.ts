import type { StreamId } from '@sealpost/identity'
import type { Priority } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, PeerKey } from '@sealpost/std'
import { expect, test } from 'vitest'
import { HashChain, HOLD_MS, type InLane, ReorderBuffer } from './stream-order.ts'

const hash = (n: number) => new Uint8Array(16).fill(n)
const SENDER = 'a'.repeat(64) as PeerKey
const message = (seq: number, streamNo = 1, sender = SENDER, priority: Priority = 'next') => ({
  deliveryId: (100 * streamNo + seq) as DeliveryId,
  attempt: 1,
  sender,
  priority,
  envelopeId: (100 * streamNo + seq).toString(16).padStart(32, '0') as EnvelopeId,
  stream: { streamId: streamNo.toString(16).padStart(32, '0') as StreamId, seq, prev: hash(seq - 1) },
  headerHash: hash(seq),
})
type TestMessage = ReturnType<typeof message> & InLane
const senderNo = (no: number) => no.toString(16).padStart(64, '0') as PeerKey
const CREDIT = 512
const seqs = (messages: readonly TestMessage[]) => messages.map(({ stream }) => stream.seq)
const always = () => true

/** Takes the held messages of a lane while they may pass. */
function takeAll(
  buffer: ReorderBuffer<TestMessage>,
  mayPass: (message: TestMessage) => boolean = always,
  of = message(1),
): TestMessage[] {
  const next = buffer.takeNext(of, mayPass)
  return next ? [next, ...takeAll(buffer, mayPass, of)] : []
}

test('held messages follow the message they waited for, in order', () => {
  const buffer = new ReorderBuffer<TestMessage>(CREDIT)
  for (const seq of [5, 3, 4, 7]) buffer.hold(message(seq), 1, 0)
  expect(takeAll(buffer, ({ stream }) => stream.seq < 3)).toEqual([])
  expect(seqs(takeAll(buffer, ({ stream }) => stream.seq < 6))).toEqual([3, 4, 5])
  expect(buffer.wakeAtMs).toBe(HOLD_MS)
})

test('a message of another stream waits behind the held ones of its lane', () => {
  const buffer = new ReorderBuffer<TestMessage>(CREDIT)
  buffer.hold(message(3), 1, 0)
  buffer.hold(message(1, 2), 1, 10)
  buffer.hold(message(2, 2), 1, 20)
  expect(takeAll(buffer, ({ stream }) => stream.seq !== 3)).toEqual([])
  expect(takeAll(buffer)).toEqual([message(3), message(1, 2), message(2, 2)])
})

test('the missing message goes first, and so does a message accepted before the held ones', () => {
  const buffer = new ReorderBuffer<TestMessage>(CREDIT)
  for (const one of [message(3, 2), message(1, 3), message(4, 2), message(2, 3)]) buffer.hold(one, 1, 0)
  for (const first of [message(2, 2), message(9, 1)]) {
    buffer.hold(first, 1, 0)
    expect(buffer.takeNext(message(1), always)).toEqual(first)
  }
  expect(takeAll(buffer)).toEqual([message(3, 2), message(4, 2), message(1, 3), message(2, 3)])
})

test('a message that precedes only some of the held ones waits between them', () => {
  const buffer = new ReorderBuffer<TestMessage>(CREDIT)
  for (const one of [message(3), message(2, 2), message(1, 2)]) buffer.hold(one, 1, 0)
  expect(takeAll(buffer)).toEqual([message(3), message(1, 2), message(2, 2)])
})

test('wrong ids of a broker do not change the order of a stream', () => {
  const buffer = new ReorderBuffer<TestMessage>(CREDIT)
  const withId = (one: TestMessage, id: number) => ({ ...one, deliveryId: id as DeliveryId })
  buffer.hold(withId(message(5), 9), 1, 0)
  buffer.hold(withId(message(1, 2), 3), 1, 0)
  buffer.hold(withId(message(6), 2), 1, 0)
  buffer.hold(withId(message(4), 12), 1, 0)
  expect(seqs(takeAll(buffer).filter(({ stream }) => stream.seq > 1))).toEqual([4, 5, 6])
})

test('other senders and other priorities do not wait', () => {
  const buffer = new ReorderBuffer<TestMessage>(CREDIT)
  buffer.hold(message(3), 1, 0)
  for (const other of [message(9, 2, senderNo(2)), message(9, 2, SENDER, 'now')]) {
    expect(buffer.takeNext(other, always)).toBeUndefined()
    buffer.hold(other, 1, 0)
    expect(buffer.takeNext(other, always)).toEqual(other)
  }
  expect(takeAll(buffer)).toEqual([message(3)])
})

test('a message is held for two seconds, and the messages that precede it are held no longer', () => {
  const buffer = new ReorderBuffer<TestMessage>(CREDIT)
  buffer.hold(message(9), 1, 0)
  buffer.hold(message(5), 1, 1_000)
  buffer.hold(message(12), 1, 1_500)
  expect(buffer.wakeAtMs).toBe(HOLD_MS)
  expect(buffer.takeDue(HOLD_MS - 1)).toEqual([])
  expect(seqs(buffer.takeDue(HOLD_MS))).toEqual([5, 9])
  expect(buffer.wakeAtMs).toBe(1_500 + HOLD_MS)
})

test('at most 64 messages are held', () => {
  const buffer = new ReorderBuffer<TestMessage>(CREDIT)
  for (let seq = 66; seq > 2; seq--) buffer.hold(message(seq), 1, 0)
  expect(buffer.takeDue(0)).toEqual([])
  buffer.hold(message(67), 1, 0)
  expect(seqs(buffer.takeDue(0))).toEqual(Array.from({ length: 65 }, (_, i) => i + 3))
  expect([buffer.isEmpty, buffer.wakeAtMs]).toEqual([true, Infinity])
})

test('the bound covers all lanes together, and the lane held longest is released first', () => {
  const buffer = new ReorderBuffer<TestMessage>(CREDIT)
  const released: TestMessage[] = []
  for (let no = 1; no <= 500; no++) {
    buffer.hold(message(3, no, senderNo(no)), 1, 0)
    released.push(...buffer.takeDue(0))
  }
  expect(released).toEqual(Array.from({ length: 436 }, (_, i) => message(3, i + 1, senderNo(i + 1))))
})

test('messages that wait behind a held one count too', () => {
  const buffer = new ReorderBuffer<TestMessage>(CREDIT)
  buffer.hold(message(3), 1, 0)
  for (let seq = 1; seq <= 64; seq++) buffer.hold(message(seq, 2), 1, 0)
  expect(seqs(buffer.takeDue(0))).toEqual([3, ...Array.from({ length: 64 }, (_, i) => i + 1)])
})

test('held messages take at most a quarter of the credit, so that the missing one can be pushed', () => {
  const buffer = new ReorderBuffer<TestMessage>(8)
  for (const seq of [3, 4]) buffer.hold(message(seq), 1, 0)
  expect(buffer.takeDue(0)).toEqual([])
  buffer.hold(message(3, 2, senderNo(2)), 1, 0)
  expect(buffer.takeDue(0)).toEqual([message(3), message(4)])
  expect(buffer.takeDue(0)).toEqual([])
})

test('large messages reach the bound earlier, and a released message frees its bytes', () => {
  const buffer = new ReorderBuffer<TestMessage>(CREDIT)
  const quarter = 64 * 1024
  for (const seq of [3, 4, 5, 6]) buffer.hold(message(seq), quarter, 0)
  buffer.hold(message(6), quarter, 0)
  buffer.takeNext(message(2), always)
  buffer.hold(message(3, 2, senderNo(2)), quarter, 0)
  expect(buffer.takeDue(0)).toEqual([])
  buffer.hold(message(3, 3, senderNo(3)), 1, 0)
  expect(seqs(buffer.takeDue(0))).toEqual([4, 5, 6])
})

test('a repeated push of a held message is recognized and does not extend its time', () => {
  const buffer = new ReorderBuffer<TestMessage>(CREDIT)
  const again = { ...message(3), attempt: 2 }
  expect([buffer.hold(message(3), 1, 0), buffer.hold(again, 1, 500)]).toEqual([false, true])
  expect(buffer.wakeAtMs).toBe(HOLD_MS)
  expect(buffer.takeDue(HOLD_MS)).toEqual([again])
})

test('the end of a session drops held messages', () => {
  const buffer = new ReorderBuffer<TestMessage>(CREDIT)
  buffer.hold(message(3), 1, 0)
  buffer.clear()
  expect([buffer.wakeAtMs, takeAll(buffer)]).toEqual([Infinity, []])
})

test('a chain is verified link by link, and across missing messages', () => {
  const chain = new HashChain()
  const verdicts = [4, 5, 5, 4, 9, 10].map((seq) => chain.note(message(seq).stream!, hash(seq)))
  expect(verdicts).toEqual(['sound', 'sound', 'sound', 'sound', 'sound', 'sound'])
})

test('a chain reports a second envelope at its newest position, and an envelope that follows an unknown one', () => {
  const chain = new HashChain()
  chain.note(message(1).stream!, hash(1))
  expect(chain.note(message(1).stream!, hash(77))).toBe('taken')
  expect(chain.note({ ...message(2).stream!, prev: hash(77) }, hash(2))).toBe('forked')
  expect(chain.note(message(3).stream!, hash(3))).toBe('sound')
})
