/** Tests the broker's checks of its database, and the privileges that they require. */
import { openDatabase } from '@sealpost/pg'
import { unhurried } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import { connect, type PeerEvent } from '@sealpost/sdk'
import { readDatabaseHealth } from '@sealpost/store'
import { expect, test } from 'vitest'
import { HttpPeer } from '../test/http.ts'
import { until } from '../test/process.ts'
import { envelopeTo } from '../test/wire.ts'
import { World } from '../test/world.ts'

test("a held snapshot appears in the log, in the metrics and in the operator's warnings, and the broker keeps working", async () => {
  const database = await scratchDatabase()
  const holder = await openDatabase(database.url, { ...unhurried, connections: 1 })
  await holder.run((sql) => sql.unsafe('begin isolation level repeatable read; select 1').simple())
  const onlooker = await openDatabase(database.url, { ...unhurried, connections: 1 })
  await expect.poll(async () => (await readDatabaseHealth(onlooker)).snapshotSeconds).toBeGreaterThan(1)
  await onlooker.close()
  await using world = await World.open({ SNAPSHOT_SECONDS_MAX: '1' }, database)
  const readiness = async (base: string) => (await fetch(`${base}/readyz`)).text()
  await expect.poll(() => readiness(world.broker.adminUrl)).toMatch(/^ok\nsnapshot_held: /)
  expect(await readiness(world.broker.httpUrl)).toBe('ok')
  expect(world.broker.log.find(({ event }) => event === 'database.alarm')).toMatchObject({ reason: 'snapshot_held' })
  expect(await world.broker.metric('sealpost_database_snapshot_seconds')).toBeGreaterThan(1)
  await holder.close()
})

test("a crashed move of a mesh appears in the log, in the metrics and in the operator's warnings", async () => {
  const database = await scratchDatabase()
  const db = await openDatabase(database.url, { ...unhurried, connections: 1 })
  await db.run((sql) =>
    sql
      .unsafe(`
        insert into mesh (mesh_id, name, frozen_at) values ('00000000-0000-0000-0000-000000000001', 'stuck', now());
        insert into mesh_move (mesh_id, move_id, side, phase, cell)
          values ('00000000-0000-0000-0000-000000000001', gen_random_uuid(), 'source', 'frozen', 'south');`)
      .simple(),
  )
  await db.close()
  await using world = await World.open({}, database)
  const readiness = async () => (await fetch(`${world.broker.adminUrl}/readyz`)).text()
  await expect.poll(readiness).toMatch(/^ok\nmove_stalled: /)
  expect(world.broker.log.find(({ event }) => event === 'database.alarm')).toMatchObject({ reason: 'move_stalled' })
  expect(await world.broker.metric('sealpost_mesh_moves_stalled')).toBe(1)
})

test('dead letters are deleted after their retention time', async () => {
  const database = await scratchDatabase()
  const db = await openDatabase(database.url, { ...unhurried, connections: 1 })
  await db.run((sql) => sql`insert into mesh values ('00000000-0000-0000-0000-000000000001', 'old')`)
  const die = (id: number, secondsAgo: number) =>
    db.run(
      (sql) => sql`insert into dead_letter (mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id,
          enqueued_at, died_at, reason)
        values ('00000000-0000-0000-0000-000000000001', 1, ${id}, 1, 1, 1, 0, gen_random_uuid(), now(),
          clock_timestamp() - make_interval(secs => ${secondsAgo}), 'expired')`,
    )
  await die(1, 3700)
  await die(2, 3000)
  await db.close()
  await using world = await World.open({ DEAD_LETTER_SECONDS: '3600' }, database)
  await expect.poll(() => world.count('dead_letter')).toBe(1)
})

test('after its database has been replaced, a broker starts a new run in the same process, and peers reconnect', async () => {
  await using world = await World.open()
  const events: PeerEvent[] = []
  const alice = await connect({ ...(await world.enrol()), onEvent: (event) => void events.push(event) })
  const bob = await connect(await world.enrol())
  await alice.send(bob.key, 'before')
  await world.db.run((sql) => sql`update cluster set origin = 'elsewhere'`)
  await until('alice receives restored', () => events.some(({ type }) => type === 'restored'))
  expect(events.find(({ type }) => type === 'restored')).toMatchObject({ resent: 1 })
  await alice.send(bob.key, 'after')
  const logged = world.broker.log.map(({ event }) => event)
  expect(logged.filter((event) => /^database|ready/.test(event))).toEqual([
    'broker.ready',
    'database.moved',
    'database.replaced',
    'broker.ready',
  ])
  expect(world.broker.isAlive).toBe(true)
  expect(await (await fetch(`${world.broker.httpUrl}/readyz`)).text()).toBe('ok')
  await Promise.all([alice.close(), bob.close()])
})

test("with the broker role's privileges, messages flow over sockets and HTTP, at once and delayed", async () => {
  await using world = await World.open()
  const [from, to] = await world.enrolMany(2)
  const [alice, bob] = [await connect(from), await connect(to)]
  const came: string[] = []
  bob.onMessage((message) => void came.push(message.text()))
  await alice.send(bob.key, 'now')
  await alice.send(bob.key, 'later', { notBefore: Date.now() + 100 })
  await expect.poll(() => came).toHaveLength(2)
  await Promise.all([alice.close(), bob.close()])
  const peer = await HttpPeer.enter(to)
  expect((await peer.send(envelopeTo(from))).body.results).toMatchObject([{ status: 'stored' }])
  await peer.revoke()
})
