/**
 * The groups of a mesh. This class checks a statement's signature, in the same queue as those of handshakes; one
 * database statement decides which group statement is current (`packages/store/src/groups/groups.ts`).
 */
import type { FoundGroups, GroupEntry, Replies, Requester, SetGroupReply } from '@sealpost/core'
import { type GroupStatement, groupFields, readGroup } from '@sealpost/identity'
import type { Database } from '@sealpost/pg'
import { type FrameOf, GROUP_PAGE_MAX } from '@sealpost/protocol'
import { type GroupId, isChosenName, type MeshId } from '@sealpost/std'
import { findGroups, type GroupRow, listGroups, putGroup } from '@sealpost/store'
import type { Authenticator } from './authenticator.ts'

export class GroupService {
  private readonly db: Database
  private readonly authenticator: Authenticator

  private readonly perOwnerMax: number

  constructor(db: Database, authenticator: Authenticator, perOwnerMax: number) {
    this.db = db
    this.authenticator = authenticator
    this.perOwnerMax = perOwnerMax
  }

  /** `null`: too many wait. @throws OperatingError */
  async set(requester: Requester, { statement }: FrameOf<'setGroup'>): Promise<SetGroupReply | null> {
    const checked = await this.authenticator.inTurn(() => check(requester, statement))
    if (checked === null || 'outcome' in checked) return checked
    if (!isChosenName(checked.name) && !(await this.isNamedSo(requester, checked))) return { outcome: 'malformed' }
    const group = { groupId: checked.groupId, epoch: checked.epoch, statement: checked.bytes }
    const outcome = await putGroup(this.db, requester, group, this.perOwnerMax)
    return outcome === 'done' ? { outcome, group } : { outcome }
  }

  /** A group keeps a name from before the current rule, so that its owner can still change its members. */
  private async isNamedSo({ meshId }: Requester, { groupId, name }: GroupStatement): Promise<boolean> {
    const [former] = await findGroups(this.db, meshId, [groupId])
    return former !== undefined && groupFields(former.statement)?.name === name
  }

  async list(meshId: MeshId, { after }: FrameOf<'groups'>): Promise<Replies['groups']> {
    const found: GroupRow[] = await listGroups(this.db, meshId, { after, limit: GROUP_PAGE_MAX + 1 })
    return { groups: found.slice(0, GROUP_PAGE_MAX), isLast: found.length <= GROUP_PAGE_MAX }
  }

  async find(meshId: MeshId, groups: readonly GroupId[]): Promise<FoundGroups> {
    const found = new Map<GroupId, GroupEntry | null>(groups.map((groupId) => [groupId, null]))
    if (groups.length === 0) return found
    for (const group of await findGroups(this.db, meshId, groups)) found.set(group.groupId, group)
    return found
  }
}

function check({ meshId, peerKey }: Requester, statement: Uint8Array): GroupStatement | SetGroupReply {
  const group = readGroup(statement)
  if (group?.meshId !== meshId) return { outcome: 'malformed' }
  return group.owner === peerKey ? group : { outcome: 'not_owner' }
}
