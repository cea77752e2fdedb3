/** Tests that mail from one sender is pushed in the order of ids, in any order of commits and claims. */
import {
  ALONE_AFTER_ATTEMPTS,
  ANY_ID,
  type Claimed,
  type Delivery,
  encodeReceipt,
  RECEIPT_IDS_FROM,
} from '@sealpost/protocol'
import type { DeliveryId, PeerNo } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { idOf, keyOf, MESH, memberOf, sendOf, world } from '../test/testing-world.ts'

const deliveryOf = (n: number): Delivery => ({
  id: n as DeliveryId,
  envelopeId: idOf(n),
  sender: keyOf(1),
  priority: 1,
  attempt: 1,
  enqueuedAtMs: 0,
  envelope: new Uint8Array(50),
  terms: null,
  body: null,
})
const claimedOf = (...numbers: number[]): Extract<Claimed, { status: 'claimed' }> => ({
  status: 'claimed',
  deliveries: numbers.map(deliveryOf),
  hasMore: false,
})
const storedAs = (n: number, isLeased: boolean) => ({
  outcomes: [{ status: 'stored', id: n as DeliveryId, isLeased, isExpected: true } as const],
  enqueuedAtMs: 0,
})

/** Connects peer 2; its first claim finds nothing. */
function enterCaughtUp({ engine, wants, enter }: ReturnType<typeof world>): void {
  wants.length = 0
  enter(2)
  const [first] = wants.splice(0)
  engine.claimed([{ want: first!, claimed: claimedOf() }])
}

test('a delivery leased on insert waits for a claim that may return older mail of its sender, stored before the recipient connected', () => {
  const at = world()
  const { engine, appends, wants, send, pushed } = at
  send(sendOf(1, 2))
  engine.resolved(1, [keyOf(2)], [memberOf(2)])
  const [older] = appends.splice(0)
  enterCaughtUp(at)
  send(sendOf(2, 2))
  const [newer] = appends.splice(0)
  expect(newer!.insertLeaseEpoch).toBe(2)
  engine.committed([older!], storedAs(1, false))
  const [want] = wants.splice(0)
  engine.committed([newer!], storedAs(2, true))
  expect(pushed()).toEqual([])
  engine.claimed([{ want: want!, claimed: claimedOf(1) }])
  expect(pushed()).toEqual([1, 2])
})

test('a delivery leased on insert waits for a claim that a hint started', () => {
  const at = world()
  const { engine, appends, wants, send, pushed } = at
  enterCaughtUp(at)
  send(sendOf(2, 2))
  engine.hints.wake(MESH, 2 as PeerNo)
  const [want] = wants.splice(0)
  engine.committed(appends.splice(0), storedAs(2, true))
  engine.claimed([{ want: want!, claimed: claimedOf(1) }])
  expect(pushed()).toEqual([1, 2])
})

test('a claimed delivery waits for earlier deliveries of its sender that were leased on insert', () => {
  const at = world()
  const { engine, appends, wants, send, pushed } = at
  enterCaughtUp(at)
  send(sendOf(1, 2))
  engine.hints.wake(MESH, 2 as PeerNo)
  const [want] = wants.splice(0)
  engine.claimed([{ want: want!, claimed: claimedOf(2) }])
  expect(pushed()).toEqual([])
  engine.committed(appends.splice(0), storedAs(1, true))
  expect(pushed()).toEqual([1, 2])
})

test('after a claim that returned fewer deliveries than it picked, nothing is leased on insert until the next claim', () => {
  const { engine, appends, wants, send, enter, pushed } = world()
  wants.length = 0
  enter(2)
  const [first] = wants.splice(0)
  engine.claimed([{ want: first!, claimed: { ...claimedOf(1), hasMore: true } }])
  send(sendOf(9, 2))
  expect(appends.splice(0)).toMatchObject([{ insertLeaseEpoch: 0 }])
  const [next] = wants.splice(0)
  expect(next).toMatchObject({ ids: ANY_ID })
  engine.claimed([{ want: next!, claimed: claimedOf(2, 3) }])
  expect(pushed()).toEqual([1, 2, 3])
})

test('a delivery that is claimed again is pushed again only to a session that may have lost it', () => {
  const at = world()
  const { engine, appends, wants, send, pushed } = at
  enterCaughtUp(at)
  const claimAgainAt = (ms: number) => {
    engine.advance(ms)
    engine.hints.wake(MESH, 2 as PeerNo)
    engine.claimed(wants.splice(0).map((want) => ({ want, claimed: claimedOf(1, 2) })))
  }
  send(sendOf(1, 2))
  engine.committed(appends.splice(0), storedAs(1, true))
  claimAgainAt(1_000) // the database clock has jumped, so the lease is void
  expect(pushed()).toEqual([1, 2])
  claimAgainAt(40_000)
  expect(pushed()).toEqual([1, 2, 1, 2])
})

test.each([
  ['held the delivery for long, and answered a ping behind it', 5_000, 20_000, [2]],
  ['may have held it for long, but answered no ping behind it', null, 20_000, []],
  ['held it for a moment', 5_000, 7_000, []],
])(
  'exactly the expected failed attempts are counted for a recipient that %s and then leaves',
  (_, pongAtMs, leftAtMs, failed) => {
    const at = world({ heartbeatMs: 4_000 })
    const { engine, appends, send, pushed, failedAttempts } = at
    enterCaughtUp(at)
    send(sendOf(2, 2), sendOf(3, 2))
    const [first, second] = appends.splice(0)
    engine.committed([first!, second!], {
      outcomes: [2, 3].map(
        (id) => ({ status: 'stored', id: id as DeliveryId, isLeased: true, isExpected: true }) as const,
      ),
      enqueuedAtMs: 0,
    })
    expect(pushed()).toEqual([2, 3])
    engine.advance(4_500)
    engine.tick()
    engine.advance(pongAtMs ?? 5_000)
    if (pongAtMs !== null) engine.ponged(2)
    engine.advance(leftAtMs)
    engine.closed(2)
    expect(failedAttempts.map(({ id }) => id)).toEqual(failed)
  },
)

describe('a client that closes its connection normally', () => {
  /** Connects peer 2, which is pushed deliveries 1 to 3. */
  function pushedThree(limits: Parameters<typeof world>[0] = {}) {
    const at = world({ heartbeatMs: 4_000, ...limits })
    at.wants.length = 0
    at.enter(2)
    at.engine.claimed([{ want: at.wants.splice(0)[0]!, claimed: claimedOf(1, 2, 3) }])
    return at
  }
  const releasedBy = ({ releases }: ReturnType<typeof world>) =>
    releases.map(({ delivery: { id }, epoch, isUntouched }) => [id, epoch, isUntouched])

  test('returns what it has neither ended nor extended, and its attempts do not count', () => {
    const at = pushedThree()
    at.engine.received(2, { type: 'settle', ids: [1 as DeliveryId] })
    at.engine.received(2, { type: 'extend', ids: [2 as DeliveryId], forMs: 30_000 })
    at.engine.closed(2, 'normal')
    expect(releasedBy(at)).toEqual([[3, 2, true]])
    expect(at.failedAttempts).toEqual([])
  })

  test('returns what it has extended if it then reports that it does not process it', () => {
    const at = pushedThree()
    const extend = (forMs: number) => at.engine.received(2, { type: 'extend', ids: [1, 2, 9] as DeliveryId[], forMs })
    extend(30_000)
    extend(0)
    extend(0)
    expect(at.extensions.map(({ delivery: { id } }) => id)).toEqual([1, 2])
    at.engine.closed(2, 'normal')
    expect(releasedBy(at).map(([id]) => id)).toEqual([1, 2, 3])
  })

  test('gets a failed attempt for a delivery that it extended and held for long, as after a broken connection', () => {
    const at = pushedThree()
    at.engine.received(2, { type: 'extend', ids: [2 as DeliveryId], forMs: 60_000 })
    at.engine.advance(4_500)
    at.engine.tick()
    at.engine.advance(5_000)
    at.engine.ponged(2)
    at.engine.advance(20_000)
    at.engine.closed(2, 'normal')
    expect(at.failedAttempts.map(({ id }) => id)).toEqual([2])
  })

  test('returns nothing if its connection breaks or the broker ends it', () => {
    for (const end of [
      (at: ReturnType<typeof world>) => at.engine.closed(2),
      (at: ReturnType<typeof world>) => at.engine.refused(2, 'frame_malformed'),
    ]) {
      const at = pushedThree()
      end(at)
      expect(at.releases).toEqual([])
    }
  })

  test('does not return a delivery whose lease has expired', () => {
    const at = pushedThree({ pollMs: 1_000 })
    for (let atMs = 4_000; atMs <= 40_000; atMs += 4_000) {
      at.engine.advance(atMs)
      at.engine.tick()
      for (const socket of [1, 2]) at.engine.ponged(socket)
    }
    at.engine.closed(2, 'normal')
    expect(at.releases).toEqual([])
  })

  test('counts attempts beyond the rate of retries, so that reconnecting costs no more than retrying', () => {
    const at = world(LIMITED)
    let next = 1
    for (let turn = 0; turn < 210; turn++) {
      at.wants.length = 0
      at.enter(2)
      const numbers = idsFrom(next, 10) as number[]
      next += 10
      at.engine.claimed([{ want: at.wants.splice(0)[0]!, claimed: claimedOf(...numbers) }])
      at.engine.closed(2, 'normal')
    }
    expect(at.releases).toHaveLength(2_000)
    expect(at.failedAttempts).toEqual([])
  })
})

const LIMITED = { rate: { perSecond: 200, burst: 400 } }
const idsFrom = (first: number, count: number) => Array.from({ length: count }, (_, i) => (first + i) as DeliveryId)

test('a session that keeps settling deliveries it does not hold is ended, and one window of them is harmless', () => {
  const at = world(LIMITED)
  enterCaughtUp(at)
  const settle = () => at.engine.received(2, { type: 'settle', ids: idsFrom(1, 1000) })
  for (let i = 0; i < 20; i++) settle()
  expect(at.closes).toEqual([])
  settle()
  expect(at.closes).toEqual([[2, 'rate_exceeded']])
})

test.each([
  ['retry', { type: 'retry', items: idsFrom(1, 1000).map((id) => ({ id, afterMs: 0 })) }],
  ['reject', { type: 'reject', items: idsFrom(1, 1000).map((id) => ({ id, reason: '' })) }],
  ['extend', { type: 'extend', ids: idsFrom(1, 1000), forMs: 1000 }],
] as const)('a flood of %s ends the session', (_, frame) => {
  const at = world(LIMITED)
  enterCaughtUp(at)
  for (let i = 0; i < 25; i++) at.engine.received(2, { ...frame } as never)
  expect(at.closes).toEqual([[2, 'rate_exceeded']])
})

test('retries beyond the rate are delayed one after the other, also in another session', () => {
  const at = world(LIMITED)
  const { engine, wants, retries } = at
  let next = 1
  const release = (count: number) => {
    for (let given = 0; given < count; given += 10) {
      const numbers = idsFrom(next, 10) as number[]
      next += 10
      engine.hints.wake(MESH, 2 as PeerNo)
      engine.claimed([{ want: wants.splice(0).at(-1)!, claimed: claimedOf(...numbers) }])
      engine.received(2, { type: 'retry', items: numbers.map((id) => ({ id: id as DeliveryId, afterMs: 0 })) })
    }
  }
  enterCaughtUp(at)
  release(2000)
  expect(new Set(retries.map(({ afterMs }) => afterMs))).toEqual(new Set([100]))
  release(100)
  expect(retries.at(-1)!.afterMs).toBe(1000)
  engine.closed(2)
  enterCaughtUp(at)
  release(100)
  expect(retries.at(-1)!.afterMs).toBe(2000)
  engine.advance(3000)
  release(10)
  expect(retries.at(-1)!.afterMs).toBe(100)
})

describe('a delivery that was often attempted', () => {
  const suspect = { ...deliveryOf(1), attempt: ALONE_AFTER_ATTEMPTS + 1 }

  /** Connects peer 2 and pushes the delivery to it alone. */
  function pushedAlone() {
    const at = world()
    at.wants.length = 0
    at.enter(2)
    const [want] = at.wants.splice(0)
    at.engine.claimed([{ want: want!, claimed: { status: 'claimed', deliveries: [suspect], hasMore: true } }])
    expect(at.pushed()).toEqual([1])
    return at
  }

  test("a push counts as a failed attempt if the recipient's connection breaks immediately", () => {
    const { engine, failedAttempts } = pushedAlone()
    engine.closed(2)
    expect(failedAttempts.map(({ id }) => id)).toEqual([1])
  })

  test('lets receipts through, which are claimed once for each notice', () => {
    const { engine, wants, sent, pushed } = pushedAlone()
    const receipt = { ...deliveryOf(RECEIPT_IDS_FROM + 1), terms: encodeReceipt('settled'), attempt: 6 }
    const answer = (...deliveries: Delivery[]) =>
      engine.claimed([{ want: wants.splice(0)[0]!, claimed: { status: 'claimed', deliveries, hasMore: false } }])
    expect(wants).toMatchObject([{ ids: { from: RECEIPT_IDS_FROM } }])
    answer()
    expect(wants).toEqual([])
    engine.hints.wake(MESH, 2 as PeerNo)
    expect(wants).toMatchObject([{ ids: { from: RECEIPT_IDS_FROM } }])
    answer(receipt)
    expect(sent.flatMap((frame) => (frame.type === 'receipts' ? frame.items : []))).toHaveLength(1)
    expect([pushed(), wants]).toEqual([[1], []])
    engine.received(2, { type: 'settle', ids: [1 as DeliveryId] })
    expect(wants).toMatchObject([{ ids: ANY_ID }])
  })

  test('is returned without a failed attempt when its recipient closes normally and has not touched it', () => {
    const { engine, failedAttempts, releases } = pushedAlone()
    engine.closed(2, 'normal')
    expect(failedAttempts).toEqual([])
    expect(releases).toMatchObject([{ delivery: { id: 1 }, isUntouched: true }])
  })

  test('gets a failed attempt when its recipient processes it and closes normally', () => {
    const { engine, failedAttempts, releases } = pushedAlone()
    engine.received(2, { type: 'extend', ids: [1 as DeliveryId], forMs: 30_000 })
    engine.closed(2, 'normal')
    expect(failedAttempts.map(({ id }) => id)).toEqual([1])
    expect(releases).toEqual([])
  })

  test('gets no failed attempt when it is settled, nor does a later delivery', () => {
    const { engine, failedAttempts, wants } = pushedAlone()
    engine.received(2, { type: 'settle', ids: [1 as DeliveryId] })
    engine.claimed([{ want: wants.splice(0)[0]!, claimed: claimedOf(2) }])
    engine.closed(2)
    expect(failedAttempts).toEqual([])
  })

  test('gets the failed attempt if its recipient holds others, and they get none, however long they took', () => {
    const { engine, wants, failedAttempts, enter } = world()
    wants.length = 0
    enter(2)
    engine.claimed([{ want: wants.splice(0)[0]!, claimed: { ...claimedOf(3), hasMore: true } }])
    for (let atMs = 5_000; atMs <= 40_000; atMs += 5_000) {
      engine.advance(atMs)
      engine.tick()
      for (const socket of [1, 2]) engine.ponged(socket)
    }
    engine.claimed(
      wants.splice(0).map((want) => ({ want, claimed: { status: 'claimed', deliveries: [suspect], hasMore: false } })),
    )
    engine.closed(2)
    expect(failedAttempts.map(({ id }) => id)).toEqual([1])
  })

  test('gets a failed attempt when its recipient falls silent, or reconnects before its former session has ended', () => {
    const silent = pushedAlone()
    for (let atMs = 10_000; atMs <= 120_000; atMs += 10_000) {
      silent.engine.advance(atMs)
      silent.engine.tick()
    }
    expect(silent.failedAttempts.map(({ id }) => id)).toEqual([1])

    const superseded = pushedAlone()
    superseded.enter(2, 12)
    expect(superseded.failedAttempts.map(({ id }) => id)).toEqual([1])
  })

  test('holds others back until it is settled, or its recipient has held it for a while', () => {
    const { engine, wants, appends, send } = pushedAlone()
    const mailWants = () => wants.filter(({ ids }) => ids.from < RECEIPT_IDS_FROM)
    const findNoReceipt = () => engine.claimed(wants.splice(0).map((want) => ({ want, claimed: claimedOf() })))
    findNoReceipt()
    engine.hints.wake(MESH, 2 as PeerNo)
    expect(mailWants()).toEqual([])
    send(sendOf(9, 2))
    expect(appends.splice(0)).toMatchObject([{ insertLeaseEpoch: 0 }])
    for (let atMs = 20_000; atMs <= 60_000; atMs += 20_000) {
      engine.advance(atMs)
      engine.tick()
      engine.ponged(2)
      if (mailWants().length === 0) findNoReceipt()
    }
    expect(mailWants()).toHaveLength(1)
  })
})
