import type { Append, Committed, DeliveryRef } from '@sealpost/protocol'
import type { Batch } from '@sealpost/queue'
import { type DeliveryId, type MeshId, OperatingError, type PeerNo } from '@sealpost/std'
import { beforeEach, expect, test } from 'vitest'
import { Failures } from './background.ts'
import { CommitLoop, CommitPace, pauseAfterCommit } from './commit-loop.ts'
import { ManualClock } from './test/manual-clock.ts'

const LIMITS = { appendsMax: 100, appendBytesMax: 1_000_000, settlesMax: 9, settlesDueAt: 3 }
const MESH = '1a'.repeat(16) as MeshId

let clock: ManualClock
let commits: { readonly batch: Batch; readonly atMs: number; readonly answer: PromiseWithResolvers<Committed> }[]
let reports: string[]
let loop: CommitLoop

beforeEach(() => {
  clock = new ManualClock()
  commits = []
  reports = []
  const report = {
    failed: (event: string) => reports.push(event),
    fault: (error: unknown) => reports.push(`fault: ${error}`),
    committed: (_: Batch, tookMs: number) => reports.push(`committed in ${tookMs} ms`),
    commitFailed: () => undefined,
  }
  const commit = (batch: Batch) => {
    const answer = Promise.withResolvers<Committed>()
    commits.push({ batch, atMs: clock.nowMs(), answer })
    return answer.promise
  }
  loop = new CommitLoop(
    {
      ...{ clock, report, queue: { commit }, failures: new Failures(clock, report) },
      engine: { commitStarts: () => undefined },
      committed: ({ appends }) => reports.push(`stored ${appends.map(numberOf).join()}`),
      failed: (appends) => reports.push(`unknown ${appends.map(numberOf).join()}`),
    },
    LIMITS,
  )
})

const append = (n: number, remoteLeaseEpoch = 0) =>
  ({ envelope: new Uint8Array(n), remoteLeaseEpoch: remoteLeaseEpoch, body: null }) as Partial<Append> as Append
const numberOf = ({ envelope }: Append) => envelope.length
const settle = (n: number): DeliveryRef => ({
  ...{ meshId: MESH, recipient: 2 as PeerNo, priority: 1, id: n as DeliveryId },
})

async function add(...appends: Append[]): Promise<void> {
  for (const each of appends) loop.append(each)
  loop.flushSoon()
  await clock.turn()
}

async function succeed(): Promise<void> {
  commits.at(-1)!.answer.resolve({ outcomes: [], enqueuedAtMs: 0 })
  await clock.turn()
}

async function fail(): Promise<void> {
  commits.at(-1)!.answer.reject(new OperatingError('away', 'The database is away.'))
  await clock.turn()
}

test('appends of one turn share a commit, and those that arrive meanwhile share the next one', async () => {
  await add(append(1), append(2))
  await add(append(3))
  await add(append(4))
  expect(commits.map(({ batch }) => batch.appends.map(numberOf))).toEqual([[1, 2]])
  await clock.advance(7)
  await succeed()
  expect(commits.map(({ batch }) => batch.appends.map(numberOf))).toEqual([
    [1, 2],
    [3, 4],
  ])
  expect(reports).toEqual(['committed in 7 ms', 'stored 1,2'])
})

test('a few settles are committed within 20 ms, and many at once', async () => {
  loop.settle(settle(1))
  await clock.advance(19)
  expect(commits).toEqual([])
  await clock.advance(1)
  await succeed()
  for (const n of [2, 3, 4]) loop.settle(settle(n))
  loop.flushSoon()
  await clock.turn()
  expect(commits.map(({ batch, atMs }) => [batch.settles.length, atMs])).toEqual([
    [1, 20],
    [3, 20],
  ])
})

test('settles with a waiter are committed at once', async () => {
  loop.settle(settle(1))
  let isSettled = false
  void loop.settled().then(() => {
    isSettled = true
  })
  await clock.turn()
  expect(commits).toHaveLength(1)
  expect(isSettled).toBe(false)
  await succeed()
  expect(isSettled).toBe(true)
})

test('while commits fail the loop pauses, up to a second, and settles are repeated', async () => {
  loop.settle(settle(1))
  await add(append(1))
  await clock.advance(20)
  expect(commits).toHaveLength(1)
  for (let i = 0; i < 7; i++) {
    await fail()
    await add(append(2))
    await clock.advance(2_000)
  }
  const startsMs = commits.map(({ atMs }) => atMs)
  const failedAtMs = [20, 2_020, 4_020, 6_020, 8_020, 10_020, 12_020]
  expect(startsMs.slice(1).map((atMs, i) => atMs - failedAtMs[i]!)).toEqual([51, 101, 201, 401, 801, 1_001, 1_001])
  expect(commits.at(-1)!.batch.settles).toHaveLength(1)
  expect(reports.slice(0, 2)).toEqual(['commit.failed', 'unknown 1'])
})

test('appends that arrive during a back-off are committed at its end, or when the database is back', async () => {
  await add(append(1))
  await fail()
  await add(append(2))
  await clock.advance(50)
  expect(commits).toHaveLength(1)
  loop.resume()
  await clock.turn()
  expect(commits.map(({ atMs }) => atMs)).toEqual([0, 50])
})

test('a commit of many with mail for another shard is followed after a pause', async () => {
  await add(...Array.from({ length: 64 }, () => append(1, 5)))
  await clock.advance(8)
  await add(append(2))
  await succeed()
  await clock.advance(8)
  expect(commits).toHaveLength(1)
  await clock.advance(1)
  expect(commits.map(({ atMs }) => atMs)).toEqual([0, 17])
})

const batchFor = (count: number, remoteLeaseEpoch: number) => ({
  appends: Array.from({ length: count }, (_, i) => ({ remoteLeaseEpoch: i === 0 ? remoteLeaseEpoch : 0 }) as Append),
})

test('a commit of many with mail for another shard is followed after a pause as long as the commit, at most 15 ms', () => {
  expect([pauseAfterCommit(batchFor(64, 2), 8), pauseAfterCommit(batchFor(999, 2), 40)]).toEqual([8, 15])
})

test('every other one is followed at once', () => {
  expect([
    pauseAfterCommit(batchFor(63, 2), 8),
    pauseAfterCommit(batchFor(1_000, 2), 8),
    pauseAfterCommit(batchFor(500, 0), 8),
  ]).toEqual([0, 0, 0])
})

/** Appends an item every `everyMs` for one second, with immediate commits. Returns the gaps between commits. */
async function gapsAt(everyMs: number): Promise<number[]> {
  for (let atMs = 0; atMs < 1_000; atMs += everyMs) {
    await add(append(1))
    if (commits.length > 0) await succeed()
    await clock.advance(everyMs)
  }
  const starts = commits.map(({ atMs }) => atMs).slice(-50)
  return starts.slice(1).map((atMs, i) => atMs - starts[i]!)
}

test('at 1,000 messages per second each message has its own commit', async () => {
  expect(Math.max(...(await gapsAt(1)))).toBeLessThan(1.01)
})

test('at 4,000 messages per second commits start 2 ms apart, and no message waits longer', async () => {
  const gaps = await gapsAt(0.25)
  expect(Math.min(...gaps)).toBeGreaterThan(1.9)
  expect(Math.max(...gaps)).toBeLessThan(2.3)
})

test('the first message after a pause starts a commit at once, whatever the rate was', () => {
  const pace = new CommitPace()
  for (let atMs = 0; atMs < 1_000; atMs += 1) pace.started(20, atMs)
  expect(pace.waitMs(1_000)).toBeGreaterThan(0)
  expect(pace.waitMs(1_010)).toBeLessThanOrEqual(0)
})
