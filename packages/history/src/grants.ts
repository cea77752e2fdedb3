/** The keys of spaces, as members seal them for one another: kept until whoever they are for has said that it has them. */
import { arrayLiteral, byteaText, type Database } from '@sealpost/db'
import type { PeerKey } from '@sealpost/std'
import { meshAway, type Row, run } from './run.ts'
import type { SpaceAsker, SpaceRef } from './space.ts'
import { FIND_GRANTS, GRANT_FETCHED, GRANT_USELESS, PUT_GRANTS } from './sql-spaces.ts'

export interface Grant {
  readonly keyEpoch: number
  readonly granter: PeerKey
  readonly box: Uint8Array
}

export interface GrantOrder {
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
  private readonly db: Database

  constructor(db: Database) {
    this.db = db
  }

  /**
   * All of it, or nothing where another epoch stands than `expects`.
   * @returns the epoch that stood before
   * @throws OperatingError, `mesh_away` while the mesh is moving
   */
  async put({ meshId, peer }: SpaceAsker, { spaceId }: SpaceRef, order: GrantOrder): Promise<number> {
    const { expects, keyEpoch, grants } = order
    const [row] = await run<{ key_epoch: number }>(this.db, PUT_GRANTS, [
      meshId,
      spaceId,
      peer,
      expects,
      keyEpoch,
      arrayLiteral(grants.map((grant) => byteaText(grant.peer))),
      arrayLiteral(grants.map(({ box }) => box)),
    ])
    if (!row) throw meshAway()
    return row.key_epoch
  }

  /** What this peer has not said it has, oldest first. @throws OperatingError */
  async of({ meshId, peer }: SpaceAsker, { spaceId }: SpaceRef): Promise<Grant[]> {
    const rows = await run<GrantRow>(this.db, FIND_GRANTS, [meshId, spaceId, peer])
    return rows.map(({ key_epoch, granter, box }) => ({ keyEpoch: key_epoch, granter, box: new Uint8Array(box) }))
  }

  /** It has the key of this epoch, and those before. @throws OperatingError, `mesh_away` while the mesh is moving */
  fetched(asker: SpaceAsker, key: GrantKey): Promise<void> {
    return this.end(asker, key, GRANT_FETCHED)
  }

  /** It can't open this one: whoever looks next finds it lacking. @throws OperatingError as above */
  useless(asker: SpaceAsker, key: GrantKey): Promise<void> {
    return this.end(asker, key, GRANT_USELESS)
  }

  private async end({ meshId, peer }: SpaceAsker, { spaceId, keyEpoch }: GrantKey, statement: string): Promise<void> {
    const rows = await run(this.db, statement, [meshId, spaceId, peer, keyEpoch])
    if (rows.length === 0) throw meshAway()
  }
}

interface GrantRow extends Row {
  key_epoch: number
  granter: PeerKey
  box: Uint8Array
}
