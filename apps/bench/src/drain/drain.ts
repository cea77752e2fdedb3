/**
 * Measures the cost of claims and settles in Postgres per 100,000 deliveries, without broker and clients: `bun
 * scripts/drain.ts`, or with `--rows 1000000 --recipients 10`.
 */

import { generateMesh, newMeshId } from '@sealpost/harness/members/mesh'
import { parseArgs, runCommand, terminalColors, wholeNumber } from '@sealpost/harness/programs/command'
import { processFacts } from '@sealpost/harness/programs/machine'
import { openOwnDatabase } from '@sealpost/harness/programs/postgres'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count, tableText } from '@sealpost/harness/report/text'
import { type Database, openDatabase, openPipeline } from '@sealpost/pg'
import { ANY_ID, NO_VIRTUAL_TIMES, type SessionRef, type Settle } from '@sealpost/protocol'
import { defaultQueueOptions } from '@sealpost/queue'
import { PostgresQueue, SESSION } from '@sealpost/queue/postgres'
import { assert, OperatingError, type ShardId } from '@sealpost/std'
import { addMembers, createMesh } from '@sealpost/store'
import { Command } from 'commander'

const command = new Command('drain')
  .description('Measure the cost of claims and settles of waiting deliveries in Postgres.')
  .option('--rows <count>', 'the number of waiting deliveries', wholeNumber(1, 100_000_000), 600_000)
  .option('--recipients <count>', 'the number of their recipients', wholeNumber(1, 100_000_000), 100)
  .option(
    '--floor',
    "claim only deliveries behind the last claimed one: the lower bound of a claim's cost, which a broker can't reach",
  )
  .option('--table <settings>', 'the storage settings of message_queue, such as "fillfactor = 50"')
  .addHelpText('after', '\nSet DATABASE_URL to an empty Postgres database; otherwise an embedded one is started.')

function tableOf(steps: readonly DrainStep[]): string {
  const head = ['up to', 'a second', 'claim µs', 'settle µs', 'blocks read', 'page images', 'WAL MB', 'vacuums']
  const rows = steps.map(({ upTo, perSecond, claimUs, settleUs, blocksRead, pageImages, walBytes, vacuums }) => [
    ...[count(upTo), count(perSecond), claimUs.toFixed(1), settleUs.toFixed(1), count(blocksRead)],
    ...[count(pageImages), count(walBytes / 1e6), count(vacuums)],
  ])
  return `${tableText(head, rows, terminalColors())}\nµs: CPU of the two connections, for each delivery.`
}

interface DrainOptions {
  readonly rows: number
  readonly recipients: number
  readonly floor?: true
  readonly table?: string
}

/** The cost of `STEP` deliveries, or of the rest. */
interface DrainStep {
  readonly upTo: number
  readonly perSecond: number
  readonly claimUs: number
  readonly settleUs: number
  readonly blocksRead: number
  readonly pageImages: number
  readonly walBytes: number
  readonly vacuums: number
}

const STEP = 100_000
/** The number of sessions per statement in a busy drain. */
const WANTS = 16
/** The number of deliveries that a session accepts. */
const LIMIT = 256
const LIMIT_BYTES = 1024 * 1024
/** The size of a 200-byte message's envelope. */
const ENVELOPE_BYTES = 304
const PATIENCE_MS = 600_000

async function measureDrain(options: DrainOptions, teardown: Teardown): Promise<DrainStep[]> {
  const url = await openOwnDatabase(teardown)
  const patience = {
    connections: 1,
    statementTimeoutMs: PATIENCE_MS,
    queryTimeoutMs: PATIENCE_MS,
    probeMs: PATIENCE_MS,
  }
  const admin = await openDatabase(url, patience)
  teardown.add({ end: () => admin.close() })
  const { meshId, peers } = await fill(admin, options)
  const as = (applicationName: string) => ({ ...patience, applicationName, settings: { ...SESSION } })
  const databases = {
    writing: await openPipeline(url, as('drain settles')),
    claiming: await openPipeline(url, as('drain claims')),
    collecting: await openPipeline(url, as('drain collects')),
    asking: await openDatabase(url, as('drain asks')),
  }
  for (const each of Object.values(databases)) teardown.add({ end: () => each.close() })
  const queue = new PostgresQueue(databases, newMeshId() as string as ShardId, defaultQueueOptions)
  const sessions = await Promise.all(
    peers.map(async (peer) => ({ meshId, peer, epoch: (await queue.open({ meshId, peer, epoch: 0 }))! })),
  )
  return drain(queue, sessions, new Meter(admin), options)
}

async function drain(queue: PostgresQueue, sessions: readonly SessionRef[], meter: Meter, { floor }: DrainOptions) {
  const steps: DrainStep[] = []
  const seen = new Map<SessionRef, number>()
  let settles: Settle[] = []
  let settled = 0
  let empty = 0
  await meter.begin()
  for (let turn = 0; empty < sessions.length || settles.length > 0; turn++) {
    const count = Math.min(WANTS, sessions.length)
    const turns = Array.from({ length: count }, (_, i) => sessions[(turn * count + i) % sessions.length]!)
    const wants = turns.map((session) => ({
      session,
      ids: floor ? { ...ANY_ID, from: seen.get(session) ?? 0 } : ANY_ID,
      ...{ limit: LIMIT, limitBytes: LIMIT_BYTES, priorityMax: 2, virtualTimes: NO_VIRTUAL_TIMES, collected: [] },
    }))
    const settling = settles.length > 0 ? queue.commit({ appends: [], settles }) : null
    const [claimed] = await Promise.all([queue.claim(wants), settling])
    settled += settles.length
    settles = []
    for (const [i, answer] of claimed.entries()) {
      assert(answer.status === 'claimed', `a claim was answered ${answer.status}`)
      const { meshId, peer } = turns[i]!
      for (const { id } of answer.deliveries) settles.push({ meshId, recipient: peer, priority: 1, id })
      empty = answer.deliveries.length === 0 ? empty + 1 : 0
      if (answer.deliveries.length > 0) seen.set(turns[i]!, answer.deliveries.at(-1)!.id + 1)
    }
    if (settled >= (steps.at(-1)?.upTo ?? 0) + STEP) steps.push(await meter.step(settled))
  }
  if (settled > (steps.at(-1)?.upTo ?? 0)) steps.push(await meter.step(settled))
  return steps
}

interface Reading extends Record<'blocks_read' | 'images' | 'wal_bytes' | 'vacuums', number> {
  readonly atMs: number
  readonly claimSeconds: number
  readonly settleSeconds: number
}

class Meter {
  readonly #db: Database
  #last!: Reading
  #count = 0

  constructor(db: Database) {
    this.#db = db
  }

  async begin(): Promise<void> {
    this.#last = await this.#read()
  }

  async step(upTo: number): Promise<DrainStep> {
    const [before, now, deliveries] = [this.#last, await this.#read(), upTo - this.#count]
    this.#last = now
    this.#count = upTo
    return {
      upTo,
      perSecond: (deliveries * 1000) / (now.atMs - before.atMs),
      claimUs: ((now.claimSeconds - before.claimSeconds) * 1e6) / deliveries,
      settleUs: ((now.settleSeconds - before.settleSeconds) * 1e6) / deliveries,
      blocksRead: now.blocks_read - before.blocks_read,
      pageImages: now.images - before.images,
      walBytes: now.wal_bytes - before.wal_bytes,
      vacuums: now.vacuums - before.vacuums,
    }
  }

  async #read(): Promise<Reading> {
    const [row] = await this.#db.run((sql) =>
      sql.unsafe<(Omit<Reading, 'atMs'> & { claims: number; settles: number })[]>(
        `select w.wal_fpi::float8 as images, w.wal_bytes::float8 as wal_bytes, d.blks_read::float8 as blocks_read,
           (select autovacuum_count::int from pg_stat_all_tables where relid = 'message_queue'::regclass) as vacuums,
           (select pid from pg_stat_activity where application_name = 'drain claims' and datname = d.datname) as claims,
           (select pid from pg_stat_activity where application_name = 'drain settles' and datname = d.datname) as settles
         from pg_stat_wal w, pg_stat_database d where d.datname = current_database()`,
      ),
    )
    const { claims, settles, ...figures } = row!
    const secondsOf = (pid: number) => processFacts(pid)?.cpuSeconds ?? Number.NaN // unknown if the server is on another machine
    return { ...figures, atMs: performance.now(), claimSeconds: secondsOf(claims), settleSeconds: secondsOf(settles) }
  }
}

async function fill(db: Database, { rows, recipients, table }: DrainOptions) {
  const { meshId, bindings } = await generateMesh(recipients)
  await createMesh(db, { meshId, name: `drain ${meshId}` })
  const peers = await addMembers(db, meshId, bindings)
  const run = (statement: string) => db.run((sql) => sql.unsafe(statement), { timeoutMs: PATIENCE_MS })
  const [waiting] = await run('select 1 from message_queue limit 1')
  if (waiting) throw new OperatingError('not_empty', 'This database contains waiting messages. Use an empty database.')
  if (table) await run(`alter table message_queue set (${table})`)
  await run(
    `insert into message_queue (mesh_id, recipient, priority, id, sender, envelope_id, expires_at, envelope)
     select '${meshId}', (array[${peers.join()}])[1 + abs(hashint4(n)::bigint) % ${recipients}], 1, n, ${peers[0]}, gen_random_uuid(),
       now() + interval '1 day', substr(noise, n % 9000 + 1, ${ENVELOPE_BYTES})
     from generate_series(1, ${rows}) n, (select string_agg(sha256(int4send(i)), '') as noise from generate_series(1, 300) i) x`,
  )
  await run('checkpoint') // after a checkpoint, the first change of a page writes a full-page image
  return { meshId, peers }
}

const options = parseArgs<DrainOptions>(command)
await runCommand(async (teardown) => {
  console.log(tableOf(await measureDrain(options, teardown)))
  return 0
})
