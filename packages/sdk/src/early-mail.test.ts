import type { StreamId } from '@sealpost/identity'
import type { EnvelopeId, PeerKey } from '@sealpost/std'
import { expect, test } from 'vitest'
import { EarlyMail, HOLD_MS } from './early-mail.ts'
import type { ArrivedMessage } from './inbox.ts'
import { StreamChain } from './stream-chain.ts'

const hash = (n: number) => new Uint8Array(16).fill(n)
const message = (seq: number, streamNo = 1): ArrivedMessage => ({
  sender: 'a'.repeat(64) as PeerKey,
  envelopeId: (100 * streamNo + seq).toString(16).padStart(32, '0') as EnvelopeId,
  stream: { streamId: streamNo.toString(16).padStart(32, '0') as StreamId, seq, prev: hash(seq - 1) },
  headerHash: hash(seq),
})
const seqs = (messages: readonly ArrivedMessage[]) => messages.map(({ stream }) => stream!.seq)

test('what waits goes on behind the one it waited for, one after the other', () => {
  const early = new EarlyMail<ArrivedMessage>()
  for (const seq of [5, 3, 4]) early.hold(message(seq), 0)
  early.hold(message(3, 2), 0)
  expect(early.takeAfter(message(1))).toBeUndefined()
  const taken = [2, 3, 4, 5].map((seq) => early.takeAfter(message(seq))?.stream?.seq)
  expect(taken).toEqual([3, 4, 5, undefined])
  expect(early.wakeAtMs).toBe(HOLD_MS) // the other stream waits on
})

test('it waits for two seconds, and what stands before it does not wait longer', () => {
  const early = new EarlyMail<ArrivedMessage>()
  early.hold(message(9), 0)
  early.hold(message(5), 1_000)
  early.hold(message(12), 1_500)
  expect(early.wakeAtMs).toBe(HOLD_MS)
  expect(early.takeDue(HOLD_MS - 1)).toEqual([])
  expect(seqs(early.takeDue(HOLD_MS))).toEqual([5, 9])
  expect(early.wakeAtMs).toBe(1_500 + HOLD_MS)
})

test('of a stream sixty-four may wait', () => {
  const early = new EarlyMail<ArrivedMessage>()
  for (let seq = 65; seq > 2; seq--) early.hold(message(seq), 0)
  expect(early.takeDue(0)).toEqual([])
  early.hold(message(66), 0)
  expect(seqs(early.takeDue(0))).toEqual(Array.from({ length: 64 }, (_, i) => i + 3))
  expect(early.wakeAtMs).toBe(Infinity)
})

test('another push of what waits is known as such, and makes it wait no longer', () => {
  const early = new EarlyMail<ArrivedMessage>()
  expect([early.hold(message(3), 0), early.hold(message(3), 500)]).toEqual([false, true])
  expect(early.wakeAtMs).toBe(HOLD_MS)
  expect(early.takeDue(HOLD_MS)).toHaveLength(1)
})

test('a session that ends takes with it what waited', () => {
  const early = new EarlyMail<ArrivedMessage>()
  early.hold(message(3), 0)
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
