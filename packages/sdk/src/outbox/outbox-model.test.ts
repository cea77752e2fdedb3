/** Tests the outbox against a broker that randomly refuses messages, loses replies and breaks sessions. */

import type { FrameOf, Priority } from '@sealpost/protocol'
import type { PeerKey } from '@sealpost/std'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { LaneBroker, laneOf } from '../test/lane-broker.ts'
import { BOB, CAROL, LIMITS, World } from '../test/outbox.ts'
import type { SendItem } from './lane.ts'

type Step =
  | { do: 'post'; to: number; priority: Priority; count: number }
  | { do: 'deliver'; refuseShare: number }
  | { do: 'commit'; count: number }
  | { do: 'failCommit' }
  | { do: 'reorder' }
  | { do: 'answer'; count: number }
  | { do: 'cut' }
  | { do: 'wait'; ms: number }

const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({
    do: fc.constant('post' as const),
    to: fc.integer({ min: 0, max: 1 }),
    priority: fc.constantFrom<Priority>('now', 'next'),
    count: fc.integer({ min: 1, max: 6 }),
  }),
  fc.record({ do: fc.constant('deliver' as const), refuseShare: fc.constantFrom(0, 0.2, 0.6) }),
  fc.record({ do: fc.constant('commit' as const), count: fc.integer({ min: 1, max: 10 }) }),
  fc.record({ do: fc.constant('failCommit' as const) }),
  fc.record({ do: fc.constant('reorder' as const) }),
  fc.record({ do: fc.constant('answer' as const), count: fc.integer({ min: 1, max: 10 }) }),
  fc.record({ do: fc.constant('cut' as const) }),
  fc.record({ do: fc.constant('wait' as const), ms: fc.integer({ min: 1, max: 100 }) }),
)

type Answer = { ack: SendItem } | { nack: FrameOf<'nack'>['items'][number] }

class Run {
  readonly world: World
  readonly broker: LaneBroker
  readonly posted = new Map<string, string[]>()
  private wire: SendItem[] = []
  private answers: Answer[] = []
  private nowMs = 0
  mutate: (items: SendItem[]) => SendItem[] = (items) => items

  constructor(seed: number) {
    this.world = new World({ window: 8 }, seed)
    this.broker = new LaneBroker(this.world.random)
    this.world.outbox.connected(LIMITS, 0)
  }

  take(step: Step): void {
    switch (step.do) {
      case 'post':
        for (let i = 0; i < step.count; i++) this.post([BOB, CAROL][step.to]!, step.priority)
        break
      case 'deliver': {
        const nacks = this.broker.send(this.mutate(this.wire.splice(0)), step.refuseShare)
        this.answers.push(...nacks.map((nack) => ({ nack })))
        break
      }
      case 'commit':
        this.answers.push(...this.broker.commit(step.count).map((ack) => ({ ack })))
        break
      case 'failCommit': {
        const failed = this.broker.failCommit()
        const nack = (item: SendItem) => ({
          envelopeId: item.envelopeId,
          code: 'unavailable' as const,
          retryAfterMs: 50,
        })
        this.answers.push(...failed.map((item) => ({ nack: nack(item) })))
        break
      }
      case 'reorder':
        this.answers.reverse()
        break
      case 'answer':
        this.answer(step.count)
        break
      case 'cut':
        this.wire = []
        this.answers = []
        this.world.outbox.disconnected()
        this.broker.newSession()
        this.world.outbox.connected(LIMITS, this.nowMs)
        break
      case 'wait':
        this.nowMs += step.ms
        break
    }
    this.wire.push(...this.world.take(this.nowMs))
  }

  /** Stops all faults, after which everything must be answered. */
  finish(): void {
    for (let round = 0; round < 500 && this.world.outbox.pendingCount > 0; round++) {
      this.take({ do: 'deliver', refuseShare: 0 })
      this.take({ do: 'commit', count: 1000 })
      this.take({ do: 'answer', count: 1000 })
      this.take({ do: 'wait', ms: 100 })
    }
  }

  private post(to: PeerKey, priority: Priority): void {
    const place = this.world.post(to, { priority })
    const lane = laneOf({ recipient: to, priority })
    const body = JSON.stringify([place >>> 8, place & 255])
    this.posted.set(lane, [...(this.posted.get(lane) ?? []), body])
  }

  private answer(count: number): void {
    for (const answer of this.answers.splice(0, count)) {
      if ('ack' in answer) this.world.ack([answer.ack], this.nowMs)
      else this.world.outbox.nacked([answer.nack], this.nowMs)
    }
  }

  storedByLane(): Map<string, string[]> {
    const byLane = new Map<string, string[]>()
    for (const { lane, body } of this.broker.stored) byLane.set(lane, [...(byLane.get(lane) ?? []), body])
    return byLane
  }
}

describe('model', () => {
  test('each message is stored once and in the order of its lane, whatever the broker does', () => {
    const totals = { posted: 0, resent: 0, nacked: 0 }
    fc.assert(
      fc.property(fc.array(step, { minLength: 5, maxLength: 80 }), fc.integer(), (steps, seed) => {
        const run = new Run(seed)
        for (const each of steps) run.take(each)
        run.finish()
        expect(run.world.outbox.pendingCount).toBe(0)
        expect(run.world.results.every((result) => result !== undefined && 'envelopeId' in result)).toBe(true)
        expect(run.storedByLane()).toEqual(run.posted)
        totals.posted += run.world.results.length
        totals.resent += run.world.counters.resent
        totals.nacked += run.world.counters.nacked
      }),
      { numRuns: 400, seed: 20260101 },
    )
    expect(totals.posted).toBeGreaterThan(1000)
    expect(totals.resent).toBeGreaterThan(1000)
    expect(totals.nacked).toBeGreaterThan(300)
  })

  test('the model detects a client that wrongly sets `isHead`', () => {
    const wrong = () =>
      fc.assert(
        fc.property(fc.array(step, { minLength: 5, maxLength: 80 }), fc.integer(), (steps, seed) => {
          const run = new Run(seed)
          run.mutate = (items) => items.map((item) => ({ ...item, isHead: true }))
          for (const each of steps) run.take(each)
          run.finish()
          expect(run.storedByLane()).toEqual(run.posted)
        }),
        { numRuns: 400, seed: 20260101 },
      )
    expect(wrong).toThrow()
  })
})
