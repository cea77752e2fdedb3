/** Tests enrolment by invite, the listing and revoking of members, and invalid invites. */

import {
  bindBoxKey,
  createInvite,
  generateIdentity,
  generateSigningKeys,
  type Identity,
  type InviteTerms,
  readInvite,
  signEnrolment,
  type Transcript,
} from '@sealpost/identity'
import { type ClientFrame, clientForms, type FrameOf, MEMBER_PAGE_MAX } from '@sealpost/protocol'
import { connect, type Peer } from '@sealpost/sdk'
import { join } from '@sealpost/sdk/join'
import type { MeshId, PeerKey } from '@sealpost/std'
import { addMembers } from '@sealpost/store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { randomMesh, transcriptOf, WireClient } from './wire.ts'
import { type Place, World } from './world.ts'

let world: World
let admin: Place
beforeAll(async () => {
  world = await World.open()
  admin = await world.enrolAdmin('admin')
})
afterAll(() => world[Symbol.asyncDispose]())

function invite(changed: Partial<InviteTerms> = {}, issuer: Place = admin): string {
  const { url, brokerKey, meshId } = admin
  return createInvite(issuer.identity.signing, { url, brokerKey, meshId, ...changed })
}

const joinOptions = (text: string, name = `peer ${crypto.randomUUID().slice(0, 8)}`) => ({
  invite: text,
  identity: generateIdentity(),
  name,
})

async function joined(name: string): Promise<Place> {
  const options = joinOptions(invite(), name)
  return { ...(await join(options)), identity: options.identity }
}

function firstText(peer: Peer): Promise<string> {
  return new Promise((resolve) => peer.onMessage((message) => resolve(message.text())))
}

/** Returns a valid `enrol`, except for changes to sent or signed fields. */
function enrolFrame(
  text: string,
  hello: FrameOf<'hello'>,
  changed: { signed?: Partial<Transcript>; identity?: Identity; asks?: string } & Partial<FrameOf<'enrol'>> = {},
): FrameOf<'enrol'> {
  const { signed, identity = generateIdentity(), asks, ...frame } = changed
  const { bytes, meshId, brokerKey, url } = readInvite(text)
  const binding = bindBoxKey(identity, meshId, 4e12)
  const transcript = { ...transcriptOf({ identity, meshId, url, brokerKey }, hello), ...signed }
  const name = asks ?? `wire ${crypto.randomUUID().slice(0, 8)}`
  const enrolment = { invite: bytes, name, bindingSignature: binding.signature }
  return {
    type: 'enrol',
    version: transcript.version,
    clientNonce: transcript.clientNonce,
    peerKey: transcript.peerKey,
    boxKey: binding.boxKey,
    boxEpoch: binding.boxEpoch,
    bindingNotAfterMs: binding.notAfterMs,
    ...enrolment,
    signature: signEnrolment(identity.signing, transcript, enrolment),
    ...frame,
  }
}

async function endOf(client: WireClient) {
  const { code, retryAfterMs, reason } = await client.next('refused')
  return { refused: { code, retryAfterMs, reason }, closing: await client.closed }
}

const REFUSED = {
  refused: { code: 'invite_refused', retryAfterMs: 2000, reason: '' },
  closing: { code: 4410, reason: 'invite_refused' },
}

async function answerTo(text: string, changed: Parameters<typeof enrolFrame>[2] = {}) {
  const client = await WireClient.open(world.broker.url)
  client.send(enrolFrame(text, await client.next('hello'), changed))
  return endOf(client)
}

test.each([...['bob (you)', 'bob/phone', 'bob,carol', '*', '--json', '   '], 'ab'.repeat(32)])(
  'the name %j is refused, whatever the client signs',
  async (asks) => {
    const { refused, closing } = await answerTo(invite(), { asks })
    expect([refused.code, closing.code]).toEqual(['name_malformed', 4414])
  },
)

test('names that differ only in spaces are the same name', async () => {
  await joined('tidy  one ')
  expect((await answerTo(invite(), { asks: ' tidy   one' })).refused.code).toBe('name_taken')
  const client = await WireClient.open(world.broker.url)
  client.send(enrolFrame(invite(), await client.next('hello'), { asks: '  tidy   two  ' }))
  expect((await client.next('enrolled')).name).toBe('tidy two')
  client.destroy()
})

test('a mesh has a limited number of members, and a revocation frees a slot', async () => {
  await using small = await World.open({ LIMITS: 'on', MEMBERS_MAX: '2' })
  const boss = await small.enrolAdmin('boss')
  const { url, brokerKey, meshId } = boss
  const text = createInvite(boss.identity.signing, { url, brokerKey, meshId, usesMax: 9 })
  const one = joinOptions(text, 'one')
  await join(one)
  await expect(join(joinOptions(text, 'two'))).rejects.toMatchObject({ code: 'too_many_members' })
  expect((await join(one)).name).toBe('one')
  await using peer = await connect(boss)
  await peer.revokeMember(one.identity.signing.publicKey)
  expect((await join(joinOptions(text, 'two'))).name).toBe('two')
})

const memberCount = async (): Promise<number> => {
  const [row] = await world.db.run((sql) => sql<{ n: number }[]>`select count(*)::int as n from member`)
  return row!.n
}

test.each(['binary', 'json'] as const)(
  'in the %s form a new member joins, connects, and exchanges messages with its inviter',
  async (form) => {
    const options = { ...joinOptions(invite(), `alice ${form}`), form: clientForms[form] }
    const membership = await join(options)
    const { url, brokerKey, meshId } = admin
    expect(membership).toEqual({ url, brokerKey, meshId, name: `alice ${form}` })
    await using alice = await connect({ ...membership, identity: options.identity, form: clientForms[form] })
    await using boss = await connect(admin)
    const [atBoss, atAlice] = [firstText(boss), firstText(alice)]
    await alice.send(boss.key, 'I am in')
    await boss.send(alice.key, 'welcome')
    expect([await atBoss, await atAlice]).toEqual(['I am in', 'welcome'])
  },
)

test('after `enrolled` the connection is closed without a refusal', async () => {
  const client = await WireClient.open(world.broker.url)
  client.send(enrolFrame(invite(), await client.next('hello')))
  await client.next('enrolled')
  expect(await client.closed).toEqual({ code: 1000, reason: '' })
  expect(client.frames).toEqual([])
})

test('H44: expired, used up, revoked, foreign, non-admin and tampered invites get the same reply and leave no trace', async () => {
  const usedUp = invite()
  await join(joinOptions(usedUp))
  const revoked = invite()
  await using boss = await connect(admin)
  await boss.revokeInvite(readInvite(revoked).inviteId)
  const plain = await joined('plain')
  const before = await memberCount()
  const { bytes } = readInvite(invite())
  const tampered = bytes.map((byte, i) => (i === 40 ? byte ^ 1 : byte))
  const foreignMesh = await world.mesh()
  const answers = await Promise.all([
    answerTo(invite({ notAfterMs: Date.now() - 1000 })),
    answerTo(usedUp),
    answerTo(revoked),
    answerTo(invite({ meshId: randomMesh() })),
    answerTo(invite({ meshId: foreignMesh })),
    answerTo(invite({ brokerKey: 'ab'.repeat(32) as PeerKey }), { signed: { brokerKey: admin.brokerKey } }),
    answerTo(invite({}, plain)),
    answerTo(invite({}, world.place(generateIdentity()))),
    answerTo(invite(), { invite: tampered }),
    answerTo(invite(), { invite: new Uint8Array(1) }),
    answerTo(invite(), { signature: new Uint8Array(64) }),
    answerTo(invite(), { name: 'another than was signed' }),
    answerTo(invite(), { boxKey: new Uint8Array(32) }),
    answerTo(invite(), { bindingNotAfterMs: 1 }),
    answerTo(invite(), { signed: { authority: 'broker.example:443' } }),
    answerTo(invite(), { signed: { serverNonce: new Uint8Array(32) } }),
    answerTo(invite(), { signed: { meshId: 'cd'.repeat(16) as MeshId } }),
  ])
  for (const answer of answers) expect(answer).toEqual(REFUSED)
  expect(await memberCount()).toBe(before)
})

test('an invite that names another address of the broker is valid, since the new member signs the address it dialled', async () => {
  const client = await WireClient.open(world.broker.url)
  const [text, authority] = [invite({ url: 'wss://broker.example' }), world.broker.authority]
  client.send(enrolFrame(text, await client.next('hello'), { signed: { authority } }))
  await client.next('enrolled')
})

test('the SDK gets the same refusal, and sends no request for a malformed invite', async () => {
  await expect(join(joinOptions(invite({ notAfterMs: 1 })))).rejects.toMatchObject({ code: 'invite_refused' })
  const text = invite()
  await expect(join(joinOptions(`${text.slice(0, -9)}AAAAAAAAA`))).rejects.toMatchObject({ code: 'invite_malformed' })
  const other = invite({ brokerKey: generateSigningKeys().publicKey })
  await expect(join(joinOptions(other))).rejects.toMatchObject({ code: 'wrong_broker' })
})

test('H44: of two concurrent enrolments with a single-use invite exactly one succeeds', async () => {
  const text = invite()
  const outcomes = await Promise.allSettled([1, 2, 3, 4].map(() => join(joinOptions(text))))
  const codes = outcomes.map((outcome) => (outcome.status === 'fulfilled' ? 'in' : outcome.reason.code))
  expect(codes.sort()).toEqual(['in', 'invite_refused', 'invite_refused', 'invite_refused'])
})

test('repeating an enrolment gets the same reply; with another invite the peer learns that it is already a member', async () => {
  const options = joinOptions(invite(), 'twice')
  const first = await join(options)
  expect(await join({ ...options, name: 'thrice' })).toEqual(first)
  await expect(join({ ...options, invite: invite() })).rejects.toMatchObject({ code: 'already_member' })
})

test('a name can be used only once, and an invalid name makes the frame malformed', async () => {
  await joined('unique')
  const text = invite()
  await expect(join(joinOptions(text, 'Unique'))).rejects.toMatchObject({ code: 'name_taken' })
  await join(joinOptions(text, 'unlike'))
  const client = await WireClient.open(world.broker.url, 'json')
  const { type, version } = enrolFrame(invite(), await client.next('hello'))
  client.sendWire(JSON.stringify({ type, version, name: '' }))
  expect((await endOf(client)).closing).toEqual({ code: 4400, reason: 'frame_malformed' })
})

test('a captured `enrol` frame is useless on another connection', async () => {
  const text = invite({ usesMax: 2 })
  const first = await WireClient.open(world.broker.url)
  const captured = enrolFrame(text, await first.next('hello'))
  const second = await WireClient.open(world.broker.url)
  await second.next('hello')
  second.send(captured)
  expect(await endOf(second)).toEqual(REFUSED)
  first.send(captured)
  await first.next('enrolled')
})

test('an invite from a captured frame does not enrol another key under its signature', async () => {
  const client = await WireClient.open(world.broker.url)
  const captured = enrolFrame(invite(), await client.next('hello'))
  const thief = generateIdentity()
  client.send({ ...captured, peerKey: thief.signing.publicKey })
  expect(await endOf(client)).toEqual(REFUSED)
})

test('a member invited as an admin can invite and revoke', async () => {
  const options = joinOptions(invite({ role: 'admin' }), 'second admin')
  const second: Place = { ...(await join(options)), identity: options.identity }
  const guest = joinOptions(invite({}, second), 'guest of the second')
  await join(guest)
  await using peer = await connect(second)
  await peer.revokeMember(guest.identity.signing.publicKey)
  await expect(connect({ ...second, identity: guest.identity })).rejects.toMatchObject({ code: 'revoked' })
  await expect(join({ ...guest, invite: invite() })).rejects.toMatchObject({ code: 'revoked' })
})

test("an admin's invites end with its membership", async () => {
  const options = joinOptions(invite({ role: 'admin' }), 'short admin')
  const short: Place = { ...(await join(options)), identity: options.identity }
  const left = invite({}, short)
  await using boss = await connect(admin)
  await boss.revokeMember(options.identity.signing.publicKey)
  await expect(join(joinOptions(left))).rejects.toMatchObject({ code: 'invite_refused' })
})

test('revocation ends a live session at once and blocks all further frames', async () => {
  const place = await joined('to be revoked')
  const client = await WireClient.enter(place)
  await using boss = await connect(admin)
  const key = place.identity.signing.publicKey
  await boss.revokeMember(key)
  expect(await endOf(client)).toMatchObject({
    refused: { code: 'revoked' },
    closing: { code: 4403, reason: 'revoked' },
  })
  expect((await boss.members()).map(({ peer }) => peer)).not.toContain(key)
  await expect(boss.send(key, 'anybody there?')).rejects.toMatchObject({ code: 'unknown_recipient' })
})

test('the SDK of a revoked peer ends permanently', async () => {
  const peer = await connect(await joined('ends for good'))
  await using boss = await connect(admin)
  await boss.revokeMember(peer.key)
  expect(await peer.closed).toMatchObject({ code: 'revoked' })
})

test('only an admin can revoke members, and only members can be revoked', async () => {
  await using plain = await connect(await joined('no admin'))
  await using boss = await connect(admin)
  await expect(plain.revokeMember(boss.key)).rejects.toMatchObject({ code: 'not_admin' })
  const text = invite()
  await expect(plain.revokeInvite(readInvite(text).inviteId)).rejects.toMatchObject({ code: 'not_admin' })
  await join(joinOptions(text))
  const stranger = generateSigningKeys().publicKey
  await expect(boss.revokeMember(stranger)).rejects.toMatchObject({ code: 'unknown_recipient' })
  expect((await plain.members()).map(({ peer }) => peer)).toContain(boss.key)
})

test('any member can revoke itself to leave', async () => {
  const place = await joined('leaves')
  await using peer = await connect(place)
  await peer.revokeMember(peer.key)
  expect(await peer.closed).toMatchObject({ code: 'revoked' })
  await expect(connect(place)).rejects.toMatchObject({ code: 'revoked' })
  await using boss = await connect(admin)
  expect((await boss.members()).map(({ peer }) => peer)).not.toContain(peer.key)
})

test('an admin of one mesh has no rights in another mesh', async () => {
  const elsewhere = await world.enrol(await world.mesh(), admin.identity)
  await using peer = await connect(elsewhere)
  const other = await world.enrol(elsewhere.meshId)
  await expect(peer.revokeMember(other.identity.signing.publicKey)).rejects.toMatchObject({ code: 'not_admin' })
  expect(await peer.members()).toContainEqual({ peer: peer.key, name: '', role: 'member' })
})

test('a large mesh is listed in pages, by key, with names and roles', async () => {
  const meshId = await world.mesh()
  const first = await world.enrol(meshId)
  const bindings = Array.from({ length: MEMBER_PAGE_MAX + 1 }, (_, n) => ({
    ...bindBoxKey(generateIdentity(), meshId, 4e12),
    name: `peer ${n}`,
    role: n === 0 ? ('admin' as const) : ('member' as const),
  }))
  await addMembers(world.db, meshId, bindings)
  await using peer = await connect(first)
  const entries = bindings.map(({ peerKey, name, role }) => ({ peer: peerKey, name, role }))
  const expected = [...entries, { peer: peer.key, name: '', role: 'member' }].sort((a, b) => (a.peer < b.peer ? -1 : 1))
  expect(await peer.members()).toEqual(expected)
})

test('a connection either enrols or authenticates, and only a session can list or revoke', async () => {
  const after = '0'.repeat(64) as PeerKey
  const frames: ClientFrame[] = [
    { type: 'members', ref: 1, after },
    { type: 'revoke', ref: 1, members: [], invites: [] },
  ]
  for (const frame of frames) {
    const client = await WireClient.open(world.broker.url)
    client.send(frame)
    expect((await endOf(client)).closing).toEqual({ code: 4400, reason: 'frame_unexpected' })
  }
  const client = await WireClient.enter(admin)
  client.send(enrolFrame(invite(), { ...(await greeting()) }))
  expect((await endOf(client)).closing).toEqual({ code: 4400, reason: 'frame_unexpected' })
})

async function greeting(): Promise<FrameOf<'hello'>> {
  const client = await WireClient.open(world.broker.url)
  const hello = await client.next('hello')
  client.destroy()
  return hello
}

test('the log contains no invite and no name', async () => {
  const text = invite()
  await join(joinOptions(text, 'a name to be found'))
  await expect(join(joinOptions(text))).rejects.toMatchObject({ code: 'invite_refused' })
  expect(world.broker.output).not.toContain(text.slice(10, 40))
  expect(world.broker.output).not.toContain('a name to be found')
})
