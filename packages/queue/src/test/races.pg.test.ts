/**
 * Tests races between two shards that store the same envelopes, as after a takeover, while the recipient's shard leases
 * on insert.
 */
import type { Append, AppendOutcome, Claimed, Committed } from '@sealpost/protocol'
import { OperatingError, seededRandom } from '@sealpost/std'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { PostgresQueue } from '../postgres/postgres-queue.ts'
import type { ShardMemory } from '../postgres/shard-memory.ts'
import type { Queue } from '../queue.ts'
import { SETTLE } from '../sql/sql.ts'
import { Crew } from './conformance-pools.ts'
import { HERE, MESH, peerKeyOf, Stage, suiteOptions, THERE, textOf } from './conformance-world.ts'
import { type PostgresWorlds, postgresWorlds, untilBlocked } from './postgres-world.ts'

const ROUNDS = 150
const SEED = 20_261_121
const PATIENCE = { timeout: 20_000, interval: 10 }

let worlds: PostgresWorlds
beforeAll(async () => {
  worlds = await postgresWorlds()
})
afterAll(() => worlds.close())

test(`envelopes stored by two shards at once are stored once and delivered in order (seed ${SEED})`, async () => {
  const stage = await Stage.open(await worlds.next())
  const random = seededRandom(SEED)
  const here = new PostgresQueue(worlds.databases, HERE, suiteOptions)
  const there = new PostgresQueue({ ...worlds.databases, writing: worlds.rivalWriting }, THERE, suiteOptions)
  const session = await stage.openBob(here)
  const insertLeaseEpoch = session.epoch
  const delivered: string[] = []
  let sent = 0
  let races = 0
  for (let round = 0; round < ROUNDS; round++) {
    const appends = Array.from({ length: 1 + random.below(4) }, () => {
      sent += 1
      return stage.append(String(sent), random.chance(0.8) ? { insertLeaseEpoch: insertLeaseEpoch } : {})
    })
    const late = appends
      .slice(0, 1 + random.below(appends.length))
      .map((append) => ({ ...append, insertLeaseEpoch: 0 }))
    const isRace = random.chance(0.7)
    const rival = () => (isRace ? commitOfSender(there, late) : null)
    // Alternate, because on some machines the first commit would always win.
    const early = round % 2 === 0 ? rival() : null
    const [mine, theirs] = await Promise.all([commitOfSender(here, appends), early ?? rival()])
    if (theirs?.outcomes.some((outcome) => outcome.status === 'stored')) races += 1
    mine.outcomes.forEach((outcome, i) => {
      if (outcome.status === 'stored' && outcome.isLeased) delivered.push(textOf(appends[i]!.envelope))
    })
    delivered.push(...(await stage.takeTexts(session, 100, here)))
  }
  expect(delivered).toEqual(Array.from({ length: sent }, (_, i) => String(i + 1)))
  expect(races).toBeGreaterThan(0)
})

test('two shards that open a session and claim for one peer at the same moment deliver nothing twice', async () => {
  const stage = await Stage.open(await worlds.next())
  const here = new PostgresQueue(worlds.databases, HERE, suiteOptions)
  const there = new PostgresQueue({ ...worlds.databases, claiming: worlds.databases.collecting }, THERE, suiteOptions)
  for (let round = 0; round < 40; round++) {
    await stage.storeAll(`${round}a`, `${round}b`)
    const former = await stage.openBob(here)
    const [claimed, epoch] = await Promise.all([stage.claim(former, 1, here), there.open(former)])
    const later = await stage.take({ ...former, epoch: epoch! }, 100, there)
    expect(later.map((delivery) => textOf(delivery.envelope))).toEqual([`${round}a`, `${round}b`])
    expect(await stage.claim(former, 1, here)).toEqual({ status: 'stale' })
    expect(['claimed', 'stale', 'locked']).toContain(claimed.status)
    await stage.commit(
      [],
      later.map(({ id, priority }) => ({ meshId: MESH, recipient: stage.bob, priority, id })),
    )
  }
})

test('a lease on insert that waited for another shard sees the deliveries of that shard', async () => {
  const stage = await Stage.open(await worlds.next())
  const { epoch } = await stage.openBob()
  const [older, newer] = [stage.append('older'), stage.append('newer', { insertLeaseEpoch: epoch })]
  const own = (statement: string) => worlds.admin.run((sql) => sql.unsafe(statement).simple())
  await own('begin')
  await own(`update sender_mark set last_envelope_id = '${older.envelopeId}' where sender = ${stage.ann}`)
  await own(`insert into message_queue (mesh_id, recipient, priority, id, sender, envelope_id, expires_at, envelope)
    values ('${MESH}', ${stage.bob}, 1, 5, ${stage.ann}, '${older.envelopeId}', now() + interval '1 hour', '\\x00')`)
  const committing = stage.store(newer)
  await untilBlocked(worlds)
  await own('commit')
  expect(await committing).toMatchObject([{ status: 'stored', isLeased: false }])
})

test('an append in doubt blocks neither the other appends of its commit nor the settles', async () => {
  const stage = await Stage.open(await worlds.next())
  const session = await stage.openBob()
  await stage.openFor(peerKeyOf(3))
  await stage.storeAll('settled')
  const [settled] = await stage.take(session)
  const { epoch } = session
  const older = stage.append('older')
  const own = (statement: string) => worlds.admin.run((sql) => sql.unsafe(statement).simple())
  await own(`update sender_mark set last_envelope_id = '${older.envelopeId}' where sender = ${stage.ann}`)
  await own(`insert into message_queue (mesh_id, recipient, priority, id, sender, envelope_id, expires_at, envelope)
    values ('${MESH}', ${stage.bob}, 1, 5, ${stage.ann}, '${older.envelopeId}', now() + interval '1 hour', '\\x00')`)
  const appends = [
    stage.append('in doubt', { insertLeaseEpoch: epoch }),
    stage.append('certain', { sender: stage.cat, insertLeaseEpoch: epoch }),
  ]
  const settles = [{ meshId: MESH, recipient: stage.bob, priority: settled!.priority, id: settled!.id }]
  const { outcomes } = await stage.here.commit({ appends, settles })
  expect(outcomes).toMatchObject([
    { status: 'stored', isLeased: false },
    { status: 'stored', isLeased: true },
  ])
  const rows = await worlds.admin.run(
    (sql) => sql<{ sender: number; lease: number | null }[]>`
      select sender, lease_epoch as lease from message_queue where recipient = ${stage.bob} order by sender, id`,
  )
  expect([...rows]).toEqual([
    { sender: stage.ann, lease: null },
    { sender: stage.ann, lease: null },
    { sender: stage.cat, lease: epoch },
  ])
})

test('H95: a shard with a wrong clock uses the clock of the database', async () => {
  const stage = await Stage.open(await worlds.next())
  const session = await stage.openBob()
  const { clock } = Reflect.get(stage.here, 'memory') as ShardMemory
  clock.set(clock.nowMs - 3_600_000)
  await stage.store(stage.append('half an hour', { ttlSeconds: 1800 }))
  expect(await stage.takeTexts(session)).toEqual(['half an hour'])
  expect(await stage.store(stage.append('again', { insertLeaseEpoch: session.epoch }))).toMatchObject([
    { isLeased: true },
  ])
})

test('two queues of one process do not mix up their rows', async () => {
  const stage = await Stage.open(await worlds.next())
  await stage.openBob()
  const other = new PostgresQueue(worlds.databases, THERE, suiteOptions)
  await stage.openFor(peerKeyOf(3), { queue: other })
  await Promise.all([
    stage.here.commit({ appends: [stage.append('of ann')], settles: [] }),
    other.commit({ appends: [stage.append('of cat', { sender: stage.cat })], settles: [] }),
  ])
  expect((await stage.takeTexts(await stage.openBob())).sort()).toEqual(['of ann', 'of cat'])
})

test('of simultaneous openings that read one epoch, one wins', async () => {
  const stage = await Stage.open(await worlds.next())
  const here = new PostgresQueue(worlds.databases, HERE, suiteOptions)
  const there = new PostgresQueue({ ...worlds.databases, asking: worlds.admin }, THERE, suiteOptions)
  const wins = { here: 0, there: 0 }
  for (let round = 0; round < 40 || (Math.min(wins.here, wins.there) === 0 && round < 1_000); round++) {
    const read = await stage.readSession(peerKeyOf(2))
    const openings = round % 2 === 0 ? [here.open(read), there.open(read)] : [there.open(read), here.open(read)]
    const epochs = await Promise.all(openings)
    expect(epochs.filter((epoch) => epoch !== null)).toEqual([read.epoch + 2])
    if ((epochs[0] !== null) === (round % 2 === 0)) wins.here += 1
    else wins.there += 1
  }
  expect(wins.here).toBeGreaterThan(0)
  expect(wins.there).toBeGreaterThan(0)
})

test('a delivery with the maximum number of failed attempts does not fail the statements that include it', async () => {
  const stage = await Stage.open(await worlds.next())
  const here = new PostgresQueue(worlds.databases, HERE, suiteOptions)
  const [outcome] = await stage.storeAll('a')
  const session = await stage.openBob(here)
  await stage.take(session, 1, here)
  await worlds.admin.run((sql) =>
    sql.unsafe(`update message_queue set strikes = 32767, lease_until = clock_timestamp() - interval '1 second'`),
  )
  expect(await stage.takeTexts(session, 1, here)).toEqual(['a'])
  const delivery = stage.refOf(outcome!)
  await here.countFailedAttempt(delivery)
  await here.retry([{ delivery, epoch: session.epoch, afterMs: 0 }])
  expect(await stage.takeTexts(session, 1, here)).toEqual(['a'])
})

/** Resends all envelopes in order after a refusal, as a sender does. */
async function commitOfSender(queue: Queue, appends: readonly Append[]): Promise<Committed> {
  try {
    return await queue.commit({ appends, settles: [] })
  } catch (error) {
    if (!(error instanceof OperatingError) || error.code !== 'commit_raced') throw error
    return commitOfSender(
      queue,
      appends.map((append) => ({ ...append, insertLeaseEpoch: 0 })),
    )
  }
}

test('a claim updates deliveries in the order in which a commit deletes them: by `ctid`', async () => {
  const { admin, databases } = worlds
  const stage = await Stage.open(await worlds.next())
  const session = await stage.openBob()
  const [first, second] = await stage.storeAll('first', 'second')
  await stage.here.countFailedAttempt(stage.refOf(first!)) // moves its `ctid` behind the second delivery's
  const run = (text: string) => admin.run((sql) => sql.unsafe(text).simple())
  const lock = (stored: AppendOutcome, how = '') =>
    run(`select from message_queue where id = ${stage.refOf(stored).id} for update ${how}`)
  await databases.claiming.run((pipe) => pipe.run([{ text: "set lock_timeout = '60s'" }]))
  await run('begin')
  await lock(first!)
  const claiming = stage.takeTexts(session)
  await vi.waitFor(async () => {
    const waiting = await databases.asking.run((sql) => sql`select from pg_locks where not granted`)
    expect(waiting.length).toBeGreaterThan(0)
  }, PATIENCE)
  await expect(lock(second!, 'nowait')).rejects.toMatchObject({ code: 'db_not_executed' })
  await run('rollback')
  expect(await claiming).toEqual(['first', 'second'])
})

/** Delays the former session's settles until the next session's claim has begun. */
async function claimDuringSettle(stage: Stage, settled: readonly AppendOutcome[], limit: number): Promise<Claimed> {
  const { admin } = worlds
  const session = await stage.openBob(stage.there)
  const ids = settled.map((outcome) => stage.refOf(outcome).id)
  await admin.run((sql) => sql.unsafe('begin').simple())
  await admin.run((sql) =>
    sql.unsafe(
      SETTLE.text,
      [[MESH], [stage.bob], [1], [1], [ids.length], ids].map((list) => `{${list.join()}}`),
    ),
  )
  const claiming = stage.claim(session, limit, stage.there)
  await untilBlocked(worlds)
  await admin.run((sql) => sql.unsafe('commit').simple())
  return claiming
}

const claimedTexts = (claimed: Claimed): string[] =>
  claimed.status === 'claimed' ? claimed.deliveries.map(({ envelope }) => textOf(envelope)) : [claimed.status]

test('a claim returns fewer deliveries than it picked if some are settled in the meantime, and reports that more remain', async () => {
  const stage = await Stage.open(await worlds.next())
  const stored = await stage.storeAll(...Array.from({ length: 10 }, (_, i) => String(i)))
  await stage.take(await stage.openBob(), 4)
  const claimed = await claimDuringSettle(stage, stored.slice(0, 3), 6)
  expect(claimedTexts(claimed)).toEqual(['3', '4', '5'])
  expect(claimed).toMatchObject({ hasMore: true })
})

test('a claim whose every pick is settled meanwhile reports that there is more', async () => {
  const stage = await Stage.open(await worlds.next())
  const stored = await stage.storeAll('a', 'b', 'c')
  await stage.take(await stage.openBob(), 2)
  const claimed = await claimDuringSettle(stage, stored.slice(0, 2), 2)
  expect(claimed).toEqual({ status: 'claimed', deliveries: [], hasMore: true })
  expect(await stage.takeTexts(await stage.openBob())).toEqual(['c'])
})

test('a deal whose pick another statement takes reports that there is more', async () => {
  const { admin } = worlds
  const crew = await Crew.gather(await Stage.open(await worlds.next()))
  const [first] = await crew.stage.store(crew.task('first'), crew.task('second'))
  await admin.run((sql) => sql.unsafe('begin').simple())
  await admin.run((sql) => sql.unsafe(`delete from message_queue where id = ${crew.stage.refOf(first!).id}`).simple())
  const dealing = crew.deal([crew.bob])
  await untilBlocked(worlds)
  await admin.run((sql) => sql.unsafe('commit').simple())
  expect(await dealing).toEqual({ status: 'claimed', dealt: [], strangers: [], hasMore: true })
  expect(await crew.texts([crew.bob])).toEqual(['second'])
  expect(await crew.deal([crew.bob])).toMatchObject({ dealt: [], hasMore: false })
})
