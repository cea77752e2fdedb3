import type { StreamId } from '@sealpost/identity'
import type { EnvelopeId, PeerKey } from '@sealpost/std'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type ArrivedMessage, Inbox, type InboxStore } from './inbox.ts'
import { StreamMark } from './stream-mark.ts'

const ALICE = 'a'.repeat(64) as PeerKey
const MALLORY = 'e'.repeat(64) as PeerKey
const STREAM = '5'.repeat(32) as StreamId
const PREV = new Uint8Array(16)
const idOf = (seq: number) => seq.toString(16).padStart(32, '0') as EnvelopeId
const arrival = (seq: number, sender = ALICE, streamId = STREAM): ArrivedMessage => ({
  sender,
  envelopeId: idOf(seq),
  stream: { streamId, seq, prev: PREV },
})

describe('inbox', () => {
  test('a message is running, then a duplicate', () => {
    const inbox = new Inbox()
    const first = arrival(1)
    expect(inbox.receive(first)).toBe('fresh')
    expect(inbox.receive(arrival(1))).toEqual({ running: first })
    inbox.settled(first)
    expect(inbox.receive(arrival(1))).toBe('duplicate')
  })

  test('one that was given back is fresh once more', () => {
    const inbox = new Inbox()
    for (let seq = 1; seq <= 200; seq++) inbox.receive(arrival(seq))
    for (let seq = 1; seq <= 200; seq++) inbox.reopened(arrival(seq))
    for (let seq = 1; seq <= 200; seq++) {
      expect(inbox.receive(arrival(seq))).toBe('fresh')
      inbox.settled(arrival(seq))
      expect(inbox.receive(arrival(seq))).toBe('duplicate')
    }
  })

  test('a hole is told once, and may be filled once', () => {
    const inbox = new Inbox()
    inbox.receive(arrival(1))
    expect(inbox.receive(arrival(4))).toEqual({ gap: 2 })
    expect(inbox.receive(arrival(5))).toBe('fresh')
    expect(inbox.receive(arrival(3))).toBe('fresh')
    inbox.settled(arrival(3))
    expect(inbox.receive(arrival(3))).toBe('duplicate')
  })

  test('what a former life left behind is fresh when it comes later', () => {
    const inbox = new Inbox()
    expect(inbox.receive(arrival(500))).toBe('fresh')
    expect(inbox.receive(arrival(3))).toBe('fresh')
    inbox.settled(arrival(3))
    expect(inbox.receive(arrival(3))).toBe('duplicate')
  })

  test('nobody can spend the ids or numbers of another sender', () => {
    const inbox = new Inbox()
    inbox.receive(arrival(1, MALLORY))
    expect(inbox.receive(arrival(1))).toBe('fresh')
  })

  test('a message outside any stream is known by its id', () => {
    const inbox = new Inbox()
    const loose: ArrivedMessage = { sender: ALICE, envelopeId: idOf(9), stream: null }
    expect(inbox.receive(loose)).toBe('fresh')
    inbox.settled(loose)
    expect(inbox.receive(loose)).toBe('duplicate')
    inbox.reopened(loose)
    expect(inbox.receive(loose)).toBe('fresh')
  })

  test('a store brings back what a former life settled', () => {
    const marks = new Map<string, StreamMark>()
    const store: InboxStore = {
      load: (sender, streamId) => marks.get(sender + streamId),
      settled: (sender, { streamId, seq }) => {
        const mark = marks.get(sender + streamId) ?? new StreamMark()
        marks.set(sender + streamId, mark)
        mark.note(seq)
      },
    }
    const before = new Inbox(store)
    for (const seq of [1, 2]) before.receive(arrival(seq))
    before.settled(arrival(1))
    const after = new Inbox(store)
    expect(after.receive(arrival(1))).toBe('duplicate')
    expect(after.receive(arrival(2))).toBe('fresh')
  })

  test('any permutation with repeats hands out each number once', () => {
    const shuffled = fc.integer({ min: 1, max: 60 }).chain((count) => {
      const all = Array.from({ length: count }, (_, i) => i + 1)
      const repeated = fc.array(fc.integer({ min: 1, max: count }), { maxLength: 60 })
      return repeated.chain((more) => fc.shuffledSubarray([...all, ...more], { minLength: count + more.length }))
    })
    fc.assert(
      fc.property(shuffled, fc.boolean(), (order, isSettledAtOnce) => {
        const inbox = new Inbox()
        const handedOut: number[] = []
        for (const seq of order) {
          const verdict = inbox.receive(arrival(seq))
          const isNew = verdict === 'fresh' || (typeof verdict === 'object' && verdict.gap !== undefined)
          if (isNew) handedOut.push(seq)
          if (isNew && isSettledAtOnce) inbox.settled(arrival(seq))
        }
        expect(handedOut.toSorted((a, b) => a - b)).toEqual([...new Set(order)].toSorted((a, b) => a - b))
      }),
      { numRuns: 300, seed: 20260102 },
    )
  })
})

describe('stream mark', () => {
  test('keeps 64 holes at most, the newest', () => {
    const mark = new StreamMark()
    mark.note(1)
    expect(mark.note(1_000_000)).toBe(999_998)
    for (let seq = 1_000_002; seq < 1_001_000; seq += 2) mark.note(seq)
    expect(mark.holeCount).toBe(64)
    expect(mark.note(1_000_997)).toBe(0)
    expect(mark.note(2)).toBe(-1)
  })
})
