/** Tests that a peer that rotates its identity key keeps everything, and that nobody else can (H45). */

import { bindBoxKey, generateBoxKeys, generateIdentity, type Identity, signIdentityRotation } from '@sealpost/identity'
import type { FrameOf } from '@sealpost/protocol'
import { connect, type Message, type Peer, type PeerEvent } from '@sealpost/sdk'
import { joinAsDevice } from '@sealpost/sdk/join'
import { usersOf } from '@sealpost/sdk/users'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { keyOf } from './member.ts'
import { until } from './process.ts'
import { WireClient } from './wire.ts'
import { type Place, World } from './world.ts'

let world: World
beforeAll(async () => {
  world = await World.open()
})
afterAll(() => world[Symbol.asyncDispose]())

function heardBy(peer: Peer): Message[] {
  const heard: Message[] = []
  peer.onMessage((message) => void heard.push(message))
  return heard
}

const nextOf = ({ box }: Identity): Identity => ({ ...generateIdentity(), box: generateBoxKeys(box.epoch + 1) })

/** Rotates the key. Returns the place of the next process. */
async function turn(place: Place) {
  const identity = nextOf(place.identity)
  const peer = await connect({ ...place, credit: 0 })
  await peer.rotateIdentity(identity)
  return { ...place, identity, formerKeys: [keyOf(place)], formerBoxKeys: [place.identity.box] }
}

test('waiting messages in both directions, consent and role move to the new key', async () => {
  const [alice, bob, carol] = [await world.enrolAdmin('alice'), await world.enrol(), await world.enrol()]
  const writer = await connect(bob)
  const former = await connect({ ...alice, credit: 0 })
  await former.updateConsent({ policy: 'contacts', allow: [keyOf(bob)] })
  await writer.updateConsent({ policy: 'contacts', allow: [keyOf(alice)] })
  await writer.send(keyOf(alice), 'to the former key')
  await former.send(keyOf(carol), 'from the former key')
  await former.close()
  const next = await turn(alice)
  await using now = await connect(next)
  const heard = heardBy(now)
  await until('what waited is there', () => heard.length === 1)
  expect(heard[0]).toMatchObject({ sender: keyOf(bob) })
  expect(heard[0]!.text()).toBe('to the former key')
  // Bob has allowed the former key.
  await now.send(keyOf(bob), 'under the new key')
  const events: PeerEvent[] = []
  await using stranger = await connect({ ...carol, onEvent: (event) => events.push(event) })
  const atCarol = heardBy(stranger)
  await until('carol has the old mail', () => atCarol.length === 1)
  expect(atCarol[0]).toMatchObject({ sender: now.key, user: now.key })
  expect(events.filter(({ type }) => type === 'tamper')).toEqual([])
  await expect(stranger.send(now.key, 'hello')).rejects.toMatchObject({ code: 'not_allowed' })
  expect((await now.members()).find(({ peer }) => peer === now.key)).toMatchObject({ name: 'alice', role: 'admin' })
  await expect(connect(alice)).rejects.toMatchObject({ code: 'auth_failed' })
  await writer.close()
})

test('a peer that knows the former key learns of the rotation and writes to the new key without a change', async () => {
  const [alice, bob] = await world.enrolMany(2)
  const events: PeerEvent[] = []
  await using writer = await connect({ ...bob, onEvent: (event) => events.push(event) })
  await writer.send(keyOf(alice), 'first')
  const next = await turn(alice)
  await until('the news came', () => events.some(({ type }) => type === 'identity_changed'))
  expect(events).toContainEqual({ type: 'identity_changed', former: keyOf(alice), successor: keyOf(next) })
  await writer.send(keyOf(alice), 'second')
  await using now = await connect(next)
  const heard = heardBy(now)
  await until('both are there', () => heard.length === 2)
  expect(heard.map((message) => message.text())).toEqual(['first', 'second'])
})

test('a peer that was absent, or looks up the former key only now, is referred to the new key', async () => {
  const [alice, bob] = await world.enrolMany(2)
  const next = await turn(await turn(alice))
  const events: PeerEvent[] = []
  await using writer = await connect({ ...bob, onEvent: (event) => events.push(event) })
  await writer.send(keyOf(alice), 'to her current key')
  expect(events.filter(({ type }) => type === 'identity_changed')).toHaveLength(2)
  await using now = await connect(next)
  const heard = heardBy(now)
  await until('it is there', () => heard.length === 1)
  now.onMessage((message) => message.reply('yes'))
  expect((await writer.request(keyOf(alice), 'still you?')).text()).toBe('yes')
})

test('a message sealed to the former key is accepted for the new key', async () => {
  const [alice, bob] = await world.enrolMany(2)
  const client = await WireClient.enter(bob)
  const next = await turn(alice)
  const envelopeId = '01'.repeat(16) as FrameOf<'send'>['envelopes'][number]['envelopeId']
  const item = { envelopeId, recipient: keyOf(alice), priority: 'next', isHead: true, ttlSeconds: 0 } as const
  client.send({ type: 'send', envelopes: [{ ...item, envelope: new Uint8Array(60) }] })
  expect((await client.next('ack', 'nack')).type).toBe('ack')
  const reader = await WireClient.enter(next)
  expect(await reader.deliveries(1)).toMatchObject([{ envelopeId }])
})

test('devices stay with their user', async () => {
  const alice = await world.enrol()
  const peer = await connect({ ...alice, credit: 0 })
  const identity = generateIdentity()
  const place = { ...(await joinAsDevice({ invite: usersOf(peer).inviteDevice('phone'), identity })), identity }
  await peer.close()
  const next = await turn(alice)
  await using now = await connect(next)
  await using phone = await connect(place)
  await using bob = await connect(await world.enrol())
  const atBob = heardBy(bob)
  await phone.send(bob.key, 'from the phone')
  await until('bob has it', () => atBob.length === 1)
  expect(atBob[0]).toMatchObject({ user: now.key, deviceLabel: 'phone' })
  await expect(phone.rotateIdentity(nextOf(identity))).rejects.toMatchObject({ code: 'key_refused' })
  await usersOf(now).removeDevice(phone.key)
  expect(await phone.closed).toMatchObject({ code: 'revoked' })
})

test('H45: both keys must sign, the new key must be unused, and its binding must be valid', async () => {
  const [alice, bob] = await world.enrolMany(2)
  const client = await WireClient.enter(alice)
  const { meshId, identity } = alice
  const thief = generateIdentity()
  const as = (keys: Identity, other: Identity) => ({ ...keys.signing, publicKey: other.signing.publicKey })
  const next = nextOf(identity)
  const frame = (statement: Uint8Array, by: Identity = next, changed: Partial<FrameOf<'succeed'>> = {}) => {
    const { boxKey, boxEpoch, notAfterMs, signature } = bindBoxKey(by, meshId, 4e12)
    const binding = { boxKey, boxEpoch, bindingNotAfterMs: notAfterMs, bindingSignature: signature }
    return { type: 'succeed', ref: 3, statement, ...binding, ...changed } as const
  }
  const signed = (former: Identity['signing'], successor: Identity['signing'], mesh = meshId) =>
    signIdentityRotation({ former, successor }, { meshId: mesh, atMs: 1 })
  const good = signed(identity.signing, next.signing)
  const boxed = { ...bob.identity, box: generateBoxKeys(9) }
  const attempts: [FrameOf<'succeed'>, FrameOf<'succeeded'>['outcome']][] = [
    [frame(signed(as(thief, identity), next.signing)), 'malformed'],
    [frame(signed(identity.signing, as(thief, next))), 'malformed'],
    [frame(signed(bob.identity.signing, next.signing)), 'malformed'],
    [frame(signed(identity.signing, next.signing, 'ab'.repeat(16) as typeof meshId)), 'malformed'],
    [frame(signed(identity.signing, bob.identity.signing), boxed), 'key_taken'],
    [frame(good, { ...next, signing: thief.signing }), 'bad_binding'],
    [frame(good, { ...next, box: generateBoxKeys(1) }), 'bad_binding'],
    [frame(good, next, { bindingNotAfterMs: 1 }), 'bad_binding'],
  ]
  for (const [attempt, outcome] of attempts) {
    client.send(attempt)
    expect(await client.next('succeeded')).toEqual({ type: 'succeeded', ref: 3, outcome })
  }
  client.send(frame(good))
  expect(await client.next('succeeded')).toMatchObject({ outcome: 'done' })
  expect(await client.closed).toMatchObject({ code: 4409 })
  // The former key belongs to nobody, and nobody can rotate to it.
  const other = await WireClient.enter(bob)
  const back = { signing: identity.signing, box: generateBoxKeys(5) }
  other.send(frame(signed(bob.identity.signing, identity.signing), back))
  expect(await other.next('succeeded')).toMatchObject({ outcome: 'key_taken' })
})
