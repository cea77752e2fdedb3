/**
 * Tests the limits on bytes from an unproven client, and the charges for bytes that a member makes the broker parse.
 */
import { encode, FRAME_BYTES_MAX, UNPROVEN_FRAME_BYTES_MAX } from '@sealpost/protocol'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import manifest from '../../package.json'
import { ask, HttpPeer, post } from '../test/http.ts'
import { rawHttp, WireClient } from '../test/wire.ts'
import { World } from '../test/world.ts'

const TOO_LARGE = { code: 1009, reason: 'frame_too_large' }
const MALFORMED = { code: 4400, reason: 'frame_malformed' }
const ping = (bytes: number) => (encode('json', { type: 'ping', ref: 1 }) as string).padEnd(bytes)

let world: World
beforeAll(async () => {
  world = await World.open()
})
afterAll(() => world[Symbol.asyncDispose]())

describe('before the key is proven', () => {
  test.each([
    ['text over 16 KiB', 'json', ping(UNPROVEN_FRAME_BYTES_MAX + 1), TOO_LARGE],
    ['bytes over 16 KiB', 'binary', new Uint8Array(UNPROVEN_FRAME_BYTES_MAX + 1), TOO_LARGE],
    ['JSON nested deeper than 8', 'json', '['.repeat(9), MALFORMED],
    ['deep JSON of 16 KiB', 'json', '{"a":'.repeat(UNPROVEN_FRAME_BYTES_MAX / 5), MALFORMED],
  ] as const)('%s ends the connection', async (_, form, wire, closing) => {
    const client = await WireClient.open(world.broker.url, form)
    client.sendWire(wire)
    expect(await client.closed).toEqual(closing)
  })

  const asking = (...lines: string[]) => {
    const head = ['POST /v1/token HTTP/1.1', `Host: ${world.broker.authority}`, 'Content-Type: application/json']
    return rawHttp(world.broker.port, [...head, ...lines].join('\r\n'))
  }
  const over = UNPROVEN_FRAME_BYTES_MAX + 1

  test.each([
    ['that names more than 16 KiB, before it came', [`Content-Length: ${over}`, '', '{'], 413, 'body_too_large'],
    ['of more than 16 KiB in chunks', ['Transfer-Encoding: chunked', '', over.toString(16), ' '.repeat(over), '0', '', ''], 413, 'body_too_large'],
    ['of JSON nested deeper than 8', ['Content-Length: 9', '', '['.repeat(9)], 400, 'body_malformed'],
    ['that is no JSON', ['Content-Length: 9', '', '['.repeat(8).padEnd(9)], 400, 'body_malformed'],
  ] as const)('a body %s is refused', async (_, lines, status, code) => {
    const answer = await asking(...lines)
    expect([answer.status, JSON.parse(answer.body).code]).toEqual([status, code])
  }) // biome-ignore format: a table

  test('the bytes parsed for one address are limited, over HTTP and sockets together', async () => {
    const many = { REQUESTS_PER_SECOND: '10000', REQUESTS_BURST: '10000', UPGRADES_BURST: '10000' }
    await using limited = await World.open({ LIMITS: 'on', RATE_PER_SECOND: '10000', RATE_BURST: '10000', ...many })
    const wire = '['.repeat(8).padEnd(UNPROVEN_FRAME_BYTES_MAX)
    const refused = async () => {
      const client = await WireClient.open(limited.broker.url, 'json')
      client.sendWire(wire)
      return (await client.closed).reason
    }
    const reasons: string[] = []
    const exhaust = async () => {
      do reasons.push(await refused())
      while (reasons.length < 200 && reasons.at(-1) !== 'rate_exceeded')
      return (await post(`${limited.broker.httpUrl}/v1/token`, wire.slice(2))).body
    }
    let body = await exhaust()
    expect(reasons[0]).toBe('frame_malformed')
    expect(reasons.at(-1)).toBe('rate_exceeded')
    // a slow machine may have refilled the bucket
    for (let i = 0; i < 4 && (body as { code: string }).code !== 'rate_limited'; i++) body = await exhaust()
    expect(body).toEqual({ code: 'rate_limited', retryAfterMs: expect.any(Number) })
  })
})

describe('a body in chunks that is too large', () => {
  const BODY_BYTES = 100_000
  const BODIES_MAX = 30
  const chunked = (at: World, path: string, bytes: number, authorization: string[] = []) => {
    const head = [`POST ${path} HTTP/1.1`, `Host: ${at.broker.authority}`, 'Content-Type: application/json', 'Connection: close']
    const lines = [...head, ...authorization, 'Transfer-Encoding: chunked', '', bytes.toString(16), ' '.repeat(bytes)]
    return rawHttp(at.broker.port, [...lines, '0', '', ''].join('\r\n'))
  } // biome-ignore format: one thing
  const untilLimited = async (ask: () => ReturnType<typeof chunked>) => {
    const codes: string[] = []
    while (codes.length < BODIES_MAX && codes.at(-1) !== 'rate_limited')
      codes.push(JSON.parse((await ask()).body || '{"code":"cut"}').code)
    return codes
  }

  test.each([
    ['', BODY_BYTES, 'body_too_large'],
    [' for a frame', FRAME_BYTES_MAX + 1, 'cut'],
  ])('%s counts against its address', async (_, bytes, first) => {
    await using limited = await World.open({ LIMITS: 'on', REQUESTS_BURST: '10000' })
    const codes = await untilLimited(() => chunked(limited, '/v1/token', bytes))
    expect([codes[0], codes.at(-1)]).toEqual([first, 'rate_limited'])
  })

  test('counts against its member', async () => {
    await using limited = await World.open({
      LIMITS: 'on',
      RATE_BYTES_PER_SECOND: '1',
      RATE_BYTES_BURST: String(64 * 1024),
    })
    const peer = await HttpPeer.enter(await limited.enrol())
    const ask = () => chunked(limited, '/v1/lookup', BODY_BYTES, [`Authorization: Bearer ${peer.token}`])
    const codes = await untilLimited(ask)
    expect([codes[0], codes.at(-1)]).toEqual(['body_too_large', 'rate_limited'])
  })
})

describe('a member', () => {
  test('cannot send a frame longer than its type allows', async () => {
    const place = await world.enrol()
    for (const [wire, closing] of [
      [ping(UNPROVEN_FRAME_BYTES_MAX + 1), TOO_LARGE],
      ['['.repeat(FRAME_BYTES_MAX), MALFORMED],
      [`{"ref":1,"type":"ping"}`.padEnd(UNPROVEN_FRAME_BYTES_MAX + 1), MALFORMED],
    ] as const) {
      const client = await WireClient.enter(place, { form: 'json' })
      client.sendWire(wire)
      expect(await client.closed).toEqual(closing)
    }
    const client = await WireClient.enter(place, { form: 'json' })
    client.sendWire(ping(UNPROVEN_FRAME_BYTES_MAX))
    await client.next('pong')
    client.destroy()
  })

  test('is limited to bodies of 32 KiB on routes that need no larger ones', async () => {
    const peer = await HttpPeer.enter(await world.enrol())
    const large = { peers: Array.from({ length: 600 }, () => 'ab'.repeat(32)) }
    expect((await peer.post('/v1/lookup', large)).body).toEqual({ code: 'body_too_large' })
    expect((await peer.post('/v1/send', large)).body).toEqual({ code: 'body_malformed' })
    expect((await peer.post('/v1/lookup', [[[[[[[[[]]]]]]]]])).body).toEqual({ code: 'body_malformed' })
  })

  test('is charged for refused frames and bodies, over all its connections', async () => {
    const tight = { LIMITS: 'on', RATE_BYTES_PER_SECOND: '1', RATE_BYTES_BURST: String(64 * 1024) }
    await using limited = await World.open(tight)
    const [place, other] = await limited.enrolMany(2)
    const [peer, neighbour] = [await HttpPeer.enter(place), await HttpPeer.enter(other)]
    const lookup = (one: HttpPeer) => one.post('/v1/lookup', { peers: [place.identity.signing.publicKey] })
    expect((await lookup(peer)).status).toBe(200)

    const junk = await WireClient.enter(place, { form: 'json' })
    junk.sendWire('{"type":"send"'.padEnd(20_000))
    expect(await junk.closed).toEqual(MALFORMED)
    expect((await lookup(peer)).body).toEqual({ code: 'rate_limited', retryAfterMs: expect.any(Number) })

    const [debtor, client] = [await WireClient.enter(place), await WireClient.enter(other)]
    debtor.send({ type: 'ping', ref: 1 })
    for (let i = 0; i < 3; i++) await client.echo()
    expect(debtor.frames.filter(({ type }) => type === 'pong')).toEqual([])

    expect((await lookup(neighbour)).status).toBe(200)
    expect((await neighbour.post('/v1/send', { junk: 'x'.repeat(20_000) })).body).toEqual({ code: 'body_malformed' })
    expect((await lookup(neighbour)).body).toMatchObject({ code: 'rate_limited' })
    for (const each of [debtor, client]) each.destroy()
  })
})

test('neither port reveals the commit or the Postgres version to an unproven client', async () => {
  for (const url of [world.broker.httpUrl, world.broker.adminUrl]) {
    const { body } = await ask(`${url}/version`)
    expect(body).toMatchObject({ version: manifest.version, brokerKey: world.broker.key })
    expect(body).not.toHaveProperty('gitSha')
    expect(body).not.toHaveProperty('postgres')
  }
})
