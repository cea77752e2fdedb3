/**
 * A group: a name and a list of members, signed by its owner. Each change is a new statement with a higher epoch. The id
 * is made from the owner's key, so that nobody else's statement can stand for it, whatever a broker hands out. The last
 * statement names nobody and has the highest epoch there is: it ends the group for good.
 *
 * Bytes: as `member-list.ts` has them. Vector: packages/protocol/vectors/group.json.
 */
import { GROUP_EPOCH_LAST, type GroupId, type MeshId, type PeerKey } from '@sealpost/std'
import type { SigningKeys } from '../keys/keys.ts'
import {
  type MemberListFields,
  type MemberListKind,
  memberListFields,
  memberListIdOf,
  newNonce,
  readMemberList,
  signMemberList,
} from './member-list.ts'

/** 1 to 256 members, and none exactly in the statement that ends it. */
export interface GroupFields extends Omit<MemberListFields, 'id'> {
  readonly groupId: GroupId
}

/** A group and the bytes that prove it. */
export interface GroupStatement extends GroupFields {
  readonly bytes: Uint8Array
}

export const GROUP_MEMBERS_MAX = 256
const KIND: MemberListKind = {
  context: 'sealpost-group/1',
  idContext: 'sealpost-group-id/1',
  idBytes: 16,
  membersMax: GROUP_MEMBERS_MAX,
  lastEpoch: GROUP_EPOCH_LAST,
}

/** A new group, at its first epoch. @throws AssertionError unless name and members are as `Group` says */
export function createGroup(
  owner: SigningKeys,
  draft: Pick<GroupFields, 'meshId' | 'name' | 'members'>,
): GroupStatement {
  const nonce = newNonce()
  const groupId = groupIdOf(draft.meshId, owner.publicKey, nonce)
  return signGroup(owner, { ...draft, groupId, owner: owner.publicKey, nonce, epoch: 1 })
}

/** The next epoch of a group, with another name or other members. */
export function changeGroup(
  owner: SigningKeys,
  { bytes: _, ...group }: GroupStatement,
  change: Partial<Pick<GroupFields, 'name' | 'members'>>,
): GroupStatement {
  return signGroup(owner, { ...group, ...change, epoch: group.epoch + 1 })
}

/** The statement that ends a group. */
export function endGroup(owner: SigningKeys, { bytes: _, ...group }: GroupStatement): GroupStatement {
  return signGroup(owner, { ...group, members: [], epoch: GROUP_EPOCH_LAST })
}

export const isGroupEnded = ({ epoch }: Pick<GroupFields, 'epoch'>): boolean => epoch === GROUP_EPOCH_LAST

/** Signs what it is given, members in their order: for test vectors. */
export function signGroup(owner: SigningKeys, { groupId, ...group }: GroupFields): GroupStatement {
  return groupOf(signMemberList(KIND, owner, { ...group, id: groupId }))
}

/** A statement from its bytes; null unless every field is as `Group` says and its owner signed it. Never throws. */
export function readGroup(bytes: Uint8Array): GroupStatement | null {
  const roster = readMemberList(KIND, bytes)
  return roster && groupOf(roster)
}

/** What a statement says whose signature was verified when it came; null unless every field is as `Group` says. */
export function groupFields(bytes: Uint8Array): GroupFields | null {
  const fields = memberListFields(KIND, bytes)
  return fields && groupOf(fields)
}

export const groupIdOf = (meshId: MeshId, owner: PeerKey, nonce: string): GroupId =>
  memberListIdOf(KIND, meshId, owner, nonce) as GroupId

const groupOf = <R extends MemberListFields>({ id, ...roster }: R) => ({ ...roster, groupId: id as GroupId })
