/** Stores spaces and key grants. Callers have verified all bytes, including signatures. */
import { arrayLiteral, byteaText, type Database } from '@sealpost/pg'
import { type MemberRef, type Micros, OperatingError, type PeerKey, type SpaceId, type SpaceRef } from '@sealpost/std'
import {
  COUNT_MEMBERS,
  FIND_GRANTS,
  FIND_LACKING,
  FIND_SPACE,
  GRANT_FETCHED,
  GRANT_USELESS,
  LIST_MEMBERS,
  PUT_GRANTS,
  PUT_SPACE,
} from './sql-spaces.ts'

export const HISTORY_FOR = ['none', 'joined', 'all'] as const
type HistoryFor = (typeof HISTORY_FOR)[number]

/** The terms of a space, which its owner has signed. */
export interface SpaceDefinition extends SpaceRef {
  readonly epoch: number
  readonly historyFor: HistoryFor
  readonly keepsMessages: boolean
  readonly keepSeconds: number
  readonly keepBytes: number
  readonly statement: Uint8Array
}

export interface Space extends SpaceDefinition {
  readonly now: Micros
  /** The epoch of the newest granted space key; 0 if there is none. */
  readonly keyEpoch: number
  /** The number of the newest event; 0 if there is none. */
  readonly lastSeq: number
  readonly lastAt: Micros | null
  /** When recording began; null without a history. */
  readonly keptSince: Micros | null
  readonly entries: number
  readonly entryBytes: number
  readonly historyBytes: number
  /** The total size of entries and history in the mesh. */
  readonly meshBytes: number
}

type PutSpaceOutcome = 'done' | 'stale' | 'not_owner'

export interface SpaceMember {
  readonly peer: PeerKey
  /** The epoch of the newest key that was granted to the member; 0 if there is none. */
  readonly keyEpoch: number
}

interface GrantNeeds {
  readonly memberCount: number
  /** The number of former members that were granted the newest key. */
  readonly departed: number
  readonly lacking: readonly SpaceMember[]
}

type TextParameter = string | number | boolean
type ResultRow = Record<string, unknown>

export function run<R extends ResultRow>(db: Database, statement: string, parameters: TextParameter[]): Promise<R[]> {
  return db.run((sql) => sql.unsafe<R[]>(statement, parameters, { prepare: true }))
}

export const meshMoving = () =>
  new OperatingError('mesh_away', 'The mesh is moving to another cell, or has moved.', { retryable: true })

export class Spaces {
  readonly #db: Database

  constructor(db: Database) {
    this.#db = db
  }

  /** Returns the space if this peer belongs to it, and null otherwise. @throws OperatingError */
  async find({ meshId, peer }: MemberRef, spaceId: SpaceId): Promise<Space | null> {
    const [row] = await run<SpaceRow>(this.#db, FIND_SPACE, [meshId, spaceId, peer])
    return row ? spaceOf(meshId, row) : null
  }

  /**
   * Replaces older terms. Putting the current terms again returns `done`.
   * @returns `stale` if terms of this epoch or a later one are stored; `not_owner` also if the group does not exist
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

  /** @returns null if another call stored terms concurrently, which only the next attempt sees */
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

/** A space key that one member sealed for another, stored until the recipient confirms it. */
interface StoredGrant {
  readonly keyEpoch: number
  readonly granter: PeerKey
  readonly box: Uint8Array
}

export interface GrantBatch {
  readonly expects: number
  /** The epoch of the key in the box: the current epoch or the next one. */
  readonly keyEpoch: number
  readonly grants: readonly { readonly peer: PeerKey; readonly box: Uint8Array }[]
}

interface GrantKey extends SpaceRef {
  readonly keyEpoch: number
}

export class Grants {
  readonly #db: Database

  constructor(db: Database) {
    this.#db = db
  }

  /**
   * Stores all boxes, or none if the current epoch is not `expects`.
   * @returns the current epoch before the call
   * @throws OperatingError, `mesh_away` while the mesh is moving
   */
  async put({ meshId, peer }: MemberRef, { spaceId }: SpaceRef, order: GrantBatch): Promise<number> {
    const { expects, keyEpoch, grants } = order
    const [row] = await run<{ key_epoch: number }>(this.#db, PUT_GRANTS, [
      meshId,
      spaceId,
      peer,
      expects,
      keyEpoch,
      arrayLiteral(grants.map((grant) => byteaText(grant.peer))),
      arrayLiteral(grants.map(({ box }) => box)),
    ])
    if (!row) throw meshMoving()
    return row.key_epoch
  }

  /** Returns the grants that this peer has not confirmed, oldest first. @throws OperatingError */
  async list({ meshId, peer }: MemberRef, { spaceId }: SpaceRef): Promise<StoredGrant[]> {
    const rows = await run<GrantRow>(this.#db, FIND_GRANTS, [meshId, spaceId, peer])
    return rows.map(({ key_epoch, granter, box }) => ({ keyEpoch: key_epoch, granter, box: new Uint8Array(box) }))
  }

  /** Confirms the keys up to this epoch. @throws OperatingError, `mesh_away` while the mesh is moving */
  markFetched(asker: MemberRef, key: GrantKey): Promise<void> {
    return this.#end(asker, key, GRANT_FETCHED)
  }

  /** Marks this grant as useless to the peer, so that others grant the key again. @throws OperatingError */
  discard(asker: MemberRef, key: GrantKey): Promise<void> {
    return this.#end(asker, key, GRANT_USELESS)
  }

  async #end({ meshId, peer }: MemberRef, { spaceId, keyEpoch }: GrantKey, statement: string): Promise<void> {
    const rows = await run(this.#db, statement, [meshId, spaceId, peer, keyEpoch])
    if (rows.length === 0) throw meshMoving()
  }
}

interface GrantRow extends ResultRow {
  key_epoch: number
  granter: PeerKey
  box: Uint8Array
}
