/** Tests forward secrecy of peers with file stores, through a broker. */
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { ConnectOptions, Peer } from '@sealpost/sdk'
import { openFileStore, readStoreRecords } from '@sealpost/sdk/file-store'
import { forwardSecrecy } from '@sealpost/sdk/forward'
import { test as base, expect, onTestFinished } from 'vitest'
import { Member } from './member.ts'
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
    await secret.published()
    return secret
  }

  async start(options: Partial<ConnectOptions> = {}): Promise<void> {
    const store = await openFileStore(this.file)
    this.member = await Member.enter(this.#world, this.place, { store, secrecy: forwardSecrecy(), ...options })
  }

  get peer(): Peer {
    return this.member.peer
  }

  /** Resolves when the broker has the prekeys. */
  async published(): Promise<void> {
    const isPublished = async () =>
      (await readStoreRecords(this.file)).some((record) => record.kind === 'prekeys' && record.checkedAtMs > 0)
    await until('the prekeys are published', isPublished)
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
