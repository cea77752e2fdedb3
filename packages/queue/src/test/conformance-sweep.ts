/** Conformance tests for deliveries that leave the queue unsettled, and for the deletion of ledger rows. */
import type { AppendOutcome, DeliveryRef } from '@sealpost/protocol'
import { describe, expect, test } from 'vitest'
import type { Swept } from '../queue.ts'
import { bytesOf, MESH, OTHER_MESH, type Stage, statusesOf, suiteOptions } from './conformance-world.ts'

export function sweepTests(stage: () => Stage): void {
  describe('a sweep', () => {
    deathTests(stage)
    walkTests(stage)
    ledgerTests(stage)
  })
  describe('a measurement', () => measureTests(stage))
}

const { failedAttemptsMax, failedAttemptsSpanMs, dedupeMs, sweepRows } = suiteOptions

async function failTooOften(stage: Stage, ref: DeliveryRef): Promise<void> {
  for (let i = 0; i < failedAttemptsMax; i++) await stage.here.countFailedAttempt(ref)
}

function deathTests(stage: () => Stage): void {
  test('expired deliveries become dead letters, without their envelopes', async () => {
    const append = stage().append('a', { ttlSeconds: 60 })
    const [a] = await stage().store(append, stage().append('b', { ttlSeconds: 90 }))
    const session = await stage().openBob()
    await stage().take(session, 1)
    expect(await stage().here.sweep()).toMatchObject({ expired: 0, dead: 0, isRound: true })
    await stage().world.advance(65_000)
    expect(await stage().here.sweep()).toMatchObject({ expired: 1, dead: 0 })
    expect(await stage().world.deadLetters()).toEqual([
      {
        id: stage().refOf(a!).id,
        recipient: stage().bob,
        envelopeId: append.envelopeId,
        reason: 'expired',
        detail: null,
        isReported: false,
        attempts: 1,
        failedAttempts: 0,
        hasEnvelope: false,
      },
    ])
    expect(await stage().takeTexts(session)).toEqual(['b'])
  })

  test('moves deliveries with too many failed attempts over their span into the dead letters, with their envelopes', async () => {
    const [a] = await stage().storeAll('a', 'b')
    await failTooOften(stage(), stage().refOf(a!))
    expect(await stage().here.sweep()).toMatchObject({ expired: 0, dead: 0 })
    await stage().world.advance(failedAttemptsSpanMs + 5_000)
    expect(await stage().here.sweep()).toMatchObject({ expired: 0, dead: 1 })
    const [letter] = await stage().world.deadLetters()
    expect(letter).toMatchObject({
      reason: 'strikes',
      failedAttempts: failedAttemptsMax,
      attempts: 0,
      hasEnvelope: true,
    })
    expect(await stage().takeTexts(await stage().openBob())).toEqual(['b'])
  })

  test('a delivery stays queued if it is one failed attempt short of the limit, or if it is leased', async () => {
    const [a, b] = await stage().storeAll('a', 'b')
    for (let i = 1; i < failedAttemptsMax; i++) await stage().here.countFailedAttempt(stage().refOf(a!))
    await stage().here.countFailedAttempt(stage().refOf(b!))
    const session = await stage().openBob()
    await stage().world.advance(failedAttemptsSpanMs + 5_000)
    await stage().take(session)
    await failTooOften(stage(), stage().refOf(b!))
    expect(await stage().here.sweep()).toMatchObject({ dead: 0 })
    await stage().world.advance(suiteOptions.leaseMs + 5_000)
    expect(await stage().here.sweep()).toMatchObject({ dead: 1 })
  })

  test('moves a delivery whose retry is pending', async () => {
    const [a] = await stage().storeAll('a')
    await stage().here.countFailedAttempt(stage().refOf(a!))
    const session = await stage().openBob()
    await stage().world.advance(failedAttemptsSpanMs + 5_000)
    await stage().take(session)
    await failTooOften(stage(), stage().refOf(a!))
    await stage().here.retry([{ delivery: stage().refOf(a!), epoch: session.epoch, afterMs: 60_000 }])
    expect(await stage().here.sweep()).toMatchObject({ dead: 1 })
  })

  test('lets no claim take a delivery with too many failed attempts, whatever its lease', async () => {
    const [a] = await stage().storeAll('a', 'b')
    await failTooOften(stage(), stage().refOf(a!))
    await stage().world.advance(failedAttemptsSpanMs + 5_000)
    expect(await stage().takeTexts(await stage().openBob())).toEqual(['b'])
    expect(await stage().here.sweep()).toMatchObject({ dead: 1 })
  })

  test('gives expiry as the reason when both reasons apply', async () => {
    const [a] = await stage().store(stage().append('a', { ttlSeconds: 60 }))
    await failTooOften(stage(), stage().refOf(a!))
    await stage().world.advance(failedAttemptsSpanMs + 5_000)
    expect(await stage().here.sweep()).toMatchObject({ expired: 1, dead: 0 })
    expect(await stage().world.deadLetters()).toMatchObject([{ reason: 'expired', hasEnvelope: false }])
  })
}

function walkTests(stage: () => Stage): void {
  test('scans a large queue in portions, over all recipients, and starts again', async () => {
    const { cat } = stage()
    for (let i = 0; i < 4; i++) {
      await stage().store(
        stage().append(`bob ${i}`, { ttlSeconds: i === 1 ? 60 : 3600, priority: i % 3 }),
        stage().append(`cat ${i}`, { recipient: cat, ttlSeconds: i === 3 ? 60 : 3600 }),
        stage().append(`later ${i}`, { recipient: cat }),
      )
    }
    await stage().world.advance(65_000)
    const walks: Swept[] = []
    for (let i = 0; i < 4; i++) walks.push(await stage().here.sweep())
    expect(walks.map((walk) => walk.isRound)).toEqual([false, false, true, false])
    expect(walks.reduce((sum, walk) => sum + walk.expired, 0)).toBe(2)
    expect(await stage().world.deadLetters()).toHaveLength(2)
  })

  test('scans independently on each shard', async () => {
    await stage().storeAll(...Array.from({ length: sweepRows + 1 }, (_, i) => `${i}`))
    expect((await stage().here.sweep()).isRound).toBe(false)
    expect((await stage().there.sweep()).isRound).toBe(false)
    expect((await stage().here.sweep()).isRound).toBe(true)
  })
}

function ledgerTests(stage: () => Stage): void {
  test('forgets an id when its time has passed and its delivery is gone', async () => {
    const append = stage().append('a')
    const [a] = await stage().store(append)
    await stage().commit([], [stage().refOf(a!)])
    await stage().world.advance(dedupeMs - 5_000)
    expect(await stage().here.sweep()).toMatchObject({ forgotten: 0 })
    expect(statusesOf(await stage().store(append))).toEqual(['duplicate'])
    await stage().world.advance(10_000)
    expect(await stage().here.sweep()).toMatchObject({ forgotten: 1 })
    expect(statusesOf(await stage().store(append))).toEqual(['stored'])
  })

  test('keeps the id of a queued delivery for another period', async () => {
    const append = stage().append('a')
    const [a] = await stage().store(append)
    await stage().world.advance(dedupeMs + 5_000)
    expect(await stage().here.sweep()).toMatchObject({ forgotten: 0 })
    await stage().commit([], [stage().refOf(a!)])
    await stage().world.advance(dedupeMs - 5_000)
    expect(await stage().here.sweep()).toMatchObject({ forgotten: 0 })
    expect(statusesOf(await stage().store(append))).toEqual(['duplicate'])
    await stage().world.advance(10_000)
    expect(await stage().here.sweep()).toMatchObject({ forgotten: 1 })
  })

  test('forgets in portions, the oldest first', async () => {
    const appends = Array.from({ length: sweepRows + 2 }, (_, i) => stage().append(`${i}`))
    const outcomes: AppendOutcome[] = []
    for (const append of appends) {
      outcomes.push(...(await stage().store(append)))
      await stage().world.advance(1_000)
    }
    await stage().commit(
      [],
      outcomes.map((outcome) => stage().refOf(outcome)),
    )
    await stage().world.advance(dedupeMs)
    expect(await stage().here.sweep()).toMatchObject({ forgotten: sweepRows })
    expect(statusesOf(await stage().store(appends.at(-1)!))).toEqual(['duplicate'])
    expect(await stage().here.sweep()).toMatchObject({ forgotten: 2 })
    expect(await stage().here.sweep()).toMatchObject({ forgotten: 0 })
  })
}

function measureTests(stage: () => Stage): void {
  const measure = async (max = 100) => {
    const { here, bob, cat } = stage()
    const recipients = [bob, cat].map((peer) => ({ meshId: MESH, peer }))
    const found = await here.measure(recipients, max)
    return found.map((of) => of.toSorted((a, b) => a.sender - b.sender))
  }

  test('counts deliveries and bytes of each sender, whether leased, delayed or unclaimed', async () => {
    const { ann, bob, cat } = stage()
    const size = bytesOf('a').length
    const { enqueuedAtMs } = await stage().here.commit({ appends: [stage().append('a')], settles: [] })
    await stage().store(stage().append('b'), stage().append('c', { sender: cat }))
    const session = await stage().openBob()
    await stage().take(session, 1)
    const due = stage().append('d', { notBeforeMs: enqueuedAtMs + 60_000, ttlSeconds: 7200 })
    await stage().here.commit({ appends: [due], settles: [] })
    await stage().store(stage().append('e', { sender: bob, recipient: cat }))
    expect(await measure()).toEqual([
      [
        { sender: ann, count: 3, bytes: 3 * size },
        { sender: cat, count: 1, bytes: size },
      ],
      [{ sender: bob, count: 1, bytes: size }],
    ])
  })

  test('counts the backlog of a mesh by sender, for all its recipients and no other mesh', async () => {
    const { ann, cat, here } = stage()
    const size = bytesOf('a').length
    const { enqueuedAtMs } = await here.commit({ appends: [stage().append('a')], settles: [] })
    const due = stage().append('b', { recipient: cat, notBeforeMs: enqueuedAtMs + 60_000, ttlSeconds: 7200 })
    await here.commit({ appends: [due, stage().append('c', { recipient: cat })], settles: [] })
    expect(await here.measureMesh(MESH, 100)).toEqual([{ sender: ann, count: 3, bytes: 3 * size }])
    expect(await here.measureMesh(MESH, 1)).toEqual([{ sender: ann, count: 2, bytes: 2 * size }])
    expect(await here.measureMesh(OTHER_MESH, 100)).toEqual([])
  })

  test('reads no more rows than its limit', async () => {
    await stage().store(...['a', 'b', 'c', 'd'].map((text) => stage().append(text)))
    expect((await measure(3))[0]).toMatchObject([{ count: 3 }])
    expect((await measure())[1]).toEqual([])
  })
}
