import type { DeliveryId, PeerNo } from '@sealpost/std'
import { expect, test } from 'vitest'
import { Credit } from './credit.ts'

const id = (n: number) => n as DeliveryId
const WINDOW = { count: 4, byteCount: 1000 }
const LEASE_MS = 30_000
const ANN = 1 as PeerNo
const BOB = 2 as PeerNo
const born = { hadBirth: true, isWaiting: false, byteCount: 10 }
const stored = { hadBirth: false, isWaiting: true, byteCount: 10 }

/** A session whose first claim found nothing. */
function caughtUp(window = WINDOW): Credit {
  const credit = new Credit(window, true)
  expect(credit.startClaim()).toEqual(window)
  credit.claimAnswered({ mayHaveMore: false })
  return credit
}

const push = (credit: Credit, n: number, more: { byteCount?: number; pushedAtMs?: number } = {}) =>
  credit.pushed(id(n), { priority: 1, pushedAtMs: 0, byteCount: 10, ...more })

test('nothing is born leased before a claim found the queue empty', () => {
  expect(new Credit(WINDOW, true).admitAppend(ANN, 10)).toBe(false)
  expect(caughtUp().admitAppend(ANN, 10)).toBe(true)
})

test('with birth leases off, nothing is born leased', () => {
  const credit = new Credit(WINDOW, false)
  credit.startClaim()
  credit.claimAnswered({ mayHaveMore: false })
  expect(credit.admitAppend(ANN, 10)).toBe(false)
})

test('after an envelope without a birth lease none of its sender is born until a claim has taken it', () => {
  const credit = caughtUp({ count: 1, byteCount: 1000 })
  expect(credit.admitAppend(ANN, 10)).toBe(true)
  expect(credit.admitAppend(ANN, 10)).toBe(false) // no credit left
  credit.appendAnswered(ANN, born)
  expect(credit.admitAppend(ANN, 10)).toBe(false) // the second one is still on its way
  credit.appendAnswered(ANN, stored)
  credit.appendAnswered(ANN, stored)
  expect(credit.admitAppend(ANN, 10)).toBe(false) // both wait in the queue
  credit.appendAnswered(ANN, stored)
  expect(credit.startClaim()).not.toBeNull()
  credit.resize(100)
  expect(credit.admitAppend(ANN, 10)).toBe(false) // a claim may hold them
  credit.appendAnswered(ANN, { ...stored, isWaiting: false })
  credit.claimAnswered({ mayHaveMore: false })
  expect(credit.admitAppend(ANN, 10)).toBe(true)
})

test('mail of one sender that waits keeps no other sender from birth leases', () => {
  const credit = caughtUp({ count: 1, byteCount: 1000 })
  credit.admitAppend(ANN, 10)
  expect(credit.admitAppend(ANN, 10)).toBe(false)
  credit.appendAnswered(ANN, stored)
  credit.resize(100)
  expect(credit.admitAppend(BOB, 10)).toBe(true)
  expect(credit.hasBirths(BOB)).toBe(true)
  expect(credit.startClaim()).not.toBeNull()
  expect(credit.admitAppend(BOB, 10)).toBe(true)
})

test('a claim for anything that may wait keeps every sender from birth leases', () => {
  const credit = caughtUp({ count: 100, byteCount: 1000 })
  credit.noticeBacklog()
  expect(credit.admitAppend(ANN, 10)).toBe(false)
  expect(credit.startClaim()).not.toBeNull()
  expect(credit.admitAppend(BOB, 10)).toBe(false)
  credit.claimAnswered({ mayHaveMore: true })
  expect(credit.admitAppend(BOB, 10)).toBe(false)
})

test('one claim is in flight at most', () => {
  const credit = caughtUp()
  credit.noticeBacklog()
  expect(credit.startClaim()).toEqual(WINDOW)
  credit.noticeBacklog()
  expect(credit.startClaim()).toBeNull()
})

test('what arrives while a claim is in flight asks for another one', () => {
  const credit = new Credit(WINDOW, true)
  credit.startClaim()
  credit.noticeBacklog()
  credit.claimAnswered({ mayHaveMore: false })
  expect(credit.startClaim()).toEqual(WINDOW)
})

test('unsettled deliveries fill the window, in number and in bytes', () => {
  const byCount = caughtUp()
  for (let n = 1; n <= 4; n++) push(byCount, n)
  expect(byCount.admitAppend(ANN, 10)).toBe(false)
  const byBytes = caughtUp()
  push(byBytes, 1, { byteCount: 1000 })
  expect(byBytes.admitAppend(ANN, 10)).toBe(false)
  byBytes.noticeBacklog()
  expect(byBytes.startClaim()).toBeNull()
  expect(byBytes.settled(id(1))).toMatchObject({ byteCount: 1000 })
  expect(byBytes.settled(id(1))).toBeUndefined()
})

test('pushed again it counts once', () => {
  const credit = caughtUp()
  for (let time = 0; time < 10; time++) push(credit, 1)
  credit.noticeBacklog()
  expect(credit.startClaim()).toEqual({ count: 3, byteCount: 990 })
})

test('a full window of lapsed leases does not stop a session for ever, and can still be settled', () => {
  const credit = caughtUp()
  for (let n = 1; n <= 4; n++) push(credit, n)
  credit.lapse(0, -LEASE_MS)
  credit.noticeBacklog()
  expect(credit.startClaim()).toBeNull()
  credit.lapse(1, -LEASE_MS)
  expect(credit.startClaim()).toEqual(WINDOW)
  expect(credit.settled(id(1))).toMatchObject({ priority: 1 })
  push(credit, 2)
  credit.claimAnswered({ mayHaveMore: true })
  expect(credit.startClaim()).toEqual({ count: 3, byteCount: 990 })
})

test('a lapsed delivery that never came back is forgotten', () => {
  const credit = caughtUp()
  push(credit, 1)
  credit.lapse(1, 1)
  expect(credit.settled(id(1))).toBeUndefined()
})

test('while a fence is under way nothing is claimed or born', () => {
  const credit = caughtUp()
  expect(credit.startFence()).toBe(true)
  expect(credit.startFence()).toBe(false)
  expect(credit.admitAppend(ANN, 10)).toBe(false)
  expect(credit.startClaim()).toBeNull()
  credit.fenceAnswered()
  credit.appendAnswered(ANN, { ...stored, isWaiting: false })
  expect(credit.startClaim()).toEqual(WINDOW)
})

test('a congested socket gets nothing', () => {
  const credit = caughtUp()
  credit.isCongested = true
  credit.noticeBacklog()
  expect(credit.startClaim()).toBeNull()
  expect(credit.admitAppend(ANN, 10)).toBe(false)
})

test('credit of nothing claims nothing; a smaller window counts from then on', () => {
  const credit = new Credit({ count: 0, byteCount: 1000 }, true)
  expect(credit.startClaim()).toBeNull()
  credit.resize(2)
  expect(credit.startClaim()).toEqual({ count: 2, byteCount: 1000 })
})
