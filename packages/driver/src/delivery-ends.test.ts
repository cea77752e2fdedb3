import type { Extension, Reject, Retry, Settle } from '@sealpost/protocol'
import { type DeliveryId, type MeshId, OperatingError, type PeerKey, type PeerNo } from '@sealpost/std'
import { beforeEach, expect, test } from 'vitest'
import { BackgroundTimers, Failures } from './background.ts'
import { DeliveryEnds } from './delivery-ends.ts'
import { ManualClock } from './test/manual-clock.ts'

const MESH = 'a0'.repeat(16) as MeshId
const ann = { meshId: MESH, peer: 1 as PeerNo, epoch: 2 }
const bob = { ...ann, peer: 2 as PeerNo }
const deliveryOf = (no: number, of = ann) => ({
  ...{ meshId: MESH, recipient: of.peer, priority: 1, id: no as DeliveryId },
})
const rejectOf = (no: number): Reject => ({ delivery: deliveryOf(no), epoch: 2, reason: 'no' })
const toldOf = (no: number): Settle => ({ ...deliveryOf(no), receiptTo: 'bb'.repeat(32) as PeerKey })
const retryOf = (no: number, afterMs: number): Retry => ({ delivery: deliveryOf(no), epoch: 2, afterMs })
const extensionOf = (no: number, of = ann): Extension => ({ delivery: deliveryOf(no, of), epoch: 2, forMs: 1 })
const upTo = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i)

let clock: ManualClock
let timers: BackgroundTimers
let statements: { readonly ids: number[]; readonly answer: PromiseWithResolvers<void> }[]
let notified: number[]
let failures: unknown[]
let released: number[]
let woken: number
let settled: PromiseWithResolvers<void>
let settling: PeerNo | null
let ends: DeliveryEnds
beforeEach(() => {
  clock = new ManualClock()
  timers = new BackgroundTimers(clock)
  statements = []
  notified = []
  failures = []
  released = []
  woken = 0
  settled = Promise.withResolvers()
  settling = null
  const statement = (items: readonly { readonly delivery: { readonly id: DeliveryId } }[]) => {
    const answer = Promise.withResolvers<void>()
    statements.push({ ids: items.map(({ delivery }) => Number(delivery.id)), answer })
    return answer.promise
  }
  const report = (_: string, error: unknown) => failures.push(error)
  ends = new DeliveryEnds({
    ...{ clock, timers, failures: new Failures(clock, { failed: report, fault: (error) => failures.push(error) }) },
    queue: { retry: statement, reject: statement, extend: statement, release: statement },
    commits: { settled: () => settled.promise, hasSettlesOf: ({ peer }) => peer === settling },
    receiptsCommitted: (all) => notified.push(...all.map(({ id }) => Number(id))),
    released: (all) => released.push(...all.map(({ delivery }) => Number(delivery.id))),
    retryDue: () => {
      woken += 1
    },
  })
})

/** Completes the statement in flight, so that the next one begins. */
async function answer(): Promise<void> {
  statements.at(-1)!.answer.resolve()
  await clock.turn()
}

async function fail(): Promise<void> {
  statements.at(-1)!.answer.reject(new OperatingError('away', 'The database is away.'))
  await clock.turn()
}

test('rejects run one statement at a time, with few envelopes each', async () => {
  ends.reject([rejectOf(1)], [])
  await clock.turn()
  for (const no of upTo(2, 40)) ends.reject([rejectOf(no)], [])
  for (let i = 0; i < 4; i++) await answer()
  expect(statements.map(({ ids }) => ids)).toEqual([[1], upTo(2, 17), upTo(18, 33), upTo(34, 40)])
})

test('senders are notified when all rejects of their frame are committed', async () => {
  ends.reject(upTo(1, 20).map(rejectOf), [toldOf(3)])
  await clock.turn()
  await answer()
  expect(notified).toEqual([])
  await answer()
  expect(notified).toEqual([3])
})

test('a failed statement notifies no sender, stops no other statement, and is reported', async () => {
  ends.reject(upTo(1, 16).map(rejectOf), [toldOf(16)])
  ends.reject(upTo(17, 20).map(rejectOf), [toldOf(20)])
  const committed = ends.committed(ann, 5_000)
  settled.resolve()
  await clock.turn()
  await fail()
  await answer()
  expect(await committed).toBe(false)
  expect(failures).toHaveLength(1)
  expect(statements.map(({ ids }) => ids.length)).toEqual([16, 4])
  expect(notified).toEqual([20])
})

test('a recipient is woken when its retry is due, unless the statement failed or the pause is long', async () => {
  ends.retry([retryOf(1, 300), retryOf(2, 61_000)])
  await clock.turn()
  await answer()
  ends.retry([retryOf(3, 100)])
  await clock.turn()
  await fail()
  await clock.advance(299)
  expect(woken).toBe(0)
  await clock.advance(100_000)
  expect(woken).toBe(1)
})

test('a session opens when the statements of the previous session are done, or after two seconds', async () => {
  const opened: string[] = []
  const open = (name: string) => ends.before(ann, async () => void opened.push(name))
  await open('idle')
  ends.extend([extensionOf(1)])
  settled.resolve()
  await clock.turn()
  void open('behind an extension')
  await clock.turn()
  expect(opened).toEqual(['idle'])
  await fail()
  expect(opened).toEqual(['idle', 'behind an extension'])
  settled = Promise.withResolvers()
  settling = ann.peer
  void open('behind a settle')
  await clock.advance(1_999)
  expect(opened).toHaveLength(2)
  await clock.advance(1)
  expect(opened).toHaveLength(3)
})

/** Resolves when this peer's ping is answered. */
function pongOf(peer: { readonly meshId: MeshId; readonly peer: PeerNo }): 'now' | 'later' {
  let when: 'now' | 'later' = 'later'
  const now = () => {
    when = 'now'
  }
  ends.whenCommitted(peer, now, () => undefined)
  return when
}

test('a session opens when what the previous session released is back in the queue', async () => {
  const opened: string[] = []
  ends.release([{ delivery: deliveryOf(1), epoch: 2, isUntouched: true }])
  settled.resolve()
  await clock.turn()
  const opening = ends.before(ann, async () => void opened.push('next'))
  await clock.turn()
  expect([released, opened]).toEqual([[], []])
  await answer()
  await opening
  expect([released, opened]).toEqual([[1], ['next']])
})

test("another peer's statement that hangs delays neither settle, pong nor session", async () => {
  ends.extend([extensionOf(1, bob)])
  await clock.turn()
  settling = ann.peer
  const committed = ends.committed(ann, 60_000)
  settling = null
  settled.resolve()
  expect(await committed).toBe(true)
  expect([ann, bob].map(pongOf)).toEqual(['now', 'later'])
  expect(await ends.before(ann, async () => 'opened')).toBe('opened')
})

test("another peer's failed statement fails no settle and delays nobody", async () => {
  ends.retry([{ ...retryOf(1, 0), delivery: deliveryOf(1, bob) }])
  await clock.turn()
  settling = ann.peer
  const both = Promise.all([ann, bob].map((peer) => ends.committed(peer, 60_000)))
  settled.resolve()
  await fail()
  expect(await both).toEqual([true, false])
  expect(await ends.committed(bob, 60_000)).toBe(true)
})

test('every peer of a statement waits for it, and no peer of another mesh does', async () => {
  ends.extend([extensionOf(1, ann), extensionOf(2, bob)])
  expect([ann, bob, { ...ann, meshId: 'b0'.repeat(16) as MeshId }].map(pongOf)).toEqual(['later', 'later', 'now'])
})

test('the statement of a pool delivery counts for the member that holds it', async () => {
  ends.extend([{ ...extensionOf(1, bob), delivery: { ...deliveryOf(1, bob), holder: ann.peer } }])
  expect([ann, bob].map(pongOf)).toEqual(['later', 'now'])
})

test('the wait for an uncommitted end is limited', async () => {
  ends.extend([extensionOf(1)])
  const committed = ends.committed(ann, 60_000)
  await clock.advance(60_000)
  expect(await committed).toBe(false)
})
