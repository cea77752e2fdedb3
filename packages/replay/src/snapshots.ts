/**
 * Creates snapshots of all values of a space at one time, so that a replay reads a snapshot and few events. Each is
 * built from the previous one and the events since then, in batches that can be resumed and lock only the snapshot's
 * own row.
 */

import type { Database } from '@sealpost/pg'
import type { Micros, SpaceRef } from '@sealpost/std'
import { type Base, literal, microsOf, ofSpace, snapshotStep } from './sql.ts'

export interface SnapshotOptions {
  /** The ratio of events since the last snapshot to entries above which a new one is due. */
  readonly share: number
  /** The minimum number of events since the last snapshot for a new one. */
  readonly eventsMin: number
  readonly batchBytes: number
}

export const defaultSnapshotOptions: SnapshotOptions = { share: 0.5, eventsMin: 10_000, batchBytes: 64 * 2 ** 20 }

export interface SnapshotReport {
  readonly rows: number
  readonly bytes: number
}

interface SnapshotState {
  readonly lastSeq: number
  readonly entries: number
  readonly entryBytes: number
  readonly keptSince: Micros
  readonly keepSeconds: number
  readonly now: Micros
  /** The next snapshot's time, before any event that may be uncommitted. */
  readonly at: Micros
  readonly first: number | null
  readonly doneSeq: number | null
  readonly doneAt: Micros | null
  readonly openSeq: number | null
  readonly openAt: Micros | null
  readonly progress: number
}

const ROWS_MAX = 100_000
/** The number of snapshots per retention period of an unchanged space, so that its days can be dropped. */
const SHARES_OF_KEEP = 8
const DAY: Micros = 86_400e6

export class Snapshots {
  readonly #db: Database
  readonly #options: SnapshotOptions
  /** The timeout of a batch, longer than other statements'. */
  readonly #timeoutMs: number

  constructor(db: Database, options: SnapshotOptions, timeoutMs: number) {
    this.#db = db
    this.#options = options
    this.#timeoutMs = timeoutMs
  }

  /** Creates or completes a snapshot. @returns null if none is due */
  async refresh(space: SpaceRef): Promise<SnapshotReport | null> {
    const standing = await this.#standing(space)
    if (!standing) return null
    const open = openOf(standing)
    if (open) return this.#finish(space, standing, open)
    if (!this.#isDue(standing)) return null
    if (standing.doneSeq === null && standing.first !== 1) return this.#fromEntries(space, standing.at)
    const to = { seq: standing.lastSeq, at: standing.at }
    await this.#begin(space, to)
    return this.#finish(space, standing, { ...to, progress: 0 })
  }

  #isDue({ lastSeq, entries, keptSince, keepSeconds, now, first, doneSeq, doneAt }: SnapshotState): boolean {
    const { share, eventsMin } = this.#options
    if (entries === 0) return false
    if (doneSeq === null && first !== 1) return true // the snapshot precedes the space's history
    if (lastSeq - (doneSeq ?? 0) >= Math.max(eventsMin, entries * share)) return true
    return now - (doneAt ?? keptSince) > Math.max(DAY, (keepSeconds * 1e6) / SHARES_OF_KEEP)
  }

  async #finish(space: SpaceRef, standing: SnapshotState, open: Base & { progress: number }): Promise<SnapshotReport> {
    const { entries, entryBytes } = standing
    const from = await this.#formerOf(space, open)
    const rowBytes = Math.max(1, entryBytes / Math.max(1, entries))
    const rowsMax = Math.max(1, Math.min(ROWS_MAX, Math.floor(this.#options.batchBytes / rowBytes)))
    let { progress } = open
    for (;;) {
      const statement = snapshotStep({ space, from, to: open, progress, rowsMax })
      const [row] = await this.#run<{ rows: number; seq: number; isDone: boolean }>(statement)
      if (!row) return this.#report(space, open) // another shard is creating the snapshot
      if (row.isDone) return this.#report(space, open)
      progress = row.seq
    }
  }

  async #report(space: SpaceRef, { seq, at }: Base): Promise<SnapshotReport> {
    const [row] = await this.#run<SnapshotReport>(
      `select entries as rows, bytes from snapshot
       where ${ofSpace(space)} and seq = ${literal.number(seq)} and at = ${literal.moment(at)}`,
    )
    return row ?? { rows: 0, bytes: 0 }
  }

  /** Returns the newest complete snapshot before this one, which is retained until this one is complete. */
  async #formerOf(space: SpaceRef, { at }: Base): Promise<Base> {
    const [row] = await this.#run<Base>(
      `select seq, ${microsOf('at')} as at from snapshot
       where ${ofSpace(space)} and done_at is not null and at < ${literal.moment(at)} order by at desc limit 1`,
    )
    return row ?? { seq: 0, at: 0 }
  }

  async #begin(space: SpaceRef, { seq, at }: Base): Promise<void> {
    const { meshId, spaceId } = space
    await this.#run(
      `insert into snapshot (mesh_id, space_id, seq, at) values (${literal.uuid(meshId)}, ${literal.uuid(spaceId)},
         ${literal.number(seq)}, ${literal.moment(at)}) on conflict do nothing`,
    )
  }

  /** Copies the current entries as the first snapshot of a space that had entries before its history. */
  async #fromEntries(space: SpaceRef, at: Micros): Promise<SnapshotReport | null> {
    const rows = ofSpace(space)
    const [row] = await this.#run<SnapshotReport>(
      `with place as materialized (select mesh_id, space_id, last_seq as seq, ${literal.moment(at)} as at from space
         where ${rows} and last_seq >= 0 and last_at <= ${literal.moment(at)}
       ), written as (
         insert into snapshot_entry (mesh_id, space_id, snapshot_seq, snapshot_at, key_hash, seq, at, author, entry)
         select e.mesh_id, e.space_id, place.seq, place.at, e.key_hash, e.seq, e.at, e.author, e.entry
         from place cross join lateral (select * from state_entry where ${rows} and not is_deleted order by seq offset 0) e
         returning octet_length(entry) as bytes
       )
       insert into snapshot (mesh_id, space_id, seq, at, entries, bytes, done_at)
       select mesh_id, space_id, seq, at, (select count(*) from written),
         (select coalesce(sum(bytes), 0) from written), clock_timestamp() from place
       on conflict do nothing returning entries as rows, bytes`,
    )
    return row ?? null
  }

  async #standing(space: SpaceRef): Promise<SnapshotState | null> {
    const rows = ofSpace(space)
    const newest = (done: string) =>
      `(select * from snapshot where ${rows} and done_at is ${done} order by at desc limit 1)`
    const [row] = await this.#run<SnapshotState>(
      `select s.last_seq as "lastSeq", s.entries, s.entry_bytes as "entryBytes", s.keep_seconds as "keepSeconds",
         ${microsOf('s.kept_since')} as "keptSince", ${microsOf('clock_timestamp()')} as now,
         ${microsOf("greatest(s.last_at, s.kept_since, clock_timestamp() - interval '1 minute')")} as at,
         (select seq from history_event where ${rows} order by seq limit 1) as first,
         done.seq as "doneSeq", ${microsOf('done.at')} as "doneAt",
         open.seq as "openSeq", ${microsOf('open.at')} as "openAt", coalesce(open.progress, 0) as progress
       from (select * from space where ${rows} and last_seq >= 0 and kept_since is not null) s
         left join lateral ${newest('not null')} done on true left join lateral ${newest('null')} open on true`,
    )
    return row ?? null
  }

  async #run<Row>(statement: string): Promise<Row[]> {
    const answer = await this.#db.run((sql) => sql.unsafe(statement), { timeoutMs: this.#timeoutMs })
    return answer as unknown as Row[]
  }
}

function openOf({ openSeq, openAt, doneAt, progress }: SnapshotState): (Base & { progress: number }) | null {
  // A superseded snapshot is obsolete; its rows are deleted with their partition.
  if (openSeq === null || openAt === null || (doneAt !== null && openAt < doneAt)) return null
  return { seq: openSeq, at: openAt, progress }
}
