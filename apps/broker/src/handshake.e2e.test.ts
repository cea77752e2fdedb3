/** Who is let in, and what everybody else is told: as little as possible. */
import { addMembers, revokeMember } from '@sealpost/db'
import { bindBoxKey, generateIdentity, type Identity } from '@sealpost/identity'
import type { Form } from '@sealpost/protocol'
import { connect } from '@sealpost/sdk'
import type { MeshId, PeerKey } from '@sealpost/std'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { authFrame, envelopeTo, randomMesh, sendFrame, WireClient } from './testing-wire.ts'
import { type Place, World } from './testing-world.ts'

let world: World
beforeAll(async () => {
  world = await World.open()
})
afterAll(() => world[Symbol.asyncDispose]())

/** What a client is told, in the last frame and in the close. */
async function endOf(client: WireClient) {
  const { code, retryAfterMs, reason } = await client.next('refused')
  return { refused: { code, retryAfterMs, reason }, closing: await client.closed }
}

async function answerTo(place: Place, changed: Parameters<typeof authFrame>[2] = {}, form: Form = 'binary') {
  const client = await WireClient.open(place.url, form)
  client.send(authFrame(place, await client.next('hello'), changed))
  return endOf(client)
}

const AUTH_FAILED = {
  refused: { code: 'auth_failed', retryAfterMs: 2000, reason: '' },
  closing: { code: 4401, reason: 'auth_failed' },
}

describe.each(['binary', 'json'] as const)('in the %s form', (form) => {
  test('two peers of the SDK talk to each other', async () => {
    const [alice, bob] = await Promise.all([
      connect({ ...(await world.enrol()), form }),
      connect({ ...(await world.enrol()), form }),
    ])
    const arrived = Promise.withResolvers<string>()
    bob.onMessage((message) => arrived.resolve(`${message.sender} ${message.text()}`))
    const receipt = await alice.send(bob.key, 'hello')
    expect(receipt.isDuplicate).toBe(false)
    expect(await arrived.promise).toBe(`${alice.key} hello`)
    await Promise.all([alice.close(), bob.close()])
  })

  test('a wrong signature is refused', async () => {
    const place = await world.enrol()
    expect(await answerTo(place, { signature: new Uint8Array(64) }, form)).toEqual(AUTH_FAILED)
  })
})

test('an unknown mesh, an unknown key and a bad signature are told the same, and nothing of the input', async () => {
  const member = await world.enrol()
  const answers = await Promise.all([
    answerTo({ ...member, meshId: randomMesh() }),
    answerTo(world.place(generateIdentity())),
    answerTo(member, { signature: crypto.getRandomValues(new Uint8Array(64)) }),
    answerTo({ ...member, meshId: await world.mesh() }),
  ])
  for (const answer of answers) expect(answer).toEqual(AUTH_FAILED)
})

test.each([
  ['another authority', { signed: { authority: 'broker.example:443' } }],
  ['another broker', { signed: { brokerKey: 'ab'.repeat(32) as PeerKey } }],
  ['another mesh', { signed: { meshId: 'cd'.repeat(16) as MeshId } }],
  ['another offer of versions', { signed: { versionsOffered: [1, 2] } }],
  ['other capabilities', { signed: { capabilities: ['admin'] } }],
  ['another time', { signed: { issuedAtMs: 1 } }],
  ['an earlier nonce', { signed: { serverNonce: new Uint8Array(32) } }],
] as const)('a signature made for %s is refused', async (_, changed) => {
  expect(await answerTo(await world.enrol(), changed)).toEqual(AUTH_FAILED)
})

test('a frame `auth` that was good on another connection is refused here', async () => {
  const place = await world.enrol()
  const first = await WireClient.open(place.url)
  const captured = authFrame(place, await first.next('hello'))
  first.send(captured)
  await first.next('welcome')
  const second = await WireClient.open(place.url)
  second.send(captured)
  expect(await endOf(second)).toEqual(AUTH_FAILED)
  await first.echo()
  first.destroy()
})

test('a small-order key, even one enrolled, proves nothing', async () => {
  const peerKey = `01${'00'.repeat(31)}` as PeerKey
  const identity = generateIdentity()
  const forged: Identity = { ...identity, signing: { ...identity.signing, publicKey: peerKey } }
  await addMembers(world.db, world.meshId, [{ ...bindBoxKey(identity, world.meshId, 4e12), peerKey }])
  const signature = new Uint8Array(64)
  signature[0] = 1 // R is the identity, S is 0
  expect(await answerTo(world.place(forged), { signature })).toEqual(AUTH_FAILED)
})

test('a revoked key is told so, but only after a good signature', async () => {
  const place = await world.enrol()
  await revokeMember(world.db, world.meshId, place.identity.signing.publicKey)
  expect(await answerTo(place, { signature: new Uint8Array(64) })).toEqual(AUTH_FAILED)
  expect((await answerTo(place)).closing).toEqual({ code: 4403, reason: 'revoked' })
})

test('the SDK ends for good when its key was revoked or is unknown', async () => {
  const place = await world.enrol()
  await revokeMember(world.db, world.meshId, place.identity.signing.publicKey)
  await expect(connect(place)).rejects.toMatchObject({ code: 'revoked' })
  await expect(connect(world.place(generateIdentity()))).rejects.toMatchObject({ code: 'auth_failed' })
})

test('the SDK refuses a broker that can not prove the pinned key', async () => {
  const place = await world.enrol()
  await expect(connect({ ...place, brokerKey: 'ef'.repeat(32) as PeerKey })).rejects.toMatchObject({
    code: 'wrong_broker',
  })
})

test('a version that was not offered is refused', async () => {
  const { closing } = await answerTo(await world.enrol(), { signed: { version: 7 } })
  expect(closing).toEqual({ code: 4406, reason: 'version_unsupported' })
})

test('any frame before `auth` ends the connection, and stores nothing', async () => {
  const to = await world.enrol()
  for (const frame of [sendFrame(envelopeTo(to)), { type: 'ping', ref: 1 }, { type: 'credit', credit: 1 }] as const) {
    const client = await WireClient.open(to.url)
    client.send(frame)
    expect((await endOf(client)).closing).toEqual({ code: 4400, reason: 'frame_unexpected' })
  }
  expect(await world.count('message_queue')).toBe(0)
})

test('a frame behind `auth`, before its answer, ends the connection', async () => {
  const place = await world.enrol()
  const client = await WireClient.open(place.url)
  client.send(authFrame(place, await client.next('hello')))
  client.send(sendFrame(envelopeTo(place)))
  expect((await client.closed).code).toBe(4400)
  expect(await world.count('message_queue')).toBe(0)
})

test('a second `auth` ends the session', async () => {
  const place = await world.enrol()
  const client = await WireClient.open(place.url)
  const auth = authFrame(place, await client.next('hello'))
  client.send(auth)
  await client.next('welcome')
  client.send(auth)
  expect((await endOf(client)).closing).toEqual({ code: 4400, reason: 'frame_unexpected' })
})

test('a key enrolled in two meshes has a session in each', async () => {
  const here = await world.enrol()
  const there = await world.enrol(await world.mesh(), here.identity)
  const [first, second] = [await WireClient.enter(here), await WireClient.enter(there)]
  await Promise.all([first.echo(), second.echo()])
  first.destroy()
  second.destroy()
})

test('who says nothing in time is let go', async () => {
  await using hasty = await World.open({ AUTH_WITHIN_MS: '100' })
  const client = await WireClient.open(hasty.broker.url)
  expect((await client.next('hello')).authWithinMs).toBe(100)
  expect((await endOf(client)).closing).toEqual({ code: 4408, reason: 'auth_timeout' })
})
