/** Tests messages over HTTP: sending, receiving, settling and retrying. */
import { Sealer, sealEnvelope } from '@sealpost/identity'
import { connect } from '@sealpost/sdk'
import type { EnvelopeId, GroupId } from '@sealpost/std'
import { test as base, describe, expect } from 'vitest'
import { envelopeJson, HttpPeer } from './http.ts'
import { until } from './process.ts'
import { sharedWorlds } from './shared-worlds.ts'
import { envelopeTo, randomHex, sendFrame } from './wire.ts'
import { type Place, World } from './world.ts'

const shared = sharedWorlds()

/** Tests mostly wait, so they run concurrently. */
const test = base.concurrent

const idsOf = (items: readonly { envelopeId: string }[]) => items.map(({ envelopeId }) => envelopeId)
const envelopesTo = (to: Place, count: number) => Array.from({ length: count }, () => envelopeTo(to))

describe('an HTTP send', () => {
  test('reaches a socket in order, and a resend is recognized as a duplicate', async () => {
    await using world = await shared()
    const [from, to] = await world.enrolMany(2)
    const [sender, recipient] = [await HttpPeer.enter(from), await world.wire(to)]
    const items = envelopesTo(to, 20)
    const { status, body } = await sender.send(...items)
    expect(status).toBe(200)
    expect(body.results).toEqual(items.map(({ envelopeId }) => ({ envelopeId, status: 'stored' })))
    const pushed = await recipient.deliveries(20)
    expect(pushed.map(({ envelopeId, envelope, sender }) => ({ envelopeId, envelope, sender }))).toEqual(
      items.map(({ envelopeId, envelope }) => ({ envelopeId, envelope, sender: from.identity.signing.publicKey })),
    )
    const again = await sender.send(...items)
    expect(again.body.results).toEqual(items.map(({ envelopeId }) => ({ envelopeId, status: 'duplicate' })))
  })

  test('sealed with keys from a lookup opens in the SDK', async () => {
    await using world = await shared()
    const [from, to, stranger] = [await world.enrol(), await world.enrol(), randomHex(32)]
    const [sender, recipient] = [await HttpPeer.enter(from), await connect(to)]
    const texts: string[] = []
    recipient.onMessage((message) => void texts.push(message.text()))
    const peerKey = to.identity.signing.publicKey
    const { body } = await sender.post('/v1/lookup', { peers: [peerKey, stranger] })
    expect(body.unknown).toEqual([stranger])
    const [{ boxKey, boxEpoch }] = body.bindings
    const envelopeId = randomHex(16) as EnvelopeId
    const envelope = sealEnvelope(new Sealer({ identity: from.identity, meshId: world.meshId }), {
      to: { peerKey, boxKey: new Uint8Array(Buffer.from(boxKey, 'base64url')), boxEpoch },
      envelopeId,
      stream: null,
      sentAtMs: Date.now(),
      body: new TextEncoder().encode('from cron'),
    })
    await sender.send(envelopeTo(to, { envelopeId, envelope }))
    await until('it came', () => texts.length === 1)
    expect(texts).toEqual(['from cron'])
    await recipient.close()
  })

  test("does not disturb the sender's own socket", async () => {
    await using world = await shared()
    const [agent, other] = await world.enrolMany(2)
    const listener = await world.wire(agent)
    const cron = await HttpPeer.enter(agent)
    const [out, back] = [envelopeTo(other), envelopeTo(agent)]
    expect((await cron.send(out)).body.results).toMatchObject([{ status: 'stored' }])
    expect((await (await HttpPeer.enter(other)).send(back)).body.results).toMatchObject([{ status: 'stored' }])
    expect(idsOf(await listener.deliveries(1))).toEqual([back.envelopeId])
    await listener.echo()
    expect(await world.count('message_queue')).toBe(2)
  })

  test('gets one result per envelope, with the codes of a nack', async () => {
    await using world = await World.open({ ENVELOPE_BYTES_MAX: '1000', TTL_SECONDS: '60', TTL_SECONDS_MAX: '60' })
    const [from, to] = await world.enrolMany(2)
    const sender = await HttpPeer.enter(from)
    const good = envelopeTo(to)
    const items = [
      good,
      envelopeTo(to, { envelope: new Uint8Array(1001) }),
      envelopeTo(to, { ttlSeconds: 61 }),
      envelopeTo({
        identity: { ...to.identity, signing: { ...to.identity.signing, publicKey: randomHex(32) as never } },
      }),
      envelopeTo(await world.enrol(await world.mesh())),
    ]
    const { status, body } = await sender.send(...items)
    expect(status).toBe(200)
    expect(idsOf(body.results)).toEqual(idsOf(items))
    expect(body.results.map(({ code = '' }) => code)).toEqual([
      '',
      'envelope_too_large',
      'ttl_too_long',
      'unknown_recipient',
      'unknown_recipient',
    ])
    const reused = await sender.send(envelopeTo(to, { envelopeId: good.envelopeId }))
    expect(reused.body.results).toMatchObject([{ status: 'refused', code: 'id_reused' }])
  })

  test("shares its peer's rate limit with the peer's sockets, and keeps its order after a refusal", async () => {
    await using world = await World.open({ LIMITS: 'on', RATE_PER_SECOND: '1', RATE_BURST: '8' })
    const [from, to] = await world.enrolMany(2)
    const socket = await world.wire(from)
    socket.send(sendFrame(...envelopesTo(to, 4)))
    await socket.next('ack')
    const sender = await HttpPeer.enter(from)
    const items = envelopesTo(to, 100) // more than the rate limit refills during the send
    const { results } = (await sender.send(...items)).body
    const refused = results.filter(({ status }: { status: string }) => status === 'refused')
    expect(refused.length).toBeGreaterThanOrEqual(4)
    expect(results.slice(-refused.length)).toEqual(refused)
    expect(refused[0]).toMatchObject({ code: 'rate_limited', retryAfterMs: expect.any(Number) })
    expect(refused[1]).toMatchObject({ code: 'out_of_sequence' })
  })
})

describe('a polled delivery', () => {
  test('a message that arrives during a poll is returned, and is gone once it is settled', async () => {
    await using world = await shared()
    const to = await world.enrol()
    const [sender, recipient] = [await world.wire(), await HttpPeer.enter(to)]
    const waiting = recipient.inbox('waitSeconds=20')
    const item = envelopeTo(to)
    sender.send(sendFrame(item))
    const { status, body } = await waiting
    expect(status).toBe(200)
    const { envelopeId } = item
    expect(body.deliveries).toMatchObject([{ envelopeId, attempt: 1, envelope: envelopeJson(item).envelope }])
    expect(await recipient.settle(...body.deliveries)).toMatchObject({ status: 204, body: null })
    expect(await world.count('message_queue')).toBe(0)
    expect((await recipient.inbox('waitSeconds=0')).body).toEqual({ deliveries: [], receipts: [], lost: [] })
  })

  test('includes the body if it belongs to a broadcast', async () => {
    await using world = await shared()
    const to = await world.enrol()
    const [sender, recipient] = [await world.wire(), await HttpPeer.enter(to)]
    const [item, body] = [envelopeTo(to), crypto.getRandomValues(new Uint8Array(5_000))]
    const terms = { receipts: 'none', thread: '00'.repeat(16), hops: 0, noAutoReply: false } as const
    const roster = { group: '00'.repeat(16) as GroupId, rosterEpoch: 0 }
    sender.send({ type: 'broadcast', ...roster, bodyId: randomHex(32), body, terms, envelopes: [item] })
    const [delivery] = (await recipient.inbox('waitSeconds=20')).body.deliveries
    expect(delivery).toMatchObject({ envelopeId: item.envelopeId, terms })
    expect(delivery.body).toBe(Buffer.from(body).toString('base64url'))
  })

  test('arrives in order, and a poll returns at most `max` unsettled deliveries', async () => {
    await using world = await shared()
    const [from, to] = await world.enrolMany(2)
    const items = envelopesTo(to, 7)
    await (await HttpPeer.enter(from)).send(...items)
    const recipient = await HttpPeer.enter(to)
    const first = await recipient.deliveries(3, 'waitSeconds=10&max=3')
    expect(first).toHaveLength(3)
    expect((await recipient.inbox('waitSeconds=0&max=3')).body.deliveries).toEqual([])
    await recipient.settle(...first)
    const rest = await recipient.deliveries(4, 'waitSeconds=10&max=4')
    expect(idsOf([...first, ...rest])).toEqual(idsOf(items))
  })

  test('is redelivered when its lease expires unsettled', async () => {
    await using world = await World.open({ LEASE_MS: '1500', POLL_MS: '500' })
    const [from, to] = await world.enrolMany(2)
    await (await HttpPeer.enter(from)).send(envelopeTo(to))
    const recipient = await HttpPeer.enter(to)
    const [first] = await recipient.deliveries(1)
    const [again] = await recipient.deliveries(1)
    expect(again!.envelopeId).toBe(first!.envelopeId)
    expect(again!.attempt).toBeGreaterThan(1)
  })

  test('is redelivered after the client returns it', async () => {
    await using world = await shared()
    const [from, to] = await world.enrolMany(2)
    await (await HttpPeer.enter(from)).send(envelopeTo(to))
    const recipient = await HttpPeer.enter(to)
    const [first] = await recipient.deliveries(1)
    const retry = [{ id: first!.id, afterMs: 100 }]
    expect(await recipient.post('/v1/settle', { retry })).toMatchObject({ status: 204 })
    expect((await recipient.deliveries(1))[0]).toMatchObject({ envelopeId: first!.envelopeId, attempt: 2 })
  })

  test('is redelivered if the broker is killed before it is settled', async () => {
    await using world = await World.open()
    const [from, to] = await world.enrolMany(2)
    const item = envelopeTo(to)
    await (await HttpPeer.enter(from)).send(item)
    const recipient = await HttpPeer.enter(to)
    expect(idsOf(await recipient.deliveries(1))).toEqual([item.envelopeId])
    world.broker.signal('SIGKILL')
    await world.restart()
    const [again] = await recipient.deliveries(1)
    expect(again).toMatchObject({ envelopeId: item.envelopeId, attempt: 2 })
    await recipient.settle(again!)
    await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
  })

  test('goes to the next poll if the client of this one has disconnected', async () => {
    await using world = await World.open({ POLLING_IDLE_MS: '1000' })
    const [from, to] = await world.enrolMany(2)
    const [sender, recipient] = [await HttpPeer.enter(from), await HttpPeer.enter(to)]
    const sessions = () => world.broker.metric('sealpost_sessions')
    const gone = new AbortController()
    const left = recipient.inbox('waitSeconds=30', gone.signal)
    await until('it waits', async () => (await sessions()) === 1)
    gone.abort()
    await expect(left).rejects.toThrow()
    await until('nobody polls any more', async () => (await sessions()) === 0)
    const item = envelopeTo(to)
    await sender.send(item)
    expect((await recipient.deliveries(1))[0]).toMatchObject({ envelopeId: item.envelopeId, attempt: 1 })
  })
})

describe("a sender's terms", () => {
  test('accompany each polled delivery, and the sender can poll its receipts', async () => {
    await using world = await shared()
    const [from, to] = await world.enrolMany(2)
    const [sender, recipient] = [await HttpPeer.enter(from), await HttpPeer.enter(to)]
    const item = envelopeTo(to)
    const thread = randomHex(16)
    const terms = { receipts: 'end', thread }
    await sender.post('/v1/send', { envelopes: [{ ...envelopeJson(item), terms }] })
    const [delivery] = await recipient.deliveries(1)
    expect(delivery).toMatchObject({ envelopeId: item.envelopeId, terms: { receipts: 'end', thread, hops: 0 } })
    await recipient.settle(delivery!)
    const { body } = await sender.inbox('waitSeconds=20')
    const { envelopeId } = item
    expect(body).toMatchObject({ deliveries: [], receipts: [{ envelopeId, event: 'settled' }] })
    await sender.settle(...body.receipts)
    await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
  })

  test('can require that the recipient is online', async () => {
    await using world = await shared()
    const [from, to] = await world.enrolMany(2)
    const envelopes = [{ ...envelopeJson(envelopeTo(to)), terms: { ifOnline: true } }]
    const { body } = await (await HttpPeer.enter(from)).post('/v1/send', { envelopes })
    expect(body.results).toMatchObject([{ status: 'refused', code: 'no_responder' }])
  })
})

test('a delivery rejected over HTTP becomes a dead letter, and extending one prolongs its lease', async () => {
  await using world = await World.open({ LEASE_MS: '30000' })
  const [from, to] = await world.enrolMany(2)
  await (await HttpPeer.enter(from)).send(...envelopesTo(to, 2))
  const recipient = await HttpPeer.enter(to)
  const [rejected, kept] = await recipient.deliveries(2)
  const reject = [{ id: rejected!.id, reason: 'no use' }]
  const extend = { ids: [kept!.id], forMs: 240_000 }
  expect(await recipient.post('/v1/settle', { reject, extend })).toMatchObject({ status: 204 })
  await until('it is dead', async () => (await world.count('dead_letter')) === 1)
  await until('the other is leased for longer than anybody is at first', async () => {
    const rows = await world.db.run(
      (sql) =>
        sql`select from message_queue where mesh_id = ${world.meshId}::uuid and lease_until > clock_timestamp() + interval '60 s'`,
    )
    return rows.length === 1
  })
  await recipient.settle(kept!)
  await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
})

test('a second poll makes the first return empty', async () => {
  await using world = await shared()
  const [from, to] = await world.enrolMany(2)
  const [sender, recipient] = [await HttpPeer.enter(from), await HttpPeer.enter(to)]
  await recipient.inbox('waitSeconds=0')
  const polls = [recipient.inbox('waitSeconds=30'), recipient.inbox('waitSeconds=30')]
  const older = await Promise.race(polls)
  expect(older).toMatchObject({ status: 200, body: { deliveries: [] } })
  await sender.send(envelopeTo(to))
  const counts = (await Promise.all(polls)).map(({ body }) => body.deliveries.length)
  expect(counts.sort()).toEqual([0, 1])
})

test('a waiting poll learns that the broker restarts', async () => {
  await using world = await World.open()
  const recipient = await HttpPeer.enter(await world.enrol())
  await recipient.inbox('waitSeconds=0')
  const waiting = recipient.inbox('waitSeconds=30')
  await until('it waits', async () => (await world.broker.metric('sealpost_sessions')) === 1)
  world.broker.signal('SIGTERM')
  expect(await waiting).toMatchObject({ status: 503, body: { code: 'restarting' } })
  expect((await world.broker.exited).code).toBe(0)
})

test('a poll is refused while the key has a live socket, unless the poll asks to replace it', async () => {
  await using world = await World.open()
  const [from, to] = await world.enrolMany(2)
  const [sender, socket] = [await world.wire(from), await world.wire(to)]
  const poller = await HttpPeer.enter(to)
  expect(await poller.inbox()).toMatchObject({ status: 409, body: { code: 'session_conflict' } })
  expect(await poller.inbox('takeover=false')).toMatchObject({ status: 409, body: { code: 'session_conflict' } })
  await socket.echo()
  const item = envelopeTo(to)
  sender.send(sendFrame(item))
  const [pushed] = await socket.deliveries(1)
  const taken = await poller.deliveries(1, 'takeover=true&waitSeconds=10')
  expect(await socket.closed).toEqual({ code: 4409, reason: 'superseded' })
  expect(taken).toMatchObject([{ envelopeId: pushed!.envelopeId, attempt: 2 }])
  await poller.settle(...taken)
  await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
})

test('a socket replaces a polling session and refuses its waiting poll and settles', async () => {
  await using world = await World.open()
  const [from, to] = await world.enrolMany(2)
  const [sender, poller] = [await world.wire(from), await HttpPeer.enter(to)]
  const item = envelopeTo(to)
  sender.send(sendFrame(item))
  const held = await poller.deliveries(1)
  const waiting = poller.inbox('waitSeconds=30')
  const socket = await world.wire(to)
  expect(await waiting).toMatchObject({ status: 409, body: { code: 'superseded' } })
  expect(await poller.settle(...held)).toMatchObject({ status: 409, body: { code: 'session_over' } })
  expect(await poller.inbox()).toMatchObject({ status: 409, body: { code: 'session_conflict' } })
  expect(await socket.deliveries(1)).toMatchObject([{ envelopeId: item.envelopeId, attempt: 2 }])
  socket.destroy()
  await until('the socket is gone', async () => (await world.broker.metric('sealpost_sessions')) === 1)
  expect(await poller.inbox('waitSeconds=0')).toMatchObject({ status: 200 })
})

test('a polling session and its leases end some time after its last request', async () => {
  await using world = await World.open({ POLLING_IDLE_MS: '700', LEASE_MS: '300000' })
  const [from, to] = await world.enrolMany(2)
  await (await HttpPeer.enter(from)).send(envelopeTo(to))
  const poller = await HttpPeer.enter(to)
  const held = await poller.deliveries(1)
  await until('it is over', async () => (await world.broker.metric('sealpost_sessions')) === 0)
  expect(await poller.settle(...held)).toMatchObject({ status: 409, body: { code: 'session_over' } })
  expect(await poller.deliveries(1)).toMatchObject([{ envelopeId: held[0]!.envelopeId, attempt: 2 }])
})

test('a waiting poll counts as activity', async () => {
  await using world = await World.open({ POLLING_IDLE_MS: '500' })
  const [from, to] = await world.enrolMany(2)
  const [sender, poller] = [await HttpPeer.enter(from), await HttpPeer.enter(to)]
  const older = poller.inbox('waitSeconds=30')
  await until('it waits', async () => (await world.broker.metric('sealpost_sessions')) === 1)
  const [before, waiting] = [performance.now(), poller.inbox('waitSeconds=2')]
  expect((await older).body.deliveries).toEqual([])
  expect(await waiting).toMatchObject({ status: 200, body: { deliveries: [] } })
  expect(performance.now() - before).toBeGreaterThan(1900)
  await sender.send(envelopeTo(to))
  expect(await poller.deliveries(1)).toHaveLength(1)
})
