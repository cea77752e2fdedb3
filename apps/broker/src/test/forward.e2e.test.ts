/** Tests forward secrecy of peers with file stores, through a broker. */
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { ConnectOptions, Peer } from '@sealpost/sdk'
import { openFileStore, readStoreRecords } from '@sealpost/sdk/file-store'
import { forwardSecrecy } from '@sealpost/sdk/forward'
import { test as base, expect, onTestFinished } from 'vitest'
import { Member } from './member.ts'
import { Life, writtenPeer } from './peer-life.ts'
import { until } from './process.ts'
import { sharedWorlds } from './shared-worlds.ts'
import { type Place, temporaryFolder, type World } from './world.ts'

const shared = sharedWorlds()
const test = base.concurrent

async function folderOfTest(): Promise<string> {
  const folder = await temporaryFolder()
  onTestFinished(() => rm(folder, { recursive: true, force: true }))
  return folder
}

/** Resolves when the broker has the prekeys of this store. */
const published = (file: string) =>
  until('the prekeys are published', async () =>
    (await readStoreRecords(file)).some((record) => record.kind === 'prekeys' && record.checkedAtMs > 0),
  )

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
    await published(secret.file)
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
  await published(recipient.files[1])
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
