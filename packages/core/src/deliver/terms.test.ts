/** Tests how the engine handles terms, receipts, presence and broadcasts. */
import {
  ANY_ID,
  type ClientFrame,
  type Delivery,
  encodeReceipt,
  encodeTerms,
  NO_THREAD,
  type ServerFrame,
} from '@sealpost/protocol'
import type { DeliveryId, GroupId } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { defaultLimits, type EngineLimits } from '../limits.ts'
import { idOf, keyOf, memberOf, sendOf, world } from '../test/testing-world.ts'

type WithTerms = Extract<ClientFrame, { type: 'sendWith' }>['envelopes'][number]
const NO_TERMS: WithTerms['terms'] = {
  notBeforeMs: 0,
  receipts: 'none',
  thread: NO_THREAD,
  hops: 0,
  noAutoReply: false,
  ifOnline: false,
}
const THREAD = 'ab'.repeat(16)

/** Returns a world with peers 1 and 2, which know each other. Peer 2's first claim has found nothing. */
function pair(limits: Partial<EngineLimits> = {}) {
  const at = world(limits)
  const { engine, enter, wants, sent } = at
  enter(2)
  for (const want of wants.splice(0))
    engine.claimed([{ want, claimed: { status: 'claimed', deliveries: [], hasMore: false } }])
  sent.length = 0
  const sendFrame = (n: number, frame: ClientFrame) => engine.received(n, frame)
  const sendWith = (n: number, to: number, terms: Partial<WithTerms['terms']>, more = {}) =>
    sendFrame(1, { type: 'sendWith', envelopes: [{ send: sendOf(n, to, more), terms: { ...NO_TERMS, ...terms } }] })
  const framesOf = <T extends ServerFrame['type']>(type: T) =>
    sent.filter((frame): frame is Extract<ServerFrame, { type: T }> => frame.type === type)
  const status = (n: number, availability: 'idle' | 'dnd', declinesReceipts = false) =>
    sendFrame(n, { type: 'status', availability, summary: 'here', declinesReceipts })
  const claimed = (...deliveries: Delivery[]) =>
    engine.claimed([{ want: wants.splice(0).at(-1)!, claimed: { status: 'claimed', deliveries, hasMore: false } }])
  return { ...at, sendFrame, sendWith, framesOf, status, claimed }
}

const deliveryOf = (n: number, terms: Uint8Array | null): Delivery => ({
  id: n as DeliveryId,
  envelopeId: idOf(n),
  sender: keyOf(1),
  priority: 1,
  attempt: 1,
  enqueuedAtMs: 5,
  envelope: new Uint8Array(50),
  terms,
  body: null,
})

describe('a recipient that accepts only urgent mail', () => {
  test('gets no leases on insert: urgent mail takes claims', () => {
    const { engine, appends, wants, send, status } = pair()
    status(2, 'dnd')
    send(sendOf(2, 2, { priority: 'now' }))
    expect(appends.map(({ insertLeaseEpoch }) => insertLeaseEpoch)).toEqual([0])
    const stored = { status: 'stored', id: 1 as DeliveryId, isLeased: false, isExpected: true } as const
    engine.committed(appends.splice(0), { outcomes: [stored], enqueuedAtMs: 0 })
    expect(wants).toMatchObject([{ priorityMax: 0 }])
  })

  test('claims only urgent mail, and all mail again afterwards', () => {
    const { engine, appends, wants, send, status } = pair()
    status(2, 'dnd')
    send(sendOf(1, 2))
    const stored = { status: 'stored', id: 1 as DeliveryId, isLeased: false, isExpected: true } as const
    engine.committed(appends.splice(0), { outcomes: [stored], enqueuedAtMs: 0 })
    expect(wants).toEqual([]) // peer 2 accepts none of these
    status(2, 'idle')
    expect(wants).toMatchObject([{ priorityMax: 2 }])
    wants.length = 0
    status(2, 'dnd')
    engine.hints.wake(memberOf(2).meshId, memberOf(2).peer)
    expect(wants).toEqual([]) // one claim is in flight
  })
})

describe('a send with terms', () => {
  test('keeps them with the append; one that is delayed asks for no lease', () => {
    const { appends, sendWith } = pair()
    sendWith(1, 2, { receipts: 'all', thread: THREAD, hops: 2 })
    sendWith(2, 2, { notBeforeMs: 9_000 })
    const terms = encodeTerms({ receipts: 'all', thread: THREAD, hops: 2, noAutoReply: false })
    expect(appends[0]).toMatchObject({ insertLeaseEpoch: 2, notBeforeMs: 0, terms })
    expect(appends[1]).toMatchObject({ insertLeaseEpoch: 0, notBeforeMs: 9_000, terms: null })
  })

  test('for an offline recipient is refused at once if the sender asks for that', () => {
    const { engine, appends, nacks, sendWith } = pair()
    sendWith(1, 3, { ifOnline: true })
    engine.resolved(1, [keyOf(3)], [memberOf(3)])
    sendWith(2, 2, { ifOnline: true })
    expect(nacks().map(({ code }) => code)).toEqual(['no_responder'])
    expect(appends).toHaveLength(1)
  })

  test('is limited in hops, and by the rate of its thread', () => {
    const { nacks, appends, sendWith } = pair({ hopsMax: 3, threadRate: { perSecond: 0.1, burst: 2 } })
    sendWith(1, 2, { hops: 4 })
    for (const n of [2, 3, 4]) sendWith(n, 2, { thread: THREAD })
    sendWith(5, 2, {})
    expect(nacks().map(({ code }) => code)).toEqual(['too_many_hops', 'thread_exhausted'])
    expect(appends).toHaveLength(3)
  })
})

describe('receipts', () => {
  const wishing = (receipts: 'end' | 'all') => encodeTerms({ receipts, thread: NO_THREAD, hops: 0, noAutoReply: false })

  function claimedBy2(terms: Uint8Array | null, more: { declines?: boolean } = {}) {
    const at = pair()
    at.status(2, 'idle', more.declines ?? false)
    at.engine.hints.wake(memberOf(2).meshId, memberOf(2).peer)
    at.claimed(deliveryOf(7, terms))
    return at
  }

  test('are sent for the push and the settle of a delivery whose sender asked', () => {
    const { sendFrame, settles, pushedNotices } = claimedBy2(wishing('all'))
    expect(pushedNotices.map(({ id }) => id)).toEqual([7])
    sendFrame(2, { type: 'settle', ids: [7 as DeliveryId] })
    expect(settles).toMatchObject([{ id: 7, receiptTo: keyOf(1) }])
  })

  test.each([
    ['its sender asked for none', null, false],
    ['the recipient declines them', wishing('all'), true],
  ])('are not sent when %s', (_, terms, declines) => {
    const { sendFrame, settles, pushedNotices } = claimedBy2(terms, { declines })
    sendFrame(2, { type: 'settle', ids: [7 as DeliveryId] })
    expect(pushedNotices).toEqual([])
    expect(settles.map(({ receiptTo }) => receiptTo)).toEqual([null])
  })

  test('are sent for a delivery that is settled while it waits for another one of its sender', () => {
    const { engine, sendFrame, send, claimed, pushed, settles } = pair()
    send(sendOf(1, 2)) // the delivery is leased on insert but not committed
    engine.hints.wake(memberOf(2).meshId, memberOf(2).peer)
    claimed(deliveryOf(7, wishing('end')))
    expect(pushed()).toEqual([])
    sendFrame(2, { type: 'settle', ids: [7 as DeliveryId] }) // the peer settles an earlier push
    expect(settles).toMatchObject([{ id: 7, receiptTo: keyOf(1) }])
  })

  test('come in their own frame, and are settled like mail', () => {
    const { sendFrame, framesOf, settles } = claimedBy2(encodeReceipt('expired'))
    expect(framesOf('receipts')).toMatchObject([{ items: [{ id: 7, recipient: keyOf(1), event: 'expired', atMs: 5 }] }])
    sendFrame(2, { type: 'settle', ids: [7 as DeliveryId] })
    expect(settles).toHaveLength(1)
  })
})

describe('a recipient', () => {
  test('rejects and extends deliveries that it holds, and no others', () => {
    const { engine, sendFrame, claimed, rejects, extensions } = pair()
    engine.hints.wake(memberOf(2).meshId, memberOf(2).peer)
    claimed(deliveryOf(7, null), deliveryOf(8, null))
    sendFrame(2, { type: 'extend', ids: [7, 7, 9].map((id) => id as DeliveryId), forMs: 60 * 60_000 })
    sendFrame(2, { type: 'reject', items: [8, 9].map((id) => ({ id: id as DeliveryId, reason: 'no' })) })
    expect(extensions).toMatchObject([{ delivery: { id: 7 }, forMs: 4 * 60_000 }])
    expect(rejects).toMatchObject([{ delivery: { id: 8 }, reason: 'no' }])
  })
})

describe('an ephemeral message', () => {
  const ephemeral = (to: number): ClientFrame => ({
    type: 'sendEphemeral',
    items: [{ envelopeId: idOf(1), recipient: keyOf(to), envelope: new Uint8Array(40) }],
  })

  test('is pushed to connected peers, and stored nowhere', () => {
    const { sendFrame, framesOf, appends } = pair()
    sendFrame(1, ephemeral(2))
    expect(framesOf('pushEphemeral')).toMatchObject([{ items: [{ sender: keyOf(1), envelopeId: idOf(1) }] }])
    expect(appends).toEqual([])
  })

  test.each(['a stranger', 'a peer that accepts only urgent mail'])('to %s is reported as undelivered', (recipient) => {
    const { sendFrame, framesOf, status } = pair()
    if (recipient.startsWith('a peer')) status(2, 'dnd')
    sendFrame(1, ephemeral(recipient.startsWith('a peer') ? 2 : 5))
    expect(framesOf('ephemeralFailed')).toMatchObject([{ items: [{ envelopeId: idOf(1), code: 'no_responder' }] }])
    expect(framesOf('pushEphemeral')).toEqual([])
  })
})

describe('presence', () => {
  test('is sent to watchers: a snapshot, then every change', () => {
    const { engine, sendFrame, status, enter, framesOf, sent } = pair()
    sendFrame(1, { type: 'watch', isOn: true })
    expect(framesOf('presence').flatMap(({ peers }) => peers.map(({ peer }) => peer))).toEqual([keyOf(1), keyOf(2)])
    sent.length = 0
    status(2, 'dnd')
    engine.closed(2)
    enter(3)
    expect(framesOf('presence').flatMap(({ peers }) => peers)).toMatchObject([
      { peer: keyOf(2), isOnline: true, availability: 'dnd', summary: 'here' },
      { peer: keyOf(2), isOnline: false, availability: 'idle', summary: '' },
      { peer: keyOf(3), isOnline: true },
    ])
    sent.length = 0
    sendFrame(1, { type: 'watch', isOn: false })
    status(3, 'dnd')
    expect(framesOf('presence')).toEqual([])
  })
})

describe('a broadcast', () => {
  const broadcast = (rosterEpoch: number): ClientFrame => ({
    type: 'broadcast',
    group: '00'.repeat(16) as GroupId,
    rosterEpoch,
    bodyId: 'cc'.repeat(32),
    body: new Uint8Array(60_000),
    terms: { receipts: 'none', thread: NO_THREAD, hops: 0, noAutoReply: false },
    envelopes: [sendOf(1, 2), sendOf(2, 1)],
  })

  test('is an append for each recipient, all with the same body', () => {
    const { sendFrame, appends } = pair()
    sendFrame(1, broadcast(1))
    expect(appends.map(({ recipient }) => recipient)).toEqual([2, 1])
    expect(appends[0]!.body).toBe(appends[1]!.body)
  })

  test('uses as much of the window as it frees later', () => {
    const { engine, sendFrame, appends, wants, settles } = pair()
    for (let n = 1; n <= 100; n++) {
      sendFrame(1, { ...broadcast(1), envelopes: [sendOf(n, 2)] } as ClientFrame)
      const stored = { status: 'stored', id: n as DeliveryId, isLeased: true, isExpected: true } as const
      engine.committed(appends.splice(0), { outcomes: [stored], enqueuedAtMs: 0 })
      sendFrame(2, { type: 'settle', ids: [n as DeliveryId] })
    }
    expect(settles).toHaveLength(100)
    engine.hints.wake(memberOf(2).meshId, memberOf(2).peer)
    expect(wants.at(-1)!.limitBytes).toBe(defaultLimits.creditBytes)
  })

  test('fills the window with its body: deliveries that a claim left wait for room', () => {
    const { engine, wants } = pair()
    engine.hints.wake(memberOf(2).meshId, memberOf(2).peer)
    const body = new Uint8Array(defaultLimits.creditBytes)
    const deliveries = [{ ...deliveryOf(7, null), body }]
    engine.claimed([{ want: wants.splice(0).at(-1)!, claimed: { status: 'claimed', deliveries, hasMore: true } }])
    expect(wants).toEqual([]) // the window is full
    engine.received(2, { type: 'settle', ids: [7 as DeliveryId] })
    expect(wants).toMatchObject([{ ids: ANY_ID }])
  })

  test('counts its body with the first recipient that was not refused', () => {
    const { engine, sendFrame, nacks, appends } = pair({ waitingBytesMax: 61_000 })
    const frame = broadcast(1) as Extract<ClientFrame, { type: 'broadcast' }>
    const tooLong = { ...frame.envelopes[0]!, ttlSeconds: 999_999_999 }
    sendFrame(1, { ...frame, envelopes: [tooLong, frame.envelopes[1]!] })
    sendFrame(1, { ...frame, bodyId: 'ee'.repeat(32), envelopes: [sendOf(7, 2), sendOf(8, 2)] })
    sendFrame(1, { type: 'send', envelopes: [sendOf(9, 2, { envelope: new Uint8Array(1_000) })] })
    expect(nacks().map(({ code }) => code)).toEqual(['ttl_too_long', 'busy', 'busy'])
    expect(appends).toHaveLength(2)
    expect(engine.waitingCount).toBe(2)
  })

  test('is charged once to the rate of its thread', () => {
    const { sendFrame, nacks } = pair({ threadRate: { perSecond: 0.1, burst: 1 } })
    const frame = broadcast(1) as Extract<ClientFrame, { type: 'broadcast' }>
    sendFrame(1, { ...frame, terms: { ...frame.terms, thread: THREAD } })
    expect(nacks()).toEqual([])
  })

  test('larger than an envelope may be is refused as a whole', () => {
    const { sendFrame, nacks, appends } = pair({ envelopeBytesMax: 50_000 })
    sendFrame(1, broadcast(1))
    expect(nacks().map(({ code }) => code)).toEqual(['envelope_too_large', 'envelope_too_large'])
    expect(appends).toEqual([])
  })
})

describe('limits', () => {
  test('a session that sends requests without end is ended', () => {
    const { sendFrame, status, closes } = pair()
    for (let n = 0; n < 400; n++) status(2, 'idle')
    expect(closes).toEqual([])
    status(2, 'idle')
    expect(closes).toEqual([[2, 'rate_exceeded']])
    sendFrame(2, { type: 'watch', isOn: true }) // the session has ended
  })

  test('a session gets a presence snapshot only once in a while', () => {
    const { engine, sendFrame, framesOf } = pair()
    for (let n = 0; n < 10; n++) sendFrame(1, { type: 'watch', isOn: true })
    expect(framesOf('presence')).toHaveLength(1)
    engine.advance(2_000)
    sendFrame(1, { type: 'watch', isOn: true })
    expect(framesOf('presence')).toHaveLength(2)
  })

  test('many refusals in one frame end a session once', () => {
    const { sendFrame, closes } = pair({ rate: { perSecond: 1, burst: 1 } })
    for (let batch = 0; batch < 3; batch++)
      sendFrame(1, {
        type: 'send',
        envelopes: Array.from({ length: 1_000 }, (_, n) => sendOf(batch * 1_000 + n + 1, 2)),
      })
    expect(closes).toEqual([[1, 'rate_exceeded']])
  })
})
