/** Conformance tests for the terms that senders request, and for rejects, extensions and reports of lost deliveries. */
import {
  ANY_ID,
  encodeTerms,
  NO_THREAD,
  NO_VIRTUAL_TIMES,
  PRIORITY_MAX,
  readMarking,
  type Terms,
  type VirtualTimes,
} from '@sealpost/protocol'
import { describe, expect, test } from 'vitest'
import { AMPLE_BYTES, MESH, peerKeyOf, type Stage, suiteOptions, textOf } from './conformance-world.ts'

const termsOf = (changes: Partial<Terms> = {}) =>
  encodeTerms({ receipts: 'end', thread: NO_THREAD, hops: 0, noAutoReply: false, ...changes })!

export function termsTests(stage: () => Stage): void {
  describe('receipts', () => receiptTests(stage))
  describe('a rejected delivery', () => rejectTests(stage))
  describe('a delayed delivery', () => delayTests(stage))
  describe('priorities', () => priorityTests(stage))
  describe('an extended lease', () => extendTests(stage))
  describe('a lost delivery', () => lostTests(stage))
  describe('a broadcast', () => broadcastTests(stage))
}

function receiptTests(stage: () => Stage): void {
  test('notify the sender of a settle, once that is committed', async () => {
    const asked = stage().append('a', { terms: termsOf() })
    const [a] = await stage().store(asked)
    await stage().commit([], [{ ...stage().refOf(a!), receiptTo: peerKeyOf(1) }])
    expect(await receiptsOfAnn(stage())).toEqual([{ event: 'settled', of: asked.envelopeId, from: peerKeyOf(2) }])
  })

  test('are sent to senders that asked, if the recipient permits it', async () => {
    const outcomes = await stage().store(
      stage().append('never asked'),
      stage().append('asks for none', { terms: termsOf({ receipts: 'none', hops: 1 }) }),
      stage().append('is not told', { terms: termsOf() }),
    )
    const [never, none, quiet] = outcomes.map((outcome) => stage().refOf(outcome))
    const receiptTo = peerKeyOf(1)
    await stage().commit([], [{ ...never!, receiptTo: receiptTo }, { ...none!, receiptTo: receiptTo }, quiet!])
    expect(await receiptsOfAnn(stage())).toEqual([])
  })

  test('report that a delivery was pushed, expired or failed too often', async () => {
    const appends = ['a', 'b', 'c'].map((text) => stage().append(text, { terms: termsOf(), ttlSeconds: 3600 }))
    const brief = stage().append('brief', { terms: termsOf(), ttlSeconds: 60 })
    const [a, b] = await stage().store(...appends, brief)
    await stage().here.notifyPushed([stage().refOf(a!)])
    for (let n = 0; n < suiteOptions.failedAttemptsMax; n++) await stage().here.countFailedAttempt(stage().refOf(b!))
    await stage().world.advance(suiteOptions.failedAttemptsSpanMs + 65_000)
    await stage().here.sweep()
    const reported = (await receiptsOfAnn(stage())).map(({ event, of }) => ({ event, of }))
    expect(reported).toEqual([
      { event: 'pushed', of: appends[0]!.envelopeId },
      { event: 'struck_out', of: appends[1]!.envelopeId },
      { event: 'expired', of: brief.envelopeId },
    ])
  })

  test('that wait keep no mail from its lease on insert', async () => {
    const [a] = await stage().store(stage().append('a', { terms: termsOf() }))
    await stage().commit([], [{ ...stage().refOf(a!), receiptTo: peerKeyOf(1) }])
    await stage().openFor(peerKeyOf(2))
    const session = await stage().openFor(peerKeyOf(1))
    const reply = { sender: stage().bob, recipient: stage().ann, insertLeaseEpoch: session.epoch }
    expect(await stage().store(stage().append('reply', reply))).toMatchObject([{ isLeased: true }])
  })

  test('end without receipts or dead letters for themselves', async () => {
    const [a] = await stage().store(stage().append('a', { terms: termsOf() }))
    await stage().commit([], [{ ...stage().refOf(a!), receiptTo: peerKeyOf(1) }])
    await stage().world.advance(15 * 86_400_000)
    expect(await stage().here.sweep()).toMatchObject({ expired: 1 })
    expect(await stage().world.deadLetters()).toEqual([])
  })

  test('end by failed attempts without receipts or dead letters for themselves', async () => {
    const [a] = await stage().store(stage().append('a', { terms: termsOf() }))
    await stage().commit([], [{ ...stage().refOf(a!), receiptTo: peerKeyOf(1) }])
    const [receipt] = await stage().take(await stage().openFor(peerKeyOf(1)))
    const ref = { meshId: MESH, recipient: stage().ann, priority: 1, id: receipt!.id }
    for (let n = 0; n < suiteOptions.failedAttemptsMax; n++) await stage().here.countFailedAttempt(ref)
    await stage().world.advance(suiteOptions.failedAttemptsSpanMs + 65_000)
    expect(await stage().here.sweep()).toMatchObject({ expired: 0, dead: 1 })
    expect(await receiptsOfAnn(stage())).toEqual([])
    expect(await stage().world.deadLetters()).toEqual([])
  })

  test('travel with the delivery, like the rest of its terms', async () => {
    const terms = termsOf({ receipts: 'all', thread: 'ab'.repeat(16), hops: 7, noAutoReply: true })
    const session = await stage().openBob()
    await stage().store(stage().append('a', { terms, insertLeaseEpoch: 0 }))
    const [delivery] = await stage().take(session)
    expect(delivery!.terms?.join()).toEqual(terms.join())
  })
}

function rejectTests(stage: () => Stage): void {
  test('goes to the dead letters with its reason, and its sender gets a receipt', async () => {
    const [a] = await stage().store(stage().append('a', { terms: termsOf() }))
    const session = await stage().openBob()
    await stage().take(session)
    await stage().here.reject([{ delivery: stage().refOf(a!), epoch: session.epoch, reason: 'not "mine"' }])
    expect(await stage().world.deadLetters()).toMatchObject([
      { reason: 'rejected', detail: 'not "mine"', hasEnvelope: true, isReported: true },
    ])
    expect((await receiptsOfAnn(stage())).map(({ event }) => event)).toEqual(['rejected'])
  })

  test('stays queued when the session that rejects it is over', async () => {
    const [a] = await stage().storeAll('a')
    const session = await stage().openBob()
    await stage().take(session)
    await stage().here.reject([{ delivery: stage().refOf(a!), epoch: session.epoch - 1, reason: '' }])
    expect(await stage().world.deadLetters()).toEqual([])
  })
}

function delayTests(stage: () => Stage): void {
  test('is out of the queue until it is due', async () => {
    const session = await stage().openBob()
    const { enqueuedAtMs } = await stage().commit([stage().append('at once')])
    await stage().store(stage().append('later', { notBeforeMs: enqueuedAtMs + 60_000 }), stage().append('then'))
    const deliveries = await stage().take(session)
    expect(deliveries.map(({ envelope }) => textOf(envelope))).toEqual(['at once', 'then'])
    await stage().commit(
      [],
      deliveries.map(({ id, priority }) => ({ meshId: MESH, recipient: stage().bob, priority, id })),
    )
    const { recipients, nextInMs } = await stage().here.releaseDue()
    expect(recipients).toEqual([])
    expect(nextInMs).toBeGreaterThan(50_000)
    expect(nextInMs).toBeLessThanOrEqual(60_000)
    await stage().world.advance(61_000)
    expect(await stage().here.releaseDue()).toEqual({
      recipients: [{ meshId: MESH, peer: stage().bob }],
      nextInMs: null,
    })
    expect(await stage().takeTexts(session)).toEqual(['later'])
    expect((await stage().here.releaseDue()).recipients).toEqual([])
  })

  test('is stored once, however often it is sent', async () => {
    const { enqueuedAtMs } = await stage().commit([stage().append('at once')])
    const later = stage().append('later', { notBeforeMs: enqueuedAtMs + 60_000 })
    expect((await stage().store(later)).map(({ status }) => status)).toEqual(['stored'])
    expect((await stage().store(later)).map(({ status }) => status)).toEqual(['duplicate'])
  })

  test('is detected as a resend as long after its due time as other mail', async () => {
    const { enqueuedAtMs } = await stage().commit([stage().append('at once')])
    const waitMs = 3 * suiteOptions.dedupeMs
    const later = stage().append('later', { notBeforeMs: enqueuedAtMs + waitMs, ttlSeconds: waitMs })
    await stage().store(later)
    await stage().world.advance(2 * suiteOptions.dedupeMs)
    await stage().here.sweep()
    expect(await stage().store(later)).toEqual([{ status: 'duplicate' }])
  })

  test('is refused when it would expire first', async () => {
    const { enqueuedAtMs } = await stage().commit([stage().append('at once')])
    const late = stage().append('late', { notBeforeMs: enqueuedAtMs + 90_000, ttlSeconds: 60 })
    expect(await stage().store(late)).toEqual([{ status: 'delay_too_long' }])
  })
}

function priorityTests(stage: () => Stage): void {
  const claimed = async (changes: { limit?: number; priorityMax?: number; virtualTimes?: VirtualTimes }) => {
    const session = await stage().openBob()
    const want = {
      session,
      limit: 100,
      limitBytes: AMPLE_BYTES,
      ids: ANY_ID,
      priorityMax: PRIORITY_MAX,
      virtualTimes: NO_VIRTUAL_TIMES,
      collected: [],
    }
    const [answer] = await stage().here.claim([{ ...want, ...changes }])
    return answer!.status === 'claimed' ? answer!.deliveries : []
  }
  const storeOfEach = async (count: number) => {
    for (let n = 0; n < count; n++)
      await stage().store(...[2, 1, 0].map((priority) => stage().append(`${priority}-${n}`, { priority })))
  }

  test('each get their share of a claim, and keep their order', async () => {
    await storeOfEach(21)
    const deliveries = await claimed({ limit: 21 })
    expect([0, 1, 2].map((priority) => deliveries.filter((one) => one.priority === priority).length)).toEqual([
      16, 4, 1,
    ])
    expect(deliveries.map(({ envelope }) => textOf(envelope)).slice(14, 18)).toEqual(['0-14', '0-15', '1-0', '1-1'])
  })

  test('that were served yield to the others', async () => {
    await storeOfEach(1)
    const deliveries = await claimed({ limit: 1, virtualTimes: [20, 10, 0] })
    expect(deliveries.map(({ envelope }) => textOf(envelope))).toEqual(['1-0'])
  })

  test('that are less urgent than the want stay in the queue', async () => {
    await storeOfEach(2)
    const deliveries = await claimed({ priorityMax: 0 })
    expect(deliveries.map(({ envelope }) => textOf(envelope))).toEqual(['0-0', '0-1'])
  })
}

function extendTests(stage: () => Stage): void {
  test('lasts for the requested time, if its session holds it', async () => {
    const [a, b] = await stage().storeAll('a', 'b')
    const session = await stage().openBob()
    await stage().take(session)
    const forMs = suiteOptions.leaseMs + 60_000
    await stage().here.extend([
      { delivery: stage().refOf(a!), epoch: session.epoch, forMs },
      { delivery: stage().refOf(b!), epoch: session.epoch - 1, forMs },
    ])
    await stage().world.advance(suiteOptions.leaseMs + 5_000)
    expect(await stage().takeTexts(session)).toEqual(['b'])
    await stage().world.advance(60_000)
    expect(await stage().takeTexts(session)).toContain('a')
  })
}

function lostTests(stage: () => Stage): void {
  test('is returned until it has been reported', async () => {
    const brief = stage().append('brief', { ttlSeconds: 60 })
    await stage().store(brief, stage().append('lasting'))
    await stage().world.advance(65_000)
    await stage().here.sweep()
    const lost = await stage().here.findLost(MESH, stage().bob, 10)
    expect(lost).toMatchObject([{ envelopeId: brief.envelopeId, sender: peerKeyOf(1), reason: 'expired' }])
    expect(await stage().here.findLost(MESH, stage().bob, 10)).toEqual(lost)
    expect(await stage().here.findLost(MESH, stage().cat, 10)).toEqual([])
    await stage().here.lostReported(
      MESH,
      stage().bob,
      lost.map(({ id }) => id),
    )
    expect(await stage().here.findLost(MESH, stage().bob, 10)).toEqual([])
  })
}

function broadcastTests(stage: () => Stage): void {
  const body = { bodyId: 'c0'.repeat(32), bytes: new TextEncoder().encode('for all of you'.repeat(10)) }
  const toBoth = () => [stage().bob, stage().cat].map((recipient) => stage().append('the key', { recipient, body }))
  const textsFor = async (peer: number) => {
    const session = await stage().openFor(peerKeyOf(peer))
    return (await stage().take(session)).map((delivery) => delivery.body && new TextDecoder().decode(delivery.body))
  }

  test.each(['known', 'unknown'])('by a sender %s here carries its body to each recipient', async (how) => {
    if (how === 'known') await stage().openFor(peerKeyOf(1))
    expect((await stage().store(...toBoth())).map(({ status }) => status)).toEqual(['stored', 'stored'])
    const whole = new TextDecoder().decode(body.bytes)
    expect(await textsFor(2)).toEqual([whole])
    expect(await textsFor(3)).toEqual([whole])
  })

  test('that is resent, in part or as a whole, is stored once', async () => {
    await stage().openFor(peerKeyOf(1))
    const [first, second] = toBoth()
    await stage().store(first!)
    expect((await stage().store(first!, second!)).map(({ status }) => status)).toEqual(['duplicate', 'stored'])
    expect((await stage().store(...toBoth())).map(({ status }) => status)).toEqual(['stored', 'stored'])
  })

  test("counts with its body against a claim's limit", async () => {
    await stage().store(stage().append('a', { body }), stage().append('b', { body }))
    const session = await stage().openBob()
    const want = {
      session,
      limit: 9,
      ids: ANY_ID,
      priorityMax: PRIORITY_MAX,
      virtualTimes: NO_VIRTUAL_TIMES,
      collected: [],
    }
    const [claimed] = await stage().here.claim([{ ...want, limitBytes: body.bytes.length }])
    expect(claimed).toMatchObject({ deliveries: [{ priority: 1 }] })
  })

  test('has the length of the stored body, whatever the length of another one under its id', async () => {
    await stage().openFor(peerKeyOf(1))
    const short = { ...body, bytes: body.bytes.slice(0, 50) }
    await stage().store(stage().append('a', { body }), stage().append('b', { body: short }))
    await stage().store(stage().append('c', { body: short }))
    const session = await stage().openBob()
    const want = {
      session,
      limit: 9,
      ids: ANY_ID,
      priorityMax: PRIORITY_MAX,
      virtualTimes: NO_VIRTUAL_TIMES,
      collected: [],
    }
    const [claimed] = await stage().here.claim([{ ...want, limitBytes: 2 * body.bytes.length }])
    expect(claimed!.status === 'claimed' && claimed!.deliveries.map((one) => one.body?.length)).toEqual([140, 140])
  })

  test('that is resent renews the age of its body', async () => {
    const [first] = toBoth()
    const [a] = await stage().store(first!)
    await stage().commit([], [stage().refOf(a!)])
    await stage().world.advance(9 * 60_000)
    const [, second] = toBoth()
    const [b] = await stage().store(second!)
    await stage().commit([], [stage().refOf(b!, { recipient: stage().cat })])
    await stage().world.advance(9 * 60_000)
    await stage().here.sweep()
    expect(await stage().world.bodyCount()).toBe(1)
  })

  test('keeps its body until nothing refers to it', async () => {
    const [a, b] = await stage().store(...toBoth())
    const refs = [stage().refOf(a!), stage().refOf(b!, { recipient: stage().cat })]
    await stage().commit([], [refs[0]!])
    await stage().world.advance(11 * 60_000)
    await stage().here.sweep()
    expect(await textsFor(3)).toHaveLength(1)
    expect(await stage().world.bodyCount()).toBe(1)
    await stage().commit([], [refs[1]!])
    await stage().here.sweep()
    expect(await stage().world.bodyCount()).toBe(0)
  })
}

/** Returns Ann's receipts, sorted by id. */
async function receiptsOfAnn(stage: Stage) {
  const session = await stage.openFor(peerKeyOf(1))
  const deliveries = await stage.take(session)
  return deliveries.map(({ terms, envelopeId, sender, envelope }) => {
    const marking = readMarking(terms!)
    expect(envelope.length).toBe(0)
    return { event: marking?.kind === 'receipt' && marking.event, of: envelopeId, from: sender }
  })
}
