/** Tests that this version works with each fixture: brokers with SDKs, and both brokers on one database under traffic. */
import { type ChildProcessByStdio, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable, Writable } from 'node:stream'
import { BrokerProcess, brokerKeyFile, until } from '@sealpost/broker/testing'
import { freePort } from '@sealpost/embedded-pg'
import { createInvite, generateIdentity, generateSigningKeys } from '@sealpost/identity'
import { openDatabase } from '@sealpost/pg'
import { emptyDatabase, unhurried } from '@sealpost/pg/testing'
import { connect } from '@sealpost/sdk'
import { groupsOf } from '@sealpost/sdk/groups'
import { exchangeHeads } from '@sealpost/sdk/heads'
import { join as joinMesh, type Membership } from '@sealpost/sdk/join'
import { guardMembers, openMemberProofs } from '@sealpost/sdk/members'
import { MemoryStore } from '@sealpost/sdk/memory-store'
import { sentLogOf } from '@sealpost/sdk/sent'
import type { PeerKey } from '@sealpost/std'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Outcome } from '../packages/test/peers.ts'
import { allFixtures, bundleProgram, CURRENT, openFixture, type Version } from './fixture.ts'
import type { MemberReport, TrafficRequest } from './traffic.ts'

let root: string
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'sealpost-upgrade-'))
})
afterAll(() => rm(root, { recursive: true, force: true }))

/** Brokers of several versions on one database, which the first one creates. */
class Cluster implements AsyncDisposable {
  readonly databaseUrl: string
  readonly #drop: () => Promise<void>
  readonly #keyFile: string
  readonly #brokers: BrokerProcess[] = []

  private constructor(databaseUrl: string, drop: () => Promise<void>, keyFile: string) {
    this.databaseUrl = databaseUrl
    this.#drop = drop
    this.#keyFile = keyFile
  }

  static async open(): Promise<Cluster> {
    const { url, drop } = await emptyDatabase()
    return new Cluster(url, drop, await brokerKeyFile(root))
  }

  async start({ sealpost }: Pick<Version, 'sealpost'>, settings: Readonly<Record<string, string>> = {}) {
    const env = { DATABASE_URL: this.databaseUrl, BROKER_KEY_FILE: this.#keyFile, LIMITS: 'off', ...settings }
    const broker = await BrokerProcess.start(env, { program: [...sealpost, 'broker'] })
    this.#brokers.push(broker)
    return broker
  }

  /** Creates a mesh with the CLI of a version. Returns an invite that admits any number of members. */
  async createMesh(version: Version, name: string, url: string): Promise<string> {
    const { identity, brokerKey, meshId } = await this.createAdmin(version, name, url)
    return createInvite(identity.signing, { url, brokerKey, meshId, usesMax: 65_535 })
  }

  /** Creates a mesh with the CLI of a version. Returns its admin. */
  async createAdmin({ sealpost }: Version, name: string, url: string) {
    const command = [...sealpost, 'admin', 'mesh', 'create', name, '--url', url, '--quiet']
    const env = { PATH: process.env.PATH, HOME: root, DATABASE_URL: this.databaseUrl }
    const invite = (await outputOf(command, env)).trim()
    const identity = generateIdentity()
    return { identity, ...(await joinMesh({ invite, identity, name: 'admin' })) }
  }

  async hasTable(name: string): Promise<boolean> {
    const db = await openDatabase(this.databaseUrl, { ...unhurried, connections: 1 })
    const [row] = await db.run((sql) => sql<{ oid: number | null }[]>`select to_regclass(${name}) as oid`)
    await db.close()
    return row!.oid !== null
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#brokers.map((broker) => broker.kill()))
    await this.#drop()
  }
}

/** @throws an Error with the errors of a program that failed */
async function outputOf(
  command: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): Promise<string> {
  const child = Bun.spawn([...command], { cwd: root, env, stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' })
  const [output, errors] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()])
  if ((await child.exited) !== 0) throw new Error(`${command.join(' ')}: ${errors}`)
  return output
}

/** The program `traffic.ts` of a version. */
class Traffic implements AsyncDisposable {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>
  readonly #replies: AsyncIterator<string>
  readonly #ended: Promise<unknown>

  constructor({ traffic: [program, ...args] }: Version) {
    this.#child = spawn(program!, args, { stdio: ['pipe', 'pipe', 'inherit'] })
    this.#ended = once(this.#child, 'close')
    this.#replies = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]()
  }

  async join(invite: string, urls: readonly string[]): Promise<PeerKey> {
    return (await this.ask<{ key: PeerKey }>({ type: 'join', invite, urls })).key
  }

  /** The program replies in order. */
  async ask<Reply>(request: TrafficRequest): Promise<Reply> {
    this.#child.stdin.write(`${JSON.stringify(request)}\n`)
    const reply = await Promise.race([this.#replies.next(), this.#ended.then(() => null)])
    if (!reply || reply.done) throw new Error('the traffic program ended')
    return JSON.parse(reply.value) as Reply
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill('SIGKILL')
    await this.#ended
  }
}

interface Pair {
  readonly from: PeerKey
  readonly to: PeerKey
}

/** Pairs of members, of which one uses an earlier SDK and the other one the current SDK. */
class Pairs implements AsyncDisposable {
  readonly #sides: readonly [Traffic, Traffic]
  readonly #pairs: Pair[] = []

  constructor(earlier: Version) {
    this.#sides = [new Traffic(earlier), new Traffic(CURRENT)]
  }

  /** Adds a pair for each direction. The members dial the URLs in turn, the senders from the first one. */
  async add(invite: string, urls: readonly string[]): Promise<void> {
    const reversed = urls.toReversed()
    for (const [sender, recipient] of [this.#sides, this.#sides.toReversed()] as [Traffic, Traffic][]) {
      const [from, to] = await Promise.all([sender.join(invite, urls), recipient.join(invite, reversed)])
      await sender.ask({ type: 'send', from, to })
      this.#pairs.push({ from, to })
    }
  }

  /** Waits until all members are online and each pair has delivered some more messages. */
  async progress(): Promise<void> {
    const before = await this.results()
    await until('all pairs deliver', async () => {
      const now = await this.results()
      return now.every(
        ({ areOnline, acked, received }, i) =>
          areOnline &&
          received.length > (before[i]?.acked ?? 0) + MESSAGES &&
          acked > (before[i]?.acked ?? 0) + MESSAGES,
      )
    })
  }

  /** Stops the senders and waits until each message has arrived. */
  async finish() {
    await Promise.all(this.#sides.map((side) => side.ask({ type: 'stop' })))
    await until('all messages arrive', async () =>
      (await this.results()).every(({ sent, received }) => received.length >= sent),
    )
    return this.results()
  }

  async results() {
    const reports = await Promise.all(this.#sides.map((side) => side.ask<MemberReport[]>({ type: 'report' })))
    const of = new Map(reports.flat().map((report) => [report.key, report]))
    return this.#pairs.map(({ from, to }) => {
      const [sender, recipient] = [of.get(from)!, of.get(to)!]
      const { sent, acked } = sender
      return { sent, acked, received: recipient.received, areOnline: sender.isOnline && recipient.isOnline }
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#sides.map((side) => side[Symbol.asyncDispose]()))
  }
}

/** The messages that each pair delivers in each phase. */
const MESSAGES = 10
/** The result of a later migration that the earlier broker does not know. It locks the busiest table for a moment. */
const LATER = `alter table message_queue add column later integer not null default 1;
--> statement-breakpoint
create table later (id integer primary key);`

/** Bundles the current program with one more migration than it has. */
async function bundleWithLaterMigration(folder: string): Promise<Pick<Version, 'sealpost'>> {
  const sealpost = await bundleProgram(folder)
  const path = join(folder, 'migrations/meta/_journal.json')
  const journal = JSON.parse(await readFile(path, 'utf8')) as { entries: { idx: number; when: number; tag: string }[] }
  const last = journal.entries.at(-1)!
  journal.entries.push({ ...last, idx: last.idx + 1, when: last.when + 1, tag: 'later' })
  await writeFile(path, JSON.stringify(journal))
  await writeFile(join(folder, 'migrations/later.sql'), LATER)
  return { sealpost }
}

describe.each(allFixtures())('fixture $number, version $version', (fixture) => {
  let earlier: Version
  beforeAll(async () => {
    const folder = join(root, String(fixture.number))
    await mkdir(folder)
    earlier = openFixture(fixture, folder)
  })

  test.each([
    ['its SDK works with the current broker', () => ({ broker: CURRENT, sdk: earlier })],
    ['its broker works with the current SDK', () => ({ broker: earlier, sdk: CURRENT })],
  ])('%s', async (_, versions) => {
    const { broker, sdk } = versions()
    await using cluster = await Cluster.open()
    const { url } = await cluster.start(broker)
    const INVITE = await cluster.createMesh(broker, 'home', url)
    const FOLDER = await mkdtemp(join(root, 'sdk-'))
    const output = await outputOf(sdk.sdkTests, { PATH: process.env.PATH, HOME: FOLDER, INVITE, FOLDER })
    const outcomes = JSON.parse(output) as Outcome[]
    expect(outcomes.filter(({ failure }) => failure !== null)).toEqual([])
    expect(outcomes.length).toBeGreaterThan(8)
  })

  test.each(['current', 'earlier'])(
    'with the %s broker, its commands know Unicode names in their ASCII form',
    async (which) => {
      const broker = which === 'current' ? CURRENT : earlier
      await using cluster = await Cluster.open()
      const { url } = await cluster.start(broker)
      const invite = await cluster.createMesh(broker, 'home', url)
      const HOME = await mkdtemp(join(root, 'names-'))
      const run = ({ sealpost }: Version, ...words: string[]) =>
        outputOf([...sealpost, ...words], { PATH: process.env.PATH, HOME, SEALPOST_HOME: join(HOME, words.at(-1)!) })
      await run(CURRENT, 'join', invite, '--name', 'Zoë', '--profile', 'zoe')
      await run(earlier, 'join', invite, '--name', 'bob', '--profile', 'bob')
      await run(CURRENT, 'group', 'create', '会議', 'bob', '--profile', 'zoe')
      expect(await run(earlier, 'peers', '--profile', 'bob')).toContain('xn--Zo-ija ')
      expect(await run(earlier, 'group', 'list', '--profile', 'bob')).toContain('xn--6oqw48l ')
      await run(earlier, 'send', 'xn--Zo-ija', 'hello', '--profile', 'bob')
      await run(earlier, 'group', 'send', 'xn--6oqw48l', 'hello', '--profile', 'bob')
      expect(await run(CURRENT, 'listen', '--count', '2', '--profile', 'zoe')).toMatch(/hello\n.* in 会議 {2}hello\n/)
      expect(await run(CURRENT, 'peers', '--profile', 'zoe')).toContain('Zoë ')
    },
  )

  test('the current SDK opens a key file and a store of its SDK', async () => {
    await using cluster = await Cluster.open()
    const { url } = await cluster.start(CURRENT)
    const invite = await cluster.createMesh(CURRENT, 'home', url)
    await using former = new Traffic(earlier)
    await using current = new Traffic(CURRENT)
    const folder = await mkdtemp(join(root, 'store-'))
    const to = await current.join(invite, [url])
    const membership = await former.ask<Membership>({ type: 'leave', invite, folder, to })
    await current.ask({ type: 'resume', membership, folder })
    const received = async () =>
      (await current.ask<MemberReport[]>({ type: 'report' })).find(({ key }) => key === to)!.received
    await until('the message arrives', async () => (await received()).length > 0)
    expect(await received()).toEqual([1])
  })

  test('its SDK settles a message whose sender asks for a confirmation, and sends none', async () => {
    await using cluster = await Cluster.open()
    const { url } = await cluster.start(CURRENT)
    const invite = await cluster.createMesh(CURRENT, 'home', url)
    await using former = new Traffic(earlier)
    const to = await former.join(invite, [url])
    const identity = generateIdentity()
    await using alice = await connect({ ...(await joinMesh({ invite, identity, name: 'alice' })), identity })
    const sent = sentLogOf(alice)
    const wishes = { wait: 'settled', confirm: 'all' } as const
    const { envelopeId } = await sent.send(to, '1', wishes)
    await sent.send(to, '2', wishes) // follows whatever the recipient sent about the first message
    expect(sent.list().map(({ state, isSigned }) => ({ state, isSigned }))).toEqual(
      Array(2).fill({ state: 'settled', isSigned: false }),
    )
    await expect(sent.wait(envelopeId!, 'confirmed', { timeoutMs: 1 })).rejects.toMatchObject({ code: 'timeout' })
    const [{ received }] = (await former.ask<MemberReport[]>({ type: 'report' })) as [MemberReport]
    expect(received).toEqual([1, 2])
  })

  test('its SDK receives messages with heads, and ignores the heads', async () => {
    await using cluster = await Cluster.open()
    const { url } = await cluster.start(CURRENT)
    const invite = await cluster.createMesh(CURRENT, 'home', url)
    await using former = new Traffic(earlier)
    const to = await former.join(invite, [url])
    const identity = generateIdentity()
    const place = { ...(await joinMesh({ invite, identity, name: 'alice' })), identity }
    const store = new MemoryStore()
    await using first = await connect({ ...place, store })
    exchangeHeads(first)
    await sentLogOf(first).send(to, '1', { wait: 'settled' })
    await first.close()
    await using later = await connect({ ...place, store: new MemoryStore(store.records) })
    exchangeHeads(later)
    await groupsOf(later).create('crew', [to])
    await sentLogOf(later).send(to, '2', { wait: 'settled' }) // has the heads of the first stream and of the group
    const [{ received }] = (await former.ask<MemberReport[]>({ type: 'report' })) as [MemberReport]
    expect(received).toEqual([1, 2])
  })

  test('a member that joins with its SDK is proven in a mesh with a root', async () => {
    await using cluster = await Cluster.open()
    const { url } = await cluster.start(CURRENT)
    const admin = await cluster.createAdmin(CURRENT, 'home', url)
    await using peer = await connect(admin)
    await using members = await openMemberProofs(admin)
    await members.adopt(generateSigningKeys(), await peer.members())
    await using former = new Traffic(earlier)
    const invite = createInvite(admin.identity.signing, { ...admin, notAfterMs: Date.now() + 600_000 })
    const key = await former.join(invite, [url])
    expect((await members.check(await peer.members())).get(key)).toBe('proven')
  })

  test('with its broker a mesh has no root, and messages to groups reach everyone', async () => {
    await using cluster = await Cluster.open()
    const { url } = await cluster.start(earlier)
    const admin = await cluster.createAdmin(earlier, 'home', url)
    await using peer = await connect(admin)
    await using members = await openMemberProofs(admin)
    guardMembers(peer, members)
    await using former = new Traffic(earlier)
    const key = await former.join(createInvite(admin.identity.signing, { ...admin, usesMax: 1 }), [url])
    expect((await members.check(await peer.members())).get(key)).toBe('no_root')
    const { stored } = await (await groupsOf(peer).create('crew', [key])).send('hello')
    expect(await stored).toMatchObject([{ peer: key, error: null }])
  })

  test('the current SDK reports that its broker is too old to be asked about a message', async () => {
    await using cluster = await Cluster.open()
    const { url } = await cluster.start(earlier)
    const invite = await cluster.createMesh(earlier, 'home', url)
    const identity = generateIdentity()
    await using alice = await connect({ ...(await joinMesh({ invite, identity, name: 'alice' })), identity })
    const sent = sentLogOf(alice)
    const { envelopeId } = await sent.send(alice.key, '1')
    await expect(sent.askBroker([envelopeId!])).rejects.toMatchObject({ code: 'not_found' })
    expect(await sent.send(alice.key, '2')).toMatchObject({ state: 'stored' })
  })

  test.each(['any', 'home'])(
    'with placement %s, an upgrade under traffic loses and repeats nothing',
    async (PLACEMENT) => {
      await using cluster = await Cluster.open()
      await using pairs = new Pairs(earlier)
      const ports = [await freePort(), await freePort()]
      const urls = ports.map((port) => `ws://127.0.0.1:${port}`)
      const startAt = (version: Pick<Version, 'sealpost'>, i: 0 | 1) =>
        cluster.start(version, { PLACEMENT, PORT: String(ports[i]), PUBLIC_URL: urls[i]! })

      const former = await startAt(earlier, 0)
      const invites = await Promise.all(['one', 'two'].map((name) => cluster.createMesh(earlier, name, urls[0]!)))
      for (const invite of invites) await pairs.add(invite, urls)
      await pairs.progress()

      const current = await startAt(await bundleWithLaterMigration(await mkdtemp(join(root, 'later-'))), 1)
      expect(await cluster.hasTable('later')).toBe(true)
      for (const invite of invites) await pairs.add(invite, urls)
      const sessions = () => Promise.all([former, current].map((broker) => broker.metric('sealpost_sessions')))
      for (let n = 3; (await sessions()).includes(0); n++)
        await pairs.add(await cluster.createMesh(earlier, `mesh ${n}`, urls[0]!), urls)
      await pairs.progress()

      await former.kill()
      await pairs.progress()
      for (const { sent, acked, received } of await pairs.finish()) {
        expect(acked).toBe(sent)
        expect(received).toEqual(Array.from({ length: sent }, (_, i) => i + 1))
      }
    },
  )
})
