import { ANY_ID } from '@sealpost/protocol'
import { type DeliveryId, ID_BLOCK, type PeerNo } from '@sealpost/std'
import { expect, test } from 'vitest'
import { Credit } from './credit.ts'

const id = (n: number) => n as DeliveryId
const WINDOW = { count: 4, byteCount: 1000 }
const LEASE_MS = 30_000
const ANN = 1 as PeerNo
const BOB = 2 as PeerNo
const LIMITS = { leaseMs: LEASE_MS, isInsertLeaseOn: true }
const stored = { sender: ANN, insertLeaseEpoch: 0, byteCount: 10, priority: 1 }
const leased = { ...stored, insertLeaseEpoch: 7 }
const AT = { nextTick: () => 1, lastId: 0, nowMs: 0 }
const ANY = { ids: ANY_ID, priorityMax: 2, virtualTimes: [0, 0, 0], collected: [] }

/** Returns the credit of a session whose first claim found nothing. */
function caughtUp(window = WINDOW): Credit {
  const credit = new Credit(window, LIMITS)
  expect(credit.startClaim(AT)).toEqual({ ...window, ...ANY })
  credit.claimAnswered({ mayHaveMore: false })
  return credit
}

const push = (credit: Credit, n: number, more: { byteCount?: number; pushedAtMs?: number } = {}) =>
  credit.pushed(id(n), {
    priority: 1,
    pushedAtMs: 0,
    byteCount: 10,
    receiptTo: null,
    isParked: false,
    isLapsed: false,
    ...more,
  })

test('nothing is leased on insert before a claim found the queue empty', () => {
  expect(new Credit(WINDOW, LIMITS).admitAppend(ANN, 10)).toBe(false)
  expect(caughtUp().admitAppend(ANN, 10)).toBe(true)
})

test('with leases on insert off, nothing is leased on insert', () => {
  const credit = new Credit(WINDOW, { ...LIMITS, isInsertLeaseOn: false })
  credit.startClaim(AT)
  credit.claimAnswered({ mayHaveMore: false })
  expect(credit.admitAppend(ANN, 10)).toBe(false)
})

test('after an envelope without a lease on insert, its sender gets none until a claim has taken it', () => {
  const credit = caughtUp({ count: 1, byteCount: 1000 })
  expect(credit.admitAppend(ANN, 10)).toBe(true)
  expect(credit.admitAppend(ANN, 10)).toBe(false) // no credit left
  credit.appendLanded(leased, null)
  expect(credit.admitAppend(ANN, 10)).toBe(false) // the second append has no outcome yet
  credit.appendLanded(stored, 0)
  credit.appendLanded(stored, 0)
  expect(credit.admitAppend(ANN, 10)).toBe(false) // both deliveries wait in the queue
  credit.appendLanded(stored, 0)
  expect(credit.startClaim(AT)).not.toBeNull()
  credit.resize(100)
  expect(credit.admitAppend(ANN, 10)).toBe(false) // the claim may return them
  credit.appendLanded(stored, null)
  credit.claimAnswered({ mayHaveMore: false })
  expect(credit.admitAppend(ANN, 10)).toBe(true)
})

test('waiting mail of one sender keeps no other sender from leases on insert', () => {
  const credit = caughtUp({ count: 1, byteCount: 1000 })
  credit.admitAppend(ANN, 10)
  expect(credit.admitAppend(ANN, 10)).toBe(false)
  credit.appendLanded(stored, 9)
  credit.resize(100)
  expect(credit.admitAppend(BOB, 10)).toBe(true)
  expect(credit.hasInsertLeases(BOB)).toBe(true)
  expect(credit.startClaim(AT)).not.toBeNull()
  expect(credit.admitAppend(BOB, 10)).toBe(true)
})

test('a claim for any delivery keeps every sender from leases on insert', () => {
  const credit = caughtUp({ count: 100, byteCount: 1000 })
  credit.noticeBacklog()
  expect(credit.admitAppend(ANN, 10)).toBe(false)
  expect(credit.startClaim(AT)).not.toBeNull()
  expect(credit.admitAppend(BOB, 10)).toBe(false)
  credit.claimAnswered({ mayHaveMore: true })
  expect(credit.admitAppend(BOB, 10)).toBe(false)
})

test('at most one claim is in flight', () => {
  const credit = caughtUp()
  credit.noticeBacklog()
  expect(credit.startClaim(AT)).toEqual({ ...WINDOW, ...ANY })
  credit.noticeBacklog()
  expect(credit.startClaim(AT)).toBeNull()
})

test('a delivery that arrives while a claim is in flight causes another claim', () => {
  const credit = new Credit(WINDOW, LIMITS)
  credit.startClaim(AT)
  credit.noticeBacklog()
  credit.claimAnswered({ mayHaveMore: false })
  expect(credit.startClaim(AT)).toEqual({ ...WINDOW, ...ANY })
})

test('unsettled deliveries fill the window, in number and in bytes', () => {
  const byCount = caughtUp()
  for (let n = 1; n <= 4; n++) push(byCount, n)
  expect(byCount.admitAppend(ANN, 10)).toBe(false)
  const byBytes = caughtUp()
  push(byBytes, 1, { byteCount: 1000 })
  expect(byBytes.admitAppend(ANN, 10)).toBe(false)
  byBytes.noticeBacklog()
  expect(byBytes.startClaim(AT)).toBeNull()
  expect(byBytes.settled(id(1))).toMatchObject({ byteCount: 1000 })
  expect(byBytes.settled(id(1))).toBeUndefined()
})

test('a delivery that is pushed again counts once', () => {
  const credit = caughtUp()
  for (let time = 0; time < 10; time++) push(credit, 1)
  credit.noticeBacklog()
  expect(credit.startClaim(AT)).toEqual({ count: 3, byteCount: 990, ...ANY })
})

test('a full window of lapsed leases does not block a session, and can still be settled', () => {
  const credit = caughtUp()
  for (let n = 1; n <= 4; n++) push(credit, n)
  credit.lapse(0, -LEASE_MS)
  credit.noticeBacklog()
  expect(credit.startClaim(AT)).toBeNull()
  credit.lapse(1, -LEASE_MS)
  expect(credit.startClaim(AT)).toEqual({ ...WINDOW, ...ANY })
  expect(credit.settled(id(1))).toMatchObject({ priority: 1 })
  push(credit, 2)
  credit.claimAnswered({ mayHaveMore: true })
  expect(credit.startClaim(AT)).toEqual({ count: 3, byteCount: 990, ...ANY })
})

test('a lapsed delivery that is never claimed again is forgotten', () => {
  const credit = caughtUp()
  push(credit, 1)
  credit.lapse(1, 1)
  expect(credit.settled(id(1))).toBeUndefined()
})

test('during a fence nothing is claimed or leased on insert', () => {
  const credit = caughtUp()
  expect(credit.startFence()).toBe(true)
  expect(credit.startFence()).toBe(false)
  expect(credit.admitAppend(ANN, 10)).toBe(false)
  expect(credit.startClaim(AT)).toBeNull()
  credit.fenceAnswered()
  credit.appendLanded(stored, null)
  expect(credit.startClaim(AT)).toEqual({ ...WINDOW, ...ANY })
})

test('a congested socket gets nothing', () => {
  const credit = caughtUp()
  credit.isCongested = true
  credit.noticeBacklog()
  expect(credit.startClaim(AT)).toBeNull()
  expect(credit.admitAppend(ANN, 10)).toBe(false)
})

test('a credit of 0 claims nothing; a smaller window applies at once', () => {
  const credit = new Credit({ count: 0, byteCount: 1000 }, LIMITS)
  expect(credit.startClaim(AT)).toBeNull()
  credit.resize(2)
  expect(credit.startClaim(AT)).toEqual({ count: 2, byteCount: 1000, ...ANY })
})

const known = (knownSinceTick: number) => ({ knownSinceTick })

test('later checks may skip ids that a scan of the whole queue covered', () => {
  const credit = new Credit(WINDOW, LIMITS)
  credit.startClaim({ nextTick: () => 5, lastId: 70, nowMs: 0 })
  expect(credit.scannedUpTo(known(4), 0)).toBe(0) // unknown until the claim has returned
  credit.claimAnswered({ mayHaveMore: false })
  expect(credit.scannedUpTo(known(4), 0)).toBe(70)
  expect(credit.scannedUpTo(known(6), 0)).toBe(0) // mail sent through another shard may have arrived
})

test.each(['brought all it may', 'was cut short by a fence', 'went before something was given back'])(
  'a scan that %s proves nothing',
  (how) => {
    const credit = new Credit(WINDOW, LIMITS)
    credit.startClaim({ nextTick: () => 5, lastId: 70, nowMs: 0 })
    credit.claimAnswered({ mayHaveMore: how.startsWith('brought') })
    if (how.startsWith('was')) credit.startFence()
    if (how.startsWith('went')) credit.returned()
    expect(credit.scannedUpTo(known(4), 0)).toBe(0)
  },
)

test('a lease that may soon lapse ends the validity of a scan', () => {
  const credit = caughtUp({ count: 100, byteCount: 1000 })
  credit.noticeBacklog()
  credit.startClaim({ nextTick: () => 5, lastId: 70, nowMs: 0 })
  push(credit, 60)
  credit.claimAnswered({ mayHaveMore: false })
  expect(credit.scannedUpTo(known(4), LEASE_MS / 2 - 1)).toBe(70)
  expect(credit.scannedUpTo(known(4), LEASE_MS / 2)).toBe(0)
})

/** Returns a credit that knows that ANN's mail waits under these ids. */
function waitingFor(...ids: number[]): Credit {
  const credit = caughtUp({ count: 1, byteCount: 1000 })
  credit.admitAppend(ANN, 10)
  for (const _ of ids) credit.admitAppend(ANN, 10)
  credit.appendLanded(leased, null)
  for (const waitsFrom of ids) credit.appendLanded(stored, waitsFrom)
  credit.resize(100)
  return credit
}

test('a claim for known deliveries names their ids, and leaves other senders their leases on insert', () => {
  const credit = waitingFor(9, 12)
  expect(credit.startClaim(AT)).toMatchObject({ ids: { from: 9, to: 12 } })
  expect([ANN, BOB].map((sender) => credit.mayBring(sender))).toEqual([true, false])
  expect(credit.admitAppend(BOB, 10)).toBe(true)
})

test.each([
  ['an unknown id', [9, 0]],
  ['ids of two blocks', [9, ID_BLOCK + 9]],
])('a claim for %s scans the whole queue, and may return mail of any sender', (_, ids) => {
  const credit = waitingFor(...ids)
  expect(credit.startClaim(AT)).toMatchObject(ANY)
  expect(credit.mayBring(BOB)).toBe(true)
})
