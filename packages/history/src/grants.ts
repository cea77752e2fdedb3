/** The keys of spaces, as members seal them for each other: stored until the recipient confirms them. */
import { arrayLiteral, byteaText, type Database } from '@sealpost/pg'
import type { MemberRef, PeerKey, SpaceRef } from '@sealpost/std'
import { meshMoving, type ResultRow, run } from './run.ts'

import { FIND_GRANTS, GRANT_FETCHED, GRANT_USELESS, PUT_GRANTS } from './sql-spaces.ts'

export interface StoredGrant {
  readonly keyEpoch: number
  readonly granter: PeerKey
  readonly box: Uint8Array
}

export interface GrantBatch {
  /** The epoch that its maker believes to stand. */
  readonly expects: number
  /** Of the key in the boxes: the same, or the next one. */
  readonly keyEpoch: number
  /** Those that are no members are passed by. */
  readonly grants: readonly { readonly peer: PeerKey; readonly box: Uint8Array }[]
}

export interface GrantKey extends SpaceRef {
  readonly keyEpoch: number
}

export class Grants {
  readonly #db: Database

  constructor(db: Database) {
    this.#db = db
  }

  /**
   * All of it, or nothing where another epoch stands than `expects`.
   * @returns the epoch that stood before
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

  /** What this peer has not said it has, oldest first. @throws OperatingError */
  async list({ meshId, peer }: MemberRef, { spaceId }: SpaceRef): Promise<StoredGrant[]> {
    const rows = await run<GrantRow>(this.#db, FIND_GRANTS, [meshId, spaceId, peer])
    return rows.map(({ key_epoch, granter, box }) => ({ keyEpoch: key_epoch, granter, box: new Uint8Array(box) }))
  }

  /** It has the key of this epoch, and those before. @throws OperatingError, `mesh_away` while the mesh is moving */
  markFetched(asker: MemberRef, key: GrantKey): Promise<void> {
    return this.#end(asker, key, GRANT_FETCHED)
  }

  /** The recipient can't open this one, so the next check finds it missing. @throws OperatingError as above */
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
