/** Tests P1–P8 and P14 while components fail under traffic: every acked message arrives once and in order. */
import { rm } from 'node:fs/promises'
import { startEmbedded } from '@sealpost/embedded-pg'
import { generateIdentity } from '@sealpost/identity'
import { openDatabase } from '@sealpost/pg'
import { unhurried } from '@sealpost/pg/testing'
import { connect, type Peer } from '@sealpost/sdk'
import type { PeerKey } from '@sealpost/std'
import { expect, test } from 'vitest'
import { until } from './process.ts'
import { authFrame, envelopeTo, sendFrame, WireClient } from './wire.ts'
import { temporaryFolder, World } from './world.ts'

/** The messages in flight per peer, enough to keep the traffic flowing. */
const IN_FLIGHT = 300

/** Peers that send to each other until `expectWhole` is called. */
class Traffic {
  acked = 0
  private isOver = false
  private readonly peers: Peer[]
  private readonly sending: Promise<void>[]
  private readonly arrived = new Map<string, number[]>()
  private readonly expected = new Map<string, number>()
  private readonly watchers = new Set<() => void>()

  private constructor(peers: Peer[]) {
    this.peers = peers
    for (const peer of peers)
      peer.onMessage((message) => void this.listOf(message.sender, peer.key).push(Number(message.text())))
    this.sending = peers.flatMap((peer) => Array.from({ length: IN_FLIGHT }, () => this.keepSending(peer)))
  }

  static async start(world: World, peers = 4): Promise<Traffic> {
    const places = await world.enrolMany(peers)
    return new Traffic(await Promise.all(places.map((place) => connect(place))))
  }

  /** Waits for `count` more acks. */
  async flows(count: number): Promise<void> {
    const goal = this.acked + count
    while (this.acked < goal) await new Promise<void>((resolve) => this.watchers.add(resolve))
  }

  get resent(): number {
    return this.peers.reduce((sum, peer) => sum + peer.counters.resent, 0)
  }

  /** Expects that all messages were accepted and handled once, in order. */
  async expectWhole(): Promise<void> {
    this.isOver = true
    await Promise.all(this.sending)
    const count = () => [...this.arrived.values()].reduce((sum, list) => sum + list.length, 0)
    await until('everything arrived', () => count() >= this.acked)
    for (const [pair, sent] of this.expected)
      expect(this.arrived.get(pair), pair).toEqual(Array.from({ length: sent }, (_, n) => n))
    expect(count()).toBe(this.acked)
    for (const { counters } of this.peers) expect(counters.tampered).toBe(0)
  }

  async close(): Promise<void> {
    await Promise.all(this.peers.map((peer) => peer.close()))
  }

  private async keepSending(from: Peer): Promise<void> {
    const others = this.peers.filter((peer) => peer !== from)
    for (let turn = 0; !this.isOver; turn++) {
      await this.send(from, others[turn % others.length]!)
      this.acked += 1
      for (const wake of this.watchers) wake()
      this.watchers.clear()
    }
  }

  private async send(from: Peer, to: Peer): Promise<void> {
    const pair = from.key + to.key
    const n = this.expected.get(pair) ?? 0
    this.expected.set(pair, n + 1)
    await from.send(to.key, String(n))
  }

  private listOf(from: PeerKey, to: PeerKey): number[] {
    const list = this.arrived.get(from + to) ?? []
    this.arrived.set(from + to, list)
    return list
  }
}

test('the broker is killed twice in the middle of a burst, and no acked message is lost, duplicated or reordered', async () => {
  await using world = await World.open()
  const traffic = await Traffic.start(world)
  for (const count of [1600, 2400]) {
    await traffic.flows(count)
    await world.broker.kill()
    await world.restart()
  }
  await traffic.expectWhole()
  expect(traffic.resent).toBeGreaterThan(0)
  await until('the queue is empty', async () => (await world.count('message_queue')) === 0)
  await traffic.close()
})

test('every database connection of the broker is terminated repeatedly under traffic', async () => {
  await using world = await World.open()
  const traffic = await Traffic.start(world)
  const terminated: number[] = []
  for (let round = 1; round <= 8; round++) {
    await traffic.flows(400)
    terminated.push(await terminateBackends(world))
  }
  await traffic.expectWhole()
  expect(Math.min(...terminated)).toBeGreaterThan(0)
  expect(world.broker.isAlive).toBe(true)
  expect(world.broker.log.filter((line) => line.level === 'error')).toEqual([])
  await until('it is ready', async () => (await fetch(`${world.broker.httpUrl}/readyz`)).ok)
  await expectAlive(world)
  await traffic.close()
})

async function terminateBackends(world: World): Promise<number> {
  const rows = await world.db.run(
    (sql) => sql`select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name like 'sealpost %'`,
  )
  return rows.length
}

/** Checks that every pool works again. */
async function expectAlive(world: World): Promise<void> {
  const [from, place] = [await WireClient.enter(await world.enrol()), await world.enrol()]
  for (let i = 0; i < 6; i++) {
    from.send(sendFrame(envelopeTo(place)))
    await from.next('ack')
    const recipient = await WireClient.enter(place)
    const [delivery] = await recipient.deliveries(1)
    recipient.send({ type: 'settle', ids: [delivery!.id] })
    await until('it is settled', async () => (await world.count('message_queue')) === 0)
    recipient.destroy()
  }
  from.destroy()
}

test.concurrent('Postgres is killed and restarted: the broker waits and then continues', async () => {
  await using postgres = await ownPostgres()
  await using world = await World.open({}, { url: postgres.url, drop: async () => {} })
  const traffic = await Traffic.start(world)
  await traffic.flows(1600)
  await postgres.kill()
  await until('it is not ready', async () => (await fetch(`${world.broker.httpUrl}/readyz`)).status === 503)
  expect(await (await fetch(`${world.broker.httpUrl}/livez`)).text()).toBe('ok')
  await expectTryLater(world)
  await postgres.start()
  await traffic.expectWhole()
  expect(world.broker.log.filter((line) => line.level === 'error')).toEqual([])
  await expectAlive(world)
  await traffic.close()
})

/** Checks that a new client is asked to retry during the outage. */
async function expectTryLater(world: World): Promise<void> {
  const client = await WireClient.open(world.broker.url)
  client.send(authFrame(world.place(generateIdentity()), await client.next('hello')))
  expect(await client.closed).toEqual({ code: 1013, reason: 'try_later' })
}

async function ownPostgres() {
  const dataDir = await temporaryFolder()
  let server = await startEmbedded({ dataDir })
  const { port, url } = server
  return {
    url,
    kill: () => server.kill(),
    start: async () => {
      server = await startEmbedded({ dataDir, port })
    },
    [Symbol.asyncDispose]: async () => {
      await server.stop()
      await rm(dataDir, { recursive: true, force: true })
    },
  }
}

test('SIGTERM under traffic ends cleanly with a reconnect hint, and no acked message is lost', async () => {
  await using world = await World.open()
  const watcher = await WireClient.enter(await world.enrol())
  const unproven = await WireClient.open(world.broker.url)
  const traffic = await Traffic.start(world)
  await traffic.flows(2400)
  world.broker.signal('SIGTERM')
  expect((await watcher.next('goaway')).retryAfterMs).toBeGreaterThan(0)
  const refused = await watcher.next('refused')
  expect(refused.code).toBe('restarting')
  expect(refused.retryAfterMs).toBeGreaterThan(0)
  expect(await watcher.closed).toEqual({ code: 1012, reason: 'restarting' })
  expect((await unproven.closed).code).toBe(1012)
  expect((await world.broker.exited).code).toBe(0)
  expect(world.broker.log.at(-1)?.event).toBe('broker.stopped')
  await world.restart()
  await traffic.expectWhole()
  await traffic.close()
})

test.concurrent('a stopping broker is alive but not ready, and refuses new sessions', async () => {
  await using world = await World.open()
  const { sender, release } = await holdSettlement(world)
  world.broker.signal('SIGTERM')
  const refusal = await until('the broker refuses new connections', async () => {
    const answer = await fetch(`${world.broker.httpUrl}/v1/ws`)
    return answer.status === 503 ? answer : null
  })
  expect(refusal.headers.get('retry-after')).toBe('1')
  expect((await fetch(`${world.broker.httpUrl}/livez`)).status).toBe(200)
  expect((await fetch(`${world.broker.httpUrl}/readyz`)).status).toBe(503)
  sender.send(sendFrame(envelopeTo(sender.place)))
  expect((await sender.next('nack')).items[0]!.code).toBe('busy')
  await release()
  expect((await world.broker.exited).code).toBe(0)
  expect(await world.count('message_queue')).toBe(0)
})

test.concurrent('a second signal ends the broker at once', async () => {
  await using world = await World.open()
  const { release } = await holdSettlement(world)
  world.broker.signal('SIGTERM')
  await until('it is stopping', () => world.broker.log.some((line) => line.event === 'broker.stopping'))
  world.broker.signal('SIGINT')
  expect((await world.broker.exited).code).toBe(1)
  await release()
})

/** Creates a settle that can't be committed before `release`, so that the shutdown waits. */
async function holdSettlement(world: World) {
  const [place, to] = await world.enrolMany(2)
  const [sender, recipient] = [await WireClient.enter(place), await WireClient.enter(to)]
  sender.send(sendFrame(envelopeTo(to)))
  const [delivery] = await recipient.deliveries(1)
  const holder = await openDatabase(world.databaseUrl, { ...unhurried, connections: 1 })
  const hold = (statements: string) => holder.run((sql) => sql.unsafe(statements).simple())
  await hold('begin; lock table message_queue in access exclusive mode')
  recipient.send({ type: 'settle', ids: [delivery!.id] })
  await recipient.echo()
  const release = async () => {
    await hold('commit')
    await holder.close()
  }
  return { sender: Object.assign(sender, { place }), release }
}

test.concurrent('SIGTERM ends the broker even while the database is unavailable', async () => {
  await using postgres = await ownPostgres()
  await using world = await World.open({}, { url: postgres.url, drop: async () => {} })
  const [sender, to] = [await WireClient.enter(await world.enrol()), await world.enrol()]
  await postgres.kill()
  sender.send(sendFrame(envelopeTo(to)))
  expect((await sender.next('nack')).items[0]!.code).toBe('unavailable')
  world.broker.signal('SIGTERM')
  expect((await world.broker.exited).code).toBe(0)
})
