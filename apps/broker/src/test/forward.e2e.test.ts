/** Tests forward secrecy of peers with file stores, through a broker. */
import { cp, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { isRatcheted, openEnvelope, readPreparedSend, Sealer } from '@sealpost/identity'
import { Prekeys, Ratchet, sodiumRatchetCrypto } from '@sealpost/identity/ratchet'
import { ReceivedSenderKeys, senderKeyBox } from '@sealpost/identity/sender-keys'
import { RatchetThief } from '@sealpost/identity/testing-ratchet'
import { SenderKeyThief } from '@sealpost/identity/testing-sender-keys'
import { type ClientFrame, decodeClientFrame } from '@sealpost/protocol'
import type { ConnectOptions, Peer, StoreRecord } from '@sealpost/sdk'
import { openFileStore } from '@sealpost/sdk/file-store'
import { forgetRatchets, forwardSecrecy, ratchetedPeers } from '@sealpost/sdk/forward'
import { groupsOf } from '@sealpost/sdk/groups'
import { prepareSend } from '@sealpost/sdk/prepare'
import type { EnvelopeId } from '@sealpost/std'
import { afterAll, test as base, expect } from 'vitest'
import { codeOf, Member } from './member.ts'
import { Life, writtenPeer } from './peer-life.ts'
import { until } from './process.ts'
import { sharedWorlds } from './shared-worlds.ts'
import { type Place, temporaryFolder, type World } from './world.ts'

const shared = sharedWorlds()
const test = base.concurrent

const folders: string[] = []
afterAll(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true }))))

async function folderOfTest(): Promise<string> {
  const folder = await temporaryFolder()
  folders.push(folder)
  return folder
}

/** Returns all records of a store that no process has open, also the secret ones. */
async function recordsOf(file: string): Promise<readonly StoreRecord[]> {
  const store = await openFileStore(file)
  try {
    return await store.load()
  } finally {
    await store.close()
  }
}

/** A member with forward secrecy, which can restart on its store. */
class SecretMember {
  readonly #world: World
  readonly place: Place
  readonly file: string
  member!: Member

  private constructor(world: World, place: Place, file: string) {
    this.#world = world
    this.place = place
    this.file = file
  }

  static async enter(world: World): Promise<SecretMember> {
    const secret = new SecretMember(world, await world.enrol(), join(await folderOfTest(), 'peer.store'))
    await secret.start()
    await until('the prekeys are published', () => secret.member.all('prekeys_published').length > 0)
    return secret
  }

  async start(options: Partial<ConnectOptions> = {}): Promise<void> {
    const store = await openFileStore(this.file)
    this.member = await Member.enter(this.#world, this.place, { store, secrecy: forwardSecrecy(), ...options })
  }

  get peer(): Peer {
    return this.member.peer
  }

  get news(): string[] {
    return this.member.all('ratchet').map(({ news }) => news)
  }
}

test('the first message begins a ratchet, replies use it, and a restart continues it', async () => {
  await using world = await shared()
  const [alice, bob] = await Promise.all([SecretMember.enter(world), SecretMember.enter(world)])
  await alice.peer.send(bob.peer.key, 'one')
  await until('the first message arrives', () => bob.member.texts.length === 1)
  await bob.peer.send(alice.peer.key, 'two')
  await until('the reply arrives', () => alice.member.texts.length === 1)
  await alice.peer.close()
  await alice.start()
  await alice.peer.send(bob.peer.key, 'three')
  await until('the third message arrives', () => bob.member.texts.length === 2)
  expect([bob.member.texts, alice.news, bob.news]).toEqual([['one', 'three'], [], ['ratchet_agreed']])
  expect(bob.member.all('tamper')).toEqual([])
})

test('a message to a group is sealed under a sender key, which departures and restarts replace', async () => {
  await using world = await shared()
  const [ann, ben, cleo] = await Promise.all([1, 2, 3].map(() => SecretMember.enter(world)))
  const { id } = await groupsOf(ann!.peer).create('crew', [ben!.peer.key, cleo!.peer.key])
  const sendToAll = async (text: string, receivers: readonly SecretMember[]) => {
    const group = await groupsOf(ann!.peer).find(id)
    const { stored } = await group.send(text, { receipts: 'end' })
    expect((await stored).map(({ error }) => error)).toEqual(receivers.map(() => null))
    await until(`${text} arrives`, () => receivers.every(({ member }) => member.texts.includes(text)))
  }
  await sendToAll('one', [ben!, cleo!])
  await until('the receipts arrive', () => ann!.member.all('receipt').length === 2)
  await sendToAll('two', [ben!, cleo!])
  await ben!.peer.close()
  await ben!.start()
  await sendToAll('three', [ben!, cleo!])
  await ann!.peer.close()
  await ann!.start()
  await sendToAll('four', [ben!, cleo!])
  await (await groupsOf(ann!.peer).find(id)).remove(cleo!.peer.key)
  await sendToAll('five', [ben!])
  await ben!.peer.close()
  const chains = (await recordsOf(ben!.file)).filter(({ kind }) => kind === 'senderKeys')
  expect([chains.length, cleo!.member.texts]).toEqual([1, ['one', 'two', 'three', 'four']])
  expect([ann!, ben!, cleo!].flatMap(({ member }) => member.all('tamper'))).toEqual([])
})

test('a group member whose store was restored refuses one message, and reads the next one', async () => {
  await using world = await shared()
  const [ann, ben] = await Promise.all([SecretMember.enter(world), SecretMember.enter(world)])
  const { id } = await groupsOf(ann.peer).create('pair', [ben.peer.key])
  const send = async (text: string, outcomes: readonly string[]) => {
    const { stored } = await (await groupsOf(ann.peer).find(id)).send(text, { receipts: 'end' })
    await stored
    await until('the receipt arrives', () => ann.member.all('receipt').length === outcomes.length)
    expect(ann.member.all('receipt').map(({ event }) => event)).toEqual(outcomes)
  }
  await send('one', ['settled'])
  await Promise.all([ann.peer.close(), ben.peer.close()])
  const copy = await folderOfTest()
  await cp(dirname(ben.file), copy, { recursive: true })
  await Promise.all([ann.start(), ben.start()])
  await send('two', ['settled'])
  await ben.peer.close()
  await cp(copy, dirname(ben.file), { recursive: true })
  await ben.start()
  await send('three', ['settled', 'rejected'])
  await send('four', ['settled', 'rejected', 'settled'])
  expect(ben.member.texts).toEqual(['four'])
  expect(ben.member.all('tamper')).toMatchObject([{ reason: 'sender_key_unknown' }])
})

test('members with and without forward secrecy read the messages of one group', async () => {
  await using world = await shared()
  const [ann, ben] = await Promise.all([SecretMember.enter(world), SecretMember.enter(world)])
  const plain = await Member.enter(world, await world.enrol())
  const group = await groupsOf(ann.peer).create('mixed', [ben.peer.key, plain.peer.key])
  for (const text of ['one', 'two']) await (await group.send(text)).stored
  const fromPlain = await groupsOf(plain.peer).find(group.id)
  await (await fromPlain.send('three')).stored
  await until('all arrive', () => ben.member.texts.length === 3 && plain.texts.length === 2)
  await until('the answer arrives', () => ann.member.texts.length === 1)
  expect([ben.member.texts, plain.texts, ann.member.texts]).toEqual([
    ['one', 'two', 'three'],
    ['one', 'two'],
    ['three'],
  ])
  expect([ann.member, ben.member, plain].flatMap((member) => member.all('tamper'))).toEqual([])
})

/** The batches around which a process is killed: its prekeys, and the first messages and settlements. */
const KILLS = Array.from({ length: 6 }, (_, i) => [`before:${i + 1}`, `after:${i + 1}`]).flat()

test('a sender that is killed around each of its writes loses no message that it has stored', async () => {
  await using world = await shared()
  await using sender = await writtenPeer(world)
  const bob = await SecretMember.enter(world)
  const kept: string[] = []
  for (const kill of KILLS) {
    await using life = new Life('--secrecy', '--kill', kill, 'post', ...sender.files, bob.peer.key, kill)
    await until('it is killed, or the message is sent', () => life.hasEnded || life.told('sent').length > 0)
    await life.kill()
    kept.push(...life.told('kept'))
  }
  expect(kept.length).toBeGreaterThan(0)
  await using last = new Life('--secrecy', 'post', ...sender.files, bob.peer.key, 'last')
  await until('all that was kept came', () => [...kept, 'last'].every((text) => bob.member.texts.includes(text)))
  expect([new Set(bob.member.texts).size, bob.member.all('tamper')]).toEqual([bob.member.texts.length, []])
  expect(bob.news.filter((news) => news !== 'ratchet_agreed')).toEqual([])
  expect(last.countOf('send_failed')).toBe(0)
})

test('a recipient that is killed around each of its writes receives each message', async () => {
  await using world = await shared()
  await using recipient = await writtenPeer(world)
  const alice = await SecretMember.enter(world)
  await using first = new Life('--secrecy', 'receive', ...recipient.files)
  await until('the prekeys are published', () => first.countOf('prekeys_published') > 0)
  await first.kill()
  const ended: string[] = []
  const sent: string[] = []
  for (const kill of KILLS) {
    await using life = new Life('--secrecy', '--kill', kill, 'receive', ...recipient.files)
    sent.push(kill)
    await alice.peer.send(recipient.key, kill)
    await until('it is killed, or the message has come', () => life.hasEnded || life.told('ended').includes(kill))
    await life.kill()
    ended.push(...life.told('ended'))
    expect(life.countOf('tamper')).toBe(0)
  }
  await using last = new Life('--secrecy', 'receive', ...recipient.files)
  await until('all have come', () => sent.every((text) => [...ended, ...last.told('ended')].includes(text)))
  await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
  expect([last.countOf('tamper'), alice.news.includes('ratchet_agreed')]).toEqual([0, true])
})

test('a store that was restored from an older copy is detected and reported by both, and both agree again', async () => {
  await using world = await shared()
  const [alice, bob] = await Promise.all([SecretMember.enter(world), SecretMember.enter(world)])
  await alice.peer.send(bob.peer.key, 'one')
  await until('one has come', () => bob.member.texts.includes('one'))
  await bob.peer.send(alice.peer.key, 'two')
  await until('two has come', () => alice.member.texts.includes('two'))
  await alice.peer.close()
  const copy = await folderOfTest()
  await cp(dirname(alice.file), copy, { recursive: true })
  await alice.start()
  await alice.peer.send(bob.peer.key, 'three')
  await until('three has come', () => bob.member.texts.includes('three'))
  await alice.peer.close()
  await cp(copy, dirname(alice.file), { recursive: true })
  await alice.start()
  const { envelopeId } = await alice.peer.send(bob.peer.key, 'four', { receipts: 'end' })
  await until('bob reports the reset', () => bob.news.includes('ratchet_reset'))
  await until('alice reports it too', () => alice.news.includes('ratchet_peer_reset'))
  await until('four is reported to its sender', () => alice.member.all('receipt').length === 1)
  expect(alice.member.all('receipt')).toMatchObject([{ envelopeId, event: 'rejected' }])
  expect(bob.member.all('tamper')).toMatchObject([{ envelopeId, reason: 'ratchet_reset' }])
  await alice.peer.send(bob.peer.key, 'five')
  await until('five has come', () => bob.member.texts.includes('five'))
  await bob.peer.send(alice.peer.key, 'six')
  await until('six has come', () => alice.member.texts.includes('six'))
  expect(bob.member.texts).toEqual(['one', 'three', 'five'])
})

test('a conversation with ratchets accepts no message without one, and a user can end it', async () => {
  await using world = await shared()
  const [alice, bob] = await Promise.all([SecretMember.enter(world), SecretMember.enter(world)])
  const before = await Member.enter(world)
  await before.peer.send(bob.peer.key, 'from a peer without a store')
  await alice.peer.send(bob.peer.key, 'ratcheted')
  await until('both have come', () => bob.member.texts.length === 2)
  await alice.peer.close()
  const thief = await Member.enter(world, alice.place) // has the keys, but no ratchet
  await thief.peer.send(bob.peer.key, 'forged')
  await until('it is rejected', () => bob.member.all('tamper').length === 1)
  expect(bob.member.all('tamper')).toMatchObject([{ reason: 'ratchet_downgrade' }])
  expect(ratchetedPeers(bob.peer)).toMatchObject([{ peer: thief.peer.key }])
  await forgetRatchets(bob.peer, thief.peer.key)
  await thief.peer.send(bob.peer.key, 'without ratchets')
  await until('it has come', () => bob.member.texts.includes('without ratchets'))
})

test('a peer whose broker hides the prekeys of a ratcheted conversation does not fall back', async () => {
  await using world = await shared()
  const [alice, bob] = await Promise.all([SecretMember.enter(world), SecretMember.enter(world)])
  await alice.peer.send(bob.peer.key, 'ratcheted')
  await world.db.run((sql) => sql`delete from prekey_statement where mesh_id = ${world.meshId}`)
  expect(await codeOf(alice.peer.send(bob.peer.key, 'in another lane', { priority: 'now' }))).toBe('ratchet_required')
  await alice.peer.send(bob.peer.key, 'in the same lane')
  await until('the others have come', () => bob.member.texts.length === 2)
})

/** Messages of the theft. `THEFT_MESSAGES=10000` runs it at full length. */
const STOLEN = Number(process.env.THEFT_MESSAGES ?? 150)

test('who steals the keys and the store of a peer opens no settled message that was recorded', async () => {
  await using world = await shared()
  const recorded: Uint8Array[] = []
  const [alice, bob] = await Promise.all([SecretMember.enter(world), SecretMember.enter(world)])
  await alice.peer.close()
  const record = (frame: ClientFrame) => {
    if (frame.type === 'send') recorded.push(...frame.envelopes.map(({ envelope }) => envelope.slice()))
  }
  await alice.start({ webSocket: recording(record) })
  for (let sent = 0; sent < STOLEN; sent += 50) {
    await Promise.all(Array.from({ length: 50 }, (_, i) => alice.peer.send(bob.peer.key, `message ${sent + i}`)))
    await bob.peer.send(alice.peer.key, 'a reply')
  }
  await until('all have come', () => bob.member.texts.length === STOLEN)
  bob.peer.onMessage(() => new Promise(() => undefined))
  await alice.peer.send(bob.peer.key, 'not settled')
  await bob.peer.close()
  const records = await recordsOf(bob.file)
  const lane = records.find((record) => record.kind === 'ratchet')!
  const secrets = records.find((record) => record.kind === 'prekeys')!
  const { signing, box } = alice.place.identity
  const { identity } = bob.place
  const opened = recorded.filter((envelope) => {
    const ratchet = Ratchet.restore(lane.bytes, { meshId: world.meshId, priority: lane.lane })
    const peers = [{ peerKey: signing.publicKey, boxKey: box.publicKey, boxEpoch: box.epoch }]
    const parties = { own: identity, ownBoxes: [identity.box], peers, prekeys: Prekeys.restore(secrets.bytes) }
    return ratchet.open(envelope, parties, Date.now()).ok
  })
  expect([recorded.length, opened.length]).toEqual([STOLEN + 1, 1]) // the thief can open what is not settled
  expect(opened[0]).toBe(recorded.at(-1))
})

test('who steals the keys and the store of a group member opens no settled message of the group', async () => {
  await using world = await shared()
  const recorded: { envelopeId: EnvelopeId; envelope: Uint8Array; body: Uint8Array }[] = []
  const [ann, ben, cleo] = await Promise.all([
    SecretMember.enter(world),
    SecretMember.enter(world),
    SecretMember.enter(world),
  ])
  await ann.peer.close()
  const record = (frame: ClientFrame) => {
    if (frame.type !== 'broadcast') return
    for (const { recipient, envelope, ...of } of frame.envelopes)
      if (recipient === ben.peer.key) recorded.push({ ...of, envelope: envelope.slice(), body: frame.body.slice() })
  }
  await ann.start({ webSocket: recording(record) })
  const group = await groupsOf(ann.peer).create('crew', [ben.peer.key, cleo.peer.key])
  for (let sent = 0; sent < STOLEN; sent += 50) {
    const sends = Array.from({ length: 50 }, (_, i) => group.send(`message ${sent + i}`, { receipts: 'end' }))
    for (const { stored } of await Promise.all(sends)) await stored
  }
  await until('all have come', () => [ben, cleo].every(({ member }) => member.texts.length === STOLEN))
  ben.peer.onMessage(() => new Promise(() => undefined))
  await (await group.send('not settled')).stored
  await ben.peer.close()
  const thief = await groupThief(ben, ann, world)
  const opened = recorded.filter((message) => thief(message))
  expect([recorded.length, opened.length]).toEqual([STOLEN + 1, 1]) // the thief can open what is not settled
  expect(opened[0]).toBe(recorded.at(-1))
})

/** Returns whether the keys and the store of the victim lead to the body of a message of the sender. */
async function groupThief(victim: SecretMember, sender: SecretMember, { meshId }: World) {
  const records = await recordsOf(victim.file)
  const own = victim.place.identity
  const { signing, box } = sender.place.identity
  const peer = { peerKey: signing.publicKey, boxKey: box.publicKey, boxEpoch: box.epoch }
  const prekeys = Prekeys.restore(records.find((record) => record.kind === 'prekeys')!.bytes)
  const ratchets = records
    .filter((record) => record.kind === 'ratchet')
    .map(({ bytes, lane }) => {
      const scope = { meshId, priority: lane }
      const ratchet = Ratchet.restore(bytes, scope)
      return new RatchetThief({ own, peer, scope, ratchet, prekeys, crypto: sodiumRatchetCrypto })
    })
  const received = records
    .filter((record) => record.kind === 'senderKeys')
    .map(({ bytes, group, lane }) => ReceivedSenderKeys.restore(bytes, { meshId, audience: group, priority: lane }))
  const thief = new SenderKeyThief({ sending: [], received, ratchets })
  const sealer = new Sealer({ identity: own, meshId })
  return ({ envelopeId, envelope, body }: { envelopeId: EnvelopeId; envelope: Uint8Array; body: Uint8Array }) => {
    const opened = openEnvelope(sealer, senderKeyBox(envelope)!, { from: peer, envelopeId })
    if (!opened.ok) throw new Error(opened.reason)
    return thief.read(opened.body, body) !== null
  }
}

/** Returns a network that records the frames that are sent. */
function recording(record: (frame: ClientFrame) => void): NonNullable<ConnectOptions['webSocket']> {
  return class extends WebSocket {
    override send(wire: Uint8Array<ArrayBuffer>): void {
      const decoded = decodeClientFrame('binary', wire)
      if (decoded.ok) record(decoded.frame)
      super.send(wire)
    }
  } as unknown as NonNullable<ConnectOptions['webSocket']>
}

test('prepared, delayed and group messages of a ratcheted conversation are ratcheted too', async () => {
  await using world = await shared()
  const [alice, bob] = await Promise.all([SecretMember.enter(world), SecretMember.enter(world)])
  await alice.peer.send(bob.peer.key, 'first')
  const { request } = await prepareSend(alice.peer, bob.peer.key, 'prepared')
  const send = readPreparedSend(request)!
  expect(isRatcheted(send.envelope)).toBe(true)
  await alice.peer.send(bob.peer.key, 'delayed', { notBefore: Date.now() + 100 })
  const group = await groupsOf(alice.peer).create('the group', [bob.peer.key])
  await group.send('to the group')
  await until('all have come', () => bob.member.texts.length === 3)
  expect(new Set(bob.member.texts)).toEqual(new Set(['first', 'delayed', 'to the group']))
  expect(bob.member.all('tamper')).toEqual([])
})
