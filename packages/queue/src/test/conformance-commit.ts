/** Conformance tests for the appends, leases on insert and settles of a commit, and for member lookups. */
import { type Append, OPEN } from '@sealpost/protocol'
import { describe, expect, test } from 'vitest'
import { bytesOf, MESH, OTHER_MESH, peerKeyOf, type Stage, statusesOf, suiteOptions } from './conformance-world.ts'

export function commitTests(stage: () => Stage): void {
  describe('a commit', () => dedupeTests(stage))
  describe('membership', () => memberTests(stage))
  describe('a lease on insert', () => insertLeaseTests(stage))
  describe('a settle', () => settleTests(stage))
}

function dedupeTests(stage: () => Stage): void {
  test('returns an outcome for each append in order, with ascending ids', async () => {
    const outcomes = await stage().storeAll('a', 'b', 'c')
    expect(statusesOf(outcomes)).toEqual(['stored', 'stored', 'stored'])
    const ids = outcomes.map((outcome) => stage().refOf(outcome).id)
    expect(ids).toEqual([...ids].sort((a, b) => a - b))
    expect(new Set(ids).size).toBe(3)
  })

  test('of an empty batch succeeds', async () => {
    expect((await stage().commit([])).outcomes).toEqual([])
  })

  test('returns the time of its deliveries', async () => {
    const { enqueuedAtMs } = await stage().commit([stage().append('a')])
    const [delivery] = await stage().take(await stage().openBob())
    expect(delivery!.enqueuedAtMs).toBe(enqueuedAtMs)
  })

  test('stores a resent envelope once', async () => {
    const append = stage().append('a')
    await stage().store(append)
    expect(await stage().store(append)).toEqual([{ status: 'duplicate' }])
    expect(await stage().takeTexts(await stage().openBob())).toEqual(['a'])
  })

  test('detects a resend on another shard, with another time to live, and after a settle', async () => {
    const append = stage().append('a')
    const [first] = await stage().store(append)
    const resend = { ...append, ttlSeconds: 7 }
    expect((await stage().there.commit({ appends: [resend], settles: [] })).outcomes).toEqual([{ status: 'duplicate' }])
    await stage().commit([], [stage().refOf(first!)])
    expect(await stage().store(append)).toEqual([{ status: 'duplicate' }])
    expect(await stage().takeTexts(await stage().openBob())).toEqual([])
  })

  test('refuses an id that was used with other bytes, another recipient or another priority', async () => {
    const append = stage().append('a')
    await stage().store(append)
    const changes = [
      { envelope: bytesOf('b') },
      { envelope: bytesOf('a'.padEnd(41, '.')) },
      { recipient: stage().cat },
      { priority: 0 },
    ]
    for (const change of changes)
      expect(statusesOf(await stage().store({ ...append, ...change }))).toEqual(['id_reused'])
    expect(await stage().takeTexts(await stage().openBob())).toEqual(['a'])
  })

  test('accepts the same id from another sender and in another mesh', async () => {
    const append = stage().append('a')
    await stage().store(append)
    const { stranger, cat } = stage()
    const outcomes = await stage().store(
      { ...append, sender: cat },
      { ...append, meshId: OTHER_MESH, sender: stranger, recipient: stranger },
    )
    expect(statusesOf(outcomes)).toEqual(['stored', 'stored'])
  })

  test('stores ids that arrive out of order, also within a batch', async () => {
    const [a, b, c, d] = ['a', 'b', 'c', 'd'].map((text) => stage().append(text)) as [Append, Append, Append, Append]
    expect(statusesOf(await stage().store(c))).toEqual(['stored'])
    expect(statusesOf(await stage().store(b, a, c, d))).toEqual(['stored', 'stored', 'duplicate', 'stored'])
    expect(statusesOf(await stage().store(a, b, c, d))).toEqual(Array(4).fill('duplicate'))
    expect(await stage().takeTexts(await stage().openBob())).toEqual(['c', 'b', 'a', 'd'])
  })

  test('does not remember a refused id', async () => {
    const append = stage().append('a', { recipient: stage().stranger })
    expect(statusesOf(await stage().store(append))).toEqual(['unknown_recipient'])
    expect(statusesOf(await stage().store({ ...append, recipient: stage().bob }))).toEqual(['stored'])
  })

  test('stores one of two identical envelopes in a batch, and detects a different one under the same id', async () => {
    const append = stage().append('a')
    const other = { ...append, envelope: stage().append('b').envelope }
    const elsewhere = { ...append, recipient: stage().cat }
    const outcomes = await stage().store(append, { ...append }, other, elsewhere)
    expect(statusesOf(outcomes)).toEqual(['stored', 'duplicate', 'id_reused', 'id_reused'])
    expect(statusesOf(await stage().store(append))).toEqual(['duplicate'])
    expect(await stage().takeTexts(await stage().openBob())).toEqual(['a'])
  })
}

function memberTests(stage: () => Stage): void {
  test('an envelope to or from an unknown peer, a member of another mesh or a revoked member is not stored', async () => {
    const { stranger, cat, bob, world } = stage()
    await world.revoke(MESH, peerKeyOf(3))
    const unknownPeer = 1_000_000 as typeof bob
    const outcomes = await stage().store(
      stage().append('a', { recipient: unknownPeer }),
      stage().append('b', { sender: unknownPeer }),
      stage().append('c', { recipient: stranger }),
      stage().append('d', { sender: stranger }),
      stage().append('e', { recipient: cat }),
      stage().append('f', { sender: cat }),
      stage().append('g'),
    )
    expect(statusesOf(outcomes)).toEqual([...Array(6).fill('unknown_recipient'), 'stored'])
    expect(await stage().takeTexts(await stage().openBob())).toEqual(['g'])
  })

  test('a revoked member, a member of another mesh and an unknown number can open no session', async () => {
    const { here, stranger, world } = stage()
    await world.revoke(MESH, peerKeyOf(2))
    expect(await here.open({ meshId: MESH, peer: stage().bob, epoch: 0 })).toBeNull()
    expect(await here.open({ meshId: MESH, peer: stranger, epoch: 0 })).toBeNull()
    expect(await here.open({ meshId: '2c'.repeat(16) as typeof MESH, peer: stage().bob, epoch: 0 })).toBeNull()
    expect(await here.open({ meshId: OTHER_MESH, peer: stranger, epoch: 0 })).toBeGreaterThan(0)
  })

  test('members are found by key, in their mesh only, with a mark on revoked ones', async () => {
    const { here, ann, cat, world } = stage()
    await world.revoke(MESH, peerKeyOf(3))
    const found = await here.findMembers(MESH, [1, 3, 4, 99].map(peerKeyOf))
    expect([...found].sort((a, b) => a.peer - b.peer)).toEqual([
      { meshId: MESH, peer: ann, peerKey: peerKeyOf(1), user: ann, isRevoked: false, sessionEpoch: 0, consent: OPEN },
      { meshId: MESH, peer: cat, peerKey: peerKeyOf(3), user: cat, isRevoked: true, sessionEpoch: 0, consent: OPEN },
    ])
    expect(await here.findMembers(MESH, [])).toEqual([])
  })

  test('key bindings are found in their mesh only; those of revoked members are not found', async () => {
    await stage().world.revoke(MESH, peerKeyOf(3))
    const found = await stage().here.findBindings(MESH, [1, 3, 4, 99].map(peerKeyOf))
    expect(found.map((binding) => binding.peer)).toEqual([peerKeyOf(1)])
    const [{ boxKey, boxEpoch, notAfterMs, signature }] = found as [(typeof found)[0]]
    expect([boxKey.length, boxEpoch, signature.length]).toEqual([32, 1, 64])
    expect(notAfterMs).toBeGreaterThan(0)
  })
}

function insertLeaseTests(stage: () => Stage): void {
  const withLease = async (text: string) => stage().append(text, { insertLeaseEpoch: (await stage().openBob()).epoch })

  test('is granted when nothing waits, and blocks claims until it lapses', async () => {
    const session = await stage().openBob()
    const { epoch } = session
    const outcomes = await stage().store(
      stage().append('a', { insertLeaseEpoch: epoch }),
      stage().append('b', { insertLeaseEpoch: epoch, priority: 2 }),
    )
    expect(statusesOf(outcomes)).toEqual(['leased', 'leased'])
    expect(await stage().takeTexts(session)).toEqual([])
    await stage().world.advance(suiteOptions.leaseMs + 5_000)
    const again = await stage().take(session)
    expect(again.map((delivery) => delivery.attempt)).toEqual([2, 2])
  })

  test('is granted behind deliveries that are all leased to the same session', async () => {
    await stage().storeAll('a')
    const session = await stage().openBob()
    await stage().take(session)
    const outcomes = await stage().store(stage().append('b', { insertLeaseEpoch: session.epoch }))
    expect(statusesOf(outcomes)).toEqual(['leased'])
  })

  test('is refused under a stale epoch, on another shard, and for an unknown session', async () => {
    const stale = await withLease('a')
    await stage().openBob()
    expect(statusesOf(await stage().store(stale))).toEqual(['stored'])
    const elsewhere = await withLease('b')
    const { outcomes } = await stage().there.commit({ appends: [elsewhere], settles: [] })
    expect(statusesOf(outcomes)).toEqual(['stored'])
    expect(
      statusesOf(await stage().store(stage().append('c', { recipient: stage().cat, insertLeaseEpoch: 1 }))),
    ).toEqual(['stored'])
  })

  test('is refused while a delivery of the sender waits unclaimed, at any priority', async () => {
    await stage().store(stage().append('a', { priority: 2 }))
    expect(statusesOf(await stage().store(await withLease('b')))).toEqual(['stored'])
  })

  test('is granted while only mail of other senders waits', async () => {
    await stage().store(stage().append('a', { sender: stage().cat }))
    expect(statusesOf(await stage().store(await withLease('b')))).toEqual(['leased'])
  })

  test('is granted while only expired mail of the same sender waits', async () => {
    await stage().store(stage().append('a', { ttlSeconds: 60 }))
    await stage().world.advance(65_000)
    expect(statusesOf(await stage().store(await withLease('b')))).toEqual(['leased'])
  })

  test('is refused while a lease of an older session or a lapsed one is not claimed again', async () => {
    const old = await stage().openBob()
    await stage().store(stage().append('a', { insertLeaseEpoch: old.epoch }))
    const session = await stage().openBob()
    expect(statusesOf(await stage().store(stage().append('b', { insertLeaseEpoch: session.epoch })))).toEqual([
      'stored',
    ])
    await stage().take(session)
    await stage().world.advance(suiteOptions.leaseMs + 5_000)
    expect(statusesOf(await stage().store(stage().append('c', { insertLeaseEpoch: session.epoch })))).toEqual([
      'stored',
    ])
  })

  test('is granted if the batch settles the waiting delivery', async () => {
    const [waiting] = await stage().storeAll('a')
    const append = await withLease('b')
    const { outcomes } = await stage().commit([append], [stage().refOf(waiting!)])
    expect(statusesOf(outcomes)).toEqual(['leased'])
  })

  test('is refused for every envelope of a sender with a resend in the batch', async () => {
    const resent = stage().append('a')
    const session = await stage().openBob()
    const [first] = await stage().store(resent)
    await stage().commit([], [stage().refOf(first!)])
    const { cat } = stage()
    const { epoch } = session
    const ofCat = await stage().openFor(peerKeyOf(3))
    const outcomes = await stage().store(
      stage().append('b', { insertLeaseEpoch: epoch }),
      resent,
      stage().append('c', { insertLeaseEpoch: epoch }),
      stage().append('d', { sender: cat, insertLeaseEpoch: epoch }),
      stage().append('e', { sender: cat, recipient: cat, insertLeaseEpoch: ofCat.epoch }),
    )
    expect(statusesOf(outcomes)).toEqual(['stored', 'duplicate', 'stored', 'leased', 'leased'])
    expect((await stage().takeTexts(session)).sort()).toEqual(['b', 'c'])
  })

  test('is refused behind a plain append for the same recipient in the batch, and granted before it', async () => {
    const session = await stage().openBob()
    const { epoch } = session
    const outcomes = await stage().store(
      stage().append('a', { insertLeaseEpoch: epoch }),
      stage().append('b'),
      stage().append('c', { insertLeaseEpoch: epoch }),
    )
    expect(statusesOf(outcomes)).toEqual(['leased', 'stored', 'stored'])
    expect(await stage().takeTexts(session)).toEqual(['b', 'c'])
  })

  test('is refused when a retried delivery is due, and granted during its pause', async () => {
    const session = await stage().openBob()
    const { epoch } = session
    const [first] = await stage().store(stage().append('a', { insertLeaseEpoch: epoch }))
    await stage().here.retry([{ delivery: stage().refOf(first!), epoch: epoch, afterMs: 60_000 }])
    expect(statusesOf(await stage().store(stage().append('b', { insertLeaseEpoch: epoch })))).toEqual(['leased'])
    await stage().world.advance(65_000)
    expect(statusesOf(await stage().store(stage().append('c', { insertLeaseEpoch: epoch })))).toEqual(['stored'])
  })
}

function settleTests(stage: () => Stage): void {
  test('removes the delivery with its commit, and can be repeated', async () => {
    const outcomes = await stage().storeAll('a', 'b')
    const ref = stage().refOf(outcomes[0]!)
    await stage().commit([stage().append('c')], [ref, ref])
    await stage().commit([], [ref])
    expect(await stage().takeTexts(await stage().openBob())).toEqual(['b', 'c'])
  })

  test('removes nothing under another recipient, mesh, priority or id', async () => {
    const [outcome] = await stage().storeAll('a')
    const ref = stage().refOf(outcome!)
    const { cat, stranger } = stage()
    await stage().commit(
      [],
      [
        { ...ref, recipient: cat },
        { ...ref, meshId: OTHER_MESH },
        { ...ref, meshId: OTHER_MESH, recipient: stranger },
        { ...ref, priority: 0 },
        { ...ref, id: (ref.id + 1) as typeof ref.id },
      ],
    )
    expect(await stage().takeTexts(await stage().openBob())).toEqual(['a'])
  })
}
