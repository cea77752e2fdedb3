/**
 * Tests the outbox with a store, against a broker that refuses messages and loses replies, in a process that may die at
 * any time. Over all processes, the broker must store each stored post once, and in order.
 */

import type { FrameOf, Priority } from '@sealpost/protocol'
import { assert, type PeerKey } from '@sealpost/std'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { StoreRecord } from '../stores/records.ts'
import { type StoreChange, StoreWriter } from '../stores/store.ts'
import { LaneBroker, laneOf } from '../test/lane-broker.ts'
import { BOB, CAROL, LIMITS, World } from '../test/outbox.ts'
import type { SendItem } from './lane.ts'

type Step =
  | { do: 'post'; to: PeerKey; priority: Priority; count: number }
  | { do: 'deliver'; refuseShare: number }
  | { do: 'commit'; count: number }
  | { do: 'failCommit' }
  | { do: 'answer'; count: number }
  | { do: 'keep' }
  | { do: 'cut' }
  | { do: 'goOffline' }
  | { do: 'crash'; isBatchKept: boolean; isOnline: boolean }
  | { do: 'wait'; ms: number }

const constant = <T extends string>(name: T) => fc.record({ do: fc.constant(name) })
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({
    do: fc.constant('post' as const),
    to: fc.constantFrom(BOB, CAROL),
    priority: fc.constantFrom<Priority>('now', 'next'),
    count: fc.integer({ min: 1, max: 6 }),
  }),
  fc.record({ do: fc.constant('deliver' as const), refuseShare: fc.constantFrom(0, 0, 0.3) }),
  fc.record({ do: fc.constant('commit' as const), count: fc.integer({ min: 1, max: 10 }) }),
  constant('failCommit'),
  fc.record({ do: fc.constant('answer' as const), count: fc.integer({ min: 1, max: 10 }) }),
  constant('keep'),
  constant('keep'),
  constant('cut'),
  constant('goOffline'),
  fc.record({ do: fc.constant('crash' as const), isBatchKept: fc.boolean(), isOnline: fc.boolean() }),
  fc.record({ do: fc.constant('wait' as const), ms: fc.integer({ min: 1, max: 100 }) }),
)

type Answer = { ack: SendItem } | { nack: FrameOf<'nack'>['items'][number] }

class Run {
  readonly broker: LaneBroker
  readonly posted = new Map<string, string[]>()
  /** Bodies whose storage the outbox has confirmed, locally or at the broker. */
  readonly promised = new Set<string>()
  readonly records = new Map<string, StoreRecord>()
  crashes = 0
  private world!: World
  private writer!: StoreWriter
  private batch: StoreChange[] | null = null
  private wire: SendItem[] = []
  private answers: Answer[] = []
  private nowMs = 0
  private lastBody = 0
  private readonly seed: number
  private readonly answersTooSoon: boolean

  constructor(seed: number, options: { answersTooSoon: boolean } = { answersTooSoon: false }) {
    this.seed = seed
    this.answersTooSoon = options.answersTooSoon
    this.begin()
    this.broker = new LaneBroker(this.world.random)
    this.world.outbox.connected(LIMITS, 0)
  }

  take(step: Step): void {
    switch (step.do) {
      case 'post':
        for (let i = 0; i < step.count; i++) this.post(step.to, step.priority)
        break
      case 'deliver':
        this.answers.push(...this.broker.send(this.wire.splice(0), step.refuseShare).map((nack) => ({ nack })))
        break
      case 'commit':
        this.answers.push(...this.broker.commit(step.count).map((ack) => ({ ack })))
        break
      case 'failCommit':
        for (const { envelopeId } of this.broker.failCommit())
          this.answers.push({ nack: { envelopeId, code: 'unavailable', retryAfterMs: 50 } })
        break
      case 'answer':
        this.answer(step.count)
        break
      case 'keep':
        this.keep()
        break
      case 'cut':
        this.endSession()
        this.world.outbox.connected(LIMITS, this.nowMs)
        break
      case 'goOffline':
        this.endSession()
        break
      case 'crash':
        this.crash(step)
        break
      case 'wait':
        this.nowMs += step.ms
        break
    }
    this.flush()
  }

  /** Stops all faults, after which everything still known must be stored. */
  finish(): void {
    this.take({ do: 'cut' })
    for (let round = 0; round < 500 && !(this.world.outbox.pendingCount === 0 && this.writer.isIdle); round++) {
      this.take({ do: 'keep' })
      this.take({ do: 'deliver', refuseShare: 0 })
      this.take({ do: 'commit', count: 1000 })
      this.take({ do: 'answer', count: 1000 })
      this.take({ do: 'wait', ms: 100 })
    }
  }

  /** Checks that the broker has exactly the posted bodies, except those that may be missing. */
  check(): void {
    expect(this.world.outbox.pendingCount).toBe(0)
    expect([...this.records.keys()]).toEqual([])
    const stored = new Map<string, string[]>()
    for (const { lane, body } of this.broker.stored) stored.set(lane, [...(stored.get(lane) ?? []), body])
    for (const [lane, posted] of this.posted) {
      const there = new Set(stored.get(lane))
      expect(stored.get(lane) ?? []).toEqual(posted.filter((body) => there.has(body)))
      expect(posted.filter((body) => this.promised.has(body) && !there.has(body))).toEqual([])
    }
  }

  private begin(): void {
    this.batch = null
    const writer = new StoreWriter((changes) => {
      this.batch = [...(this.batch ?? []), ...changes]
    })
    this.writer = writer
    this.world = new World({ window: 8 }, this.seed + 7919 * this.crashes, writer)
    this.world.outbox.restore([...this.records.values()], () => ({
      accepted: () => undefined,
      refused: (error) => assert(false, `a restored post was refused: ${error.code}`),
    }))
  }

  private post(to: PeerKey, priority: Priority): void {
    const no = ++this.lastBody
    const bytes = Uint8Array.of(no >>> 8, no & 255)
    const body = JSON.stringify([...bytes])
    const lane = laneOf({ recipient: to, priority })
    this.posted.set(lane, [...(this.posted.get(lane) ?? []), body])
    const promise = () => void this.promised.add(body)
    const refused = (error: Error) => assert(false, error.message)
    this.world.outbox.post(
      { to, priority, ttlSeconds: 0, body: bytes, accepted: promise, refused, kept: promise },
      this.nowMs,
    )
  }

  private flush(): void {
    const items = this.world.take(this.nowMs)
    for (const item of items) this.checkKept(item)
    this.wire.push(...items)
    this.writer.flush()
    if (this.answersTooSoon) this.writer.written()
  }

  /** Checks that the store contains the bytes that the broker receives. */
  private checkKept({ envelopeId, envelope }: SendItem): void {
    if (this.answersTooSoon) return
    const record = [...this.records.values()].find((each) => each.kind === 'sealed' && each.envelopeId === envelopeId)
    expect(record && 'bytes' in record && [...record.bytes]).toEqual([...envelope])
  }

  private keep(): void {
    const { batch } = this
    if (!batch) return
    this.apply(batch)
    this.batch = null
    if (!this.answersTooSoon) this.writer.written()
  }

  private apply(batch: StoreChange[]): void {
    for (const { key, record } of batch) {
      if (record) this.records.set(key, record)
      else this.records.delete(key)
    }
  }

  private crash({ isBatchKept, isOnline }: { isBatchKept: boolean; isOnline: boolean }): void {
    if (this.batch && isBatchKept) this.apply(this.batch)
    this.crashes += 1
    this.wire = []
    this.answers = []
    this.broker.newSession()
    this.begin()
    if (isOnline) this.world.outbox.connected(LIMITS, this.nowMs)
  }

  private endSession(): void {
    this.wire = []
    this.answers = []
    this.world.outbox.disconnected()
    this.broker.newSession()
  }

  private answer(count: number): void {
    for (const answer of this.answers.splice(0, count)) {
      if ('ack' in answer) this.world.ack([answer.ack], this.nowMs)
      else this.world.outbox.nacked([answer.nack], this.nowMs)
    }
  }
}

const stories = fc.tuple(fc.array(step, { minLength: 5, maxLength: 80 }), fc.integer({ min: 0, max: 1_000_000 }))

describe('model', () => {
  test('every stored message reaches the broker once and in order, however often the process dies', () => {
    const totals = { promised: 0, crashes: 0, stored: 0 }
    fc.assert(
      fc.property(stories, ([steps, seed]) => {
        const run = new Run(seed)
        for (const each of steps) run.take(each)
        run.finish()
        run.check()
        totals.promised += run.promised.size
        totals.crashes += run.crashes
        totals.stored += run.broker.stored.length
      }),
      { numRuns: 600, seed: 20260105 },
    )
    expect(totals.crashes).toBeGreaterThan(500)
    expect(totals.promised).toBeGreaterThan(1000)
    expect(totals.stored).toBeGreaterThanOrEqual(totals.promised)
  })

  test('the model detects a store that confirms before it has stored', () => {
    const wrong = () =>
      fc.assert(
        fc.property(stories, ([steps, seed]) => {
          const run = new Run(seed, { answersTooSoon: true })
          for (const each of steps) run.take(each)
          run.finish()
          run.check()
        }),
        { numRuns: 600, seed: 20260105 },
      )
    expect(wrong).toThrow()
  })
})
