/** Tests delivery to absent, slow, unresponsive and failing recipients. */
import { connect, type Message, type Peer } from '@sealpost/sdk'
import { test as base, describe, expect } from 'vitest'
import { until } from './process.ts'
import { sharedWorlds } from './shared-worlds.ts'
import { envelopeTo, sendFrame, type WireClient } from './wire.ts'
import { type Place, World } from './world.ts'

const shared = sharedWorlds()

/** Tests mostly wait, so they run concurrently. */
const test = base.concurrent

const numbers = (count: number, from = 0) => Array.from({ length: count }, (_, i) => String(from + i))

/** Returns the bodies that a peer handles, as they arrive. */
function collect(peer: Peer): string[] {
  const texts: string[] = []
  peer.onMessage((message) => void texts.push(message.text()))
  return texts
}

/** Stores `count` envelopes and waits for their acks. */
async function store(from: WireClient, to: Place, count: number, bytes = 64): Promise<string[]> {
  const ids: string[] = []
  for (let done = 0; done < count; ) {
    const batch = Array.from({ length: Math.min(count - done, Math.floor(200_000 / (bytes + 100))) }, () =>
      envelopeTo(to, { envelope: new Uint8Array(bytes) }),
    )
    from.send(sendFrame(...batch))
    for (let acked = 0; acked < batch.length; ) acked += (await from.next('ack')).items.length
    ids.push(...batch.map((item) => item.envelopeId))
    done += batch.length
  }
  return ids
}

test('messages to an absent peer wait in the queue and arrive in order', async () => {
  await using world = await shared()
  const [sender, absent] = [await connect(await world.enrol()), await world.enrol()]
  await Promise.all(numbers(500).map((text) => sender.send(absent.identity.signing.publicKey, text)))
  const recipient = await connect(absent)
  const texts = collect(recipient)
  await until('all came', () => texts.length === 500)
  expect(texts).toEqual(numbers(500))
  await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
  await Promise.all([sender.close(), recipient.close()])
})

test('urgent messages overtake waiting ones, and each priority keeps its order', async () => {
  await using world = await shared()
  const [sender, absent] = [await connect(await world.enrol()), await world.enrol()]
  for (const priority of ['low', 'next', 'now'] as const)
    for (const text of numbers(3)) await sender.send(absent.identity.signing.publicKey, priority + text, { priority })
  const recipient = await connect(absent)
  const texts = collect(recipient)
  await until('all came', () => texts.length === 9)
  expect(texts).toEqual(['now', 'next', 'low'].flatMap((priority) => numbers(3).map((text) => priority + text)))
  await Promise.all([sender.close(), recipient.close()])
})

test('H56: a client that never reads takes up a bounded amount of memory, loses nothing and does not affect other clients', async () => {
  await using world = await World.open({ LEASE_MS: '300000' })
  const [place, other] = await world.enrolMany(2)
  const sender = await world.wire()
  const slow = await world.wire(place, { credit: 65_535 })
  slow.pause()
  const rssBefore = rssMb(world.broker.pid)
  const ids = await store(sender, place, 1000, 40_000) // 40 MB
  const bystander = await world.wire(other)
  const [first] = await store(sender, other, 1)
  expect((await bystander.deliveries(1))[0]!.envelopeId).toBe(first)
  // garbage does not count
  await until('it grew by less than 100 MB', () => rssMb(world.broker.pid) - rssBefore < 100)
  expect(await world.broker.metric('sealpost_deliveries_pushed_total')).toBeLessThan(200)
  expect(await world.count('message_queue')).toBeGreaterThanOrEqual(1000)
  slow.destroy()
  const back = await world.wire(place, { credit: 65_535 })
  const got: string[] = []
  while (got.length < ids.length) {
    const { deliveries } = await back.next('push')
    got.push(...deliveries.map((delivery) => delivery.envelopeId))
    back.send({ type: 'settle', ids: deliveries.map((delivery) => delivery.id) })
  }
  expect(got).toEqual(ids)
})

test('a client that stops reading for a while resumes where it was, in the same session', async () => {
  await using world = await World.open({ LEASE_MS: '300000' })
  const place = await world.enrol()
  const sender = await world.wire()
  const slow = await world.wire(place, { credit: 65_535 })
  slow.pause()
  const ids = await store(sender, place, 500, 20_000)
  slow.resume()
  const got: string[] = []
  while (got.length < ids.length) {
    const { deliveries } = await slow.next('push')
    got.push(...deliveries.map((delivery) => delivery.envelopeId))
    slow.send({ type: 'settle', ids: deliveries.map((delivery) => delivery.id) })
  }
  expect(got).toEqual(ids)
})

test('H92: a push that a full socket refuses ends the session and is delivered in order in the next one', async () => {
  await using world = await World.open({ HEARTBEAT_MS: '120000' }) // a silent client must not end the session first
  const place = await world.enrol()
  const sender = await world.wire()
  const deaf = await world.wire(place)
  const before = await store(sender, place, 3)
  await deaf.deliveries(3)
  deaf.pause()
  const peers = Array(256).fill(place.identity.signing.publicKey)
  // Replies of 36 KB must fill the kernels' socket buffers, 10 MB or more, and the broker's 4 MB.
  const ended = () => world.broker.metric('sealpost_sessions_closed_total{code="slow_consumer"}')
  // stays below the request rate, which would end the session first
  const fromMs = performance.now()
  const allowed = () => 380 + ((performance.now() - fromMs) / 1000) * 15
  const during: string[] = []
  for (let asked = 0; !((await ended()) > 0); ) {
    if (allowed() > 3000) throw new Error('the session never ended')
    for (let i = 0; i < 20 && asked < allowed(); i++) deaf.send({ type: 'lookup', ref: asked++, peers })
    during.push(...(await store(sender, place, 1)))
  }
  deaf.destroy()
  const back = await world.wire(place)
  const all = await back.deliveries(3 + during.length)
  expect(all.map((delivery) => delivery.envelopeId)).toEqual([...before, ...during])
  await until('the memory of the dead socket is given up', () => rssMb(world.broker.pid) < 200)
})

test('each envelope from a sender that reads no acks is stored once, however often it is resent', async () => {
  await using world = await World.open()
  const [from, to] = await world.enrolMany(2)
  const deaf = await world.wire(from)
  deaf.pause()
  const items = Array.from({ length: 500 }, () => envelopeTo(to))
  for (let i = 0; i < 20; i++) deaf.send(sendFrame(...items))
  // A resend during its first copy's commit has an open outcome: the broker may request it and its successors again.
  const answers = ['accepted', 'duplicate', 'refused'] as const
  const count = async () => {
    const counts = answers.map((name) => world.broker.metric(`sealpost_envelopes_${name}_total`))
    return (await Promise.all(counts)).reduce((sum, n) => sum + n)
  }
  await until('all were answered', async () => (await count()) === 10_000)
  expect(await world.count('message_queue')).toBe(500)
})

test('a client that answers no ping is disconnected, and its deliveries go to the next session', async () => {
  await using world = await World.open({ HEARTBEAT_MS: '5000' })
  const place = await world.enrol()
  const sender = await world.wire()
  const silent = await world.wire(place)
  silent.answersPings = false
  const ids = await store(sender, place, 2)
  expect(await silent.closed).toEqual({ code: 4440, reason: 'heartbeat_missed' })
  const back = await world.wire(place)
  expect((await back.deliveries(2)).map((delivery) => delivery.envelopeId)).toEqual(ids)
  await sender.echo()
})

test('H93: credit bounds the number of unsettled deliveries and can be raised', async () => {
  await using world = await shared()
  const place = await world.enrol()
  const sender = await world.wire()
  const recipient = await world.wire(place, { credit: 3 })
  const ids = await store(sender, place, 10)
  const first = await recipient.deliveries(3)
  await recipient.echo()
  expect(recipient.frames.filter((frame) => frame.type === 'push')).toEqual([])
  recipient.send({ type: 'settle', ids: [first[0]!.id] })
  const [fourth] = await recipient.deliveries(1)
  expect([...first, fourth!].map((delivery) => delivery.envelopeId)).toEqual(ids.slice(0, 4))
  recipient.send({ type: 'credit', credit: 100 })
  expect((await recipient.deliveries(6)).map((delivery) => delivery.envelopeId)).toEqual(ids.slice(4))
})

test('a session without credit receives no deliveries', async () => {
  await using world = await World.open({ POLL_MS: '100' })
  const place = await world.enrol()
  const sender = await world.wire()
  const recipient = await world.wire(place, { credit: 0 })
  await store(sender, place, 2)
  await recipient.echo()
  expect(recipient.frames.filter((frame) => frame.type === 'push')).toEqual([])
  recipient.send({ type: 'credit', credit: 2 })
  await recipient.deliveries(2)
})

test('a delivery not settled within its lease is pushed again as attempt 2', async () => {
  await using world = await World.open({ LEASE_MS: '300', POLL_MS: '100' })
  const place = await world.enrol()
  const sender = await world.wire()
  const recipient = await world.wire(place)
  const [id] = await store(sender, place, 1)
  const [first, second] = await recipient.deliveries(2)
  expect([first!.envelopeId, first!.attempt]).toEqual([id, 1])
  expect([second!.envelopeId, second!.attempt, second!.id]).toEqual([id, 2, first!.id])
})

describe('a retried delivery', () => {
  // Polls that would redeliver the message too late.
  const SLOW_POLL = { POLL_MS: '600000', LEASE_MS: '300000' }

  test.each([0, 300])('comes back after %i ms by itself', async (afterMs) => {
    await using world = await shared(SLOW_POLL)
    const place = await world.enrol()
    const sender = await world.wire()
    const recipient = await world.wire(place)
    await store(sender, place, 1)
    const [first] = await recipient.deliveries(1)
    recipient.send({ type: 'retry', items: [{ id: first!.id, afterMs }] })
    const [second] = await recipient.deliveries(1)
    expect([second!.id, second!.attempt]).toEqual([first!.id, 2])
  })

  test('does not hold up later deliveries', async () => {
    await using world = await shared(SLOW_POLL)
    const place = await world.enrol()
    const sender = await world.wire()
    const recipient = await world.wire(place)
    await store(sender, place, 1)
    const [first] = await recipient.deliveries(1)
    recipient.send({ type: 'retry', items: [{ id: first!.id, afterMs: 4_000_000_000 }] })
    await recipient.echo()
    const ids = await store(sender, place, 3)
    expect((await recipient.deliveries(3)).map((delivery) => delivery.envelopeId)).toEqual(ids)
  })

  test('results when an SDK handler throws', async () => {
    await using world = await shared(SLOW_POLL)
    const [sender, recipient] = [await connect(await world.enrol()), await connect(await world.enrol())]
    const attempts: number[] = []
    const done = Promise.withResolvers<Message>()
    recipient.onMessage((message) => {
      attempts.push(message.attempt)
      if (attempts.length === 1) throw new Error('not now')
      done.resolve(message)
    })
    await sender.send(recipient.key, 'try me')
    expect((await done.promise).text()).toBe('try me')
    expect(attempts).toEqual([1, 2])
    await Promise.all([sender.close(), recipient.close()])
  })
})

test('a second connection with the same key takes over: the first is informed, and the second gets all unsettled deliveries in order', async () => {
  await using world = await shared()
  const place = await world.enrol()
  const sender = await world.wire()
  const first = await world.wire(place, { credit: 5 })
  const ids = await store(sender, place, 12)
  const held = await first.deliveries(5)
  const second = await world.wire(place)
  expect(await first.closed).toEqual({ code: 4409, reason: 'superseded' })
  const all = await second.deliveries(12)
  expect(all.map((delivery) => delivery.envelopeId)).toEqual(ids)
  expect(all.map((delivery) => delivery.attempt)).toEqual([...held.map(() => 2), ...Array(7).fill(1)])
})

test('H93: after the maximum number of failed attempts a delivery becomes a dead letter, and it never held up later deliveries', async () => {
  await using world = await World.open({ FAILED_ATTEMPTS_MAX: '2', FAILED_ATTEMPTS_SPAN_MS: '1', SWEEP_MS: '50' })
  const place = await world.enrol()
  const sender = await world.wire()
  const recipient = await world.wire(place)
  const [poison] = await store(sender, place, 1)
  for (const attempt of [1, 2]) {
    const [delivery] = await recipient.deliveries(1)
    expect(delivery!.attempt).toBe(attempt)
    // The sweep must find the delivery during the second pause.
    recipient.send({ type: 'retry', items: [{ id: delivery!.id, afterMs: attempt === 1 ? 0 : 600_000 }] })
  }
  await until('it is a dead letter', async () => (await world.count('dead_letter')) === 1)
  const [row] = await world.db.run(
    (sql) =>
      sql<
        Record<string, unknown>[]
      >`select reason, strikes, replace(envelope_id::text, '-', '') as id from dead_letter where mesh_id = ${world.meshId}::uuid`,
  )
  expect(row).toMatchObject({ reason: 'strikes', strikes: 2, id: poison })
  const [next] = await store(sender, place, 1)
  expect((await recipient.deliveries(1))[0]!.envelopeId).toBe(next)
  const moved = () => world.broker.metric('sealpost_deliveries_moved_total{reason="strikes"}')
  // The counter increases only after the row becomes visible.
  await until('the broker has counted it', async () => (await moved()) === 1)
})

test('an expired delivery becomes a dead letter with that reason and is not pushed again', async () => {
  await using world = await World.open({ SWEEP_MS: '50' })
  const place = await world.enrol()
  const sender = await world.wire()
  sender.send(sendFrame(envelopeTo(place, { ttlSeconds: 1 }), envelopeTo(place)))
  await until('it expired', async () => (await world.count('dead_letter')) === 1)
  const [row] = await world.db.run(
    (sql) =>
      sql<
        Record<string, unknown>[]
      >`select reason, envelope is null as is_body_gone from dead_letter where mesh_id = ${world.meshId}::uuid`,
  )
  expect(row).toMatchObject({ reason: 'expired', is_body_gone: true })
  const recipient = await world.wire(place)
  expect(await recipient.deliveries(1)).toHaveLength(1)
})

describe('with the default limits', () => {
  test('H55: a burst is refused with a retry-after, and later messages are refused too so that the order is preserved', async () => {
    await using world = await World.open({ LIMITS: 'on' })
    const place = await world.enrol()
    const sender = await world.wire()
    sender.send(sendFrame(...Array.from({ length: 600 }, () => envelopeTo(place))))
    const codes: string[] = []
    while (codes.length < 100) for (const item of (await sender.next('nack')).items) codes.push(item.code)
    expect(codes[0]).toBe('rate_limited')
    expect(new Set(codes.slice(1))).toEqual(new Set(['out_of_sequence']))
  })

  test('the SDK eventually delivers everything, in order', async () => {
    await using world = await World.open({ LIMITS: 'on', RATE_PER_SECOND: '400', RATE_BURST: '100' })
    const [sender, recipient] = [await connect(await world.enrol()), await connect(await world.enrol())]
    const texts = collect(recipient)
    await Promise.all(numbers(1000).map((text) => sender.send(recipient.key, text)))
    await until('all came', () => texts.length === 1000)
    expect(texts).toEqual(numbers(1000))
    expect(sender.counters.nacked).toBeGreaterThan(0)
    await Promise.all([sender.close(), recipient.close()])
  })
})

function rssMb(pid: number): number {
  const { stdout } = Bun.spawnSync(['ps', '-o', 'rss=', '-p', String(pid)])
  return Number(stdout.toString()) / 1024
}

test('deliveries that a client settles before closing are not pushed again, even after an immediate reconnect', async () => {
  await using world = await shared()
  const sender = await connect(await world.enrol())
  const heard: string[] = []
  const next = (peer: Peer) =>
    new Promise<void>((resolve) => {
      peer.onMessage((message) => {
        heard.push(message.text())
        resolve()
      })
    })
  for (let i = 0; i < 25; i++) {
    const place = await world.enrol()
    await sender.send(place.identity.signing.publicKey, 'first')
    const life = await connect(place)
    await next(life)
    await life.close()
    const later = await connect(place)
    await sender.send(later.key, 'second') // a settled delivery that is still queued would arrive first
    await next(later)
    await later.close()
  }
  expect(heard).toEqual(Array.from({ length: 25 }, () => ['first', 'second']).flat())
  await sender.close()
})
