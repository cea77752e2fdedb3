/** What a command asks of its profile's peer about groups. Everything travels as JSON. */
import type { GroupId, Peer, PeerKey, Priority, SealpostCode } from '@sealpost/sdk'
import type { State } from '@sealpost/sdk/state'
import { OperatingError } from '@sealpost/std'
import { changeRoster, factsOf, type RosterChange, type RosterFacts } from './roster-facts.ts'

export type GroupFacts = RosterFacts<GroupId>

export interface GroupChange extends RosterChange {
  readonly group: GroupId
}

export interface GroupSendQuestion {
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
export interface MemberOutcome {
  readonly peer: PeerKey
  readonly code: SealpostCode | null
}

export interface GroupCalls {
  /** Those the peer belongs to or owns. */
  groups(question: null): Promise<readonly GroupFacts[]>
  createGroup(question: { name: string; members: readonly PeerKey[] }): Promise<GroupFacts>
  changeGroup(question: GroupChange): Promise<GroupFacts>
  deleteGroup(question: { group: GroupId }): Promise<null>
  /** Answers when the broker has stored it for each member, or refused it. */
  sendToGroup(question: GroupSendQuestion): Promise<readonly MemberOutcome[]>
}

/** Calls with the open state of a group. */
export type WithStateOf = <T>(group: GroupId, use: (state: State) => Promise<T>) => Promise<T>

export function groupCallsOf({ groups }: Peer, withStateOf: WithStateOf): GroupCalls {
  return {
    groups: async () => (await groups.list()).map(factsOf),
    createGroup: async ({ name, members }) => factsOf(await groups.createGroup(name, members)),
    changeGroup: async ({ group, ...change }) => changeRoster(await groups.find(group), change),
    deleteGroup: async ({ group }) => {
      await (await groups.find(group)).delete()
      return null
    },
    sendToGroup: async ({ group: id, bodyBase64, isKept, ...options }) => {
      const group = await groups.find(id)
      const body = Buffer.from(bodyBase64, 'base64')
      const stored = async (keep?: State) => (await group.send(body, keep ? { ...options, keep } : options)).stored
      const outcomes = await (isKept ? withStateOf(id, stored) : stored())
      return outcomes.map(({ peer, error }) => ({ peer, code: error?.code ?? null }))
    },
  }
}

/**
 * The one of these that a word of the command line means: a name, or an id of 32 hex digits.
 * @throws OperatingError `unknown_group`, `group_ambiguous`
 */
export function groupNamed(groups: readonly GroupFacts[], word: string): GroupFacts {
  const [group, ...others] = groups.filter(({ id, name }) => id === word || name === word)
  if (!group) throw new OperatingError('unknown_group', 'You are in no group of this name or id, and own none.')
  if (others.length === 0) return group
  throw new OperatingError('group_ambiguous', 'Several groups have this name: say its id, which "group list" tells.')
}
