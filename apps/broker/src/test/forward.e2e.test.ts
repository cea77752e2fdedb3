/** Tests forward secrecy of peers with file stores, through a broker. */
import { cp, rm } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { isRatcheted, readPreparedSend } from '@sealpost/identity'
import { Prekeys, Ratchet } from '@sealpost/identity/ratchet'
import { decodeClientFrame } from '@sealpost/protocol'
import type { ConnectOptions, Peer } from '@sealpost/sdk'
import { openFileStore } from '@sealpost/sdk/file-store'
import { forgetRatchets, forwardSecrecy, ratchetedPeers } from '@sealpost/sdk/forward'
import { groupsOf } from '@sealpost/sdk/groups'
import { prepareSend } from '@sealpost/sdk/prepare'
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
  forgetRatchets(bob.peer, thief.peer.key)
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
  await alice.start({ webSocket: recording(recorded) })
  for (let sent = 0; sent < STOLEN; sent += 50) {
    await Promise.all(Array.from({ length: 50 }, (_, i) => alice.peer.send(bob.peer.key, `message ${sent + i}`)))
    await bob.peer.send(alice.peer.key, 'a reply')
  }
  await until('all have come', () => bob.member.texts.length === STOLEN)
  bob.peer.onMessage(() => new Promise(() => undefined))
  await alice.peer.send(bob.peer.key, 'not settled')
  await bob.peer.close()
  await using store = await openFileStore(bob.file).then((opened) => ({
    ...opened,
    [Symbol.asyncDispose]: opened.close,
  }))
  const records = await store.load()
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

/** Returns a network that records the envelopes that are sent. */
function recording(envelopes: Uint8Array[]): NonNullable<ConnectOptions['webSocket']> {
  return class extends WebSocket {
    override send(wire: Uint8Array<ArrayBuffer>): void {
      const decoded = decodeClientFrame('binary', wire)
      if (decoded.ok && decoded.frame.type === 'send')
        envelopes.push(...decoded.frame.envelopes.map(({ envelope }) => envelope.slice()))
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
