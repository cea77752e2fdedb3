/** Tests token requests and the lifetime of tokens. */
import { generateIdentity, type Transcript } from '@sealpost/identity'
import { revokeMember } from '@sealpost/store/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { ask, HttpPeer, post, tokenRequest } from './http.ts'
import { until } from './process.ts'
import { authFrame, randomHex, randomMesh, WireClient } from './wire.ts'
import { World } from './world.ts'

let world: World
beforeAll(async () => {
  world = await World.open({ LOG_LEVEL: 'debug' })
})
afterAll(() => world[Symbol.asyncDispose]())

const url = () => `${world.broker.httpUrl}/v1/token`
const inbox = (headers: [string, string][], query = '') =>
  ask(`${world.broker.httpUrl}/v1/inbox?waitSeconds=0${query}`, { headers })

describe('a request', () => {
  test("with a token is accepted, and the broker stores and logs only the token's hash", async () => {
    const peer = await HttpPeer.enter(await world.enrol())
    expect(peer.token).toMatch(/^spt_[A-Za-z0-9_-]{64}$/)
    expect(await inbox([['Authorization', `Bearer ${peer.token}`]])).toMatchObject({ status: 200 })
    const rows = await world.db.run((sql) => sql`select encode(hash, 'hex') as hash from access_token`)
    const secret = Buffer.from(peer.token.slice(4), 'base64url')
    expect(rows.length).toBeGreaterThan(0)
    expect(JSON.stringify(rows)).not.toContain(secret.toString('hex').slice(32))
    expect(world.broker.output).not.toContain(peer.token.slice(30))
  })
})

describe('a token', () => {
  test('expires at its time', async () => {
    const place = await world.enrol()
    const peer = await until('one is still good when it is used', async () => {
      const brief = await HttpPeer.enter(place, 3)
      return (await brief.inbox('waitSeconds=0')).status === 200 ? brief : null
    })
    await until('it is over', async () => (await peer.inbox('waitSeconds=0')).status === 401)
  })

  test('is invalid once revoked, and other tokens of its peer stay valid', async () => {
    const place = await world.enrol()
    const [revoked, kept] = [await HttpPeer.enter(place), await HttpPeer.enter(place)]
    expect(await revoked.revoke()).toMatchObject({ status: 204, body: null })
    expect(await revoked.inbox('waitSeconds=0')).toMatchObject({ status: 401 })
    expect(await revoked.revoke()).toMatchObject({ status: 401 })
    expect(await kept.inbox('waitSeconds=0')).toMatchObject({ status: 200 })
  })

  test("is invalid within seconds of its peer's revocation", async () => {
    const place = await world.enrol()
    const peer = await HttpPeer.enter(place)
    expect(await peer.inbox('waitSeconds=0')).toMatchObject({ status: 200 })
    await revokeMember(world.db, world.meshId, place.identity.signing.publicKey)
    await until('it is over', async () => (await peer.post('/v1/settle', {})).status === 401)
    expect(await post(url(), await tokenRequest(place))).toMatchObject({ status: 403, body: { code: 'revoked' } })
  })

  test('counts towards a limit per peer', async () => {
    const place = await world.enrol()
    const first = await HttpPeer.enter(place)
    for (let i = 1; i < 32; i++) await HttpPeer.enter(place)
    expect(await post(url(), await tokenRequest(place))).toMatchObject({
      status: 429,
      body: { code: 'too_many_tokens' },
    })
    await first.revoke()
    expect(await post(url(), await tokenRequest(place))).toMatchObject({ status: 200 })
  })
})

describe('a request for a token', () => {
  test("gets a reply that proves the broker's identity", async () => {
    const fromMs = Date.now()
    const { status, body } = await post(url(), await tokenRequest(await world.enrol(), { ttlSeconds: 60 }))
    expect(status).toBe(200)
    expect(Buffer.from(body.proof, 'base64url')).toHaveLength(64)
    // The processes share a clock but round differently.
    expect(body.expiresAtMs - 60_000).toBeGreaterThanOrEqual(fromMs - 100)
    expect(body.expiresAtMs - 60_000).toBeLessThanOrEqual(Date.now() + 100)
  })

  test.each<[string, Partial<Transcript>]>([
    ['another authority', { authority: 'evil.example:443' }],
    ['another broker', { brokerKey: randomHex(32) as never }],
    ['another mesh', { meshId: randomMesh() }],
    ['another challenge', { serverNonce: new Uint8Array(32) }],
    ['fewer versions', { versionsOffered: [] }],
  ])('signed for %s is refused', async (_, signed) => {
    const request = await tokenRequest(await world.enrol(), { signed })
    expect(await post(url(), request)).toMatchObject({ status: 401, body: { code: 'auth_failed' } })
  })

  test('by an unknown peer or in an unknown mesh gets the same refusal', async () => {
    const place = await world.enrol()
    for (const stranger of [world.place(generateIdentity()), { ...place, meshId: randomMesh() }])
      expect(await post(url(), await tokenRequest(stranger))).toMatchObject({
        status: 401,
        body: { code: 'auth_failed' },
      })
  })

  test('with a longer lifetime than was signed is refused', async () => {
    const request = await tokenRequest(await world.enrol(), { ttlSeconds: 60 })
    expect(await post(url(), { ...request, ttlSeconds: 61 })).toMatchObject({ status: 401 })
  })

  test('with the signature of a handshake is refused', async () => {
    const place = await world.enrol()
    const request = await tokenRequest(place)
    const client = await WireClient.open(place.url)
    const hello = await client.next('hello')
    const auth = authFrame(place, hello)
    const body = {
      ...request,
      connectionId: Buffer.from(hello.connectionId).toString('base64url'),
      clientNonce: Buffer.from(auth.clientNonce).toString('base64url'),
      signature: Buffer.from(auth.signature).toString('base64url'),
    }
    expect(await post(url(), body)).toMatchObject({ status: 401, body: { code: 'challenge_invalid' } })
    client.destroy()
  })

  test('can be sent only once, even if it fails', async () => {
    const good = await tokenRequest(await world.enrol())
    expect(await post(url(), good)).toMatchObject({ status: 200 })
    expect(await post(url(), good)).toMatchObject({ status: 401, body: { code: 'challenge_invalid' } })
    const bad = await tokenRequest(await world.enrol(), { signed: { authority: 'evil.example:443' } })
    expect(await post(url(), bad)).toMatchObject({ body: { code: 'auth_failed' } })
    expect(await post(url(), bad)).toMatchObject({ body: { code: 'challenge_invalid' } })
  })

  test.each<[string, Record<string, unknown>]>([
    ['a life of no time', { ttlSeconds: 0 }],
    ['a life over a day', { ttlSeconds: 86_401 }],
    ['a life in words', { ttlSeconds: '60' }],
    ['a key in capitals', { peerKey: 'A'.repeat(64) }],
    ['a signature that is too short', { signature: 'AAAA' }],
    ['base64url with slack bits', { clientNonce: `${'A'.repeat(42)}B` }],
    ['an unknown key', { canary7f3a: 1 }],
  ])('with %s is malformed', async (_, changed) => {
    const answer = await post(url(), { ...(await tokenRequest(await world.enrol())), ...changed })
    expect(answer).toMatchObject({ status: 400, body: { code: 'body_malformed' } })
    expect(answer.body).toEqual({ code: 'body_malformed' })
  })

  test('in a version that was not offered is refused', async () => {
    const request = { ...(await tokenRequest(await world.enrol())), version: 9 }
    expect(await post(url(), request)).toMatchObject({ status: 400, body: { code: 'version_unsupported' } })
  })
})
