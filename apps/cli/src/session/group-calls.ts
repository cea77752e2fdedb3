/** What a command asks of its profile's peer about groups. Everything travels as JSON. */
import type { EnvelopeId, GroupId, Peer, PeerKey, PoolId, Priority, SealpostCode } from '@sealpost/sdk'
import type { State } from '@sealpost/sdk/state'
import { OperatingError } from '@sealpost/std'

export type GroupFacts = MemberListFacts<GroupId>

export interface GroupChange extends MemberListChange {
  readonly group: GroupId
}

export interface GroupSendParams {
  readonly group: GroupId
  readonly bodyBase64: string
  readonly priority: Priority
  /** 0: the broker's default. */
  readonly ttlSeconds: number
  /** In the history of the group. */
  readonly isKept: boolean
  /** The reference to a file that was uploaded. */
  readonly attachment?: string
}

/** `code`: why it is not stored for this member; null: it is. */
export interface MemberResult {
  readonly peer: PeerKey
  readonly code: SealpostCode | null
}

export interface GroupCalls {
  /** Those the peer belongs to or owns. */
  groups(params: null): Promise<readonly GroupFacts[]>
  createGroup(params: { name: string; members: readonly PeerKey[] }): Promise<GroupFacts>
  changeGroup(params: GroupChange): Promise<GroupFacts>
  deleteGroup(params: { group: GroupId }): Promise<null>
  /** Resolves when the broker has stored it for each member, or refused it. */
  sendToGroup(params: GroupSendParams): Promise<readonly MemberResult[]>
}

/** Calls with the open state of a group. */
export type WithStateOf = <T>(group: GroupId, use: (state: State) => Promise<T>) => Promise<T>

export function groupCallsOf({ groups }: Peer, withStateOf: WithStateOf): GroupCalls {
  return {
    groups: async () => (await groups.list()).map(factsOf),
    createGroup: async ({ name, members }) => factsOf(await groups.create(name, members)),
    changeGroup: async ({ group, ...change }) => changeMemberList(await groups.find(group), change),
    deleteGroup: async ({ group }) => {
      await (await groups.find(group)).delete()
      return null
    },
    sendToGroup: async ({ group: id, bodyBase64, isKept, ...options }) => {
      const group = await groups.find(id)
      const body = Buffer.from(bodyBase64, 'base64')
      const stored = async (keep?: State) =>
        (await group.send(body, keep ? { ...options, recordIn: keep } : options)).stored
      const outcomes = await (isKept ? withStateOf(id, stored) : stored())
      return outcomes.map(({ peer, error }) => ({ peer, code: error?.code ?? null }))
    },
  }
}

/**
 * The one of these that a word of the command line means: a name, or an id of 32 hex digits.
 * @throws OperatingError `unknown_group`, `group_ambiguous`
 */
export function findGroup(groups: readonly GroupFacts[], word: string): GroupFacts {
  const [group, ...others] = groups.filter(({ id, name }) => id === word || name === word)
  if (!group) throw new OperatingError('unknown_group', 'You are in no group of this name or id, and own none.')
  if (others.length === 0) return group
  throw new OperatingError('group_ambiguous', 'Several groups have this name: say its id, which "group list" tells.')
}

export type PoolFacts = MemberListFacts<PoolId>

export interface PoolChange extends MemberListChange {
  readonly pool: PoolId
}

export interface PoolSendParams {
  readonly pool: PoolId
  readonly bodyBase64: string
  readonly priority: Priority
  /** 0: the broker's default. */
  readonly ttlSeconds: number
}

export interface PoolCalls {
  /** All of the mesh. */
  pools(params: null): Promise<readonly PoolFacts[]>
  createPool(params: { name: string; members: readonly PeerKey[] }): Promise<PoolFacts>
  changePool(params: PoolChange): Promise<PoolFacts>
  deletePool(params: { pool: PoolId }): Promise<null>
  /** Resolves when the broker has stored it. */
  sendToPool(params: PoolSendParams): Promise<{ envelopeId: EnvelopeId; isDuplicate: boolean }>
}

export function poolCallsOf({ pools }: Peer): PoolCalls {
  return {
    pools: async () => (await pools.list()).map(factsOf),
    createPool: async ({ name, members }) => factsOf(await pools.create(name, members)),
    changePool: async ({ pool, ...change }) => changeMemberList(await pools.find(pool), change),
    deletePool: async ({ pool }) => {
      await (await pools.find(pool)).delete()
      return null
    },
    sendToPool: async ({ pool: id, bodyBase64, priority, ttlSeconds }) => {
      const pool = await pools.find(id)
      const { envelopeId, isDuplicate } = await pool.send(Buffer.from(bodyBase64, 'base64'), { priority, ttlSeconds })
      return { envelopeId, isDuplicate }
    },
  }
}

/**
 * The one of these that a word of the command line means: a name, or an id of 64 hex digits.
 * @throws OperatingError `unknown_pool`, `pool_ambiguous`
 */
export function findPool<P extends Pick<PoolFacts, 'id' | 'name'>>(pools: readonly P[], word: string): P {
  const [pool, ...others] = pools.filter(({ id, name }) => id === word || name === word)
  if (!pool) throw new OperatingError('unknown_pool', 'There is no pool of this name or id in this mesh.')
  if (others.length === 0) return pool
  throw new OperatingError('pool_ambiguous', 'Several pools have this name: say its id, which "pool list" tells.')
}

export interface MemberListFacts<Id extends string> {
  readonly id: Id
  readonly name: string
  readonly epoch: number
  readonly owner: PeerKey
  readonly members: readonly PeerKey[]
}

export const factsOf = <Id extends string>({
  id,
  name,
  epoch,
  owner,
  members,
}: MemberListFacts<Id>): MemberListFacts<Id> => ({
  id,
  name,
  epoch,
  owner,
  members,
})

interface EditableMemberList<Id extends string> extends MemberListFacts<Id> {
  add(...peers: PeerKey[]): Promise<void>
  remove(...peers: PeerKey[]): Promise<void>
}

export interface MemberListChange {
  readonly add: readonly PeerKey[]
  readonly remove: readonly PeerKey[]
}

/** @returns what it is then */
export async function changeMemberList<Id extends string>(
  roster: EditableMemberList<Id>,
  { add, remove }: MemberListChange,
): Promise<MemberListFacts<Id>> {
  if (add.length > 0) await roster.add(...add)
  if (remove.length > 0) await roster.remove(...remove)
  return factsOf(roster)
}
