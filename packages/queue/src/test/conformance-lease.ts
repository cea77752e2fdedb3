/** Conformance tests for claims and leases, sessions and epochs, retries, releases and failed attempts. */

import {
  ALONE_AFTER_ATTEMPTS,
  ANY_ID,
  type AppendOutcome,
  NO_VIRTUAL_TIMES,
  PRIORITY_MAX,
  type SessionRef,
  type Want,
} from '@sealpost/protocol'
import type { PeerNo } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import {
  AMPLE_BYTES,
  bytesOf,
  MESH,
  OTHER_MESH,
  peerKeyOf,
  type Stage,
  statusesOf,
  suiteOptions,
  textOf,
} from './conformance-world.ts'

export function leaseTests(stage: () => Stage): void {
  describe('a claim', () => claimTests(stage))
  describe('a session', () => sessionTests(stage))
  describe('a retry', () => retryTests(stage))
  describe('a release', () => releaseTests(stage))
  describe('a failed attempt', () => failedAttemptTests(stage))
}

const LAPSE_MS = suiteOptions.leaseMs + 5_000

function claimTests(stage: () => Stage): void {
  test('returns deliveries by priority, then oldest first, up to its limit', async () => {
    const texts = ['1a', '2a', '0a', '1b', '0b', '2b']
    await stage().store(...texts.map((text) => stage().append(text, { priority: Number(text[0]) })))
    const session = await stage().openBob()
    expect(await stage().takeTexts(session, 4)).toEqual(['0a', '0b', '1a', '1b'])
    expect(await stage().takeTexts(session, 4)).toEqual(['2a', '2b'])
    expect(await stage().takeTexts(session, 4)).toEqual([])
  })

  test('returns deliveries up to the one that reaches its limit in bytes', async () => {
    const sizes = [100, 60, 50, 40]
    await stage().store(
      ...sizes.map((size) => stage().append('', { envelope: bytesOf('x'.repeat(size)) })),
      stage().append('', { envelope: bytesOf('y'.repeat(200)), priority: 0 }),
    )
    const session = await stage().openBob()
    const take = async (limitBytes: number) => {
      const [claimed] = await stage().here.claim([
        {
          session,
          limit: 100,
          limitBytes,
          ids: ANY_ID,
          priorityMax: PRIORITY_MAX,
          virtualTimes: NO_VIRTUAL_TIMES,
          collected: [],
        },
      ])
      if (claimed!.status !== 'claimed') return claimed!.status
      return [claimed!.hasMore, ...claimed!.deliveries.map((delivery) => delivery.envelope.length)]
    }
    expect(await take(1)).toEqual([true, 200])
    expect(await take(160)).toEqual([true, 100, 60])
    expect(await take(51)).toEqual([false, 50, 40])
    expect(await take(51)).toEqual([false])
  })

  test('returns all fields of a delivery', async () => {
    const append = stage().append('a', { priority: 2 })
    const { outcomes, enqueuedAtMs } = await stage().commit([append])
    const [delivery] = await stage().take(await stage().openBob())
    expect(delivery).toMatchObject({
      id: stage().refOf(outcomes[0]!).id,
      envelopeId: append.envelopeId,
      sender: peerKeyOf(1),
      priority: 2,
      attempt: 1,
      enqueuedAtMs,
    })
    expect(Buffer.from(delivery!.envelope)).toEqual(Buffer.from(append.envelope))
  })

  test('returns the results of many wants in order, each for its own recipient only', async () => {
    const { cat, stranger, here } = stage()
    await stage().store(
      stage().append('to bob'),
      stage().append('to cat', { recipient: cat }),
      stage().append('to stranger', { meshId: OTHER_MESH, sender: stranger, recipient: stranger }),
      stage().append('to bob too', { sender: cat }),
    )
    const wants: Want[] = []
    for (const [meshId, n] of [
      [MESH, 3],
      [MESH, 1],
      [OTHER_MESH, 4],
      [MESH, 2],
    ] as const) {
      const session = await stage().openFor(peerKeyOf(n), { meshId })
      wants.push({
        session,
        limit: 5,
        limitBytes: AMPLE_BYTES,
        ids: ANY_ID,
        priorityMax: PRIORITY_MAX,
        virtualTimes: NO_VIRTUAL_TIMES,
        collected: [],
      })
    }
    const texts = (await here.claim(wants)).map((claimed) =>
      claimed.status === 'claimed' ? claimed.deliveries.map((delivery) => textOf(delivery.envelope)) : claimed.status,
    )
    expect(texts).toEqual([['to cat'], [], ['to stranger'], ['to bob', 'to bob too']])
  })

  test('a leased delivery is not claimed until its lease has expired, and each claim counts as an attempt', async () => {
    await stage().storeAll('a')
    const session = await stage().openBob()
    expect((await stage().take(session)).map((delivery) => delivery.attempt)).toEqual([1])
    await stage().world.advance(suiteOptions.leaseMs - 5_000)
    expect(await stage().take(session)).toEqual([])
    await stage().world.advance(10_000)
    expect((await stage().take(session)).map((delivery) => delivery.attempt)).toEqual([2])
    expect(await stage().take(session)).toEqual([])
  })

  test('H96: treats a lease from the future as lapsed: the clock jumped back', async () => {
    await stage().storeAll('a')
    const session = await stage().openBob()
    await stage().take(session)
    await stage().world.advance(-400_000)
    expect((await stage().take(session)).map((delivery) => delivery.attempt)).toEqual([2])
  })

  test('returns a delivery with many attempts alone, and earlier ones without it', async () => {
    const [, b] = await stage().storeAll('a', 'b', 'c')
    let session = await stage().openBob()
    for (let i = 0; i < ALONE_AFTER_ATTEMPTS; i++) {
      await stage().take(session, 2)
      session = await stage().openBob()
    }
    const take = async () => {
      const claimed = await stage().claim(session)
      if (claimed.status !== 'claimed') return claimed.status
      return [claimed.hasMore, ...claimed.deliveries.map(({ envelope, attempt }) => textOf(envelope) + attempt)]
    }
    expect(await take()).toEqual([true, 'a6'])
    expect(await take()).toEqual([true, 'b6'])
    expect(await take()).toEqual([false, 'c1'])
    await stage().here.retry([{ delivery: stage().refOf(b!), epoch: session.epoch, afterMs: 0 }])
    await stage().store(stage().append('d', { priority: 0 }))
    expect(await take()).toEqual([true, 'd1'])
    expect(await take()).toEqual([false, 'b7'])
  })

  test('leaves expired deliveries', async () => {
    await stage().store(stage().append('a', { ttlSeconds: 60 }), stage().append('b'))
    await stage().world.advance(65_000)
    expect(await stage().takeTexts(await stage().openBob())).toEqual(['b'])
  })

  test('under a stale epoch, from another shard or for an unknown peer is stale and takes nothing', async () => {
    await stage().storeAll('a')
    const old = await stage().openBob()
    const session = await stage().openBob()
    expect(await stage().claim(old)).toEqual({ status: 'stale' })
    expect(await stage().claim({ ...session, epoch: session.epoch + 1 })).toEqual({ status: 'stale' })
    expect(await stage().claim(session, 9, stage().there)).toEqual({ status: 'stale' })
    expect(await stage().claim({ ...session, meshId: OTHER_MESH })).toEqual({ status: 'stale' })
    expect(await stage().takeTexts(session)).toEqual(['a'])
  })

  test('skips a session row that another statement holds, and only that one', async () => {
    const { bob, cat, here, world } = stage()
    await stage().store(stage().append('a'), stage().append('b', { recipient: cat }))
    const session = await stage().openBob()
    const other = await stage().openFor(peerKeyOf(3))
    await world.whileLocked(MESH, bob, async () => {
      const answers = await here.claim(
        [session, other].map((ref) => ({
          session: ref,
          limit: 5,
          limitBytes: AMPLE_BYTES,
          ids: ANY_ID,
          priorityMax: PRIORITY_MAX,
          virtualTimes: NO_VIRTUAL_TIMES,
          collected: [],
        })),
      )
      expect(answers.map((claimed) => claimed.status)).toEqual(['locked', 'claimed'])
      expect(await stage().claim({ ...session, epoch: session.epoch - 1 })).toEqual({ status: 'stale' })
    })
    expect(await stage().takeTexts(session)).toEqual(['a'])
  })
}

function sessionTests(stage: () => Stage): void {
  test('opened on another shard makes the former one stale and voids its leases', async () => {
    await stage().storeAll('a', 'b')
    const former = await stage().openBob()
    await stage().take(former, 1)
    const session = await stage().openBob(stage().there)
    expect(session.epoch).toBeGreaterThan(former.epoch)
    expect(await stage().claim(former)).toEqual({ status: 'stale' })
    const deliveries = await stage().take(session, 9, stage().there)
    expect(deliveries.map((delivery) => [textOf(delivery.envelope), delivery.attempt])).toEqual([
      ['a', 2],
      ['b', 1],
    ])
  })

  test('is not opened with an epoch other than the current one, and does not change', async () => {
    await stage().storeAll('a')
    const former = await stage().openBob()
    const session = await stage().openBob()
    const epochs = [0, former.epoch, session.epoch - 1, session.epoch + 1, session.epoch + 2]
    for (const epoch of epochs) expect(await stage().there.open({ ...session, epoch })).toBeNull()
    expect(await stage().readSession(peerKeyOf(2))).toEqual(session)
    expect(await stage().takeTexts(session)).toEqual(['a'])
  })

  test('is opened by only one of two openings that read the same epoch', async () => {
    await stage().storeAll('a')
    const read = await stage().readSession(peerKeyOf(2))
    const epoch = await stage().there.open(read)
    expect(await stage().here.open(read)).toBeNull()
    expect(await stage().takeTexts({ ...read, epoch: epoch! }, 9, stage().there)).toEqual(['a'])
  })

  test('is opened together with others, each with its own epoch', async () => {
    const [ann, bob, cat] = await Promise.all([1, 2, 3].map((no) => stage().readSession(peerKeyOf(no))))
    const stale = { ...cat!, epoch: cat!.epoch + 1 }
    const epochs = await Promise.all([ann!, bob!, stale, bob!].map((read) => stage().here.open(read)))
    expect(epochs.map((epoch) => epoch !== null)).toEqual([true, true, false, false])
    expect(await stage().here.open(cat!)).toBeGreaterThan(cat!.epoch)
  })

  test('does not wait for another whose row a statement holds', async () => {
    const { bob, here, world } = stage()
    const [held, free] = await Promise.all([2, 3].map((no) => stage().readSession(peerKeyOf(no))))
    let waiting: Promise<unknown> | undefined
    await world.whileLocked(MESH, bob, async () => {
      waiting = here.open(held!).catch(() => null)
      expect(await here.open(free!)).toBeGreaterThan(free!.epoch)
    })
    await waiting
  })

  test('is not opened with an epoch from before a fence', async () => {
    const read = await stage().openBob()
    const epoch = await stage().here.fence(read)
    expect(await stage().there.open(read)).toBeNull()
    expect(await stage().there.open({ ...read, epoch: epoch! })).toBeGreaterThan(epoch!)
  })

  test('that is fenced keeps its shard under a new epoch, and its leases are void', async () => {
    await stage().storeAll('a')
    const former = await stage().openBob()
    await stage().take(former)
    const epoch = await stage().here.fence(former)
    expect(epoch).toBeGreaterThan(former.epoch)
    expect(await stage().claim(former)).toEqual({ status: 'stale' })
    expect(await stage().takeTexts({ ...former, epoch: epoch! })).toEqual(['a'])
  })

  test('fenced twice with the same epoch has one new epoch, whose leases are valid', async () => {
    await stage().storeAll('a')
    const former = await stage().openBob()
    const epoch = await stage().here.fence(former)
    await stage().take({ ...former, epoch: epoch! })
    expect(await stage().here.fence(former)).toBe(epoch)
    expect(await stage().take({ ...former, epoch: epoch! })).toEqual([])
  })

  test('is not fenced with an old epoch, by another shard, or after it was opened on another shard', async () => {
    const first = await stage().openBob()
    const epoch = (await stage().here.fence(first))!
    await stage().here.fence({ ...first, epoch })
    expect(await stage().here.fence(first)).toBeNull()
    const session = await stage().openBob()
    expect(await stage().there.fence(session)).toBeNull()
    await stage().openBob(stage().there)
    expect(await stage().here.fence(session)).toBeNull()
    expect(await stage().here.fence({ ...session, meshId: OTHER_MESH })).toBeNull()
  })

  test('is distinguished from a session that another shard opened since, from that of a revoked member, and from an unknown peer', async () => {
    const { here, there, world, cat, stranger } = stage()
    const check = async (session: SessionRef) => (await here.checkSessions([session]))[0]!
    const session = await stage().openBob()
    const catsEpoch = (await here.open(await stage().readSession(peerKeyOf(3))))!
    const cats = { meshId: MESH, peer: cat, epoch: catsEpoch }
    const good = { isRevoked: false, isElsewhere: false }
    const unknownPeer = { ...session, peer: 1_000_000 as PeerNo }
    expect(await here.checkSessions([session, unknownPeer, cats, { ...session, peer: stranger }])).toEqual([
      { ...good, peerKey: peerKeyOf(2) },
      { ...good, peerKey: null },
      { ...good, peerKey: peerKeyOf(3) },
      { ...good, peerKey: null },
    ])
    const epoch = (await here.fence(session))!
    expect(await check(session)).toMatchObject(good) // the reply to the fence may be in flight, so the former epoch is still valid
    const elsewhere = await stage().openBob(there)
    expect(await check({ ...session, epoch })).toMatchObject({ isElsewhere: true })
    expect((await there.checkSessions([elsewhere]))[0]).toMatchObject(good)
    await world.revoke(MESH, peerKeyOf(3))
    expect(await check(cats)).toMatchObject({ isRevoked: true })
  })

  test('that is reopened on the same shard is not affected by a late fence of the former one', async () => {
    await stage().storeAll('a')
    const former = await stage().openBob()
    const session = await stage().openBob()
    await stage().take(session)
    expect(await stage().here.fence(former)).toBeNull()
    expect(await stage().claim(session)).toEqual({ status: 'claimed', deliveries: [], hasMore: false })
  })
}

function retryTests(stage: () => Stage): void {
  test('frees a delivery for another attempt after its delay', async () => {
    const [a] = await stage().storeAll('a', 'b')
    const session = await stage().openBob()
    await stage().take(session)
    await stage().here.retry([{ delivery: stage().refOf(a!), epoch: session.epoch, afterMs: 90_000 }])
    await stage().world.advance(80_000)
    expect(await stage().takeTexts(session)).toEqual(['b'])
    await stage().world.advance(15_000)
    expect((await stage().take(session)).map((delivery) => delivery.attempt)).toEqual([2])
  })

  test('without a delay frees it at once', async () => {
    const [a] = await stage().storeAll('a')
    const session = await stage().openBob()
    await stage().take(session)
    await stage().here.retry([{ delivery: stage().refOf(a!), epoch: session.epoch, afterMs: 0 }])
    expect(await stage().takeTexts(session)).toEqual(['a'])
  })

  test('with a long pause does not look like a lease from before a clock jump', async () => {
    const [a] = await stage().storeAll('a')
    const session = await stage().openBob()
    await stage().take(session)
    await stage().here.retry([{ delivery: stage().refOf(a!), epoch: session.epoch, afterMs: 1_800_000 }])
    expect(await stage().takeTexts(session)).toEqual([])
    await stage().world.advance(1_805_000)
    expect(await stage().takeTexts(session)).toEqual(['a'])
  })

  test('under another epoch or name changes nothing', async () => {
    const [a] = await stage().storeAll('a')
    const session = await stage().openBob()
    await stage().take(session)
    const ref = stage().refOf(a!)
    await stage().here.retry([{ delivery: ref, epoch: session.epoch - 1, afterMs: 0 }])
    await stage().here.retry([{ delivery: { ...ref, recipient: stage().cat }, epoch: session.epoch, afterMs: 0 }])
    await stage().here.retry([{ delivery: { ...ref, priority: 0 }, epoch: session.epoch, afterMs: 0 }])
    expect(await stage().takeTexts(session)).toEqual([])
  })

  test('is one failed attempt, also when its delivery is claimed again', async () => {
    const [a] = await stage().storeAll('a')
    const session = await stage().openBob()
    await stage().take(session)
    await stage().here.retry([{ delivery: stage().refOf(a!), epoch: session.epoch, afterMs: 10_000 }])
    await stage().world.advance(20_000)
    await stage().take(session)
    await expectFailedAttempts(stage(), { a: 1 })
  })
}

function releaseTests(stage: () => Stage): void {
  /** Claims and releases all deliveries in a new session. Returns the numbers of their attempts. */
  async function claimAndRelease(outcomes: readonly AppendOutcome[], isUntouched: boolean): Promise<number[]> {
    const session = await stage().openBob()
    const taken = await stage().take(session)
    const releaseOf = (outcome: AppendOutcome) => ({
      delivery: stage().refOf(outcome),
      epoch: session.epoch,
      isUntouched,
    })
    await stage().here.release(outcomes.map(releaseOf))
    return taken.map(({ attempt }) => attempt)
  }

  test('of untouched deliveries undoes their attempts, without a failed attempt, however often', async () => {
    const outcomes = await stage().storeAll('a', 'b')
    for (let turn = 0; turn <= ALONE_AFTER_ATTEMPTS; turn++)
      expect(await claimAndRelease(outcomes, true)).toEqual([1, 1])
    await expectFailedAttempts(stage(), { a: 0, b: 0 })
  })

  test('of touched deliveries counts their attempts, and a later one of untouched deliveries undoes one', async () => {
    const outcomes = await stage().storeAll('a')
    for (const attempt of [1, 2]) expect(await claimAndRelease(outcomes, false)).toEqual([attempt])
    for (let turn = 0; turn < 2; turn++) expect(await claimAndRelease(outcomes, true)).toEqual([3])
  })

  test('of an untouched delivery frees it at once, in its place', async () => {
    const outcomes = await stage().storeAll('a', 'b')
    const session = await stage().openBob()
    await stage().take(session, 1)
    await stage().here.release([{ delivery: stage().refOf(outcomes[0]!), epoch: session.epoch, isUntouched: true }])
    expect(await stage().takeTexts(session)).toEqual(['a', 'b'])
  })

  test('under another epoch changes nothing', async () => {
    const outcomes = await stage().storeAll('a')
    const former = await stage().openBob()
    await stage().take(former)
    const session = await stage().openBob()
    await stage().take(session)
    await stage().here.release([{ delivery: stage().refOf(outcomes[0]!), epoch: former.epoch, isUntouched: true }])
    expect(await stage().take(session)).toEqual([])
  })

  test('undoes the attempt of a delivery that another shard leased to the session', async () => {
    const bob = await stage().openBob()
    await stage().openFor(peerKeyOf(1), { queue: stage().there })
    const append = stage().append('a', { remoteLeaseEpoch: bob.epoch })
    const { outcomes } = await stage().there.commit({ appends: [append], settles: [] })
    await stage().here.release([{ delivery: stage().refOf(outcomes[0]!), epoch: bob.epoch, isUntouched: true }])
    expect((await stage().take(await stage().openBob())).map(({ attempt }) => attempt)).toEqual([1])
  })
}

function failedAttemptTests(stage: () => Stage): void {
  test('is counted for the oldest delivery whose lease lapsed in the session, not for later ones', async () => {
    await stage().storeAll('a', 'b', 'c')
    const session = await stage().openBob()
    await stage().take(session)
    await stage().world.advance(LAPSE_MS)
    await stage().take(session)
    await expectFailedAttempts(stage(), { a: 1, b: 0, c: 0 })
  })

  test('is not counted for a takeover, an opening or a fence', async () => {
    await stage().storeAll('a')
    const session = await stage().openBob()
    await stage().take(session)
    const elsewhere = await stage().openBob(stage().there)
    await stage().take(elsewhere, 9, stage().there)
    const back = await stage().openBob()
    await stage().take(back)
    const epoch = (await stage().here.fence(back))!
    await stage().world.advance(LAPSE_MS)
    await stage().take({ ...back, epoch })
    await expectFailedAttempts(stage(), { a: 0 })
  })

  test('counted by the shard belongs to the delivery that it names', async () => {
    const [, b] = await stage().storeAll('a', 'b')
    await stage().here.countFailedAttempt(stage().refOf(b!))
    await stage().here.countFailedAttempt(stage().refOf(b!))
    await stage().here.countFailedAttempt({ ...stage().refOf(b!), meshId: OTHER_MESH })
    await expectFailedAttempts(stage(), { a: 0, b: 2 })
  })
}

/** Lets all deliveries expire, because failed attempts are visible only in dead letters. */
async function expectFailedAttempts(stage: Stage, expected: Readonly<Record<string, number>>): Promise<void> {
  await stage.world.advance(3_700_000)
  for (let i = 0; i < 3; i++) await stage.here.sweep()
  const letters = await stage.world.deadLetters()
  expect(letters.map((letter) => letter.failedAttempts)).toEqual(Object.values(expected))
  expect(statusesOf(await stage.storeAll('z'))).toEqual(['stored'])
}
