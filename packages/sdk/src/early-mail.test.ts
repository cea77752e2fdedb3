import type { StreamId } from '@sealpost/identity'
import type { DeliveryId, EnvelopeId, PeerKey } from '@sealpost/std'
import { expect, test } from 'vitest'
import { EarlyMail, HOLD_MS } from './early-mail.ts'
import type { ArrivedMessage } from './inbox.ts'
import { StreamChain } from './stream-chain.ts'

const hash = (n: number) => new Uint8Array(16).fill(n)
const message = (seq: number, streamNo = 1): ArrivedMessage => ({
  deliveryId: (100 * streamNo + seq) as DeliveryId,
  attempt: 1,
  sender: 'a'.repeat(64) as PeerKey,
  envelopeId: (100 * streamNo + seq).toString(16).padStart(32, '0') as EnvelopeId,
  stream: { streamId: streamNo.toString(16).padStart(32, '0') as StreamId, seq, prev: hash(seq - 1) },
  headerHash: hash(seq),
})
const CREDIT = 512
const seqs = (messages: readonly ArrivedMessage[]) => messages.map(({ stream }) => stream!.seq)

test('what waits goes on behind the one it waited for, one after the other', () => {
  const early = new EarlyMail<ArrivedMessage>(CREDIT)
  for (const seq of [5, 3, 4]) early.hold(message(seq), 1, 0)
  early.hold(message(3, 2), 1, 0)
  expect(early.takeAfter(message(1))).toBeUndefined()
  const taken = [2, 3, 4, 5].map((seq) => early.takeAfter(message(seq))?.stream?.seq)
  expect(taken).toEqual([3, 4, 5, undefined])
  expect(early.wakeAtMs).toBe(HOLD_MS) // the other stream waits on
})

test('it waits for two seconds, and what stands before it does not wait longer', () => {
  const early = new EarlyMail<ArrivedMessage>(CREDIT)
  early.hold(message(9), 1, 0)
  early.hold(message(5), 1, 1_000)
  early.hold(message(12), 1, 1_500)
  expect(early.wakeAtMs).toBe(HOLD_MS)
  expect(early.takeDue(HOLD_MS - 1)).toEqual([])
  expect(seqs(early.takeDue(HOLD_MS))).toEqual([5, 9])
  expect(early.wakeAtMs).toBe(1_500 + HOLD_MS)
})

test('sixty-four may wait', () => {
  const early = new EarlyMail<ArrivedMessage>(CREDIT)
  for (let seq = 66; seq > 2; seq--) early.hold(message(seq), 1, 0)
  expect(early.takeDue(0)).toEqual([])
  early.hold(message(67), 1, 0)
  expect(seqs(early.takeDue(0))).toEqual(Array.from({ length: 65 }, (_, i) => i + 3))
  expect(early.wakeAtMs).toBe(Infinity)
})

test('of all streams together, since each takes a place in the window of the session; the longest there goes on', () => {
  const early = new EarlyMail<ArrivedMessage>(CREDIT)
  const going: ArrivedMessage[] = []
  for (let streamNo = 1; streamNo <= 500; streamNo++) {
    early.hold(message(3, streamNo), 1, 0)
    going.push(...early.takeDue(0))
  }
  expect(going).toEqual(Array.from({ length: 436 }, (_, i) => message(3, i + 1)))
})

test('and a quarter of what the session may have: what they wait for must find a place', () => {
  const early = new EarlyMail<ArrivedMessage>(8)
  for (const seq of [3, 4]) early.hold(message(seq), 1, 0)
  expect(early.takeDue(0)).toEqual([])
  early.hold(message(3, 2), 1, 0)
  expect(early.takeDue(0)).toEqual([message(3), message(4)])
  expect(early.takeDue(0)).toEqual([])
})

test('of large ones fewer may wait, and a place that was given back is free', () => {
  const early = new EarlyMail<ArrivedMessage>(CREDIT)
  const quarter = 64 * 1024
  for (const seq of [3, 4, 5, 6]) early.hold(message(seq), quarter, 0)
  early.hold(message(6), quarter, 0)
  early.takeAfter(message(2))
  early.hold(message(3, 2), quarter, 0)
  expect(early.takeDue(0)).toEqual([])
  early.hold(message(3, 3), 1, 0)
  expect(seqs(early.takeDue(0))).toEqual([4, 5, 6])
})

test('another push of what waits is known as such, and makes it wait no longer', () => {
  const early = new EarlyMail<ArrivedMessage>(CREDIT)
  expect([early.hold(message(3), 1, 0), early.hold(message(3), 1, 500)]).toEqual([false, true])
  expect(early.wakeAtMs).toBe(HOLD_MS)
  expect(early.takeDue(HOLD_MS)).toHaveLength(1)
})

test('a session that ends takes with it what waited', () => {
  const early = new EarlyMail<ArrivedMessage>(CREDIT)
  early.hold(message(3), 1, 0)
  early.clear()
  expect([early.wakeAtMs, early.takeAfter(message(2))]).toEqual([Infinity, undefined])
})

test('a chain is sound link by link, and across what is missing', () => {
  const chain = new StreamChain()
  const verdicts = [4, 5, 5, 4, 9, 10].map((seq) => chain.note(message(seq).stream!, hash(seq)))
  expect(verdicts).toEqual(['sound', 'sound', 'sound', 'sound', 'sound', 'sound'])
})

test('a chain notices a second envelope at its newest place, and one that follows another than it knows', () => {
  const chain = new StreamChain()
  chain.note(message(1).stream!, hash(1))
  expect(chain.note(message(1).stream!, hash(77))).toBe('taken')
  expect(chain.note({ ...message(2).stream!, prev: hash(77) }, hash(2))).toBe('forked')
  expect(chain.note(message(3).stream!, hash(3))).toBe('sound')
})
