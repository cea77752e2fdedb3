/**
 * How far the groups of a mesh have come, as far as this shard knows: so that what is sealed for former members is
 * refused. What it learns of a group, by whichever way, it tells every live session of the mesh.
 */
import type { FrameOf, NackCode } from '@sealpost/protocol'
import { GROUP_EPOCH_LAST, type GroupId } from '@sealpost/std'
import type { Context } from './context.ts'
import type { Asker, SocketId } from './effects.ts'
import type { Mesh } from './roster.ts'
import type { Arrival, LiveSession, RosterRef } from './session.ts'

/** A group's newest statement, whose signature was checked when it came. */
export interface GroupEntry {
  readonly groupId: GroupId
  readonly epoch: number
  readonly statement: Uint8Array
}

/** `null`: there is no such group. */
export type FoundGroups = ReadonlyMap<GroupId, GroupEntry | null>

export interface GroupPage {
  readonly groups: readonly GroupEntry[]
  readonly isLast: boolean
}

/** What became of a statement; the entry when it stands now. */
export type GroupAnswer =
  | { readonly outcome: 'done'; readonly group: GroupEntry }
  | { readonly outcome: Exclude<FrameOf<'groupSet'>['outcome'], 'done'> }

export class Groups {
  private readonly context: Context

  private readonly live: (socket: SocketId) => LiveSession | null

  constructor(context: Context, live: (socket: SocketId) => LiveSession | null) {
    this.context = context
    this.live = live
  }

  set(live: LiveSession, asker: Asker, frame: FrameOf<'setGroup'>): void {
    this.context.effects.setGroup(live.socket, asker, frame)
  }

  list(live: LiveSession, frame: FrameOf<'groups'>): void {
    this.context.effects.listGroups(live.socket, live.mesh.meshId, frame)
  }

  /** What another shard took does not come here by itself: a group that is written to is looked up once in a while. */
  isKnown({ mesh }: LiveSession, { body }: Arrival): boolean {
    return !body?.roster || mesh.isGroupKnown(body.roster.group, this.context.nowMs)
  }

  /**
   * Why something that is sealed for this roster is not taken, of a group that was read. What was never founded is refused
   * like what is over: a broker that has forgotten the end of a group must not take mail for its last members.
   */
  refusalOf({ mesh }: LiveSession, { body }: Arrival): NackCode | null {
    if (!body?.roster) return null
    const epoch = mesh.groupEpoch(body.roster.group)
    if (epoch === 0 || epoch === GROUP_EPOCH_LAST) return 'unknown_group'
    return body.roster.epoch < epoch ? 'stale_roster' : null
  }

  /** Also when the asker left meanwhile: those who know the group hear of it. */
  wasSet(socket: SocketId, { meshId }: Pick<Asker, 'meshId'>, { ref }: FrameOf<'setGroup'>, answer: GroupAnswer): void {
    const live = this.live(socket)
    const mesh = this.context.roster.find(meshId)
    if (live) this.context.send(live, [{ type: 'groupSet', ref, outcome: answer.outcome }])
    if (answer.outcome !== 'done') return
    this.context.effects.hint({ type: 'staleGroup', meshId, group: answer.group.groupId })
    if (mesh) this.learned(mesh, answer.group, live)
  }

  listed(socket: SocketId, { ref }: FrameOf<'groups'>, { groups, isLast }: GroupPage): void {
    const live = this.live(socket)
    if (!live) return
    for (const { groupId, epoch } of groups) live.mesh.groupSeen(groupId, epoch, this.context.nowMs)
    this.context.send(live, [{ type: 'groupList', ref, statements: groups.map(({ statement }) => statement), isLast }])
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

export function rosterOf({
  group,
  rosterEpoch,
}: Pick<FrameOf<'broadcast'>, 'group' | 'rosterEpoch'>): RosterRef | null {
  return group === NO_GROUP ? null : { group, epoch: rosterEpoch }
}
