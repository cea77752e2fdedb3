/** Tests accepted upgrades and plain HTTP responses. The table of hostile inputs covers refused upgrades. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import manifest from '../../package.json'
import { rawHttp, upgradeRequest, WireClient } from './wire.ts'
import { World } from './world.ts'

const ORIGIN = 'https://console.example'
/** Keeps unauthenticated connections open for longer than a test. */
const LIMITED = { LIMITS: 'on', AUTH_WITHIN_MS: '300000' }
let world: World
beforeAll(async () => {
  world = await World.open({ ORIGINS: ORIGIN, AUTHORITIES: 'Broker.example, other.example:8443', LOG_LEVEL: 'debug' })
})
afterAll(() => world[Symbol.asyncDispose]())

const upgrade = (headers: readonly string[] = [], line?: string) =>
  rawHttp(world.broker.port, upgradeRequest(world.broker.authority, headers, line))

describe('an upgrade', () => {
  test.each<[string, string[]]>([
    ['without an Origin', []],
    ['from an allowed page', [`Origin: ${ORIGIN}`]],
    ['under the name localhost', ['Host: localhost:PORT']],
    ['under a name of the configuration, in capitals, on the usual port', ['Host: BROKER.example']],
    ['under a name with its port', ['Host: other.example:8443']],
    ['that offers another subprotocol first', ['Sec-WebSocket-Protocol: evil, sealpost.v1']],
    ['that offers compression', ['Sec-WebSocket-Extensions: permessage-deflate']],
  ])('%s is accepted', async (_, headers) => {
    const answer = await upgrade(headers.map((header) => header.replace('PORT', String(world.broker.port))))
    expect(answer.status).toBe(101)
    expect(answer.headers.get('sec-websocket-protocol')).toBe('sealpost.v1')
    expect(answer.headers.has('sec-websocket-extensions')).toBe(false)
  })
})

test('the subprotocol name selects the JSON form', async () => {
  const client = await WireClient.open(world.broker.url, 'json')
  expect((await client.next('hello')).versions).toEqual([1])
  client.destroy()
})

describe('plain HTTP', () => {
  const get = (path: string, init: RequestInit = {}, base = world.broker.httpUrl) => fetch(`${base}${path}`, init)

  test('both ports serve health, readiness and version', async () => {
    for (const base of [world.broker.httpUrl, world.broker.adminUrl]) {
      expect(await (await get('/livez', {}, base)).text()).toBe('ok')
      expect(await (await get('/readyz', {}, base)).text()).toBe('ok')
      const version = (await (await get('/version', {}, base)).json()) as Record<string, unknown>
      expect(version).toMatchObject({ version: manifest.version, limits: 'off', durability: 'fsync' })
      expect(Object.keys(version)).not.toContain('gitSha')
      expect(Object.keys(version)).not.toContain('postgres')
    }
  })

  test('only the private port serves metrics', async () => {
    expect((await get('/metrics')).status).toBe(404)
    const metrics = await get('/metrics', {}, world.broker.adminUrl)
    expect(metrics.headers.get('content-type')).toContain('text/plain')
    expect(await metrics.text()).toContain('sealpost_sessions ')
  })

  test.each(['/', '/v1', '/v1/ws/', '/v1%2fws', '//v1/ws', '/.env', '/livez/', '/%'])(
    '%s is not found',
    async (path) => {
      const answer = await rawHttp(world.broker.port, `GET ${path} HTTP/1.1\r\nHost: ${world.broker.authority}\r\n\r\n`)
      expect(answer).toMatchObject({ status: 404, body: '{"code":"not_found"}' })
    },
  )

  test.each(['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS'])('%s is refused as an unsupported method', async (method) => {
    const answer = await get('/livez', { method })
    expect(answer.status).toBe(405)
    expect(answer.headers.get('allow')).toBe('GET, HEAD')
    expect(answer.headers.has('access-control-allow-origin')).toBe(false)
    expect(await answer.text()).toBe('{"code":"method_not_allowed"}')
  })

  test('the socket path without an upgrade replies that it requires one', async () => {
    const answer = await get('/v1/ws')
    expect([answer.status, answer.headers.get('upgrade')]).toEqual([426, 'websocket'])
    expect(await answer.json()).toEqual({ code: 'upgrade_required' })
  })

  test('a body over the limit is refused', async () => {
    expect((await get('/livez', { method: 'POST', body: new Uint8Array(257 * 1024) })).status).toBe(413)
  })

  test('no response contains a stack trace or a source path', async () => {
    const answers = await Promise.all(
      ['/', '/readyz', '/v1/ws', '/version'].map(async (path) => (await get(path)).text()),
    )
    expect(answers.join()).not.toMatch(/\.ts|at .*:\d+/)
  })
})

test('H57, H59: the number of connections per address is limited, and closing one frees a slot', async () => {
  await using limited = await World.open({ ...LIMITED, SOCKETS_PER_IP: '5' })
  const clients = await Promise.all(Array.from({ length: 5 }, () => WireClient.open(limited.broker.url)))
  const next = () => rawHttp(limited.broker.port, upgradeRequest(limited.broker.authority))
  const answer = await next()
  expect(answer).toMatchObject({ status: 429, body: '{"code":"too_many_connections","retryAfterMs":5000}' })
  expect(answer.headers.get('retry-after')).toBe('5')
  const forwarded = upgradeRequest(limited.broker.authority, ['X-Forwarded-For: 203.0.113.9'])
  expect((await rawHttp(limited.broker.port, forwarded)).status).toBe(429)
  clients.pop()!.destroy()
  await expect.poll(async () => (await next()).status).toBe(101)
  for (const client of clients) client.destroy()
})

test('with default limits, the 101st connection of an address is refused', async () => {
  await using limited = await World.open({ ...LIMITED, UNAUTHENTICATED_PER_IP: '100' })
  const clients = await Promise.all(Array.from({ length: 100 }, () => WireClient.open(limited.broker.url)))
  expect((await rawHttp(limited.broker.port, upgradeRequest(limited.broker.authority))).status).toBe(429)
  for (const client of clients) client.destroy()
})

describe('the total number of connections without a proven key is limited', () => {
  const upgradeFrom = (limited: World, address: string) =>
    rawHttp(limited.broker.port, upgradeRequest(limited.broker.authority, [`X-Forwarded-For: ${address}`]))

  test('above the limit, a client replaces the oldest connection of a fuller network', async () => {
    await using limited = await World.open({ ...LIMITED, UNAUTHENTICATED_MAX: '3', TRUSTED_PROXIES: '127.0.0.0/8' })
    const member = await WireClient.enter(await limited.enrol())
    const crowd = await Promise.all(Array.from({ length: 3 }, () => WireClient.open(limited.broker.url)))
    expect((await upgradeFrom(limited, '198.51.100.1')).status).toBe(101)
    expect(await Promise.race(crowd.map(({ closed }) => closed))).toEqual({ code: 1013, reason: 'try_later' })
    await member.echo()
    for (const client of [...crowd, member]) client.destroy()
  })

  test('members log in while a crowd from many addresses occupies every slot', async () => {
    const env = { ...LIMITED, UNAUTHENTICATED_MAX: '8', UNAUTHENTICATED_PER_IP: '2' }
    await using limited = await World.open(env)
    const place = await limited.enrol()
    const crowd = await Promise.all(
      Array.from({ length: 8 }, (_, i) => WireClient.open(limited.broker.url, 'binary', `127.6.6.${1 + (i >> 1)}`)),
    )
    for (let i = 0; i < 3; i++) (await WireClient.enter(place)).destroy()
    for (const client of crowd) client.destroy()
  })
})
