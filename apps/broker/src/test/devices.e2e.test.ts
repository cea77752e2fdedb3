/** Tests how a user's devices join, receive messages and are removed, and what they may not do. */

import {
  bindBoxKey,
  createDeviceInvite,
  generateIdentity,
  generateSigningKeys,
  type Identity,
  readDeviceInvite,
  signDevice,
  signEnrolment,
  signRemoval,
  signVoucher,
  type Transcript,
} from '@sealpost/identity'
import { DEVICES_MAX, type FrameOf } from '@sealpost/protocol'
import {
  type ConnectOptions,
  connect,
  type Message,
  type Peer,
  type PeerEvent,
  type PeerStore,
  type StoreChange,
} from '@sealpost/sdk'
import { joinAsDevice } from '@sealpost/sdk/join'
import { MemoryStore } from '@sealpost/sdk/memory-store'
import { rejectWithReply, settleWithReply } from '@sealpost/sdk/replies'
import { usersOf } from '@sealpost/sdk/users'
import { fromHex, type PeerKey } from '@sealpost/std'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { keyOf } from './member.ts'
import { until } from './process.ts'
import { transcriptOf, WireClient } from './wire.ts'
import { type Place, World } from './world.ts'

let world: World
beforeAll(async () => {
  world = await World.open()
})
afterAll(() => world[Symbol.asyncDispose]())

async function deviceOf(person: Peer, label: string): Promise<Place & { name: string }> {
  const identity = generateIdentity()
  return { ...(await joinAsDevice({ invite: usersOf(person).inviteDevice(label), identity })), identity }
}

function heardBy(peer: Peer): Message[] {
  const heard: Message[] = []
  peer.onMessage((message) => void heard.push(message))
  return heard
}

const texts = (heard: Message[]) => heard.map((message) => message.text())

async function people() {
  const [alice, bob] = await world.enrolMany(2)
  return { alice: await connect(alice), bob: await connect(bob), places: { alice, bob } }
}

test("every device receives messages for the user, and its own messages are shown as the user's", async () => {
  const { alice, bob } = await people()
  await using phone = await connect(await deviceOf(alice, 'phone'))
  await using laptop = await connect(await deviceOf(alice, 'laptop'))
  const heard = [alice, phone, laptop].map(heardBy)
  const posted = await usersOf(bob).send(alice.key, 'to all of you', { receipts: 'end' })
  expect([...posted.devices.keys()].sort()).toEqual([alice.key, phone.key, laptop.key].sort())
  expect((await posted.stored).map(({ error }) => error)).toEqual([null, null, null])
  await until('all have it', () => heard.every((messages) => messages.length === 1))
  for (const [message] of heard) expect(message).toMatchObject({ user: bob.key, deviceLabel: null, toUser: alice.key })
  expect(heard.flatMap(texts)).toEqual(['to all of you', 'to all of you', 'to all of you'])

  const atBob = heardBy(bob)
  await phone.send(bob.key, 'from the phone')
  await until('bob has it', () => atBob.length === 1)
  expect(atBob[0]).toMatchObject({ sender: phone.key, user: alice.key, deviceLabel: 'phone' })
  await atBob[0]!.reply('to that device only')
  await until('the phone has it', () => heard[1]!.length === 2)
  expect(heard.map((messages) => messages.length)).toEqual([1, 2, 1])
  await Promise.all([alice.close(), bob.close()])
})

test('the body of a message to all devices is stored once', async () => {
  const { alice, bob } = await people()
  const away = [await deviceOf(alice, 'phone'), await deviceOf(alice, 'laptop')]
  await alice.close()
  const posted = await usersOf(bob).send(alice.key, new Uint8Array(50_000))
  await posted.stored
  const [row] = await world.db.run(
    (sql) => sql<{ bodies: number; deliveries: number }[]>`
      select count(distinct q.body_id)::int as bodies, count(*)::int as deliveries from message_queue q
      join member m on m.mesh_id = q.mesh_id and m.peer_no = q.recipient where q.body_id is not null
        and m.peer_key = any (${[alice.key, ...away.map(keyOf)].map((key) => `\\x${key}`)}::bytea[])`,
  )
  expect(row).toEqual({ bodies: 1, deliveries: 3 })
  await bob.close()
})

test('the first free device takes a message; without one it waits for the user', async () => {
  const { alice, bob } = await people()
  const phone = await connect(await deviceOf(alice, 'phone'))
  await alice.close()
  const atPhone = heardBy(phone)
  expect(await usersOf(bob).sendToAvailable(alice.key, 'to a free device')).toBe(phone.key)
  await until('the phone has it', () => atPhone.length === 1)
  await phone.close()
  await expect(usersOf(bob).sendToAvailable(alice.key, 'now', { ifOnline: true })).rejects.toMatchObject({
    code: 'no_responder',
  })
  expect(await usersOf(bob).sendToAvailable(alice.key, 'later')).toBe(alice.key)
  await bob.close()
})

test('a removed device is disconnected at once, and its frames are no longer accepted', async () => {
  const { alice, bob } = await people()
  const place = await deviceOf(alice, 'phone')
  const phone = await connect(place)
  const events: PeerEvent[] = []
  const watcher = await world.enrol()
  await using carol = await connect({ ...watcher, onEvent: (event) => events.push(event) })
  expect(await usersOf(carol).devices(alice.key)).toMatchObject([{ key: phone.key, label: 'phone' }])
  await usersOf(alice).removeDevice(phone.key)
  expect(await phone.closed).toMatchObject({ code: 'revoked' })
  await until('the news came', () => events.some((event) => event.type === 'device_changed' && !event.isVouched))
  expect(await usersOf(carol).devices(alice.key)).toEqual([])
  await expect(bob.send(phone.key, 'too late')).rejects.toMatchObject({ code: 'unknown_recipient' })
  await expect(connect(place)).rejects.toMatchObject({ code: 'revoked' })
  await usersOf(alice).removeDevice(phone.key)
  // The label is free again, but the old invite stays invalid.
  expect(await deviceOf(alice, 'phone')).toMatchObject({ name: expect.stringMatching(/\/phone$/) })
  await expect(usersOf(alice).removeDevice(bob.key)).rejects.toMatchObject({ code: 'unknown_device' })
  await Promise.all([alice.close(), bob.close()])
})

test('allowing or blocking a user covers all devices, on both sides', async () => {
  const { alice, bob } = await people()
  await using phone = await connect(await deviceOf(alice, 'phone'))
  await using bobs = await connect(await deviceOf(bob, 'tablet'))
  await bobs.updateConsent({ policy: 'contacts' })
  for (const from of [alice, phone])
    for (const to of [bob, bobs])
      await expect(from.send(to.key, 'hello')).rejects.toMatchObject({ code: 'not_allowed' })
  // Allowing a device allows its user.
  expect(await bob.updateConsent({ allow: [phone.key] })).toMatchObject({ allowed: [alice.key] })
  for (const from of [alice, phone]) for (const to of [bob, bobs]) await from.send(to.key, 'hello')
  await bobs.send(bob.key, 'between two of my own')
  expect(await bobs.updateConsent({ policy: 'open', block: [alice.key] })).toMatchObject({ blocked: [alice.key] })
  await expect(phone.send(bobs.key, 'hello')).rejects.toMatchObject({ code: 'not_allowed' })
  await Promise.all([alice.close(), bob.close()])
})

test('revoking a user revokes all its devices', async () => {
  const admin = await connect(await world.enrolAdmin(`admin ${crypto.randomUUID().slice(0, 8)}`))
  const { alice, bob } = await people()
  const phone = await connect(await deviceOf(alice, 'phone'))
  await admin.revokeMember(alice.key)
  expect(await alice.closed).toMatchObject({ code: 'revoked' })
  expect(await phone.closed).toMatchObject({ code: 'revoked' })
  await Promise.all([admin.close(), bob.close()])
})

/** Returns a valid `enrolDevice`, unless a statement or transcript is given. */
function enrolFrame(
  invite: string,
  hello: FrameOf<'hello'>,
  changed: { identity?: Identity; statement?: Uint8Array; signed?: Partial<Transcript> } & Partial<
    FrameOf<'enrolDevice'>
  > = {},
): FrameOf<'enrolDevice'> {
  const { signed, identity = generateIdentity(), statement: given, ...frame } = changed
  const { url, brokerKey, voucher, statement: statementOf } = readDeviceInvite(invite)
  const statement = given ?? statementOf(identity.signing)
  const binding = bindBoxKey(identity, voucher.meshId, 4e12)
  const place = { identity, meshId: voucher.meshId, url, brokerKey }
  const transcript = { ...transcriptOf(place, hello), ...signed }
  const { label: name } = voucher
  return {
    type: 'enrolDevice',
    version: transcript.version,
    clientNonce: transcript.clientNonce,
    statement,
    boxKey: binding.boxKey,
    boxEpoch: binding.boxEpoch,
    bindingNotAfterMs: binding.notAfterMs,
    bindingSignature: binding.signature,
    signature: signEnrolment(identity.signing, transcript, {
      invite: statement,
      name,
      bindingSignature: binding.signature,
    }),
    ...frame,
  }
}

async function answerTo(frame: (hello: FrameOf<'hello'>) => FrameOf<'enrolDevice'>) {
  const client = await WireClient.open(world.broker.url)
  client.send(frame(await client.next('hello')))
  const answer = await client.next('refused', 'enrolled')
  return answer.type === 'refused' ? answer.code : answer.type
}

test('an enrolment without a valid statement by a member of this mesh is refused, always with the same reply', async () => {
  const place = await world.enrol()
  const { url, brokerKey, meshId, identity: person } = place
  const stranger = generateSigningKeys()
  const terms = { url, brokerKey, meshId, label: 'phone' }
  const good = () => createDeviceInvite(person.signing, terms)
  const forged = (by: Identity['signing']) => {
    const [once, device] = [generateSigningKeys(), generateIdentity()]
    const times = { joinByMs: 4e12, notAfterMs: 4e12 }
    const names = { meshId, inviteKey: once.publicKey, label: 'phone' }
    const voucher = signVoucher(by, { ...names, ...times, user: by.publicKey }).slice()
    voucher.set(fromHex(person.signing.publicKey), 2 + 16 + 2)
    return { statement: signDevice(device.signing, once, voucher), identity: device }
  }
  const attempts: [string, (hello: FrameOf<'hello'>) => FrameOf<'enrolDevice'>][] = [
    ['a voucher of a stranger', (hello) => enrolFrame(createDeviceInvite(stranger, terms), hello)],
    ['a voucher in the name of a member', (hello) => enrolFrame(good(), hello, forged(stranger))],
    ['garbage', (hello) => enrolFrame(good(), hello, { statement: new Uint8Array(300) })],
    ['too late', (hello) => enrolFrame(createDeviceInvite(person.signing, { ...terms, joinByMs: 1 }), hello)],
    ['over', (hello) => enrolFrame(createDeviceInvite(person.signing, { ...terms, notAfterMs: 1 }), hello)],
    [
      'of another mesh',
      (hello) =>
        enrolFrame(createDeviceInvite(person.signing, { ...terms, meshId: 'ab'.repeat(16) as typeof meshId }), hello),
    ],
    [
      'signed for another connection',
      (hello) => enrolFrame(good(), hello, { signed: { connectionId: new Uint8Array(16) } }),
    ],
    ['another box key', (hello) => enrolFrame(good(), hello, { boxKey: new Uint8Array(32).fill(7) })],
  ]
  for (const [flaw, frame] of attempts) expect([flaw, await answerTo(frame)]).toEqual([flaw, 'invite_refused'])
  expect(await answerTo((hello) => enrolFrame(good(), hello))).toBe('enrolled')
})

test('an invite admits one of several concurrent devices, and the same device may repeat its enrolment', async () => {
  const { url, brokerKey, meshId, identity: person } = await world.enrol()
  const invite = createDeviceInvite(person.signing, { url, brokerKey, meshId, label: 'phone' })
  const identities = Array.from({ length: 6 }, generateIdentity)
  const answers = await Promise.all(
    identities.map((identity) => answerTo((hello) => enrolFrame(invite, hello, { identity }))),
  )
  expect(answers.toSorted()).toEqual(['enrolled', ...Array(5).fill('invite_refused')])
  const winner = identities[answers.indexOf('enrolled')]!
  expect(await answerTo((hello) => enrolFrame(invite, hello, { identity: winner }))).toBe('enrolled')
})

test('a member cannot become a device, a session cannot have devices, and a user has a limited number of them', async () => {
  const { alice, bob, places } = await people()
  const invite = () => usersOf(alice).inviteDevice('phone')
  await expect(joinAsDevice({ invite: invite(), identity: places.bob.identity })).rejects.toMatchObject({
    code: 'already_member',
  })
  await using phone = await connect(await deviceOf(alice, 'phone'))
  await using session = await connect(await deviceOf(phone, 'phone-1'))
  await expect(deviceOf(session, 'a session of a session')).rejects.toMatchObject({ code: 'invite_refused' })
  await expect(deviceOf(alice, 'Phone')).rejects.toMatchObject({ code: 'name_taken' })
  for (let n = 2; n < DEVICES_MAX; n++) await deviceOf(n % 2 ? alice : phone, `device ${n}`)
  expect(await usersOf(bob).devices(alice.key)).toHaveLength(DEVICES_MAX)
  await expect(deviceOf(alice, 'one more')).rejects.toMatchObject({ code: 'too_many_devices' })
  await usersOf(alice).removeDevice((await usersOf(alice).devices()).find(({ label }) => label === 'device 3')!.key)
  await deviceOf(alice, 'one more')
  await Promise.all([alice.close(), bob.close()])
})

test('a removal that the user did not sign removes no device', async () => {
  const { alice, bob, places } = await people()
  await using phone = await connect(await deviceOf(alice, 'phone'))
  await Promise.all([alice.close(), bob.close()])
  const thief = await WireClient.enter(places.bob)
  const { meshId } = places.alice
  const removals: [Uint8Array, string][] = [
    [signRemoval(places.alice.identity.signing, { meshId, user: alice.key, device: phone.key }), 'malformed'],
    [signRemoval(places.bob.identity.signing, { meshId, user: bob.key, device: phone.key }), 'unknown_device'],
    [signRemoval(places.bob.identity.signing, { meshId, user: bob.key, device: alice.key }), 'unknown_device'],
    [new Uint8Array(150), 'malformed'],
  ]
  for (const [removal, outcome] of removals) {
    thief.send({ type: 'removeDevice', ref: 5, removal })
    expect(await thief.next('deviceRemoved')).toEqual({ type: 'deviceRemoved', ref: 5, outcome })
  }
  expect(phone.isOnline).toBe(true)
  thief.send({ type: 'devices', ref: 9, peers: [phone.key, 'ab'.repeat(32) as PeerKey] })
  const { statements, removals: ended } = await thief.next('deviceList')
  expect([statements.length, ended.length]).toEqual([1, 0])
})

/** Replaces the statement in the table, as a dishonest broker could. */
async function handOut(device: PeerKey, statement: Uint8Array): Promise<void> {
  await world.db.run(
    (sql) => sql`update device d set statement = ${statement as never}, removal = null from member m
      where m.mesh_id = d.mesh_id and m.peer_no = d.peer_no and m.peer_key = ${`\\x${device}`}::bytea`,
  )
}

test("a device's session acts for the user, and ends with the device that vouched for it", async () => {
  const { alice, bob } = await people()
  await using laptop = await connect(await deviceOf(alice, 'laptop'))
  const place = await deviceOf(laptop, 'laptop-1')
  expect(place.name).toMatch(/\/laptop-1$/)
  const session = await connect(place)
  const atBob = heardBy(bob)
  await session.send(bob.key, 'from the session')
  await until('bob has it', () => atBob.length === 1)
  expect(atBob[0]).toMatchObject({ sender: session.key, user: alice.key, deviceLabel: 'laptop-1' })
  for (const of of [alice.key, laptop.key, session.key])
    expect((await usersOf(bob).devices(of)).map(({ label }) => label).sort()).toEqual(['laptop', 'laptop-1'])
  await usersOf(alice).removeDevice(laptop.key)
  expect(await session.closed).toMatchObject({ code: 'revoked' })
  expect(await usersOf(bob).devices(alice.key)).toEqual([])
  await Promise.all([alice.close(), bob.close()])
})

test('a device ends its session, and a reply to that session goes to the user, once and in the same thread', async () => {
  const { alice, bob } = await people()
  await using laptop = await connect(await deviceOf(alice, 'laptop'))
  const session = await connect(await deviceOf(laptop, 'laptop-1'))
  const [atBob, atAlice] = [heardBy(bob), heardBy(alice)]
  const thread = 'ab'.repeat(16)
  await session.send(bob.key, 'a question', { thread })
  await until('bob has it', () => atBob.length === 1)
  await usersOf(laptop).removeDevice(session.key)
  expect(await session.closed).toMatchObject({ code: 'revoked' })
  await expect(usersOf(laptop).removeDevice(alice.key)).rejects.toMatchObject({ code: 'unknown_device' })
  await atBob[0]!.reply('an answer')
  await bob.send(alice.key, 'the end')
  await until('alice has both', () => atAlice.length === 2)
  expect(texts(atAlice)).toEqual(['an answer', 'the end'])
  expect(atAlice[0]).toMatchObject({ thread, inReplyTo: atBob[0]!.envelopeId })
  await usersOf(alice).removeDevice(laptop.key)
  await alice.close()
  await bob.close()
})

/** A store whose process dies once it has stored a message that waits. */
function dyingStore(store: PeerStore): PeerStore {
  const write = async (changes: readonly StoreChange[]) => {
    await store.write(changes)
    if (changes.some(({ record }) => record?.kind === 'waiting')) throw new Error('the process died')
  }
  return { load: () => store.load(), write, close: async () => undefined }
}

/** Passes the next message of the peer to `use`, which may end it. */
async function withNext<T>(peer: Peer, use: (message: Message) => Promise<T>): Promise<T> {
  for await (const message of peer) return await use(message)
  throw new Error('the peer has ended')
}

test.each([
  ['settled', settleWithReply, 'an answer'],
  ['rejected', (peer: Peer, message: Message) => rejectWithReply(peer, message, 'no', 'an answer'), 'an answer'],
] as const)('the reply with which a message is %s goes to the user if the session was ended', async (_, end, text) => {
  const { alice, bob } = await people()
  await using session = await connect(await deviceOf(alice, 'session'))
  const atAlice = heardBy(alice)
  const thread = 'cd'.repeat(16)
  await session.send(bob.key, 'a question', { thread })
  const { envelopeId: inReplyTo } = await withNext(bob, async (message) => {
    await usersOf(alice).removeDevice(session.key)
    const { receipt } = await end(bob, message, text)
    expect(await receipt).toMatchObject({ isDuplicate: false })
    return message
  })
  await until('alice has the reply', () => atAlice.length === 1)
  expect(texts(atAlice)).toEqual([text])
  expect(atAlice[0]).toMatchObject({ thread, inReplyTo })
  await Promise.all([alice.close(), bob.close()])
})

test('a reply that was written offline goes to the user of an ended session, although another process sends it', async () => {
  const { alice, bob, places } = await people()
  await bob.close()
  await using session = await connect(await deviceOf(alice, 'session'))
  const store = new MemoryStore()
  const sockets: WebSocket[] = []
  class OneSocket extends WebSocket {
    constructor(url: string, protocols: string[]) {
      super(sockets.length === 0 ? url : 'ws://127.0.0.1:1', protocols)
      sockets.push(this)
    }
  }
  const webSocket = OneSocket as unknown as NonNullable<ConnectOptions['webSocket']>
  const first = await connect({ ...places.bob, store: dyingStore(store), webSocket })
  const atAlice = heardBy(alice)
  await session.send(bob.key, 'a question')
  await withNext(first, async (message) => {
    sockets[0]!.close()
    await until('bob is offline', () => !first.isOnline)
    await settleWithReply(first, message, 'an answer').catch(() => undefined)
  })
  await first.closed
  await usersOf(alice).removeDevice(session.key)
  await using second = await connect({ ...places.bob, store })
  await until('alice has the reply', () => atAlice.length === 1)
  expect(texts(atAlice)).toEqual(['an answer'])
  expect(atAlice[0]!.sender).toBe(second.key)
  await alice.close()
})

test("a broker cannot add a device: the SDK accepts only the user's signature", async () => {
  const { alice, bob, places } = await people()
  const spy = await connect(await deviceOf(bob, 'spy'))
  const { meshId } = places.alice
  const once = generateSigningKeys()
  const voucher = {
    meshId,
    user: alice.key,
    inviteKey: once.publicKey,
    label: 'phone',
    joinByMs: 4e12,
    notAfterMs: 4e12,
  }
  const thief = { ...places.bob.identity.signing, publicKey: alice.key }
  const spyKeys = { ...generateSigningKeys(), publicKey: spy.key }
  await handOut(spy.key, signDevice(spyKeys, once, signVoucher(thief, voucher)))
  const events: PeerEvent[] = []
  await using carol = await connect({ ...(await world.enrol()), onEvent: (event) => events.push(event) })
  const atCarol = heardBy(carol)
  await spy.send(carol.key, 'it is me, alice')
  await until('carol has it', () => atCarol.length === 1)
  expect(atCarol[0]).toMatchObject({ sender: spy.key, user: spy.key, deviceLabel: null })
  expect(events).toContainEqual({ type: 'user_tamper', peer: null, reason: 'statement_forged' })
  expect(await usersOf(carol).devices(alice.key)).toEqual([])
  await Promise.all([alice.close(), bob.close(), spy.close()])
})

test('a broker cannot restore a device whose removal a peer has seen', async () => {
  const { alice, bob } = await people()
  const place = await deviceOf(alice, 'phone')
  const events: PeerEvent[] = []
  await using carol = await connect({ ...(await world.enrol()), onEvent: (event) => events.push(event) })
  await usersOf(carol).devices(alice.key)
  const [row] = await world.db.run(
    (sql) => sql<{ statement: Uint8Array }[]>`select d.statement from device d join member m
      on m.mesh_id = d.mesh_id and m.peer_no = d.peer_no where m.peer_key = ${`\\x${keyOf(place)}`}::bytea`,
  )
  await usersOf(alice).removeDevice(keyOf(place))
  expect(await usersOf(carol).devices(alice.key)).toEqual([])
  await world.db.run((sql) => sql`update member set revoked_at = null where peer_key = ${`\\x${keyOf(place)}`}::bytea`)
  await handOut(keyOf(place), row!.statement)
  expect(await usersOf(carol).devices(alice.key)).toEqual([])
  expect(events).toContainEqual({ type: 'user_tamper', peer: keyOf(place), reason: 'device_removed' })
  await Promise.all([alice.close(), bob.close()])
})
