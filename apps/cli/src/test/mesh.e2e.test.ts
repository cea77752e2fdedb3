/** Tests `sealpost mesh` with movers and servers that are killed at any point. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type EmbeddedPostgres, startEmbedded } from '@sealpost/embedded-pg'
import { type Database, openDatabase } from '@sealpost/pg'
import { unhurried } from '@sealpost/pg/testing'
import { migrate } from '@sealpost/schema'
import { scratchDatabase } from '@sealpost/schema/testing'
import type { MeshId, PeerKey } from '@sealpost/std'
import { addMembers, createMesh } from '@sealpost/store'
import { expect, test } from 'vitest'
import { Machine } from './cli.ts'

const MESH = '1a'.repeat(16) as MeshId
const HELD = 4711
const QUEUED = 500
const MOVE = ['mesh', 'move', MESH, '--to', 'b', '--json'] as const

/** Two cells, a mesh in the first, and an operator's machine. */
class Cells implements AsyncDisposable {
  readonly machine: Machine
  readonly env: Record<string, string>
  readonly #closers: (() => Promise<unknown>)[] = []

  private constructor(machine: Machine) {
    this.machine = machine
    this.env = { CELLS_FILE: join(machine.folder, 'cells.json') }
  }

  static async make(): Promise<Cells> {
    return new Cells(await Machine.make())
  }

  async cell(name: string): Promise<Database & { url: string }> {
    const scratch = await scratchDatabase()
    this.#closers.push(() => scratch.drop())
    return Object.assign(await this.open(scratch.url), { url: scratch.url, name })
  }

  async open(url: string): Promise<Database> {
    const db = await openDatabase(url, { ...unhurried, connections: 2 })
    this.#closers.push(() => db.close())
    return db
  }

  async know(urls: Record<string, string>): Promise<void> {
    const cells = Object.entries(urls).map(([name, databaseUrl]) => ({
      name,
      urls: [`wss://${name}.example`],
      databaseUrl,
    }))
    await writeFile(this.env.CELLS_FILE!, JSON.stringify({ cells }))
  }

  run(...words: readonly string[]) {
    return this.machine.run(words, { env: this.env })
  }

  start(...words: readonly string[]) {
    return this.machine.start(words, this.env)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.machine[Symbol.asyncDispose]()
    for (const close of this.#closers.reverse()) await close()
  }
}

const statement = (db: Database, text: string) => db.run((sql) => sql.unsafe(text).simple())

async function fill(db: Database): Promise<void> {
  await createMesh(db, { meshId: MESH, name: 'home' })
  const bindings = [1, 2].map((n) => ({
    peerKey: n.toString(16).padStart(64, '0') as PeerKey,
    boxKey: new Uint8Array(32),
    boxEpoch: 1,
    notAfterMs: 1_900_000_000_000,
    signature: new Uint8Array(64),
  }))
  const [ann, ben] = await addMembers(db, MESH, bindings)
  await statement(
    db,
    `insert into message_queue (mesh_id, recipient, priority, id, sender, envelope_id, expires_at, envelope)
     select '${MESH}', ${ben}, 1, n, ${ann}, gen_random_uuid(), now() + interval '1 hour', '\\x00' from generate_series(1, ${QUEUED}) n`,
  )
}

/** Holds the process that records this phase, so that a test can kill it. @returns a function that lets it continue */
async function holdAt(db: Database, phase: string): Promise<() => Promise<unknown>> {
  const lock = await openDatabase((db as Database & { url: string }).url, { ...unhurried, connections: 1 })
  await statement(lock, `select pg_advisory_lock(${HELD})`)
  await statement(
    db,
    `create function hold() returns trigger language plpgsql as
       $$ begin perform pg_advisory_xact_lock(${HELD}); return new; end $$;
     create trigger hold before insert or update on mesh_move for each row when (new.phase = '${phase}') execute function hold()`,
  )
  return async () => {
    await statement(db, 'drop function hold() cascade')
    await lock.close()
  }
}

async function countOf(db: Database, from: string): Promise<number> {
  const [row] = await db.run((sql) => sql.unsafe<{ count: number }[]>(`select count(*)::int as count from ${from}`))
  return row!.count
}

async function until(isSo: () => Promise<boolean>): Promise<void> {
  if (!(await isSo())) return until(isSo)
}

const activeIn = (db: Database) => countOf(db, 'mesh where frozen_at is null')
const moversIn = (db: Database) =>
  countOf(db, `pg_stat_activity where datname = current_database() and application_name = 'sealpost mover'`)
const heldIn = (db: Database) => countOf(db, `pg_locks where locktype = 'advisory' and objid = ${HELD} and not granted`)

test('a mover that is killed in any phase is replaced by one that completes the move', async () => {
  await using cells = await Cells.make()
  const [a, b] = [await cells.cell('a'), await cells.cell('b')]
  await cells.know({ a: a.url, b: b.url })
  await fill(a)
  const points = [
    [b, 'copied', 'frozen'],
    [a, 'left', 'copied'],
    [b, 'arrived', 'left'],
    [a, 'done', 'arrived'],
  ] as const
  for (const [db, phase, reached] of points) {
    const release = await holdAt(db, phase)
    const mover = cells.start(...MOVE)
    await until(async () => (await heldIn(db)) > 0)
    mover.child.kill('SIGKILL')
    await mover.ended()
    await until(async () => (await moversIn(a)) + (await moversIn(b)) === 0)
    await release()
    expect((await activeIn(a)) + (await activeIn(b)), phase).toBe(phase === 'done' ? 1 : 0)
    expect(await countOf(a, `mesh_move where phase = '${reached}'`)).toBe(1)
  }
  expect((await cells.run('mesh', 'show', MESH)).stdout).toContain('moving to b: arrived')
  const moved = await cells.run(...MOVE)
  expect(moved).toMatchObject({ code: 0 })
  expect(JSON.parse(moved.stdout)).toMatchObject({ from: 'a', cell: 'b', moved: true, isResumed: true, rows: 512 })
  expect([await activeIn(a), await activeIn(b)]).toEqual([0, 1])
  expect([await countOf(a, 'message_queue'), await countOf(b, 'message_queue')]).toEqual([0, QUEUED])
  expect((await cells.run(...MOVE)).stdout).toContain('"moved":false')
})

test('a move continues after its database restarts, or the mesh stays where it was without it', async () => {
  await using cells = await Cells.make()
  const a = await cells.cell('a')
  await fill(a)
  const dataDir = join(cells.machine.folder, 'b')
  let server: EmbeddedPostgres = await startEmbedded({ dataDir })
  await using _ = { [Symbol.asyncDispose]: () => server.stop() }
  await migrate(server.url)
  await cells.know({ a: a.url, b: server.url })
  const b = Object.assign(await openDatabase(server.url, { ...unhurried, connections: 1 }), { url: server.url })
  await holdAt(b, 'copied')
  const mover = cells.start(...MOVE)
  await until(async () => (await heldIn(b)) > 0)
  await server.kill()
  expect((await mover.ended()).code).toBe(7)
  await b.close()
  expect(await cells.run(...MOVE, '--undo')).toMatchObject({
    code: 0,
    stderr: expect.stringContaining('did not respond'),
  })
  expect(await activeIn(a)).toBe(1)
  server = await startEmbedded({ dataDir, port: server.port })
  await cells.know({ a: a.url, b: server.url })
  const again = await cells.open(server.url)
  await statement(again, 'drop function hold() cascade')
  expect(await cells.run(...MOVE)).toMatchObject({ code: 0 })
  expect([await activeIn(a), await countOf(again, 'message_queue')]).toEqual([0, QUEUED])
})
