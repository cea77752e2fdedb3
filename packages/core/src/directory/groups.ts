/**
 * Tracks the epochs of a mesh's groups, to refuse envelopes sealed for former members. Sends every new statement to the
 * mesh's sessions.
 */
import type { FrameOf, NackCode } from '@sealpost/protocol'
import { GROUP_EPOCH_LAST, type GroupId, type MeshId } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { LiveSession, Mesh } from '../model.ts'
import type { MembershipRef } from '../send/send-request.ts'
import type { GroupEntry } from './request-types.ts'

/** `null` means that the group does not exist. */
export type FoundGroups = ReadonlyMap<GroupId, GroupEntry | null>

export class GroupDirectory {
  private readonly context: Context

  constructor(context: Context) {
    this.context = context
  }

  /** Returns whether the group was looked up recently. Shards don't announce changed statements to each other. */
  isKnown({ mesh }: LiveSession, membership: MembershipRef | null): boolean {
    return membership === null || mesh.isGroupKnown(membership.group, this.context.nowMs)
  }

  /**
   * Returns the refusal of a broadcast sealed for this membership, after the group was looked up. An unknown group
   * counts as deleted, because the broker may have forgotten the deletion.
   */
  refusalOf({ mesh }: LiveSession, membership: MembershipRef | null): NackCode | null {
    if (membership === null) return null
    const epoch = mesh.groupEpoch(membership.group)
    if (epoch === 0 || epoch === GROUP_EPOCH_LAST) return 'unknown_group'
    return membership.epoch < epoch ? 'stale_roster' : null
  }

  /** Sends the group's changed statement to the sessions that know the group, except `requester`, who set it. */
  wasSet(meshId: MeshId, group: GroupEntry, requester: LiveSession | null): void {
    this.context.effects.hint({ type: 'staleGroup', meshId, group: group.groupId })
    const mesh = this.context.meshes.find(meshId)
    if (mesh) this.learned(mesh, group, requester)
  }

  listed(meshId: MeshId, groups: readonly GroupEntry[]): void {
    const mesh = this.context.meshes.find(meshId)
    for (const { groupId, epoch } of groups) mesh?.groupSeen(groupId, epoch, this.context.nowMs)
  }

  /** Call once groups were looked up. Sessions are not notified of groups that are new to this shard. */
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
      live?.spaces.doubt(groupId) // the members may have changed
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
