/** Tests a suspended broker, whose port accepts connections but sends nothing. */
import { connect, type PeerEvent } from '@sealpost/sdk'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { Cluster, placeAt } from './cluster.ts'
import { until } from './process.ts'
import type { World } from './world.ts'

/** The time limit on a busy machine: more than a send's 8 s, less than three heartbeats' 45 s. */
const BUSY_MACHINE_MS = 20_000

let cluster: Cluster
beforeAll(async () => {
  cluster = await Cluster.open(2)
})
afterEach(() => {
  for (const broker of cluster.brokers) broker.signal('SIGCONT')
})
afterAll(() => cluster?.[Symbol.asyncDispose]())

function collect() {
  const events: PeerEvent[] = []
  return { events, onEvent: (event: PeerEvent) => void events.push(event) }
}

const upTo = (count: number) => Array.from({ length: count }, (_, n) => String(n))

test('peers of a suspended broker move to another broker, and their sends and settles do not wait for the suspended broker', async () => {
  const { world, brokers } = cluster
  const home = await cluster.homeOf(world.meshId)
  const other = brokers.find((broker) => broker !== home)!
  const [from, to] = [placeAt(home, await world.enrol()), placeAt(home, await world.enrol())]
  const { events, onEvent } = collect()
  await using sender = await connect({ ...from, onEvent })
  await using recipient = await connect(to)
  const texts: string[] = []
  recipient.onMessage((message) => void texts.push(message.text()))
  await sender.send(recipient.key, '0')
  await until('the first message came', () => texts.length === 1)
  home.signal('SIGSTOP')
  let acked = 1
  for (const text of upTo(20).slice(1)) void sender.send(recipient.key, text).then(() => (acked += 1))
  await until('all were acked by the other broker', () => acked === 20, BUSY_MACHINE_MS)
  await until('all came', () => texts.length === 20, BUSY_MACHINE_MS)
  expect(events).toContainEqual(expect.objectContaining({ type: 'disconnected', code: 'heartbeat_missed' }))
  expect(await other.metric('sealpost_sessions')).toBe(2)
  home.signal('SIGCONT')
  await sender.send(recipient.key, '20')
  await until('it came', () => texts.length === 21)
  expect(texts).toEqual(upTo(21))
})

test('a peer that dials a suspended broker first connects to the next address', async () => {
  const { world, brokers } = cluster
  const home = await cluster.homeOf(world.meshId)
  const other = brokers.find((broker) => broker !== home)!
  home.signal('SIGSTOP')
  const place = await world.enrol()
  const entered = connect({ ...place, url: [home.shardUrl, other.shardUrl] })
  let isIn = false
  void entered.then(() => (isIn = true))
  await until('it is served', () => isIn, BUSY_MACHINE_MS)
  await (await entered).close()
  home.signal('SIGCONT')
})

test('peers wait for a slow database: the broker answers pings in the meantime, and no peer leaves the broker', async () => {
  const { world } = cluster
  const { events, onEvent } = collect()
  const home = await cluster.homeOf(world.meshId)
  await using sender = await connect({ ...placeAt(home, await world.enrol()), onEvent })
  await using recipient = await connect(placeAt(home, await world.enrol()))
  await slowDown(world)
  const receipt = sender.send(recipient.key, 'slowly')
  await until('three commits took too long', () => sender.counters.nacked >= 3)
  await world.db.run((sql) => sql.unsafe('drop trigger slow_down on message_queue'))
  await receipt
  expect(events.filter(({ type }) => type === 'disconnected')).toEqual([])
})

/** Makes statements that store messages slower than a peer waits for a silent broker. */
async function slowDown({ db }: World): Promise<void> {
  await db.run((sql) =>
    sql.unsafe(`
      create function slow_down() returns trigger language plpgsql as 'begin perform pg_sleep(30); return null; end';
      create trigger slow_down before insert on message_queue for each statement execute function slow_down();`),
  )
}
