/** Groups for clients without a socket: the statement's fields, and the bytes that prove them. */

import { groupFields } from '@sealpost/identity'
import type { Database } from '@sealpost/pg'
import { GROUP_PAGE_MAX } from '@sealpost/protocol'
import { assert, GROUP_EPOCH_LAST, type GroupId, type MeshId, type PeerKey } from '@sealpost/std'
import { findGroups, type GroupRow, listGroups } from '@sealpost/store'
import type { TokenHolder } from '../tokens.ts'

export interface GroupJson {
  readonly group: GroupId
  readonly epoch: number
  readonly owner: PeerKey
  readonly name: string
  readonly members: PeerKey[]
  readonly statement: string
}

export class GroupRosters {
  private readonly db: Database

  constructor(db: Database) {
    this.db = db
  }

  async listOf({ meshId, peerKey }: TokenHolder, after: GroupId): Promise<{ groups: GroupJson[]; isLast: boolean }> {
    const found = await listGroups(this.db, meshId, { after, limit: GROUP_PAGE_MAX + 1, naming: peerKey })
    return { groups: found.slice(0, GROUP_PAGE_MAX).map(groupJson), isLast: found.length <= GROUP_PAGE_MAX }
  }

  async lookup(meshId: MeshId, asked: readonly GroupId[]): Promise<{ groups: GroupJson[]; unknown: GroupId[] }> {
    const groups = (await findGroups(this.db, meshId, [...new Set(asked)])).filter(isGoingOn).map(groupJson)
    const known = new Set(groups.map(({ group }) => group))
    return { groups, unknown: asked.filter((group) => !known.has(group)) }
  }
}

const isGoingOn = ({ epoch }: GroupRow): boolean => epoch < GROUP_EPOCH_LAST

function groupJson({ statement }: GroupRow): GroupJson {
  const group = groupFields(statement)
  assert(group, 'a stored statement was validated when it arrived')
  const { groupId, epoch, owner, name, members } = group
  return { group: groupId, epoch, owner, name, members: [...members], statement: base64url(statement) }
}

const base64url = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64url')
