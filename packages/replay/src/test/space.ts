/** Provides tests with a space on a real Postgres with a settable clock, and a broker's privileges. */
import { randomBytes } from 'node:crypto'
import { CopyOutPool, type Database, openDatabase, openPipeline, type Pipeline } from '@sealpost/pg'
import { type ScratchDatabase, unhurried } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import { loginsOf } from '@sealpost/schema/testing-roles'
import { type MeshId, type Micros, type PeerKey, type SpaceRef, toHex } from '@sealpost/std'
import { addMembers, createMesh } from '@sealpost/store'
import { findBase, type HistoryBounds, timeRefusal } from '../pages.ts'
import { CopyRowReader } from '../rows.ts'
import { literal, microsOf, ofSpace, REPLAY_SESSION, stateAt } from '../sql.ts'

export const HOUR: Micros = 3_600e6
export const DAY: Micros = 24 * HOUR
/** A day in the past, because only past days can be dropped. */
export const START: Micros = Date.UTC(2026, 0, 1) * 1000

export interface ReadRow {
  readonly seq: number
  readonly kind: number
  readonly value: string
}

export class ReplayWorld {
  readonly owner: Database
  readonly broker: Database
  readonly paging: Pipeline
  readonly copies: CopyOutPool
  readonly #close: () => Promise<void>

  private constructor(
    { owner, broker, paging, copies }: Pick<ReplayWorld, 'owner' | 'broker' | 'paging' | 'copies'>,
    close: () => Promise<void>,
  ) {
    this.owner = owner
    this.broker = broker
    this.paging = paging
    this.copies = copies
    this.#close = close
  }

  static async open(): Promise<ReplayWorld> {
    const scratch = await scratchDatabase()
    const settings = { ...unhurried.settings, search_path: 'testing,pg_catalog,public' }
    const owner = await openDatabase(scratch.url, { ...unhurried, connections: 2, settings })
    await prepareClock(owner)
    const logins = await loginsOf(scratch.url)
    const broker = await openDatabase(logins.broker, { ...unhurried, connections: 3, settings: { ...settings, ...REPLAY_SESSION } }) // biome-ignore format: one thing
    const paging = await openPipeline(logins.broker, { ...unhurried, settings: { ...settings, ...REPLAY_SESSION } })
    const copies = copiesOf(logins.broker)
    return new ReplayWorld({ owner, broker, paging, copies }, async () => {
      await Promise.all([owner.close(), broker.close(), paging.close(), copies.close()])
      await logins.drop()
      await (scratch as ScratchDatabase).drop()
    })
  }

  close(): Promise<void> {
    return this.#close()
  }

  async setClock(at: Micros): Promise<void> {
    await this.owner.run((sql) => sql.unsafe(`update testing.clock set at = ${literal.moment(at)}`))
  }

  async space({ keepSeconds = 1e9, keepBytes = 1e12 } = {}): Promise<SpaceWorld> {
    const meshId = toHex(randomBytes(16)) as MeshId
    await createMesh(this.owner, { meshId, name: 'a mesh' })
    const peerKey = toHex(randomBytes(32)) as PeerKey
    const binding = { peerKey, boxKey: randomBytes(32), boxEpoch: 1, notAfterMs: 1_900_000_000_000, signature: randomBytes(64) } // biome-ignore format: one thing
    const [owner] = await addMembers(this.owner, meshId, [binding])
    await this.owner.run((sql) =>
      sql.unsafe(`insert into space (mesh_id, space_id, owner, epoch, statement, history_for, keeps_messages, keep_seconds, keep_bytes, kept_since)
        values ('${meshId}', '${meshId}', ${owner}, 1, '\\x00', 'all', true, ${keepSeconds}, ${keepBytes}, testing.clock_timestamp())`),
    )
    return new SpaceWorld(this, { meshId, spaceId: meshId }, owner!)
  }
}

async function prepareClock(owner: Database): Promise<void> {
  for (const statement of [
    'create schema testing',
    `create table testing.clock as select ${literal.moment(START)} as at`,
    'create function testing.clock_timestamp() returns timestamptz language sql stable as $$ select at from testing.clock $$',
    'grant usage on schema testing to public',
    'grant select on testing.clock to public',
  ])
    await owner.run((sql) => sql.unsafe(statement))
}

export const copiesOf = (url: string, statementTimeoutMs = 60_000): CopyOutPool =>
  new CopyOutPool(url, { applicationName: 'a replay', settings: REPLAY_SESSION, statementTimeoutMs, idleMax: 2 })

export class SpaceWorld {
  readonly ref: SpaceRef
  readonly #world: ReplayWorld
  readonly #author: number

  constructor(world: ReplayWorld, ref: SpaceRef, author: number) {
    this.#world = world
    this.ref = ref
    this.#author = author
  }

  async write({
    kind,
    key,
    value,
  }: {
    kind: 1 | 2 | 3
    key: string
    value: string
  }): Promise<{ seq: number; at: Micros }> {
    const hash = kind === 3 ? 'null' : `sha256('${key}')`
    const isEntry = kind !== 3
    const { meshId, spaceId } = this.ref
    const ids = `'${meshId}'::uuid, '${spaceId}'::uuid`
    const [row] = await this.#world.owner.run((sql) =>
      sql.unsafe<{ seq: number; at: Micros }[]>(`
        with turn as (
          update space set last_seq = last_seq + 1,
            last_at = greatest(clock_timestamp(), last_at + interval '1 microsecond'),
            history_bytes = history_bytes + ${value.length},
            entries = entries + (select count(*)::int from (select) x where ${isEntry} and not exists (
              select from state_entry where ${ofSpace(this.ref)} and key_hash = ${hash}))
          where ${ofSpace(this.ref)} returning last_seq, last_at
        ), event as (
          insert into history_event (mesh_id, space_id, seq, at, kind, key_hash, former_seq, author, record, body)
          select ${ids}, last_seq, last_at, ${kind}, ${hash},
            (select seq from state_entry where ${ofSpace(this.ref)} and key_hash = ${hash}), ${this.#author}, '${value}'::bytea, ${isEntry ? 'null' : `'body of ${value}'::bytea`} from turn
        ), entry as (
          insert into state_entry (mesh_id, space_id, key_hash, revision, seq, at, author, is_deleted, entry, hash)
          select ${ids}, ${hash}, 1, last_seq, last_at, ${this.#author}, ${kind === 2}, '${value}'::bytea, sha256('${value}')
          from turn where ${isEntry}
          on conflict (mesh_id, space_id, key_hash) do update set revision = state_entry.revision + 1,
            seq = excluded.seq, at = excluded.at, is_deleted = excluded.is_deleted, entry = excluded.entry
        )
        select last_seq as seq, round(date_part('epoch', last_at) * 1000000)::bigint as at from turn`),
    )
    return row!
  }

  /** Returns the rows of a replay, or its refusal. */
  async stateAt(at: Micros, after = 0): Promise<ReadRow[] | string> {
    const { broker, copies } = this.#world
    const facts = (await findSpace(broker, this.ref))!
    const refused = timeRefusal(facts, at)
    if (refused) return refused
    const base = await findBase(broker, this.ref, at)
    if (!base) return 'before_horizon'
    return readAll(copies, stateAt({ space: this.ref, at, after, base }))
  }
}

/** Reads the facts about a space that a broker loads for each request. */
export async function findSpace(db: Database, space: SpaceRef): Promise<HistoryBounds | null> {
  const [row] = await db.run(
    (sql) => sql<HistoryBounds[]>`
      select ${sql.unsafe(microsOf('clock_timestamp()'))} as now,
        case when last_seq < 0 then -1 - last_seq else last_seq end as "lastSeq",
        ${sql.unsafe(microsOf('kept_since'))} as "keptSince", keep_seconds as "keepSeconds"
      from space where ${sql.unsafe(ofSpace(space))}`,
  )
  return row ?? null
}

export async function readAll(copies: CopyOutPool, query: string): Promise<ReadRow[]> {
  const reader = new CopyRowReader()
  const rows: ReadRow[] = []
  for await (const bytes of copies.read(`copy (${query}) to stdout (format binary)`))
    reader.take(bytes, ({ seq, kind, value }) => rows.push({ seq, kind, value: value.toString() }))
  if (!reader.isAtEnd) throw new Error('the answer was cut')
  return rows
}
