/** Tests that the broker enforces a peer's consent over sockets, over HTTP, and for ephemeral messages. */
import { CONSENT_CHANGES_MAX, type FrameOf } from '@sealpost/protocol'
import { connect, type Peer } from '@sealpost/sdk'
import type { PeerKey } from '@sealpost/std'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { HttpPeer } from './http.ts'
import { keyOf } from './member.ts'
import { until } from './process.ts'
import { envelopeTo, randomHex, sendFrame, WireClient } from './wire.ts'
import { type Place, World } from './world.ts'

let world: World
beforeAll(async () => {
  world = await World.open()
})
afterAll(() => world[Symbol.asyncDispose]())

const NOT_ALLOWED = { code: 'not_allowed', isRetryable: false }

/** Connects a peer with a consent, and two that write to it. */
async function scene() {
  const [owner, friend, stranger] = await world.enrolMany(3)
  return { owner, friend, stranger }
}

async function update(place: Place, change: Parameters<Peer['updateConsent']>[0]) {
  await using peer = await connect(place)
  return await peer.updateConsent(change)
}

/** Sends once on each path. Returns the reply codes. */
async function waysOf(from: Place, to: Place): Promise<string[]> {
  const client = await WireClient.enter(from, { form: 'json' })
  const [plain, whispered] = [envelopeTo(to, { isHead: true }), envelopeTo(to)]
  client.send(sendFrame(plain))
  const answer = await client.next('ack', 'nack')
  const { envelopeId, recipient, envelope } = whispered
  client.send({ type: 'sendEphemeral', items: [{ envelopeId, recipient, envelope }] })
  const { items } = await client.next('ephemeralFailed')
  client.destroy()
  const http = await (await HttpPeer.enter(from)).send(envelopeTo(to))
  const [result] = http.body.results
  return [answer.type === 'ack' ? 'stored' : answer.items[0]!.code, items[0]!.code, result.code ?? result.status]
}

test('an unknown sender is refused under `contacts`, and accepted once it is allowed', async () => {
  const { owner, friend, stranger } = await scene()
  expect(await waysOf(stranger, owner)).toEqual(['stored', 'no_responder', 'stored'])
  await update(owner, { policy: 'contacts', allow: [keyOf(friend)] })
  expect(await waysOf(friend, owner)).toEqual(['stored', 'no_responder', 'stored'])
  // The reply must not reveal to a stranger that no recipient was online.
  expect(await waysOf(stranger, owner)).toEqual(['not_allowed', 'no_responder', 'not_allowed'])
  await update(owner, { allow: [keyOf(stranger)] })
  expect(await waysOf(stranger, owner)).toEqual(['stored', 'no_responder', 'stored'])
})

test('a message from a blocked peer is refused on every path, and messages from other peers are accepted', async () => {
  const { owner, friend, stranger } = await scene()
  await using peer = await connect(owner)
  const heard: string[] = []
  peer.onMessage((message) => void heard.push(message.text()))
  peer.onEphemeral((whisper) => void heard.push(String(whisper.body)))
  await peer.updateConsent({ block: [keyOf(stranger)] })
  expect(await waysOf(stranger, owner)).toEqual(['not_allowed', 'not_allowed', 'not_allowed'])
  await using writer = await connect(friend)
  await writer.send(peer.key, 'from a friend')
  await peer.updateConsent({ forget: [keyOf(stranger)] })
  await using again = await connect(stranger)
  await again.send(peer.key, 'forgiven')
  await until('both were heard', () => heard.length === 2)
  expect(heard).toEqual(['from a friend', 'forgiven'])
})

test('refusing one envelope holds up no other, and is not retryable', async () => {
  const { owner, friend, stranger } = await scene()
  await update(owner, { policy: 'contacts' })
  await using peer = await connect(stranger)
  const [refused, sent] = await Promise.allSettled([peer.send(keyOf(owner), 'hello'), peer.send(keyOf(friend), 'hi')])
  expect(refused).toMatchObject({ reason: NOT_ALLOWED })
  expect(sent.status).toBe('fulfilled')
  const client = await WireClient.enter(stranger)
  const toOwner = [envelopeTo(owner, { isHead: true }), envelopeTo(owner)]
  client.send(sendFrame(...toOwner))
  const { items } = await client.next('nack')
  const code = { code: 'not_allowed', retryAfterMs: 0 }
  expect(items).toEqual(toOwner.map(({ envelopeId }) => ({ envelopeId, ...code })))
  client.destroy()
})

test('messages accepted before the block are delivered', async () => {
  const { owner, stranger } = await scene()
  await using writer = await connect(stranger)
  await writer.send(keyOf(owner), 'early')
  await using peer = await connect({ ...owner, credit: 0 })
  await peer.updateConsent({ policy: 'contacts', block: [writer.key] })
  await expect(writer.send(peer.key, 'late')).rejects.toMatchObject(NOT_ALLOWED)
  await peer.close()
  await using reader = await connect(owner)
  const first = await new Promise((resolve) => reader.onMessage((message) => resolve(message.text())))
  expect(first).toBe('early')
})

test('replying to a peer does not allow it, and a peer may always write to itself', async () => {
  const { owner, stranger } = await scene()
  await using peer = await connect(owner)
  await peer.updateConsent({ policy: 'contacts' })
  await using other = await connect(stranger)
  await peer.send(other.key, 'a question')
  await expect(other.send(peer.key, 'the answer')).rejects.toMatchObject(NOT_ALLOWED)
  await peer.send(peer.key, 'a note to myself')
})

test('a peer can read its consent, which survives a broker restart', async () => {
  const { owner, friend, stranger } = await scene()
  const wanted = { policy: 'contacts', allowed: [keyOf(friend)], blocked: [keyOf(stranger)] }
  expect(await update(owner, { policy: 'contacts', allow: [keyOf(friend)], block: [keyOf(stranger)] })).toEqual(wanted)
  world.broker.signal('SIGTERM')
  await world.restart()
  await using peer = await connect(world.place(owner.identity))
  expect(await peer.consent()).toEqual(wanted)
  await using writer = await connect(world.place(stranger.identity))
  await expect(writer.send(peer.key, 'after the restart')).rejects.toMatchObject(NOT_ALLOWED)
})

test('a change skips unknown peers and applies the rest', async () => {
  const { owner, friend } = await scene()
  await using peer = await connect(world.place(owner.identity))
  const nobody = randomHex(32) as PeerKey
  await expect(peer.updateConsent({ block: [nobody, keyOf(friend)] })).rejects.toMatchObject({
    code: 'unknown_recipient',
  })
  expect((await peer.consent()).blocked).toEqual([keyOf(friend)])
})

test('a member of another mesh cannot be named', async () => {
  const elsewhere = await world.enrol(await world.mesh())
  const owner = await world.enrol()
  await expect(update(owner, { allow: [keyOf(elsewhere)] })).rejects.toMatchObject({ code: 'unknown_recipient' })
})

test('a frame has a limited number of changes, and only a session can send one', async () => {
  const { owner } = await scene()
  const changes = Array.from({ length: CONSENT_CHANGES_MAX + 1 }, () => ({ peer: randomHex(32), verdict: 'allowed' }))
  const client = await WireClient.enter(owner, { form: 'json' })
  client.sendWire(JSON.stringify({ type: 'consent', ref: 1, policy: 'keep', changes }))
  expect(await client.closed).toEqual({ code: 4400, reason: 'frame_malformed' })
  const early = await WireClient.open(world.broker.url)
  early.send({ type: 'consent', ref: 1, policy: 'keep', changes: [] } satisfies FrameOf<'consent'>)
  expect(await early.closed).toEqual({ code: 4400, reason: 'frame_unexpected' })
})
