/** Tests valid and malformed requests, their limits, and that responses quote no request. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openApiDocument } from '../http/discovery.ts'
import { ask, envelopeJson, HttpPeer, post } from './http.ts'
import { until } from './process.ts'
import { envelopeTo, randomHex, rawHttp } from './wire.ts'
import { type Place, World } from './world.ts'

let world: World
let to: Place
let peer: HttpPeer
beforeAll(async () => {
  world = await World.open()
  to = await world.enrol()
  peer = await HttpPeer.enter(await world.enrol())
})
afterAll(() => world[Symbol.asyncDispose]())

const at = (path: string) => world.broker.httpUrl + path
const raw = (line: string, headers: readonly string[], body = '') =>
  rawHttp(world.broker.port, [`${line} HTTP/1.1`, ...headers, 'Connection: close', '', body].join('\r\n'))
const authorized = () => [`Host: ${world.broker.authority}`, `Authorization: Bearer ${peer.token}`]

describe('a send', () => {
  const item = () => envelopeJson(envelopeTo(to))

  test('may omit priority and time to live', async () => {
    const { envelopeId, recipient, envelope } = item()
    const { body } = await peer.post('/v1/send', { envelopes: [{ envelopeId, recipient, envelope }] })
    expect(body.results).toEqual([{ envelopeId, status: 'stored' }])
  })

  test.each<[string, (item: Record<string, unknown>) => unknown]>([
    ['nothing', () => null],
    ['a list', (it) => [it]],
    ['no envelope', () => ({ envelopes: [] })],
    ['too many envelopes', () => ({ envelopes: Array.from({ length: 1001 }, () => ({})) })],
    ['another key beside them', (it) => ({ envelopes: [it], canary7f3a: 1 })],
    ['another key in one', (it) => ({ envelopes: [{ ...it, canary7f3a: 1 }] })],
    ['`isHead`', (it) => ({ envelopes: [{ ...it, isHead: true }] })],
    ['`__proto__`', (it) => JSON.parse(`{"envelopes":[${JSON.stringify(it).replace('{', '{"__proto__":{},')}]}`)],
    ['text for one', () => ({ envelopes: ['canary7f3a'] })],
    ['an id twice', (it) => ({ envelopes: [it, it] })],
    ['an id in capitals', (it) => ({ envelopes: [{ ...it, envelopeId: 'A'.repeat(32) }] })],
    ['terms that are none', (it) => ({ envelopes: [{ ...it, terms: [] }] })],
    ['unknown terms', (it) => ({ envelopes: [{ ...it, terms: { canary7f3a: 1 } }] })],
    ['an unknown priority', (it) => ({ envelopes: [{ ...it, priority: 'canary7f3a' }] })],
    ['a negative time', (it) => ({ envelopes: [{ ...it, ttlSeconds: -1 }] })],
    ['an envelope that is too short', (it) => ({ envelopes: [{ ...it, envelope: 'AAAA' }] })],
    ['an envelope in base64', (it) => ({ envelopes: [{ ...it, envelope: `${'A'.repeat(80)}+/==` }] })],
  ])('of %s is malformed', async (_, bodyOf) => {
    const answer = await peer.post('/v1/send', bodyOf(item()))
    expect([answer.status, answer.body]).toEqual([400, { code: 'body_malformed' }])
  })

  test.each<[string, string, string]>([
    ['that is no JSON', 'application/json', '{"canary7f3a'],
    ['that is empty', 'application/json', ''],
    ['of another kind', 'text/plain', '{"envelopes":[]}'],
  ])('with a body %s is malformed', async (_, type, body) => {
    const headers = { ...peer.headers, 'Content-Type': type }
    const answer = await ask(at('/v1/send'), { method: 'POST', headers, body })
    expect([answer.status, answer.body]).toEqual([400, { code: 'body_malformed' }])
  })

  test('without a token is refused before the body is read', async () => {
    expect(await post(at('/v1/send'), { canary7f3a: 1 })).toMatchObject({ status: 401 })
  })
})

test.each([
  'waitSeconds=31',
  'waitSeconds=-1',
  'waitSeconds=1.5',
  'waitSeconds=',
  'max=0',
  'max=257',
  'max=1e2',
  'takeover=1',
  'x=1',
])('a poll with %s is malformed', async (query) => {
  const answer = await peer.inbox(query)
  expect([answer.status, answer.body]).toEqual([400, { code: 'query_malformed' }])
})

test.each<[string, unknown]>([
  ['an id in words', { settle: ['1'] }],
  ['an id past 2^53', { settle: [2 ** 53] }],
  ['a fraction', { settle: [1.5] }],
  ['too many', { settle: Array.from({ length: 1001 }, (_, i) => i) }],
  ['a retry without a time', { retry: [{ id: 1 }] }],
  ['a reject without a reason', { reject: [{ id: 1 }] }],
  ['an extension of nothing', { extend: { ids: [], forMs: 1 } }],
  ['another key', { canary7f3a: [] }],
])('a settle of %s is malformed', async (_, body) => {
  const answer = await peer.post('/v1/settle', body)
  expect([answer.status, answer.body]).toEqual([400, { code: 'body_malformed' }])
})

test.each<[string, string, string]>([
  ['HEAD', '/v1/inbox', 'GET'],
  ['POST', '/v1/inbox', 'GET'],
  ['GET', '/v1/send', 'POST'],
  ['PUT', '/v1/token', 'POST, DELETE'],
  ['OPTIONS', '/v1/settle', 'POST'],
  ['TRACE', '/v1/send', 'POST'],
])('%s %s is not allowed', async (method, path, allowed) => {
  const { status, headers } = await raw(`${method} ${path}`, [...authorized(), 'Content-Length: 0'])
  expect([status, headers.get('allow')]).toEqual([405, allowed])
})

test('H69: members and unknown clients have a request rate', async () => {
  await using strict = await World.open({ LIMITS: 'on', RATE_PER_SECOND: '1', RATE_BURST: '3' })
  const limited = await HttpPeer.enter(await strict.enrol())
  const answers = await Promise.all(Array.from({ length: 30 }, () => limited.post('/v1/settle', {})))
  const refused = answers.filter(({ status }) => status === 429)
  expect(refused.length).toBeGreaterThanOrEqual(2)
  expect(refused[0]!.body).toMatchObject({ code: 'rate_limited' })
  expect(Number(refused[0]!.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
  const challenge = () => ask(`${strict.broker.httpUrl}/v1/token/challenge`, { method: 'POST' })
  const asked = async () => (await Promise.all(Array.from({ length: 60 }, challenge))).map(({ status }) => status)
  await until('one is refused', async () => (await asked()).includes(429))
})

test('a peer has a limited number of concurrent requests', async () => {
  const busy = await HttpPeer.enter(await world.enrol())
  const items = () => Array.from({ length: 200 }, () => envelopeTo(to))
  const asked = () => Promise.all(Array.from({ length: 200 }, () => busy.send(...items())))
  await until('some are too many', async () => {
    const answers = await asked()
    const refused = answers.filter(({ status }) => status !== 200)
    for (const { status, body } of refused) expect([status, body.code]).toEqual([429, 'too_many_requests'])
    return refused.length > 0 && refused.length < answers.length
  })
})

test('the broker publishes its versions, limits and features', async () => {
  const { status, body } = await ask(at('/.well-known/sealpost'))
  expect(status).toBe(200)
  expect(body).toMatchObject({
    brokerKey: world.broker.key,
    protocolVersions: [1],
    openApiPath: '/v1/openapi.json',
    features: expect.arrayContaining(['http']),
    limits: { frameBytesMax: 262_144, pollWaitSecondsMax: 30, pollingIdleMs: 60_000 },
  })
  expect(await post(at('/.well-known/sealpost'), {})).toMatchObject({ status: 405 })
})

test('the broker serves the OpenAPI document', async () => {
  const { status, body } = await ask(at('/v1/openapi.json'))
  expect(status).toBe(200)
  expect(Object.keys(body.paths)).toEqual(Object.keys(openApiDocument().paths!))
  expect(body.paths['/v1/send'].post.security).toEqual([{ bearer: [] }])
})

test('the log contains nothing of a request', async () => {
  await peer.post('/v1/send', { envelopes: [`canary${randomHex(4)}`] })
  expect(world.broker.output).not.toContain('canary')
})
