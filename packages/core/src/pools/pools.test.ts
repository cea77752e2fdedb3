/** Tests which pool member receives a delivery, and who receives it when the member leaves. */
import {
  ALONE_AFTER_ATTEMPTS,
  type ClientFrame,
  type Delivery,
  encodeBoxes,
  type PoolClaimed,
  type PoolEntry,
  type Release,
} from '@sealpost/protocol'
import type { Hint } from '@sealpost/protocol/hints'
import type { DeliveryId, PeerNo, PoolId } from '@sealpost/std'
import { expect, test } from 'vitest'
import type { Lookup } from '../effects.ts'
import { idOf, keyOf, MESH, world } from '../test/testing-world.ts'

const POOL = 'f0'.repeat(32) as PoolId
const POOL_NO = 99 as PeerNo
const entry = (members: readonly number[], epoch = 1): PoolEntry => ({
  ...{ meshId: MESH, poolId: POOL, pool: POOL_NO, epoch },
  members: members.map((n) => ({ peer: n as PeerNo, peerKey: keyOf(n) })),
})
const boxesFor = (...members: number[]) =>
  encodeBoxes(members.map((n) => ({ peer: keyOf(n), box: new Uint8Array(50).fill(n) })))
const deliveryOf = (n: number, envelope = boxesFor(2, 3)): Delivery => ({
  ...{ id: n as DeliveryId, envelopeId: idOf(n), sender: keyOf(1), priority: 1, attempt: 1, enqueuedAtMs: 0 },
  ...{ envelope, terms: null, body: new Uint8Array(60) },
})

function crew() {
  const its = world()
  const hints: PeerNo[] = []
  const sought: Lookup[] = []
  Object.assign(its.effects, {
    hint: (hint: Hint) => void (hint.type === 'wake' && hints.push(hint.peer)),
    resolve: (_: unknown, __: unknown, what: Lookup) => void sought.push(what),
  })
  its.enter(2)
  its.enter(3)
  const join = (n: number, credit: number, pool: PoolEntry | null = entry([2, 3])) => {
    const frame = { type: 'joinPool', ref: n, pool: POOL, credit } as const
    its.engine.received(n, frame)
    if (credit > 0) its.reply<'joinPool'>(n, frame, { pool })
  }
  const answer = (claimed: PoolClaimed) => its.engine.claimed([{ want: its.poolWants.at(-1)!, claimed }])
  const deal = (...dealt: [slot: number, delivery: Delivery][]) =>
    answer({
      status: 'claimed',
      dealt: dealt.map(([slot, delivery]) => ({ slot, delivery })),
      strangers: [],
      hasMore: false,
    })
  const joined = () => its.sent.flatMap((frame) => (frame.type === 'poolJoined' ? [[frame.ref, frame.outcome]] : []))
  const members = () => its.poolWants.at(-1)!.slots.map(({ member }) => member)
  const send = (frame: Partial<Extract<ClientFrame, { type: 'sendPool' }>> = {}, n = 7) =>
    its.engine.received(1, {
      ...{ type: 'sendPool', rosterEpoch: 1, bodyId: 'd0'.repeat(32), body: new Uint8Array(60) },
      terms: { notBeforeMs: 0, receipts: 'none', thread: '0'.repeat(32), hops: 0, noAutoReply: false, ifOnline: false },
      send: {
        ...{ envelopeId: idOf(n), recipient: POOL as never, priority: 'next', isHead: true, ttlSeconds: 0 },
        envelope: boxesFor(2, 3),
      },
      ...frame,
    })
  return { ...its, hints, sought, join, answer, deal, joined, members, send }
}

test('joining a pool looks it up; a refusal has a reason', () => {
  const its = crew()
  its.join(2, 1)
  its.join(3, 1, null)
  its.join(3, 1, entry([2], 2))
  expect(its.joined()).toEqual([
    [2, 'joined'],
    [3, 'unknown_pool'],
    [3, 'not_in_pool'],
  ])
  expect(its.poolWants).toMatchObject([
    { meshId: MESH, pool: POOL_NO, slots: [{ member: 2, epoch: 2, priorityMax: 2 }] },
  ])
})

test('the least loaded member is served first, and nobody gets more than its credit', () => {
  const its = crew()
  its.join(2, 2)
  its.deal([0, deliveryOf(1)])
  expect(its.members()).toEqual([2])
  its.deal()
  its.join(3, 3)
  expect(its.members()).toEqual([3, 3, 3])
  its.deal([0, deliveryOf(2)])
  its.engine.hints.wake(MESH, POOL_NO)
  its.deal()
  its.engine.hints.wake(MESH, POOL_NO)
  expect(its.members()).toEqual([2, 3, 3])
})

test('a member is pushed its own box, with the body', () => {
  const its = crew()
  its.join(3, 1)
  its.deal([0, deliveryOf(1)])
  const [push] = its.sent.flatMap((frame) => (frame.type === 'pushBody' ? frame.deliveries : []))
  expect(push!.push.envelope).toEqual(new Uint8Array(50).fill(3))
  its.join(2, 1)
  its.deal([0, deliveryOf(2, boxesFor(3))])
  expect(its.rejects).toMatchObject([{ delivery: { recipient: POOL_NO, id: 2, holder: 2 }, epoch: 2 }])
})

test("a member's update of a delivery names the pool and its holder", () => {
  const its = crew()
  its.join(2, 2)
  its.deal([0, deliveryOf(1)], [1, deliveryOf(2)])
  const at = { meshId: MESH, recipient: POOL_NO, holder: 2 }
  its.engine.received(2, { type: 'extend', ids: [1 as DeliveryId], forMs: 1_000 })
  expect(its.extensions).toMatchObject([{ delivery: { ...at, id: 1 }, epoch: 2 }])
  its.engine.received(2, { type: 'settle', ids: [1 as DeliveryId] })
  expect(its.settles).toMatchObject([{ ...at, id: 1 }])
  expect(its.members()).toEqual([2])
})

test('deliveries of a leaving member are released, when its session ends and when it leaves', () => {
  const its = crew()
  its.join(2, 1)
  its.deal([0, deliveryOf(1)])
  its.join(3, 1)
  its.deal([0, deliveryOf(2)])
  its.engine.closed(2)
  expect(its.releases).toMatchObject([{ delivery: { recipient: POOL_NO, id: 1, holder: 2 }, epoch: 2 }])
  its.engine.released(its.releases)
  expect(its.hints).toEqual([POOL_NO])
  its.join(3, 0)
  expect(its.releases).toMatchObject([{}, { delivery: { id: 2, holder: 3 } }])
  its.engine.received(3, { type: 'settle', ids: [2 as DeliveryId] })
  expect(its.settles).toEqual([])
})

test('a member that closes normally releases each delivery once, and the attempt of an untouched one does not count', () => {
  const its = crew()
  its.join(2, 2)
  its.deal([0, deliveryOf(1)], [1, deliveryOf(2)])
  its.engine.received(2, { type: 'extend', ids: [2 as DeliveryId], forMs: 1_000 })
  its.engine.closed(2, 'normal')
  expect(its.releases).toMatchObject([
    { delivery: { id: 1, holder: 2 }, epoch: 2, isUntouched: true },
    { delivery: { id: 2, holder: 2 }, epoch: 2, isUntouched: false },
  ])
})

test('deliveries dealt to a member that left meanwhile are released, too', () => {
  const its = crew()
  its.join(2, 1)
  its.engine.closed(2)
  its.deal([0, deliveryOf(1)])
  expect(its.releases).toMatchObject([{ delivery: { recipient: POOL_NO, id: 1, holder: 2 }, epoch: 2 }])
})

test('a slot whose pick another statement took is claimed for again at once, and a slot that found nothing is not', () => {
  const its = crew()
  its.join(2, 1)
  expect(its.poolWants).toHaveLength(1)
  its.answer({ status: 'claimed', dealt: [], strangers: [], hasMore: true })
  expect(its.poolWants).toHaveLength(2)
  its.answer({ status: 'claimed', dealt: [], strangers: [], hasMore: false })
  expect(its.poolWants).toHaveLength(2)
})

test("a delivery with many attempts is its holder's only one, and gets a failed attempt when the connection breaks", () => {
  const its = crew()
  its.join(2, 4)
  expect(its.members()).toEqual([2, 2, 2, 2])
  its.deal([0, { ...deliveryOf(1), attempt: ALONE_AFTER_ATTEMPTS + 1 }])
  expect(its.poolWants).toHaveLength(1)
  its.engine.received(2, { type: 'settle', ids: [1 as DeliveryId] })
  expect(its.members()).toEqual([2])
  its.deal([0, { ...deliveryOf(2), attempt: ALONE_AFTER_ATTEMPTS + 1 }])
  its.engine.closed(2)
  expect(its.failedAttempts).toMatchObject([{ recipient: POOL_NO, id: 2 }])
})

test('a delivery with many attempts gets the failed attempt, and other mail of its holder gets none', () => {
  const its = crew()
  its.join(2, 4)
  const want = its.wants.find(({ session }) => session.peer === 2)!
  const direct = { ...deliveryOf(3), envelope: new Uint8Array(10), body: null }
  its.engine.claimed([{ want, claimed: { status: 'claimed', deliveries: [direct], hasMore: false } }])
  its.deal([0, { ...deliveryOf(4), attempt: ALONE_AFTER_ATTEMPTS + 1 }])
  its.engine.closed(2)
  expect(its.failedAttempts).toMatchObject([{ recipient: POOL_NO, id: 4 }])
})

test('a removed member leaves its seat, whether a statement or a claim reports it', () => {
  const its = crew()
  its.join(2, 1)
  its.join(3, 1)
  its.answer({ status: 'claimed', dealt: [], strangers: [0], hasMore: false })
  expect(its.joined().slice(2)).toEqual([[0, 'not_in_pool']])
  its.reply<'setPool'>(
    1,
    { type: 'setPool', ref: 5, statement: new Uint8Array(1) },
    {
      outcome: 'done',
      pool: entry([2], 2),
    },
  )
  expect(its.joined().slice(3)).toEqual([[0, 'not_in_pool']])
})

test('with `dnd` only urgent mail is claimed', () => {
  const its = crew()
  its.engine.received(2, { type: 'status', availability: 'dnd', summary: '', declinesReceipts: false })
  its.join(2, 1)
  expect(its.poolWants.at(-1)!.slots).toMatchObject([{ priorityMax: 0 }])
  its.deal()
  its.engine.received(2, { type: 'status', availability: 'idle', summary: '', declinesReceipts: false })
  expect(its.poolWants.at(-1)!.slots).toMatchObject([{ priorityMax: 2 }])
})

test('a claim that failed or met a lock is repeated, and one claim is in flight at a time', () => {
  const its = crew()
  its.join(2, 1)
  its.engine.hints.wake(MESH, POOL_NO)
  expect(its.poolWants.length).toBe(1)
  its.answer({ status: 'locked' })
  expect(its.poolWants.length).toBe(2)
  its.engine.claimFailed([its.poolWants.at(-1)!])
  expect(its.poolWants.length).toBe(2)
  its.engine.tick()
  expect(its.poolWants.length).toBe(3)
})

test('a message to a pool is stored after the pool was looked up, for the members that have a box', () => {
  const its = crew()
  its.send()
  expect(its.sought).toMatchObject([{ peers: [], pools: [POOL] }])
  its.engine.resolved(1, [POOL], [], undefined, undefined, [entry([2, 4])])
  expect(its.appends).toMatchObject([{ recipient: POOL_NO, insertLeaseEpoch: 0, body: { readers: [2] } }])
})

test('a message to a pool is refused if no member has a box, if it is sealed for former members, or if the pool is unknown', () => {
  const its = crew()
  its.send({}, 1)
  its.engine.resolved(1, [POOL], [], undefined, undefined, [entry([4], 2)])
  its.send({ rosterEpoch: 2 }, 2)
  its.send({ rosterEpoch: 3 }, 3)
  its.engine.resolved(1, [POOL], [], undefined, undefined, [])
  expect(its.nacks().map(({ code }) => code)).toEqual(['stale_roster', 'stale_roster', 'unknown_recipient'])
  its.send({ send: { ...its.appends[0]!, envelope: new Uint8Array(60) } as never })
  expect(its.closes).toEqual([[1, 'frame_malformed']])
})

test('a member that rotated its key is known by both, and gets messages sealed to the former one', () => {
  const its = crew()
  its.join(3, 1, entry([2, 3]))
  its.join(3, 0)
  its.deal()
  const keys = (n: number) => ({ peer: 3 as PeerNo, peerKey: keyOf(n) })
  its.join(2, 1, { ...entry([3]), members: [keyOf(9), keyOf(2)].map((peerKey) => ({ peer: 2 as PeerNo, peerKey })) })
  its.deal([0, deliveryOf(1, boxesFor(3, 9))])
  const [push] = its.sent.flatMap((sent) => (sent.type === 'pushBody' ? sent.deliveries : []))
  expect(push!.push.envelope).toEqual(new Uint8Array(50).fill(9))
  its.join(3, 1, { ...entry([]), members: [keys(3), keys(9)] })
  expect(its.joined().map(([, outcome]) => outcome)).toEqual(['joined', 'left', 'joined', 'joined'])
})

test('a delivery that went to nobody here wakes other shards, even if a member here was free', () => {
  const its = crew()
  its.join(2, 1)
  its.deal()
  const wake = () =>
    its.engine.released([{ delivery: { meshId: MESH, recipient: POOL_NO, holder: 2 as PeerNo } } as Release])
  wake()
  wake()
  expect(its.hints).toEqual([])
  its.deal([0, deliveryOf(1)])
  expect(its.hints).toEqual([POOL_NO])
  its.engine.received(2, { type: 'settle', ids: [1 as DeliveryId] })
  its.deal()
  wake()
  its.deal([0, deliveryOf(3)])
  expect(its.hints).toEqual([POOL_NO])
})

test('a member that leaves before the reply to its join gets nothing', () => {
  const its = crew()
  const frame = { type: 'joinPool', ref: 5, pool: POOL, credit: 1 } as const
  its.engine.received(2, frame)
  its.engine.received(2, { ...frame, ref: 6, credit: 0 })
  its.reply<'joinPool'>(2, frame, { pool: entry([2, 3]) })
  expect(its.poolWants).toEqual([])
  its.engine.received(2, { ...frame, ref: 7 })
  its.reply<'joinPool'>(2, { ...frame, ref: 7 }, { pool: entry([2, 3]) })
  expect(its.joined()).toEqual([
    [6, 'left'],
    [5, 'left'],
    [7, 'joined'],
  ])
})
