import { byteaText, type Database } from '@sealpost/pg'
import { type MemberRef, type Micros, OperatingError, type PeerKey, type SpaceId, type SpaceRef } from '@sealpost/std'
import { COUNT_MEMBERS, FIND_LACKING, FIND_SPACE, LIST_MEMBERS, PUT_SPACE } from './sql-spaces.ts'

/** The types of spaces. The bytes, including signatures, were verified by the caller. */
export const HISTORY_FOR = ['none', 'joined', 'all'] as const
type HistoryFor = (typeof HISTORY_FOR)[number]

/** The terms that a space's owner has signed. */
export interface SpaceDefinition extends SpaceRef {
  /** Only increases. */
  readonly epoch: number
  readonly historyFor: HistoryFor
  readonly keepsMessages: boolean
  readonly keepSeconds: number
  readonly keepBytes: number
  readonly statement: Uint8Array
}

export interface Space extends SpaceDefinition {
  /** By the database's clock. */
  readonly now: Micros
  /** The newest granted space key; 0: none. */
  readonly keyEpoch: number
  /** The newest event; 0: none. */
  readonly lastSeq: number
  readonly lastAt: Micros | null
  /** The time from which events are recorded; null: none are. */
  readonly keptSince: Micros | null
  /** Including deleted ones. */
  readonly entries: number
  readonly entryBytes: number
  readonly historyBytes: number
  /** Bytes of entries and history in all spaces of the mesh. */
  readonly meshBytes: number
}

type PutSpaceOutcome = 'done' | 'stale' | 'not_owner'

export interface SpaceMember {
  readonly peer: PeerKey
  /** The newest key that was granted to it; 0: none. */
  readonly keyEpoch: number
}

interface GrantNeeds {
  readonly memberCount: number
  /** Peers that were granted the newest key and are no longer members. */
  readonly departed: number
  readonly lacking: readonly SpaceMember[]
}

/** Runs one statement with text parameters; returns its rows as objects. */
type TextParameter = string | number | boolean
export type ResultRow = Record<string, unknown>

export function run<R extends ResultRow>(db: Database, statement: string, parameters: TextParameter[]): Promise<R[]> {
  return db.run((sql) => sql.unsafe<R[]>(statement, parameters, { prepare: true }))
}

export const meshMoving = () =>
  new OperatingError('mesh_away', 'The mesh is on its way to another cell, or lives there.', { retryable: true })

export class Spaces {
  readonly #db: Database

  constructor(db: Database) {
    this.#db = db
  }

  /**
   * Returns the space if this peer belongs to it, and null otherwise.
   * @throws OperatingError
   */
  async find({ meshId, peer }: MemberRef, spaceId: SpaceId): Promise<Space | null> {
    const [row] = await run<SpaceRow>(this.#db, FIND_SPACE, [meshId, spaceId, peer])
    return row ? spaceOf(meshId, row) : null
  }

  /**
   * Replaces older terms; repeating the current ones is `done`.
   * @returns `stale` if terms of this epoch or a later one are stored; `not_owner` also if there is no such group
   * @throws OperatingError, `mesh_away` while the mesh is moving
   */
  async put({ peer }: MemberRef, terms: SpaceDefinition): Promise<PutSpaceOutcome> {
    for (;;) {
      const outcome = await this.#tryPut(peer, terms)
      if (outcome === 'away') throw meshMoving()
      if (outcome) return outcome
    }
  }

  async findGrantNeeds({ meshId, spaceId, keyEpoch }: Space, max: number): Promise<GrantNeeds> {
    const [[counts], lacking] = await Promise.all([
      run<CountRow>(this.#db, COUNT_MEMBERS, [meshId, spaceId, keyEpoch]),
      run<MemberRow>(this.#db, FIND_LACKING, [meshId, spaceId, keyEpoch, max]),
    ])
    return { memberCount: counts!.members, departed: counts!.departed, lacking: lacking.map(memberOf) }
  }

  async members({ meshId, spaceId }: SpaceRef, after: PeerKey, limit: number): Promise<SpaceMember[]> {
    return (await run<MemberRow>(this.#db, LIST_MEMBERS, [meshId, spaceId, byteaText(after), limit])).map(memberOf)
  }

  /**
   * @returns null if other terms were stored concurrently and the statement did not see all of them; the next try does
   */
  async #tryPut(peer: number, terms: SpaceDefinition): Promise<PutOutcome> {
    const { meshId, spaceId, epoch, statement, historyFor, keepsMessages, keepSeconds, keepBytes } = terms
    const ours = [epoch, byteaText(statement), historyFor, keepsMessages, keepSeconds, keepBytes]
    const [row] = await run<{ outcome: PutOutcome }>(this.#db, PUT_SPACE, [meshId, spaceId, peer, ...ours])
    return row!.outcome
  }
}

type PutOutcome = PutSpaceOutcome | 'away' | null

interface SpaceRow extends ResultRow {
  now: number
  space_id: string
  epoch: number
  statement: Uint8Array
  history_for: Space['historyFor']
  keeps_messages: boolean
  keep_seconds: number
  keep_bytes: number
  key_epoch: number
  last_seq: number
  last_at: number | null
  kept_since: number | null
  entries: number
  entry_bytes: number
  history_bytes: number
  mesh_bytes: number
}

interface CountRow extends ResultRow {
  members: number
  departed: number
}

interface MemberRow extends ResultRow {
  peer: PeerKey
  key_epoch: number
}

const memberOf = ({ peer, key_epoch }: MemberRow): SpaceMember => ({ peer, keyEpoch: key_epoch })

function spaceOf(meshId: Space['meshId'], row: SpaceRow): Space {
  return {
    meshId,
    now: Math.round(row.now),
    spaceId: row.space_id.replaceAll('-', '') as SpaceId,
    epoch: row.epoch,
    statement: new Uint8Array(row.statement),
    historyFor: row.history_for,
    keepsMessages: row.keeps_messages,
    keepSeconds: row.keep_seconds,
    keepBytes: row.keep_bytes,
    keyEpoch: row.key_epoch,
    lastSeq: row.last_seq,
    lastAt: row.last_at,
    keptSince: row.kept_since,
    entries: row.entries,
    entryBytes: row.entry_bytes,
    historyBytes: row.history_bytes,
    meshBytes: row.mesh_bytes,
  }
}
