/** Tests limits per address, connection and machine. */

import { generateIdentity } from '@sealpost/identity'
import type { ClientFrame } from '@sealpost/protocol'
import { connect } from '@sealpost/sdk'
import { joinAsDevice } from '@sealpost/sdk/join'
import { usersOf } from '@sealpost/sdk/users'
import { describe, expect, test } from 'vitest'
import { until } from './process.ts'
import { sharedWorlds } from './shared-worlds.ts'
import { envelopeTo, type HttpAnswer, rawHttp, sendFrame, upgradeRequest, WireClient } from './wire.ts'
import { type Place, World } from './world.ts'

const shared = sharedWorlds()

const upgradeAt = (world: World, headers: readonly string[] = []) =>
  rawHttp(world.broker.port, upgradeRequest(world.broker.authority, headers))
const getAt = (world: World, path: string, headers: readonly string[] = []) =>
  rawHttp(
    world.broker.port,
    [`GET ${path} HTTP/1.1`, `Host: ${world.broker.authority}`, ...headers, '\r\n'].join('\r\n'),
  )

/** Returns the first refusal; a slow machine refills the limit. */
const refusedOf = (ask: () => Promise<HttpAnswer>): Promise<HttpAnswer> =>
  until('one is refused', async () => (await Promise.all(Array.from({ length: 8 }, ask))).find(isRefused))
const isRefused = ({ status }: HttpAnswer) => status === 429

describe('one address', () => {
  test('H18: opens a limited number of connections in a burst, and gets a retry-after', async () => {
    await using world = await World.open({ LIMITS: 'on', UPGRADES_PER_SECOND: '1', UPGRADES_BURST: '3' })
    for (let i = 0; i < 3; i++) expect((await upgradeAt(world)).status).toBe(101)
    const refused = await refusedOf(() => upgradeAt(world))
    expect(JSON.parse(refused.body)).toEqual({ code: 'rate_limited', retryAfterMs: expect.any(Number) })
    expect(refused.headers.get('retry-after')).toBe('1')
    expect(await world.broker.metric('sealpost_requests_refused_total{code="rate_limited"}')).toBeGreaterThan(0)
  })

  test('H18: has a limited number of connections without a proven key, and proving one frees a slot', async () => {
    await using world = await World.open({ LIMITS: 'on', UNAUTHENTICATED_PER_IP: '2' })
    for (let i = 0; i < 2; i++) await world.wire()
    const strangers = [await WireClient.open(world.broker.url), await WireClient.open(world.broker.url)]
    expect(await upgradeAt(world)).toMatchObject({ status: 429, body: expect.stringContaining('too_many_unproven') })
    strangers.pop()!.destroy()
    await expect.poll(async () => (await upgradeAt(world)).status).toBe(101)
  })

  test('has one HTTP request rate for all routes', async () => {
    await using world = await World.open({ LIMITS: 'on', REQUESTS_PER_SECOND: '1', REQUESTS_BURST: '4' })
    for (const path of ['/livez', '/version', '/nothing', '/v1/inbox'])
      expect((await getAt(world, path)).status).not.toBe(429)
    await refusedOf(() => getAt(world, '/livez'))
  })

  test('is taken from the header of a trusted proxy', async () => {
    await using world = await World.open({ LIMITS: 'on', SOCKETS_PER_IP: '1', TRUSTED_PROXIES: '127.0.0.0/8' })
    await WireClient.open(world.broker.url) // connects from the proxy's own address
    expect((await upgradeAt(world)).status).toBe(429)
    for (const client of ['198.51.100.1', '198.51.100.2', '2001:db8::1'])
      expect((await upgradeAt(world, [`X-Forwarded-For: ${client}`])).status).toBe(101)
  })
})

describe('one connection', () => {
  test.each([
    ['H25: pings', 9],
    ['H26: pongs nobody asked for', 10],
  ])('%s, too many at once, end that connection and no other', async (_, opcode) => {
    await using world = await shared()
    const [flooder, other] = [await world.wire(), await world.wire()]
    for (let i = 0; i < 1000; i++) flooder.sendMessage(opcode, new Uint8Array(0))
    expect(await flooder.closed).toEqual({ code: 4429, reason: 'rate_exceeded' })
    await other.echo()
  })

  test('a flood of requests ends it', async () => {
    await using world = await shared()
    const place = await world.enrol()
    const questions: ClientFrame[] = [
      { type: 'ping', ref: 1 },
      { type: 'lookup', ref: 1, peers: [place.identity.signing.publicKey] },
    ]
    for (const frame of questions) {
      const client = await world.wire(place)
      for (let i = 0; i < 1000; i++) client.send(frame)
      expect((await client.closed).code).toBe(4429)
    }
  })
})

test('a process over its memory limit refuses new sessions with a code and keeps its current ones', async () => {
  await using world = await World.open({ LIMITS: 'on', MEMORY_BYTES_MAX: '1' })
  await expect.poll(() => world.broker.metric('sealpost_overloaded')).toBe(1)
  const later = await upgradeAt(world)
  expect(later).toMatchObject({ status: 503, body: '{"code":"try_later","retryAfterMs":2000}' })
  expect(later.headers.get('retry-after')).toBe('2')
  expect((await getAt(world, '/v1/inbox')).status).toBe(503)
  expect((await getAt(world, '/livez')).status).toBe(200)
  expect(world.broker.log.find(({ event }) => event === 'overload.began')).toMatchObject({ reason: 'memory' })
})

/** Returns `ack`, or the code of the refusal. */
async function sendTo(to: Place, client: WireClient, byteCount = 64): Promise<string> {
  client.send(sendFrame(envelopeTo(to, { isHead: true, envelope: new Uint8Array(byteCount) })))
  const answer = await client.next('ack', 'nack')
  return answer.type === 'ack' ? 'ack' : answer.items[0]!.code
}

test('H54: the quota of a mesh covers all recipients', async () => {
  await using world = await World.open({ LIMITS: 'on', MESH_MAX: '12' })
  const recipients = await world.enrolMany(3)
  const client = await world.wire()
  let sent = 0
  // Until a scan ends, commits in flight count twice, so each refusal may come early, but none comes late.
  const send = () => sendTo(recipients[sent++ % 3]!, client)
  await expect.poll(() => send().then(() => world.count('message_queue'))).toBe(12)
  for (const to of recipients) expect(await sendTo(to, client)).toBe('mailbox_full')
  expect(await world.count('message_queue')).toBe(12)
})

describe('a mailbox', () => {
  test('refuses a sender that used its share of the bytes, and accepts another one', async () => {
    const bytes = { MAILBOX_BYTES_PER_SENDER_MAX: '4000', MAILBOX_BYTES_MAX: '8000' }
    await using world = await World.open({ LIMITS: 'on', ...bytes })
    const absent = await world.enrol()
    const [one, two] = [await world.wire(), await world.wire()]
    // Until a scan ends, commits in flight count twice, so each refusal may come early, but none comes late.
    await expect.poll(() => sendTo(absent, one, 1000).then(() => world.count('message_queue'))).toBe(4)
    for (let i = 0; i < 5; i++) expect(await sendTo(absent, one, 1000)).toBe('mailbox_full')
    await expect.poll(() => sendTo(absent, two, 1000)).toBe('ack')
    expect(await sendTo(absent, one, 1000)).toBe('mailbox_full')
  })

  test('H54: has a limit per sender and a total limit, and accepts messages again once its owner has read some', async () => {
    await using world = await World.open({ LIMITS: 'on', MAILBOX_PER_SENDER_MAX: '20', MAILBOX_MAX: '30' })
    const absent = await world.enrol()
    const [one, two] = [await world.wire(), await world.wire()]
    // Sends until refused, never late: a scan may count a commit in flight twice.
    const fill = async (client: WireClient, upTo: number) => {
      await expect.poll(() => sendTo(absent, client).then(() => world.count('message_queue'))).toBe(upTo)
      for (let i = 0; i < 5; i++) expect(await sendTo(absent, client)).toBe('mailbox_full')
      expect(await world.count('message_queue')).toBe(upTo)
    }
    await fill(one, 20)
    await fill(two, 30)
    const back = await world.wire(absent)
    back.send({ type: 'settle', ids: (await back.deliveries(30)).map(({ id }) => id) })
    await expect.poll(() => sendTo(absent, one)).toBe('ack')
  })
})

/** Returns a member and `count` enrolled devices. */
async function withDevices(world: World, count: number): Promise<Place[]> {
  const place = await world.enrol()
  await using peer = await connect(place)
  const devices = Array.from({ length: count }, async (_, i) => {
    const identity = generateIdentity()
    return { ...(await joinAsDevice({ invite: usersOf(peer).inviteDevice(`device ${i}`), identity })), identity }
  })
  return [place, ...(await Promise.all(devices))]
}

test.each([
  ['a mailbox', { MAILBOX_MAX: '16', MAILBOX_PER_SENDER_MAX: '4' }],
  ['a mesh', { MESH_MAX: '16', MESH_PER_SENDER_MAX: '4' }],
])(
  'a member with many devices has one share of %s, also after a restart, and other members can still send',
  async (_, quota) => {
    await using world = await World.open({ LIMITS: 'on', ...quota })
    const [absent, honest] = await world.enrolMany(2)
    const keys = await withDevices(world, 5)
    /** Makes each peer send until it is refused. */
    const fill = async () => {
      for (const place of keys) {
        const client = await world.wire(place)
        while ((await sendTo(absent, client)) !== 'mailbox_full');
        client.destroy()
      }
    }
    await fill()
    // An append in flight may count twice, so a refusal may come early.
    expect([2, 3, 4]).toContain(await world.count('message_queue'))
    // A restarted broker accepts some messages before its first scan, but no full share per device.
    await world.broker.kill()
    await world.restart()
    await fill()
    expect(await world.count('message_queue')).toBeLessThan(12)
    const client = await world.wire(honest)
    for (let i = 0; i < 3; i++) expect(await sendTo(absent, client)).toBe('ack')
    client.destroy()
  },
)

test('the private port refuses requests for a public host name that ADMIN_NAMES omits', async () => {
  await using world = await World.open({ ADMIN_NAMES: 'ops.example' })
  const statusFor = async (host: string, path: string) =>
    (await fetch(`${world.broker.adminUrl}${path}`, { headers: { host } })).status
  for (const path of ['/metrics', '/console', '/v1/admin/cluster', '/readyz'])
    for (const host of ['rebound.example:7451', 'rebound.local:7451', 'rebound:7451'])
      expect([host, path, await statusFor(host, path)]).toEqual([host, path, 421])
  expect(await statusFor('ops.example:7451', '/metrics')).toBe(200)
  expect((await fetch(`${world.broker.adminUrl}/metrics`)).status).toBe(200)
})
