import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { EnvelopeId } from '@sealpost/std'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { planOf, recipientOf, senderOf } from '../generators/plan.ts'
import { RecordLog } from '../generators/record-log.ts'
import { judge, type RunRecords } from './verdict.ts'

const plan = planOf({ peers: 3, total: 30, payloadBytes: 20, seed: 7 })
const START_MS = 1_000_000
const nothingWaits = () => Promise.resolve(new Set<string>())

const idOf = (number: number) => `0190a5b2c3d47e5f8000${number.toString(16).padStart(12, '0')}` as EnvelopeId

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sealpost-verdict-'))
})
afterEach(() => rmSync(folder, { recursive: true }))

/** A run of one generator, in which the test decides what goes wrong. */
class World {
  readonly plan: typeof plan
  readonly prefix = join(folder, crypto.randomUUID())
  readonly log = new RecordLog(this.prefix)

  constructor(of = plan) {
    this.plan = of
  }

  ack(number: number, { afterMs = 10, calledAtMs = START_MS + number } = {}): void {
    const admittedAtMs = START_MS + number
    const ack = { envelopeId: idOf(number), admittedAtMs }
    this.log.answered({ number, calledAtMs, answeredAtMs: admittedAtMs + afterMs, ack })
  }
  refuse(number: number): void {
    const calledAtMs = START_MS + number
    this.log.answered({ number, calledAtMs, answeredAtMs: calledAtMs + 1, ack: null })
  }
  push(number: number, { afterMs = 5, faults = 0, envelopeId = idOf(number) } = {}): void {
    const recipient = recipientOf(this.plan, number)
    this.log.received({ atMs: START_MS + number + afterMs, number, recipient, faults, envelopeId })
  }
  all(act: (number: number) => void, but: number[] = []): void {
    for (let number = 0; number < this.plan.total; number++) if (!but.includes(number)) act(number)
  }
  async judge(waitingOf = nothingWaits, spanMs: RunRecords['spanMs'] = null, pairs?: number) {
    await this.log.close()
    const run = {
      plan: this.plan,
      startMs: START_MS,
      called: this.plan.total,
      records: [this.prefix],
      spanMs,
      ...(pairs && { pairs }),
    }
    return judge(run, waitingOf)
  }
}

const world = (of = plan) => new World(of)

const clean = { timedOut: 0, lost: 0, duplicates: 0, misdelivered: 0, outOfOrder: 0 }

test('a push that overtakes its ack is a delivery, and its latency counts from the admission', async () => {
  const run = world()
  run.all((number) => run.push(number, { afterMs: 5 }))
  run.all((number) => run.ack(number))
  const verdict = await run.judge()
  expect(verdict).toMatchObject({ ...clean, sent: 30, acked: 30, delivered: 30, wallMs: 39 })
  expect(verdict.e2eMs.p50).toBeCloseTo(5, 1)
  expect(verdict.ackMs.max).toBeCloseTo(10, 1)
})

test('the latency from the call includes the wait for the window, whether push or ack comes first', async () => {
  const run = world()
  const called = { calledAtMs: START_MS - 100 }
  for (let number = 0; number < 15; number++) run.push(number, { afterMs: 5 })
  run.all((number) => run.ack(number, called))
  for (let number = 15; number < 30; number++) run.push(number, { afterMs: 500 })
  const { e2eMs, callToPushMs, sendCallMs, ackMs } = await run.judge()
  expect([e2eMs.p50, e2eMs.max].map(Math.round)).toEqual([5, 500])
  expect([callToPushMs.p50, callToPushMs.max].map(Math.round)).toEqual([100 + 14 + 5, 100 + 29 + 500])
  expect([ackMs.max, sendCallMs.max].map(Math.round)).toEqual([10, 100 + 29 + 10])
})

test('an acked message that neither arrived nor waits is lost, and one that waits has timed out', async () => {
  const run = world()
  run.all((number) => run.ack(number))
  run.all((number) => run.push(number), [4, 9])
  const asked: string[] = []
  const verdict = await run.judge((...ids: unknown[]) => {
    asked.push(...(ids[0] as string[]))
    return Promise.resolve(new Set([idOf(9)]))
  })
  expect(asked).toEqual([idOf(4), idOf(9)])
  expect(verdict).toMatchObject({ ...clean, delivered: 28, lost: 1, timedOut: 1 })
})

test('a message without an ack has timed out, though it arrived', async () => {
  const run = world()
  run.all((number) => run.ack(number), [3, 5])
  run.all((number) => run.push(number), [5])
  expect(await run.judge()).toMatchObject({ ...clean, acked: 28, delivered: 29, timedOut: 2 })
})

test('a message received twice is a duplicate and one delivery', async () => {
  const run = world()
  run.all((number) => run.ack(number))
  run.all((number) => run.push(number))
  run.push(8)
  expect(await run.judge()).toMatchObject({ ...clean, delivered: 30, duplicates: 1 })
})

test('a wrong body, and a right body under the id of another envelope, are misdelivered and not delivered', async () => {
  const run = world()
  run.all((number) => run.ack(number))
  run.all((number) => run.push(number), [1, 2])
  run.push(1, { faults: 1 })
  run.push(2, { envelopeId: idOf(3) })
  expect(await run.judge()).toMatchObject({ ...clean, delivered: 28, misdelivered: 2, lost: 2 })
})

test('a pair whose messages are swapped is out of order, but different pairs may overtake each other', async () => {
  const pairs = new Map<string, number[]>()
  for (let number = 0; number < plan.total; number++) {
    const pair = `${senderOf(plan, number)} ${recipientOf(plan, number)}`
    pairs.set(pair, [...(pairs.get(pair) ?? []), number])
  }
  const order = [...pairs.values()].reverse() // reverses the order of whole pairs, which is allowed
  const inOrder = world()
  inOrder.all((number) => inOrder.ack(number))
  for (const number of order.flat()) inOrder.push(number)
  expect(await inOrder.judge()).toMatchObject({ ...clean, delivered: 30 })

  const [first, second, ...rest] = order[0]!
  const swapped = world()
  swapped.all((number) => swapped.ack(number))
  for (const number of [second!, first!, ...rest, ...order.slice(1).flat()]) swapped.push(number)
  expect(await swapped.judge()).toMatchObject({ ...clean, delivered: 30, outOfOrder: 1 })
})

test('a push long after its ack is a delivery too', async () => {
  const run = world()
  run.all((number) => run.ack(number))
  run.all((number) => run.push(number, { afterMs: 500 }))
  const verdict = await run.judge()
  expect(verdict).toMatchObject({ ...clean, delivered: 30, arrivingMs: 29 })
  expect(verdict.e2eMs.p50).toBeCloseTo(500, 0)
})

test('a backlog is timed in tenths, after nine tenths of the pairs had a message', async () => {
  const run = world()
  const pairOf = (number: number) => `${senderOf(run.plan, number)} ${recipientOf(run.plan, number)}`
  const pairsUpTo = (number: number) => new Set(Array.from({ length: number + 1 }, (_, i) => pairOf(i))).size
  const warmUp = 3 // each tenth has two of the remaining messages
  const pairs = pairsUpTo(warmUp - 1)
  expect(pairsUpTo(warmUp - 2)).toBe(pairs - 1)
  run.all((number) => run.ack(number))
  run.all((number) => run.push(number, { afterMs: number < 19 ? 50 : 62 }))
  const { drain } = await run.judge(nothingWaits, null, pairs)
  expect(drain).toEqual({
    warmUp: { messages: warmUp, ms: warmUp - 1 },
    tenthMessages: 2,
    tenthsMs: [2, 2, 2, 2, 2, 2, 2, 2, 14, 2],
  })
})

test('a refused message counts as sent, and as neither acked nor lost', async () => {
  const run = world()
  run.all((number) => run.ack(number), [7])
  run.refuse(7)
  run.all((number) => run.push(number), [7])
  expect(await run.judge()).toMatchObject({ ...clean, sent: 30, acked: 29, delivered: 29, timedOut: 1 })
})

test('in the open loop a late call counts from its due time', async () => {
  const run = world({ ...plan, rate: 1000 })
  run.all((number) => {
    run.ack(number, { calledAtMs: START_MS + number + 50, afterMs: 60 })
    run.push(number, { afterMs: 70 })
  })
  const verdict = await run.judge()
  expect(verdict.callLateMs?.p50).toBeCloseTo(50, 0)
  expect(verdict.ackMs.p50).toBeCloseTo(60, 0)
  expect(verdict.e2eMs.p50).toBeCloseTo(70, 0)
})

test('each span of time has its own latencies', async () => {
  const run = world({ ...plan, rate: 1000 })
  run.all((number) => run.ack(number, { afterMs: 100 }))
  run.all((number) => run.push(number, { afterMs: number < 20 ? 30 : 90 }))
  const { spans } = await run.judge(nothingWaits, 10)
  expect(spans.map(({ delivered }) => delivered)).toEqual([10, 10, 10])
  expect(spans.map(({ e2eMs }) => Math.round(e2eMs.p50))).toEqual([30, 30, 90])
})

test('rows beyond one buffer of the writer or reader are judged too', async () => {
  const run = world({ ...plan, total: 250_000 })
  run.all((number) => run.ack(number))
  run.all((number) => run.push(number), [200_000])
  expect(await run.judge()).toMatchObject({ ...clean, acked: 250_000, delivered: 249_999, lost: 1 })
})
