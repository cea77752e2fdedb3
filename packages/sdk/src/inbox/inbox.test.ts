import type { StreamId } from '@sealpost/identity'
import type { DeliveryId, EnvelopeId, PeerKey } from '@sealpost/std'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { StoreRecord } from '../stores/records.ts'
import { StoreWriter } from '../stores/store.ts'
import { Inbox, Leases } from './inbox.ts'
import type { Message } from './message.ts'
import { type ArrivedMessage, SequenceTracker } from './stream-order.ts'

const ALICE = 'a'.repeat(64) as PeerKey
const MALLORY = 'e'.repeat(64) as PeerKey
const STREAM = '5'.repeat(32) as StreamId
const PREV = new Uint8Array(16)
const idOf = (seq: number) => seq.toString(16).padStart(32, '0') as EnvelopeId
const arrival = (seq: number, sender = ALICE, streamId = STREAM): ArrivedMessage => ({
  ...{ deliveryId: seq as DeliveryId, attempt: 1 },
  sender,
  envelopeId: idOf(seq),
  stream: { streamId, seq, prev: PREV },
  headerHash: PREV,
})

const looseArrival = (no: number): ArrivedMessage => ({ ...arrival(no), stream: null, headerHash: null })
const redriven = (arrived: ArrivedMessage, times = 1): ArrivedMessage => ({
  ...arrived,
  ...{ deliveryId: (arrived.deliveryId + times * 1_000) as DeliveryId, attempt: 2 },
})

class InboxLife {
  readonly records: Map<string, StoreRecord>
  readonly batches: number[] = []
  readonly writer: StoreWriter
  readonly inbox: Inbox<ArrivedMessage>

  constructor(former: ReadonlyMap<string, StoreRecord> = new Map()) {
    this.records = new Map(former)
    this.writer = new StoreWriter((changes) => {
      this.batches.push(changes.length)
      for (const { key, record } of changes) {
        if (record) this.records.set(key, record)
        else this.records.delete(key)
      }
      queueMicrotask(() => this.writer.written())
    })
    this.inbox = new Inbox({ writer: this.writer, records: [...former.values()] })
  }
}

describe('inbox', () => {
  test('a message is `running` first and a duplicate after it is settled', () => {
    const inbox = new Inbox()
    const first = arrival(1)
    expect(inbox.receive(first)).toBe('fresh')
    expect(inbox.receive(arrival(1))).toEqual({ running: first })
    inbox.settled(first)
    expect(inbox.receive(arrival(1))).toBe('duplicate')
  })

  test('a returned message is fresh again', () => {
    const inbox = new Inbox()
    for (let seq = 1; seq <= 200; seq++) inbox.receive(arrival(seq))
    for (let seq = 1; seq <= 200; seq++) inbox.reopened(arrival(seq))
    for (let seq = 1; seq <= 200; seq++) {
      expect(inbox.receive(arrival(seq))).toBe('fresh')
      inbox.settled(arrival(seq))
      expect(inbox.receive(arrival(seq))).toBe('duplicate')
    }
  })

  test('a gap is reported once, and its message is handed out once if it arrives late', () => {
    const inbox = new Inbox()
    inbox.receive(arrival(1))
    expect(inbox.receive(arrival(4))).toEqual({ gap: 2 })
    expect(inbox.receive(arrival(5))).toBe('fresh')
    expect(inbox.receive(arrival(3))).toBe('fresh')
    inbox.settled(arrival(3))
    expect(inbox.receive(arrival(3))).toBe('duplicate')
  })

  test('a message that a former process did not settle is fresh when it arrives late', () => {
    const inbox = new Inbox()
    expect(inbox.receive(arrival(500))).toBe('fresh')
    expect(inbox.receive(arrival(3))).toBe('fresh')
    inbox.settled(arrival(3))
    expect(inbox.receive(arrival(3))).toBe('duplicate')
  })

  test('a sender cannot use up the ids or numbers of another sender', () => {
    const inbox = new Inbox()
    inbox.receive(arrival(1, MALLORY))
    expect(inbox.receive(arrival(1))).toBe('fresh')
  })

  test('a message without a stream is identified by its id', () => {
    const inbox = new Inbox()
    const loose = looseArrival(9)
    expect(inbox.receive(loose)).toBe('fresh')
    inbox.settled(loose)
    expect(inbox.receive(loose)).toBe('duplicate')
    inbox.reopened(loose)
    expect(inbox.receive(loose)).toBe('fresh')
  })

  test.each([
    ['in a stream', arrival(1)],
    ['outside any stream', looseArrival(1)],
  ])('a lost rejection is repeated, and a redriven message is handed out until it is settled: %s', (_, first) => {
    const inbox = new Inbox()
    for (let times = 0; times < 3; times++) {
      const delivery = times === 0 ? first : redriven(first, times)
      expect(inbox.receive(delivery)).toBe(times === 0 ? 'fresh' : 'redriven')
      expect(inbox.receive({ ...delivery, attempt: 2 })).toEqual({ running: delivery })
      inbox.rejected(delivery, `no ${times}`)
      expect(inbox.receive({ ...delivery, attempt: 3 })).toEqual({ rejected: `no ${times}` })
    }
    expect(inbox.receive(redriven(first, 3))).toBe('redriven')
    inbox.reopened(redriven(first, 3))
    expect(inbox.receive({ ...redriven(first, 3), attempt: 3 })).toBe('redriven')
    inbox.settled(redriven(first, 3))
    expect(inbox.receive(redriven(first, 3))).toBe('duplicate')
    expect(inbox.receive(redriven(first, 4))).toBe('duplicate')
  })

  test('a rejected message that its sender resends after a database restore is rejected again', () => {
    const inbox = new Inbox()
    inbox.receive(arrival(1))
    inbox.rejected(arrival(1), 'no')
    const resent = { ...redriven(arrival(1)), attempt: 1 }
    expect(inbox.receive(resent)).toEqual({ rejected: 'no' })
    expect(inbox.receive({ ...resent, attempt: 2 })).toEqual({ rejected: 'no' })
    expect(inbox.receive(redriven(arrival(1), 2))).toBe('redriven')
  })

  test.each([
    ['in a stream', arrival],
    ['outside any stream', looseArrival],
  ])('a store restores the rejections of a former process: %s', async (_, make) => {
    const before = new InboxLife()
    for (const no of [1, 2, 3]) before.inbox.receive(make(no))
    before.inbox.rejected(make(1), 'one')
    before.inbox.rejected(make(2), 'two')
    before.inbox.settled(make(3))
    before.writer.flush()
    const second = new InboxLife(before.records)
    expect(second.inbox.receive({ ...make(1), attempt: 2 })).toEqual({ rejected: 'one' })
    expect(second.inbox.receive(redriven(make(2)))).toBe('redriven')
    expect(second.inbox.receive(redriven(make(3)))).toBe('duplicate')
    const third = new InboxLife(second.records)
    expect(third.inbox.receive(redriven(make(2)))).toBe('redriven')
    third.inbox.settled(redriven(make(2)))
    third.writer.flush()
    expect([...third.records.keys()].filter((key) => key.startsWith('rejected'))).toEqual([
      `rejected ${ALICE} ${idOf(1)}`,
    ])
    const { inbox } = new InboxLife(third.records)
    expect(inbox.receive(redriven(make(2), 2))).toBe('duplicate')
  })

  test('the newest 8,192 rejections per sender are remembered', () => {
    const life = new InboxLife()
    for (let no = 1; no <= 8_193; no++) life.inbox.rejected(arrival(no), 'no')
    life.inbox.rejected(arrival(1, MALLORY), 'no')
    life.writer.flush()
    const { inbox } = new InboxLife(life.records)
    expect(inbox.receive(redriven(arrival(1)))).toBe('duplicate')
    expect(inbox.receive(redriven(arrival(2)))).toBe('redriven')
    expect(inbox.receive(redriven(arrival(1, MALLORY)))).toBe('redriven')
  })

  test('a store restores settled messages of a former process, but none that were running', () => {
    const before = new InboxLife()
    for (const seq of [1, 2, 3]) before.inbox.receive(arrival(seq))
    for (const seq of [1, 3]) before.inbox.settled(arrival(seq))
    before.writer.flush()
    const after = new InboxLife(before.records)
    expect(after.inbox.receive(arrival(1))).toBe('duplicate')
    expect(after.inbox.receive(arrival(3))).toBe('duplicate')
    expect(after.inbox.receive(arrival(2))).toBe('fresh')
    expect(after.inbox.receive(arrival(4))).toBe('fresh')
  })

  test('with 300 open messages, no settle order makes the next process drop an unsettled message', () => {
    const before = new InboxLife()
    for (let seq = 1; seq <= 300; seq++) before.inbox.receive(arrival(seq))
    const settled = Array.from({ length: 150 }, (_, i) => 300 - 2 * i)
    for (const seq of settled) before.inbox.settled(arrival(seq))
    before.writer.flush()
    const { inbox } = new InboxLife(before.records)
    for (let seq = 1; seq <= 300; seq++) expect(inbox.receive(arrival(seq))).toBe(seq % 2 === 0 ? 'duplicate' : 'fresh')
  })

  test('a store restores settled messages without a stream', () => {
    const before = new InboxLife()
    const [one, two]: ArrivedMessage[] = [1, 2].map((n) => ({
      deliveryId: n as DeliveryId,
      attempt: 1,
      sender: ALICE,
      envelopeId: idOf(n),
      stream: null,
      headerHash: null,
    }))
    for (const loose of [one!, two!]) before.inbox.receive(loose)
    before.inbox.settled(one!)
    before.writer.flush()
    const { inbox } = new InboxLife(before.records)
    expect([inbox.receive(one!), inbox.receive(two!)]).toEqual(['duplicate', 'fresh'])
  })

  test('settles between two batches form one record per stream, whose size does not grow', () => {
    const { inbox, writer, records, batches } = new InboxLife()
    for (let seq = 1; seq <= 1000; seq++) {
      inbox.receive(arrival(seq))
      inbox.settled(arrival(seq))
    }
    writer.flush()
    expect(batches).toEqual([1])
    expect([...records.values()]).toMatchObject([{ kind: 'mark', settled: [1, 1000] }])
  })

  const streamOf = (i: number) => idOf(i) as string as StreamId
  const loose = (i: number): ArrivedMessage => ({
    deliveryId: i as DeliveryId,
    attempt: 1,
    sender: ALICE,
    envelopeId: idOf(i),
    stream: null,
    headerHash: null,
  })
  const settle = (inbox: Inbox<ArrivedMessage>, message: ArrivedMessage) => {
    const verdict = inbox.receive(message)
    inbox.settled(message)
    return verdict
  }

  test.each([
    ['streams', (i: number) => arrival(1, ALICE, streamOf(i))],
    ['messages outside any stream', loose],
  ])('each of 2,000 repeats from one sender is detected: %s', (_, nth) => {
    const inbox = new Inbox()
    for (let i = 0; i < 2_000; i++) settle(inbox, nth(i))
    const verdicts = Array.from({ length: 2_000 }, (_, i) => inbox.receive(nth(i)))
    expect(new Set(verdicts)).toEqual(new Set(['duplicate']))
  })

  test('a session with a large credit remembers four times its credit', () => {
    const inbox = new Inbox(undefined, 4_096)
    for (let i = 0; i < 16_384; i++) settle(inbox, arrival(1, ALICE, streamOf(i)))
    expect(inbox.receive(arrival(1, ALICE, streamOf(0)))).toBe('duplicate')
  })

  test('the least recently used stream is forgotten, not the oldest one', () => {
    const inbox = new Inbox()
    for (let i = 0; i < 8_192; i++) settle(inbox, arrival(1, ALICE, streamOf(i)))
    settle(inbox, arrival(2, ALICE, streamOf(0)))
    settle(inbox, arrival(1, ALICE, streamOf(8_192)))
    expect(inbox.receive(arrival(2, ALICE, streamOf(0)))).toBe('duplicate')
    expect(inbox.receive(arrival(1, ALICE, streamOf(1)))).toBe('fresh')
  })

  test('of 8,192 streams, a store forgets the least recently used one, but no stream of another sender', () => {
    const { inbox, writer, records } = new InboxLife()
    for (let i = 0; i < 8_192; i++) settle(inbox, arrival(1, ALICE, streamOf(i)))
    settle(inbox, arrival(1, MALLORY, STREAM))
    settle(inbox, arrival(2, ALICE, streamOf(0)))
    writer.flush()
    expect(records.size).toBe(8_193)
    const next = new InboxLife(records)
    settle(next.inbox, arrival(1, ALICE, streamOf(8_192)))
    next.writer.flush()
    const after = new InboxLife(next.records).inbox
    expect(after.receive(arrival(2, ALICE, streamOf(0)))).toBe('duplicate')
    expect(after.receive(arrival(1, MALLORY))).toBe('duplicate')
    expect(after.receive(arrival(1, ALICE, streamOf(1)))).toBe('fresh')
  })

  test('in any order and with any repeats, the inbox hands out each number once', () => {
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
          const isNew = verdict === 'fresh' || (typeof verdict === 'object' && 'gap' in verdict)
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
  test('a stream without holes is one range, and a hole of any age can be filled', () => {
    const mark = new SequenceTracker()
    mark.note(1)
    expect(mark.note(1_000_000)).toBe(999_998)
    for (let seq = 1_000_001; seq < 1_010_000; seq++) mark.note(seq)
    expect(mark.toRanges()).toEqual([1, 1, 1_000_000, 1_009_999])
    expect([mark.note(2), mark.note(2)]).toEqual([0, -1])
  })

  test('beyond 16,384 ranges, the oldest hole counts as seen', () => {
    const mark = new SequenceTracker()
    for (let i = 1; i <= 16_385; i++) mark.note(2 * i)
    expect(mark.rangeCount).toBe(16_384)
    expect([mark.note(3), mark.note(5)]).toEqual([-1, 0])
  })

  test('a mark behaves like a set of numbers', () => {
    const step = fc.record({ isReopened: fc.boolean(), seq: fc.integer({ min: 1, max: 30 }) })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
        const mark = new SequenceTracker()
        const seen = new Set<number>()
        for (const { isReopened, seq } of steps) {
          if (isReopened) {
            mark.reopen(seq)
            seen.delete(seq)
          } else {
            expect(mark.note(seq) >= 0).toBe(!seen.has(seq))
            seen.add(seq)
          }
          expect(numbersIn(mark.toRanges())).toEqual([...seen].sort((a, b) => a - b))
        }
        expect(numbersIn(new SequenceTracker(mark.toRanges()).toRanges())).toEqual(numbersIn(mark.toRanges()))
      }),
      { numRuns: 500, seed: 20260103 },
    )
  })

  test('a reopened number leaves no gap before the next one', () => {
    const mark = new SequenceTracker()
    mark.note(1)
    mark.note(2)
    mark.reopen(2)
    expect([mark.note(3), mark.note(2)]).toEqual([0, 0])
  })
})

/** Returns every number in the ranges, and checks that no two ranges touch. */
function numbersIn(ranges: number[]): number[] {
  const pairs = Array.from({ length: ranges.length / 2 }, (_, i) => [ranges[2 * i]!, ranges[2 * i + 1]!] as const)
  for (const [i, [from]] of pairs.entries()) if (i > 0) expect(from).toBeGreaterThan(pairs[i - 1]![1] + 1)
  return pairs.flatMap(([from, to]) => Array.from({ length: to - from + 1 }, (_, i) => from + i))
}

const SESSION = 3
const message = (deliveryId: number, receivedAtMs: number, sessionNo = SESSION) =>
  ({ deliveryId: deliveryId as DeliveryId, receivedAtMs, sessionNo }) as Message

function world(leaseMs = 1000): Leases {
  const leases = new Leases()
  leases.connected(leaseMs)
  return leases
}

test('a running message is extended at half its lease, repeatedly, until it is released', () => {
  const leases = world()
  const one = message(1, 100)
  expect(leases.hold(one)).toBe(true)
  expect(leases.wakeAtMs).toBe(600)
  expect(leases.takeFrames(599, SESSION)).toEqual([])
  expect(leases.takeFrames(600, SESSION)).toEqual([{ type: 'extend', ids: [1], forMs: 1000 }])
  expect(leases.takeFrames(600, SESSION)).toEqual([])
  expect(leases.takeFrames(1100, SESSION)).toHaveLength(1)
  leases.release(one)
  expect(leases.takeFrames(9999, SESSION)).toEqual([])
  expect(leases.wakeAtMs).toBe(Infinity)
})

test('extensions due together share one frame, and later ones wait', () => {
  const leases = world()
  for (const [id, atMs] of [[1, 0], [2, 0], [3, 400]] as const) leases.hold(message(id, atMs)) // biome-ignore format: a row
  expect(leases.takeFrames(500, SESSION)).toEqual([{ type: 'extend', ids: [1, 2], forMs: 1000 }])
  expect(leases.wakeAtMs).toBe(900)
})

test('a message that waited long for its handler is extended at once', () => {
  const leases = world()
  leases.hold(message(1, 5000))
  expect(leases.hold(message(2, 0))).toBe(true)
  expect(leases.takeFrames(5001, SESSION)).toEqual([{ type: 'extend', ids: [2], forMs: 1000 }])
})

test('a message pushed in an ended session is extended after it is pushed again', () => {
  const leases = world()
  const one = message(1, 0)
  leases.hold(one)
  leases.disconnected()
  leases.connected(1000)
  expect(leases.takeFrames(600, SESSION + 1)).toEqual([])
  Object.assign(one, { deliveryId: 8, sessionNo: SESSION + 1 })
  expect(leases.takeFrames(1100, SESSION + 1)).toEqual([{ type: 'extend', ids: [8], forMs: 1000 }])
})

test('at the end of a session, running messages are extended and unread ones are reported', () => {
  const leases = world()
  const unread = { ...message(2, 0), isUnread: true } as Message
  for (const each of [message(1, 0), unread, message(3, 0)]) leases.hold(each)
  expect(leases.takeFrames(500, SESSION)).toEqual([{ type: 'extend', ids: [1, 2, 3], forMs: 1000 }])
  expect(leases.takeFrames(Infinity, SESSION)).toEqual([
    { type: 'extend', ids: [1, 3], forMs: 1000 },
    { type: 'extend', ids: [2], forMs: 0 },
  ])
})

test('an extension is at most the maximum lease of a broker', () => {
  const leases = world(300_000)
  leases.extend(message(1, 0), null)
  leases.extend(message(2, 0), 1e9)
  leases.extend(message(3, 0), -5)
  expect(leases.takeFrames(0, SESSION).map(({ forMs }) => forMs)).toEqual([240_000, 1])
})

test('a broker that sends leases of zero length does not cause a busy loop', () => {
  const leases = world(0)
  leases.hold(message(1, 100))
  expect(leases.wakeAtMs).toBe(110)
  expect(leases.takeFrames(110, SESSION)).toEqual([{ type: 'extend', ids: [1], forMs: 20 }])
  expect(leases.wakeAtMs).toBe(120)
})

test('no lease is due between two sessions', () => {
  const leases = world()
  leases.hold(message(1, 0))
  leases.disconnected()
  expect(leases.wakeAtMs).toBe(Infinity)
  leases.connected(1000)
  expect(leases.wakeAtMs).toBe(500)
})
