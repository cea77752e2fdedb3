/**
 * Conformance tests for deliveries that one shard leases on insert to a session of another shard, which collects them.
 */
import {
  ANY_ID,
  type Append,
  NO_VIRTUAL_TIMES,
  PRIORITY_MAX,
  type RemoteClaimed,
  type SessionRef,
} from '@sealpost/protocol'
import { blockOf, ID_BLOCK } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { AMPLE_BYTES, bytesOf, peerKeyOf, type Stage, statusesOf, suiteOptions, textOf } from './conformance-world.ts'

const FROM_FIRST = { from: 0, to: ANY_ID.to }
const TEXTS = ['a', 'b', 'c', 'd']

export function collectTests(stage: () => Stage): void {
  describe('a collect', () => {
    test('returns deliveries leased by another shard, in order, as first attempts, and changes nothing', async () => {
      const { session, refs } = await fromElsewhere(stage(), 'a', 'b')
      const collected = await collect(stage(), session)
      expect(collected).toMatchObject({ status: 'collected', hasMore: false })
      const [first] = deliveriesIn(collected)
      expect(first).toMatchObject({
        id: refs[0]!.id,
        attempt: 1,
        sender: peerKeyOf(1),
        priority: 1,
        terms: null,
        body: null,
      })
      expect([textsOf(collected), textsOf(await collect(stage(), session))]).toEqual([
        ['a', 'b'],
        ['a', 'b'],
      ])
      await stage().there.commit({ appends: [], settles: refs })
      expect(textsOf(await collect(stage(), session))).toEqual([])
    })

    test('returns the terms and the shared body of a broadcast', async () => {
      const body = { bodyId: 'ab'.repeat(32), bytes: bytesOf('for all') }
      const terms = new Uint8Array([1, 0, 7])
      const { session } = await fromElsewhere(stage(), { body, terms })
      const [delivery] = deliveriesIn(await collect(stage(), session))
      expect([textOf(delivery!.body!), delivery!.terms?.join()]).toEqual(['for all', '1,0,7'])
    })

    test('returns deliveries within its ids and limits, and reports that there are more', async () => {
      const { session, refs } = await fromElsewhere(stage(), ...TEXTS)
      const from = refs[1]!.id
      expect(await collect(stage(), session, { limit: 2 })).toMatchObject({ hasMore: true })
      expect(textsOf(await collect(stage(), session, { limit: 2 }))).toEqual(['a', 'b'])
      expect(textsOf(await collect(stage(), session, { limitBytes: 41 }))).toEqual(['a', 'b'])
      const ids = { from, to: (blockOf(from) + 1) * ID_BLOCK - 1 }
      expect(textsOf(await collect(stage(), session, { ids }))).toEqual(['b', 'c', 'd'])
    })

    test('a collect stops before the first delivery that requires a claim', async () => {
      const { session } = await fromElsewhere(stage(), 'a', { remoteLeaseEpoch: 0 }, 'c')
      const collected = await collect(stage(), session)
      expect([textsOf(collected), collected]).toMatchObject([['a'], { hasMore: true }])
    })

    test('leaves deliveries with less than half of their lease left to a claim', async () => {
      const { session } = await fromElsewhere(stage(), 'a')
      await stage().world.advance(suiteOptions.leaseMs / 2 + 1_000)
      expect(await collect(stage(), session)).toEqual({ status: 'collected', deliveries: [], hasMore: true })
      expect(await claimTexts(stage(), session)).toEqual([['a', 1]])
    })

    test('skips expired deliveries', async () => {
      const { session } = await fromElsewhere(stage(), { ttlSeconds: 5 }, 'b')
      await stage().world.advance(6_000)
      expect(await collect(stage(), session)).toMatchObject({ hasMore: false })
      expect(textsOf(await collect(stage(), session))).toEqual(['b'])
    })

    test('is stale for another shard, and under an epoch that is not the session’s', async () => {
      const { session } = await fromElsewhere(stage(), 'a')
      const stale = { status: 'stale' }
      expect((await stage().here.collect([wantOf(session)]))[0]).toEqual(stale)
      expect(await collect(stage(), { ...session, epoch: session.epoch - 1 })).toEqual(stale)
      expect(await collect(stage(), { ...session, epoch: session.epoch + 1 })).toEqual(stale)
    })
  })

  describe('a delivery leased by another shard', () => {
    test('is claimed once, by a claim for everything', async () => {
      const { session } = await fromElsewhere(stage(), 'a', 'b')
      expect(await claimTexts(stage(), session)).toEqual([
        ['a', 1],
        ['b', 1],
      ])
      expect(await claimTexts(stage(), session)).toEqual([])
    })

    test('a collected delivery is not claimed again until its lease has expired; the claim then adds no failed attempt', async () => {
      const { session, refs } = await fromElsewhere(stage(), ...TEXTS)
      const collected = [refs[1]!.id]
      expect(await claimTexts(stage(), session, [...collected, refs[1]!.id + 3 * ID_BLOCK])).toEqual([
        ['c', 1],
        ['d', 1],
      ])
      await stage().world.advance(suiteOptions.leaseMs + 1_000)
      expect(await claimTexts(stage(), session, collected)).toEqual(TEXTS.map((text) => [text, 2]))
      await stage().there.reject([{ delivery: refs[0]!, epoch: session.epoch, reason: '' }])
      expect(await stage().world.deadLetters()).toMatchObject([{ failedAttempts: 0 }])
    })

    test('is free under every other epoch, and may have been pushed', async () => {
      const { session } = await fromElsewhere(stage(), 'a')
      const next = await stage().openFor(peerKeyOf(2), { queue: stage().there })
      expect(next.epoch).toBeGreaterThan(session.epoch)
      expect(await collect(stage(), next)).toEqual({ status: 'collected', deliveries: [], hasMore: true })
      expect(await claimTexts(stage(), next)).toEqual([['a', 2]])
    })

    test('can be retried, and returns as the second attempt', async () => {
      const { session, refs } = await fromElsewhere(stage(), 'a')
      await stage().there.retry([{ delivery: refs[0]!, epoch: session.epoch, afterMs: 1_000 }])
      await stage().world.advance(2_000)
      expect(await claimTexts(stage(), session)).toEqual([['a', 2]])
    })

    test("keeps later mail of its sender from a lease on insert on the recipient's shard", async () => {
      const { session } = await fromElsewhere(stage(), 'a')
      await stage().openFor(peerKeyOf(1), { queue: stage().there })
      const { there, cat } = stage()
      const withLease = { insertLeaseEpoch: session.epoch }
      await stage().openFor(peerKeyOf(3), { queue: there })
      const ofCat = await there.commit({ appends: [stage().append('x', { ...withLease, sender: cat })], settles: [] })
      const ofAnn = await there.commit({ appends: [stage().append('b', withLease)], settles: [] })
      expect([...statusesOf(ofCat.outcomes), ...statusesOf(ofAnn.outcomes)]).toEqual(['leased', 'stored'])
    })

    test('is not leased when its commit was in doubt', async () => {
      const session = await stage().openFor(peerKeyOf(2), { queue: stage().there })
      const outcomes = await stage().store(stage().append('a', { remoteLeaseEpoch: session.epoch }))
      expect(statusesOf(outcomes)).toEqual(['stored'])
    })
  })
}

/** Sends these envelopes from Ann on this shard to Bob's session on the other shard. */
async function fromElsewhere(stage: Stage, ...drafts: (string | Partial<Append>)[]) {
  await stage.openFor(peerKeyOf(1))
  const session = await stage.openFor(peerKeyOf(2), { queue: stage.there })
  const appends = drafts.map((draft) => {
    const more = typeof draft === 'string' ? {} : draft
    return stage.append(typeof draft === 'string' ? draft : 'x', { remoteLeaseEpoch: session.epoch, ...more })
  })
  const outcomes = await stage.store(...appends)
  return { session, refs: outcomes.map((outcome) => stage.refOf(outcome)) }
}

const wantOf = (session: SessionRef) => ({ session, limit: 100, limitBytes: AMPLE_BYTES, ids: FROM_FIRST })

async function collect(
  { there }: Stage,
  session: SessionRef,
  changes: Partial<ReturnType<typeof wantOf>> = {},
): Promise<RemoteClaimed> {
  const [collected] = await there.collect([{ ...wantOf(session), ...changes }])
  return collected!
}

const deliveriesIn = (collected: RemoteClaimed) => (collected.status === 'collected' ? collected.deliveries : [])
const textsOf = (collected: RemoteClaimed) => deliveriesIn(collected).map(({ envelope }) => textOf(envelope))

async function claimTexts({ there }: Stage, session: SessionRef, collected: readonly number[] = []) {
  const want = { ...wantOf(session), ids: ANY_ID, priorityMax: PRIORITY_MAX, virtualTimes: NO_VIRTUAL_TIMES, collected }
  const [claimed] = await there.claim([want])
  return claimed!.status === 'claimed'
    ? claimed!.deliveries.map(({ envelope, attempt }) => [textOf(envelope), attempt])
    : []
}
