/** Creates spaces with a long history, each in its own mesh, as if peers had written it. */

import { type Database, DatabaseError, openDatabase } from '@sealpost/pg'
import { type Base, REPLAY_SESSION } from '@sealpost/replay'
import type { SpaceRef } from '@sealpost/std'
import { HttpReader } from './http-peers.ts'
import { type BrokerAddress, enrolMesh, generateMesh, type MeshMembers } from './mesh.ts'

export interface SpaceSize {
  readonly entries: number
  readonly bytes: number
  readonly events: number
}

export interface FilledSpace extends SpaceSize {
  readonly ref: SpaceRef
  readonly mesh: MeshMembers
  /** Access tokens for the whole run, because each peer may request only a few. */
  readonly readers: readonly HttpReader[]
  /** The time of the last event, in microseconds since 1970. */
  readonly at: number
  /** The snapshot from which the state is read, as old as a snapshot becomes. */
  readonly base: Base
}

/** The step between keys, coprime to every number of entries, so that keys change irregularly. */
const STRIDE = 7919
const DAYS = 30
/** SQLSTATEs of concurrent creations: rows in another partition, lock timeout, deadlock, existing partition. */
const TOLERATED = new Set(['23514', '55P03', '40P01', '42P07'])
const TIMEOUT_MS = 1_800_000

export class HistoryFixture {
  readonly db: Database

  private constructor(db: Database) {
    this.db = db
  }

  static async open(url: string): Promise<HistoryFixture> {
    const timeouts = { statementTimeoutMs: TIMEOUT_MS, queryTimeoutMs: TIMEOUT_MS, probeMs: TIMEOUT_MS }
    return new HistoryFixture(
      await openDatabase(url, { connections: 1, settings: { ...REPLAY_SESSION, lock_timeout: 0 }, ...timeouts }),
    )
  }

  close(): Promise<void> {
    return this.db.close()
  }

  /** Creates the last 30 days' partitions, except those that another session uses. */
  async createPartitions(): Promise<void> {
    const days = await this.#run<{ day: string }>(
      `select day::date::text as day from generate_series(current_date - ${DAYS + 1}, current_date + 1, interval '1 day') day`,
    )
    for (const { day } of days)
      await this.#run(`select add_history_day('${day}')`).catch((error) => {
        if (!(error instanceof DatabaseError && TOLERATED.has(error.sqlstate ?? ''))) throw error
      })
  }

  /** Sets all keys in rotation over 30 days. The newest snapshot is just under half a rotation old. */
  async fill(size: SpaceSize, members: number, broker: BrokerAddress): Promise<FilledSpace> {
    const mesh = await generateMesh(members)
    await enrolMesh(this.db, mesh, 'history')
    const { ref, base } = await this.fillSpaceOf(mesh, size)
    await this.#run('vacuum (analyze) space, snapshot, history_event, snapshot_entry') // as autovacuum would have within 30 days
    const [last] = await this.#run<{ at: number }>(
      `select ${micros('last_at')} as at from space where mesh_id = '${ref.meshId}'`,
    )
    const readers = await readersOf(mesh, broker)
    return { ...size, ref, mesh, readers, at: last!.at, base }
  }

  async fillSpaceOf({ meshId }: Pick<MeshMembers, 'meshId'>, size: SpaceSize): Promise<{ ref: SpaceRef; base: Base }> {
    const ref = { meshId, spaceId: meshId }
    await this.#found(ref, size)
    await this.#write(ref, size)
    const base = await this.#snapshot(ref, size)
    await this.#open(ref)
    return { ref, base }
  }

  async checkpoint(): Promise<void> {
    await this.#run('checkpoint')
  }

  /** Deletes the newest snapshot, so that a read must apply more events to the previous one. */
  async deleteNewestSnapshot({ meshId, spaceId }: SpaceRef): Promise<void> {
    const place = `mesh_id = '${meshId}' and space_id = '${spaceId}'`
    await this.#run(`delete from snapshot where ${place} and at = (select max(at) from snapshot where ${place})`)
  }

  /** Lets the broker maintain the space, once all events are inserted. */
  async #open({ meshId, spaceId }: SpaceRef): Promise<void> {
    const place = `mesh_id = '${meshId}' and space_id = '${spaceId}'`
    await this.#run(`update space set kept_since = now() - interval '${DAYS} days' where ${place}`)
  }

  async #found({ meshId, spaceId }: SpaceRef, { entries, bytes, events }: SpaceSize): Promise<void> {
    await this.#run(
      `insert into space (mesh_id, space_id, owner, epoch, statement, history_for, keeps_messages, keep_seconds,
         keep_bytes, kept_since, last_seq, last_at, entries, entry_bytes, history_bytes)
       select '${meshId}', '${spaceId}', min(peer_no), 1, '', 'all', true, ${(DAYS + 10) * 86_400}, 1e15::bigint,
         null, ${events}, now() - interval '1 minute', ${entries}, ${bytes}, ${Math.round((bytes / Math.max(1, entries)) * events)}
       from member where mesh_id = '${meshId}'`,
    )
  }

  async #write({ meshId, spaceId }: SpaceRef, { entries, bytes, events }: SpaceSize): Promise<void> {
    const each = Math.round(bytes / entries)
    await this.#run(
      `insert into history_event (mesh_id, space_id, seq, at, kind, key_hash, former_seq, author, record)
       select s.mesh_id, s.space_id, n, s.last_at - (${events} - n) * (interval '${DAYS} days' - interval '2 minutes') / ${events}, 1,
         sha256(int8send(n * ${STRIDE} % ${entries})), case when n > ${entries} then n - ${entries} end, s.owner, substr(noise, (n % 9000)::int + 1, ${each})
       from space s, generate_series(1, ${events}::bigint) n,
         (select string_agg(sha256(int4send(i)), '') as noise from generate_series(1, ${Math.ceil((each + 9_000) / 32)}) i) x
       where s.mesh_id = '${meshId}' and s.space_id = '${spaceId}' order by n`,
    )
  }

  async #snapshot({ meshId, spaceId }: SpaceRef, { entries, events }: SpaceSize): Promise<Base> {
    const seq = events - Math.floor(entries / 2) + 1 // one more event would make the next snapshot due
    const place = `mesh_id = '${meshId}' and space_id = '${spaceId}'`
    await this.#run(
      `insert into snapshot_entry (mesh_id, space_id, snapshot_seq, snapshot_at, key_hash, seq, at, author, entry)
       select mesh_id, space_id, ${seq}, (select at from history_event where ${place} and seq = ${seq}), key_hash, seq, at, author, record
       from history_event where ${place} and seq > ${seq - entries} and seq <= ${seq} order by seq`,
    )
    await this.#run(
      `insert into snapshot (mesh_id, space_id, seq, at, entries, done_at)
       select mesh_id, space_id, seq, at, ${entries}, now() from history_event where ${place} and seq = ${seq}`,
    )
    const [row] = await this.#run<{ at: number }>(`select ${micros('at')} as at from snapshot where ${place}`)
    return { seq, at: row!.at }
  }

  /** Fills the history with messages, up to the current time. */
  async fillMessages(
    { meshId }: MeshMembers,
    { messages, bytes }: { messages: number; bytes: number },
  ): Promise<SpaceRef> {
    const ref = { meshId, spaceId: meshId }
    await this.#found(ref, { entries: 0, bytes: 0, events: messages })
    await this.#run(
      `insert into history_event (mesh_id, space_id, seq, at, kind, author, record, body)
       select s.mesh_id, s.space_id, n, s.last_at - (${messages} - n) * interval '10 seconds', 3, s.owner, substr(noise, (n % 900)::int + 1, 200),
         substr(noise, (n % 900)::int + 1, ${bytes})
       from space s, generate_series(1, ${messages}::bigint) n,
         (select string_agg(sha256(int4send(i)), '') as noise from generate_series(1, ${Math.ceil((bytes + 1200) / 32)}) i) x
       where s.mesh_id = '${meshId}' order by n`,
    )
    await this.#open(ref)
    await this.#run('analyze space, history_event')
    return ref
  }

  async #run<Row>(statement: string): Promise<Row[]> {
    return (await this.db.run((sql) => sql.unsafe(statement), { timeoutMs: TIMEOUT_MS })) as unknown as Row[]
  }
}

/** Requests an access token per member. @throws OperatingError `no_token` */
export function readersOf({ meshId, secrets }: MeshMembers, { url, brokerKey }: BrokerAddress): Promise<HttpReader[]> {
  return Promise.all(secrets.map((keys) => HttpReader.enter({ url, brokerKey, meshId }, keys)))
}

const micros = (column: string): string => `round(date_part('epoch', ${column}) * 1000000)::bigint`
