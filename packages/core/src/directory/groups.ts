/**
 * How far the groups of a mesh have come, as far as this shard knows: so that what is sealed for former members is
 * refused. What it learns of a group, by whichever way, it tells every live session of the mesh.
 */
import type { FrameOf, NackCode } from '@sealpost/protocol'
import { GROUP_EPOCH_LAST, type GroupId, type MeshId } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { LiveSession, Mesh } from '../model.ts'
import type { MembershipRef } from '../send/send-request.ts'
import type { GroupEntry } from './request-types.ts'

/** `null`: there is no such group. */
export type FoundGroups = ReadonlyMap<GroupId, GroupEntry | null>

export class GroupDirectory {
  private readonly context: Context

  constructor(context: Context) {
    this.context = context
  }

  /** What another shard took does not come here by itself: a group that is written to is looked up once in a while. */
  isKnown({ mesh }: LiveSession, membership: MembershipRef | null): boolean {
    return membership === null || mesh.isGroupKnown(membership.group, this.context.nowMs)
  }

  /**
   * Why something that is sealed for this roster is not taken, of a group that was read. What was never founded is refused
   * like what is over: a broker that has forgotten the end of a group must not take mail for its last members.
   */
  refusalOf({ mesh }: LiveSession, membership: MembershipRef | null): NackCode | null {
    if (membership === null) return null
    const epoch = mesh.groupEpoch(membership.group)
    if (epoch === 0 || epoch === GROUP_EPOCH_LAST) return 'unknown_group'
    return membership.epoch < epoch ? 'stale_roster' : null
  }

  /** The group changed here: those who know it are sent the statement, except `requester`, who set it. */
  wasSet(meshId: MeshId, group: GroupEntry, requester: LiveSession | null): void {
    this.context.effects.hint({ type: 'staleGroup', meshId, group: group.groupId })
    const mesh = this.context.meshes.find(meshId)
    if (mesh) this.learned(mesh, group, requester)
  }

  listed(meshId: MeshId, groups: readonly GroupEntry[]): void {
    const mesh = this.context.meshes.find(meshId)
    for (const { groupId, epoch } of groups) mesh?.groupSeen(groupId, epoch, this.context.nowMs)
  }

  /** Looked up: what is known here for the first time is no news to those who asked for themselves. */
  found(mesh: Mesh, groups: FoundGroups): void {
    for (const [groupId, group] of groups) {
      const isFirst = mesh.groupEpoch(groupId) === 0
      if (group && !isFirst) this.learned(mesh, group, null)
      else mesh.groupSeen(groupId, group?.epoch ?? 0, this.context.nowMs)
    }
  }

  private learned(mesh: Mesh, { groupId, epoch, statement }: GroupEntry, teller: LiveSession | null): void {
    if (!mesh.groupSeen(groupId, epoch, this.context.nowMs)) return
    for (const { live } of mesh.byNo.values()) {
      live?.spaces.doubt(groupId) // who belongs to it may be another
      if (live && live !== teller)
        this.context.send(live, [{ type: 'groupList', ref: 0, statements: [statement], isLast: true }])
    }
  }
}

const NO_GROUP = '0'.repeat(32)

export function membershipOf({
  group,
  rosterEpoch,
}: Pick<FrameOf<'broadcast'>, 'group' | 'rosterEpoch'>): MembershipRef | null {
  return group === NO_GROUP ? null : { group, epoch: rosterEpoch }
}
