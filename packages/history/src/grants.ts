/** The keys of spaces, which members seal for each other: stored until the recipient confirms them. */
import { arrayLiteral, byteaText, type Database } from '@sealpost/pg'
import type { MemberRef, PeerKey, SpaceRef } from '@sealpost/std'
import { meshMoving, type ResultRow, run } from './spaces.ts'

import { FIND_GRANTS, GRANT_FETCHED, GRANT_USELESS, PUT_GRANTS } from './sql-spaces.ts'

export interface StoredGrant {
  readonly keyEpoch: number
  readonly granter: PeerKey
  readonly box: Uint8Array
}

export interface GrantBatch {
  readonly expects: number
  /** The epoch of the key in the boxes: the same, or the next one. */
  readonly keyEpoch: number
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
   * Stores all boxes, or nothing if the current epoch is not `expects`.
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

  /** The peer confirms the keys up to this epoch. @throws OperatingError, `mesh_away` while the mesh is moving */
  markFetched(asker: MemberRef, key: GrantKey): Promise<void> {
    return this.#end(asker, key, GRANT_FETCHED)
  }

  /** The peer can't open this grant, so the next check reports it as missing. @throws OperatingError as above */
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
