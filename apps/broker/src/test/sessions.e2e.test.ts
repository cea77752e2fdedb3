/** Tests the sessions of a member, which share its mailbox. */
import { cp, mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { createDeviceInvite } from '@sealpost/identity'
import { connect, generateIdentity, type Message, type PeerStore } from '@sealpost/sdk'
import { joinAsDevice } from '@sealpost/sdk/join'
import { rejectWithReply, settleWithReply } from '@sealpost/sdk/replies'
import type { MemberSession } from '@sealpost/sdk/sessions'
import { usersOf } from '@sealpost/sdk/users'
import type { PeerKey } from '@sealpost/std'
import { beforeAll, expect, test } from 'vitest'
import { until } from './process.ts'
import { codeOf, meeting, SessionProfile } from './session-profile.ts'
import { World } from './world.ts'

let shared: World
beforeAll(async () => {
  shared = await World.open()
  return () => shared[Symbol.asyncDispose]()
})

const threadOf = (no: number): string => no.toString(16).padStart(32, '0')
test('each message to the member reaches one session, and a message to a session reaches that one', async () => {
  await using given = await meeting(shared)
  const { profile, sender, member } = given
  const [a, b] = [await profile.open(), await profile.open({ as: 'api' })]
  expect([a.label, b.label]).toEqual(['laptop-1', 'api'])
  await until('one of them is the host', () => a.isHost !== b.isHost)
  const heard: string[] = []
  const note = (by: MemberSession, message: Message) =>
    heard.push(`${by.label} ${message.text()} ${by.isForMember(message)}`)
  a.onMessage((message) => note(a, message))
  b.onMessage((message) => note(b, message))
  await sender.send(b.key, 'to b')
  await sender.send(a.key, 'to a')
  for (let i = 0; i < 10; i++) await sender.send(member, `no ${i}`)
  await until('all messages have arrived', () => heard.length === 12)
  expect(heard).toContain('api to b false')
  expect(heard).toContain('laptop-1 to a false')
  const toMember = heard.filter((line) => line.endsWith('true')).map((line) => line.split(' ').at(-2))
  expect(toMember.sort()).toEqual([...'0123456789'])
})

test('no message to the member is lost or settled twice, although its sessions are killed', async () => {
  await using given = await meeting(shared)
  const { world, profile, sender, member, isQueueEmpty } = given
  const running = [profile.start(), profile.start(), profile.start()]
  const texts = Array.from({ length: 240 }, (_, i) => String(i))
  const sent = Promise.all(texts.map((text, i) => sender.send(member, text, { thread: threadOf(i % 40) })))
  for (let round = 1; round <= 8; round++) {
    await until(`${round * 20} messages have begun`, () => new Set(profile.told('begun')).size >= round * 20)
    await running.shift()!.kill()
    running.push(profile.start())
  }
  await sent
  await until('the queue is empty', isQueueEmpty)
  expect(await world.count('dead_letter')).toBe(0)
  expect([...new Set(profile.told('begun'))].sort()).toEqual([...texts].sort())
  for (const survivor of running)
    await until('the outcomes of the session are stored', () =>
      survivor.told('begun').every((text) => survivor.told('stored').includes(text)),
    )
  const settled = profile.told('stored')
  expect(settled.filter((text, i) => settled.indexOf(text) !== i)).toEqual([])
})

test('each request to the member gets one reply, although its sessions are killed', async () => {
  await using given = await meeting(shared)
  const { world, profile, sender, member, isQueueEmpty } = given
  const replies: string[] = []
  sender.onMessage((message) => void replies.push(`${message.user === member} ${message.text()}`))
  const running = [profile.start(), profile.start()]
  const texts = Array.from({ length: 120 }, (_, i) => `ask ${i}`)
  const sent = Promise.all(texts.map((text, i) => sender.send(member, text, { thread: threadOf(i % 40) })))
  for (let round = 1; round <= 5; round++) {
    await until(`${round * 15} messages have begun`, () => new Set(profile.told('begun')).size >= round * 15)
    await running.shift()!.kill()
    running.push(profile.start())
  }
  await sent
  await until('each message has a reply', () => new Set(replies).size === texts.length)
  await until('the queue is empty', isQueueEmpty)
  expect(replies.toSorted()).toEqual(texts.map((text) => `true reply to ${text}`).toSorted())
  expect(await world.count('dead_letter')).toBe(0)
})

test.each(['unstored', 'unconfirmed'])(
  'a host that is killed with a reply that is still %s loses and repeats nothing',
  async (dies) => {
    await using given = await meeting(shared)
    const { profile, sender, member, isQueueEmpty } = given
    const replies: Message[] = []
    sender.onMessage((message) => void replies.push(message))
    const host = profile.start(`dies=${dies}`, 'credit=0')
    await until('it is the host', () => host.told('hosts').length === 1)
    const session = await profile.open()
    const heard: string[] = []
    const stored = Promise.withResolvers<void>()
    session.onMessage(async (message) => {
      heard.push(message.text())
      await settleWithReply(session.peer, message, 'reply')
      stored.resolve()
    })
    const { envelopeId } = await sender.send(member, 'question', { thread: threadOf(7) })
    await host.ended
    await stored.promise
    await until('the reply came', () => replies.length > 0)
    await until('the queue is empty', isQueueEmpty)
    expect(heard).toEqual(['question'])
    expect(replies.map((reply) => [reply.text(), reply.sender, reply.inReplyTo, reply.thread])).toEqual([
      ['reply', member, envelopeId, threadOf(7)],
    ])
  },
)

test('a reply that is refused leaves the message open, and an ended message gets none', async () => {
  await using given = await meeting(shared)
  const { profile, sender, member, isQueueEmpty } = given
  const session = await profile.open()
  const codes: unknown[] = []
  session.onMessage(async (message) => {
    codes.push(await codeOf(settleWithReply(session.peer, message, new Uint8Array(2 ** 20))))
    codes.push(await codeOf(rejectWithReply(session.peer, message, 'bad', 'error', { isAutomatic: true })))
    message.settle()
    codes.push(await codeOf(settleWithReply(session.peer, message, 'late')))
  })
  await sender.send(member, 'question', { noAutoReply: true })
  await until('the queue is empty', isQueueEmpty)
  expect(codes).toEqual(['body_too_large', 'no_auto_reply', 'message_ended'])
})

/** The number of messages that may wait in the outbox of a peer. */
const OUTBOX_MAX = 100_000

test('a reply that finds the outbox of the member full is refused, and the message is answered later', async () => {
  await using given = await meeting(shared)
  const { profile, sender, member, isQueueEmpty } = given
  const wrapMemberStore = (store: PeerStore): PeerStore => ({
    load: () => store.load(),
    close: () => store.close(),
    write: (changes) => store.write(changes.filter(({ record }) => record?.kind !== 'waiting')), // the fillers
  })
  const host = await profile.open({ credit: 0, wrapMemberStore })
  const memberPeer = await until('it is the host', () => host.memberPeer)
  const session = await profile.open()
  const begun: (() => void)[] = []
  const codes: unknown[] = []
  session.onMessage(async (message) => {
    await new Promise<void>((full) => (begun.push(full) === 1 ? undefined : full()))
    codes.push(await codeOf(settleWithReply(session.peer, message, 'reply')))
  })
  const reply = sender.request(member, 'question', { timeoutMs: 120_000 })
  await until('the session has the message', () => begun.length === 1)
  await shared.broker.kill()
  const stranger = 'ef'.repeat(32) as PeerKey
  for (let i = 0; i < OUTBOX_MAX; i++) void memberPeer.send(stranger, '').catch(() => undefined)
  begun[0]!()
  await until('the reply is refused', () => codes.length === 1)
  await shared.restart()
  expect((await reply).text()).toBe('reply')
  await until('the queue is empty', isQueueEmpty)
  expect(codes.slice(0, -1)).toEqual(codes.slice(1).map(() => 'outbox_full'))
  expect(codes.at(-1)).toBe(null)
})

test('a session replies itself if the host is an older version', async () => {
  await using given = await meeting(shared)
  const { profile, sender, member, isQueueEmpty } = given
  const host = profile.start('version=1', 'credit=0')
  await until('it is the host', () => host.told('hosts').length === 1)
  const session = await profile.open()
  session.onMessage(async (message) => {
    const { receipt } = await settleWithReply(session.peer, message, 'reply')
    await receipt
  })
  const reply = await sender.request(member, 'question')
  expect([reply.text(), reply.sender]).toEqual(['reply', session.key])
  await until('the queue is empty', isQueueEmpty)
})

test('a message that a session does not read for 30 s goes to another session', async () => {
  await using given = await meeting(shared)
  const { profile, sender, member } = given
  const mailbox = await profile.startHost()
  const sessions = [await profile.opened('one', 'reads=never'), await profile.opened('two', 'reads=never')]
  await sender.send(member, 'stuck')
  await until('a session has it', () => profile.told('begun').length === 1)
  const [first, second] = sessions[0]!.told('begun').length === 1 ? sessions : sessions.toReversed()
  mailbox.advance(30_000)
  await until('the other session has it', () => second!.told('begun').length === 1)
  await until('the first session has lost it', () => first!.told('withdrawn').length === 1)
  expect(profile.told('begun')).toEqual(['stuck', 'stuck'])
})

test('a named session keeps its address and mail after it was killed, and a second process can not claim its name', async () => {
  await using given = await meeting(shared)
  const { profile, sender, isQueueEmpty } = given
  const first = await profile.opened('api')
  expect(await codeOf(profile.open({ as: 'api' }))).toBe('session_in_use')
  const key = first.told('key')[0] as PeerKey
  await sender.send(key, 'stuck')
  await until('the message has begun', () => first.told('begun').length === 1)
  await first.kill()
  await sender.send(key, 'meanwhile')
  const session = await profile.open({ as: 'API' })
  expect(session.key).toBe(key)
  const heard: string[] = []
  session.onMessage((message) => heard.push(message.text()))
  await until('the queue is empty', isQueueEmpty)
  expect(heard.sort()).toEqual(['meanwhile', 'stuck'])
})

test("the mail of an unnamed session whose process is gone reaches the member's other session, until a new session takes over", async () => {
  await using given = await meeting(shared)
  const { profile, sender } = given
  const [a, b] = [await profile.open(), await profile.open()]
  const heard: string[] = []
  a.onMessage((message) => heard.push(`a ${message.text()} ${a.isForMember(message)}`))
  await b.close()
  await sender.send(b.key, 'to nobody')
  await until('the message has arrived', () => heard.length === 1)
  const c = await profile.open()
  c.onMessage((message) => heard.push(`c ${message.text()} ${c.isForMember(message)}`))
  expect([c.label, c.key]).toEqual(['laptop-2', b.key])
  await sender.send(b.key, 'to its heir')
  await until('the message has arrived', () => heard.length === 2)
  expect(heard).toEqual(['a to nobody true', 'c to its heir false'])
})

test('a new session does not take over a slot while another session holds mail from it', async () => {
  await using given = await meeting(shared)
  const { profile, sender, isQueueEmpty } = given
  const host = await profile.opened('host')
  const [a, b] = [await profile.open(), await profile.open()]
  const held: Message[] = []
  a.onMessage((message) => new Promise<void>(() => held.push(message)))
  await b.close()
  await sender.send(b.key, 'stuck')
  await until('a session has the message', () => held.length + host.told('begun').length === 1)
  await host.kill()
  await until('the session that is left has the message', () => held.length === 1)
  const c = await profile.open()
  expect(c.label).toBe('laptop-3')
  held[0]!.settle()
  expect(await a.outcomesStored()).toBe(true)
  await until('the queue is empty', isQueueEmpty)
  expect((await profile.open()).label).toBe('laptop-2')
})

test('a session settles at the next host what it was given by one that has closed', async () => {
  await using given = await meeting(shared)
  const { profile, sender, member, isQueueEmpty } = given
  const sessions = [await profile.open({ credit: 0 }), await profile.open(), await profile.open()]
  const held: Message[] = []
  for (const session of sessions.slice(1)) session.onMessage((message) => new Promise<void>(() => held.push(message)))
  await until('the first session is the host', () => sessions[0]!.isHost)
  await sender.send(member, 'text')
  await until('a session has the message', () => held.length === 1)
  await sessions[0]!.close()
  held[0]!.settle()
  expect(await Promise.all(sessions.slice(1).map((session) => session.outcomesStored()))).toEqual([true, true])
  await until('the queue is empty', isQueueEmpty)
  expect(held.length).toBe(1)
})

test('a message to all sessions is handed out once in each', async () => {
  await using given = await meeting(shared)
  const { profile, sender, member, isQueueEmpty } = given
  const sessions = [await profile.open(), await profile.open(), await profile.open({ as: 'api' })]
  const heard: string[] = []
  for (const session of sessions) session.onMessage((message) => heard.push(`${session.label} ${message.text()}`))
  const { stored } = await usersOf(sender).send(member, 'to all')
  expect((await stored).map(({ error }) => error)).toEqual([null, null, null, null])
  await until('the queue is empty', isQueueEmpty)
  expect(heard.sort()).toEqual(['api to all', 'laptop-1 to all', 'laptop-2 to all'])
})

test('a session answers a request to its member, and later messages of the thread stay with it', async () => {
  await using given = await meeting(shared)
  const { profile, sender, member } = given
  const sessions = [await profile.open(), await profile.open()]
  for (const session of sessions)
    session.onMessage((message) => message.reply(`${session.label} ${message.text().toUpperCase()}`))
  const thread = threadOf(1)
  const answers: Message[] = []
  for (let i = 0; i < 4; i++) answers.push(await sender.request(member, 'question', { thread }))
  const [{ sender: by, user, thread: answered }] = answers as [Message, ...Message[]]
  expect(new Set(answers.map((answer) => answer.text())).size).toBe(1)
  expect([user, answered]).toEqual([member, thread])
  expect(sessions.map(({ key }) => key)).toContain(by)
})

test('a message of the member can be rejected, returned and read in a loop', async () => {
  await using given = await meeting(shared)
  const { world, profile, sender, member, isQueueEmpty } = given
  const session = await profile.open({ credit: 1 })
  for (const text of ['reject', 'return', 'settle']) await sender.send(member, text)
  const heard: string[] = []
  for await (const message of session) {
    heard.push(`${message.text()} ${message.attempt}`)
    if (message.text() === 'reject') message.reject('not for me')
    if (message.text() === 'return' && message.attempt === 1) message.retry()
    if (heard.length === 4) break
  }
  expect(heard.slice(0, 2)).toEqual(['reject 1', 'return 1'])
  expect(await session.outcomesStored()).toBe(true)
  expect(await world.count('dead_letter')).toBe(1)
  session.onMessage((message) => heard.push(message.text())) // the break has returned the last message
  await until('the queue is empty', isQueueEmpty)
})

test('a session that was ended for good closes with revoked, and its label can be used again', async () => {
  await using given = await meeting(shared)
  const { profile } = given
  const owner = await profile.open()
  const memberPeer = await until('the session is the host', () => owner.memberPeer)
  const ended = await profile.open({ as: 'api' })
  await usersOf(memberPeer).removeDevice(ended.key)
  expect((await ended.closed)?.code).toBe('revoked')
  const again = await profile.open({ as: 'api' })
  expect(again.key).not.toBe(ended.key)
  expect((await usersOf(memberPeer).devices()).map(({ label }) => label).sort()).toEqual(['api', 'laptop-1'])
})

test('two profiles of one member have different sessions, and a label of the other one is taken', async () => {
  await using given = await meeting(shared)
  const { world, profile } = given
  await using other = await SessionProfile.in(world, profile.place)
  await profile.open({ as: 'api' })
  await profile.open()
  expect(await codeOf(other.open({ as: 'Api' }))).toBe('name_taken')
  expect((await other.open()).label).toBe('laptop-2')
})

test('a session of a stranger or with a copied certificate ends with a code, and its member loses no mail', async () => {
  await using given = await meeting(shared)
  const { world, profile, sender, member } = given
  await sender.send(member, 'kept')
  await using stranger = await SessionProfile.in(world, { ...profile.place, identity: generateIdentity() })
  expect(await codeOf(stranger.open())).toBe('invite_refused')
  const original = await profile.open({ as: 'api' })
  const heard: string[] = []
  original.onMessage((message) => void heard.push(message.text()))
  await until('the message has arrived', () => heard.length === 1)
  await using thief = await SessionProfile.in(world, profile.place)
  const folder = (of: SessionProfile) => join(of.folder, 'sessions', 'api')
  await mkdir(folder(thief), { recursive: true })
  for (const name of ['key.json', 'session.json']) await cp(join(folder(profile), name), join(folder(thief), name))
  await thief.open({ as: 'api' })
  expect(await original.closed).toMatchObject({ code: 'superseded' })
})

test('when a member is revoked, all of its 20 sessions end with revoked, and no other can be opened', async () => {
  await using given = await meeting(shared)
  const { world, profile, member } = given
  const sessions = await Promise.all(Array.from({ length: 20 }, () => profile.open()))
  const admin = world.closing(await connect(await world.enrolAdmin('admin')))
  await admin.revokeMember(member)
  const ends = await Promise.all(sessions.map(({ closed }) => closed))
  expect(ends.map((error) => error?.code)).toEqual(Array(20).fill('revoked'))
  expect(await codeOf(profile.open())).toBe('invite_refused')
})

test('a user has at most 64 devices and sessions', async () => {
  await using given = await meeting(shared)
  const { profile } = given
  const { identity, ...place } = profile.place
  await Promise.all(
    Array.from({ length: 63 }, (_, i) => {
      const invite = createDeviceInvite(identity.signing, { ...place, label: `device ${i}` })
      return joinAsDevice({ invite, identity: generateIdentity() })
    }),
  )
  const last = await profile.open()
  expect(await codeOf(profile.open({ as: 'one more' }))).toBe('too_many_devices')
  await last.close()
  expect((await profile.open()).key).toBe(last.key)
})

test('a message that a session holds while the broker restarts is settled once', async () => {
  await using given = await meeting(shared)
  const { profile, sender, member, isQueueEmpty } = given
  const sessions = [await profile.open(), await profile.open()]
  const held: Message[] = []
  for (const session of sessions) session.onMessage((message) => new Promise<void>(() => held.push(message)))
  await sender.send(member, 'text')
  await until('a session has the message', () => held.length === 1)
  await shared.broker.kill()
  await shared.restart()
  held[0]!.settle()
  await until('the queue is empty', isQueueEmpty)
  expect(held.length).toBe(1)
})

test.each([
  ['a slash in the label', { as: 'a/b' }, 'label_malformed'],
  ['a label that is too long', { as: 'a'.repeat(33) }, 'label_malformed'],
  ['a base that leaves no room for a number', { baseLabel: 'a'.repeat(29) }, 'label_malformed'],
  ['a folder with a long path', { folder: `/tmp/${'a'.repeat(100)}` }, 'folder_path_too_long'],
  ['an unreachable broker at the first start', { url: 'ws://127.0.0.1:1' }, 'connection_lost'],
])('%s is refused with a code', async (_, options, code) => {
  await using given = await meeting(shared)
  expect(await codeOf(given.profile.open(options))).toBe(code)
})

test('a label can be outside ASCII', async () => {
  await using given = await meeting(shared)
  const { profile, sender } = given
  const named = await profile.open({ as: 'Büro' })
  const unnamed = await profile.open({ baseLabel: 'Küche' })
  expect([named.label, unnamed.label]).toEqual(['Büro', 'Küche-1'])
  const devices = await usersOf(sender).devices(profile.key)
  expect(devices.map(({ label }) => label).toSorted()).toEqual(['Büro', 'Küche-1'])
  expect(await codeOf(profile.open({ as: 'Büro' }))).toBe('session_in_use')
})

test('the key of a session can be encrypted', async () => {
  await using given = await meeting(shared)
  const { profile } = given
  const session = await profile.open({ as: 'api', passphrase: 'correct horse' })
  await session.close()
  expect(await codeOf(profile.open({ as: 'api' }))).toBe('key_file_locked')
  expect((await profile.open({ as: 'api', passphrase: 'correct horse' })).key).toBe(session.key)
})
