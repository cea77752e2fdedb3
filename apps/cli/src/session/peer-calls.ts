/** What a command asks of its profile's peer, whichever command holds the session. Everything travels as JSON. */
import type {
  ConsentState,
  ConsentUpdate,
  Device,
  EnvelopeId,
  GroupId,
  InviteId,
  MemberEntry,
  Message,
  Peer,
  PeerKey,
  PoolId,
  PresenceEntry,
  Priority,
  SealpostCode,
  Status,
} from '@sealpost/sdk'
import type { State } from '@sealpost/sdk/state'
import { OperatingError } from '@sealpost/std'
import { type FileOutcome, finishMessage } from '../messages/files.ts'
import { type FileForPrograms, fileForPrograms } from '../messages/incoming-message.ts'

export interface SendParams {
  readonly to: PeerKey
  readonly bodyBase64: string
  readonly priority: Priority
  /** 0: the broker's default. */
  readonly ttlSeconds: number
  /** The reference to a file that was uploaded. */
  readonly attachment?: string
}

export interface RequestParams extends SendParams {
  readonly timeoutMs: number
  /** Ask only a peer that is online. */
  readonly ifOnline: boolean
  /** Where the file of the answer is saved, an absolute path. */
  readonly folder?: string
}

export interface RequestResult {
  readonly envelopeId: EnvelopeId
  readonly sender: PeerKey
  readonly sentAtMs: number
  readonly bodyBase64: string
  /** The other side says that what was asked for failed. */
  readonly isError: boolean
  readonly file: FileForPrograms | null
  /** What became of the file. Unless it was saved, the answer comes again as a message. */
  readonly outcome: FileOutcome
}

/** Everybody, and of those that are online what they say of themselves. */
export interface Directory {
  readonly members: readonly MemberEntry[]
  readonly online: readonly PresenceEntry[]
}

export type Durability = 'fsync' | 'degraded'

export interface SessionFacts {
  readonly durability: Durability
  /** Sends without an answer yet. */
  readonly waiting: number
}

export interface PeerCalls extends GroupCalls, PoolCalls, DeviceCalls {
  /** Resolves when the message is kept in the profile: it leaves now or later, once. */
  enqueue(params: SendParams): Promise<null>
  /** Resolves when the broker has stored it. */
  send(params: SendParams): Promise<{ envelopeId: EnvelopeId; isDuplicate: boolean }>
  /** Resolves when the other peer has settled it. */
  request(params: RequestParams): Promise<RequestResult>
  /** For as long as this session lasts. */
  setStatus(status: Status): Promise<null>
  directory(params: null): Promise<Directory>
  members(params: null): Promise<readonly MemberEntry[]>
  revokeInvite(inviteId: InviteId): Promise<null>
  /** An empty update only asks. */
  consent(update: ConsentUpdate): Promise<ConsentState>
  /** Resolves with the epoch of the new key. */
  rotateBoxKey(params: null): Promise<number>
  /** Resolves with the new identity key; the session is over then. */
  rotateIdentity(params: null): Promise<PeerKey>
  /** Resolves once the broker was reached. */
  sessionFacts(params: null): Promise<SessionFacts>
}

/** With the key file, which only the profile can open. */
export interface Rotations {
  boxKey(): Promise<number>
  identity(): Promise<PeerKey>
}

/** What the profile gives to calls of its peer. */
export interface CallDependencies {
  readonly online: Promise<Durability>
  readonly rotate: Rotations
  readonly withStateOf: WithStateOf
  receiveFile(message: Message, folder: string | undefined): Promise<FileOutcome>
}

export function callsOf(peer: Peer, { online, rotate, withStateOf, receiveFile }: CallDependencies): PeerCalls {
  const post = ({ to, bodyBase64, ...options }: SendParams) =>
    peer.enqueue(to, Buffer.from(bodyBase64, 'base64'), options)
  return {
    enqueue: async (params) => {
      await post(params)
      return null
    },
    send: async (params) => {
      const { receipt } = await post(params)
      const { envelopeId, isDuplicate } = await receipt
      return { envelopeId, isDuplicate }
    },
    request: async ({ to, bodyBase64, folder, ...options }) => {
      const answer = await peer.request(to, Buffer.from(bodyBase64, 'base64'), options)
      const outcome = await receiveFile(answer, folder).catch((error) => {
        answer.retry()
        throw error
      })
      finishMessage(answer, outcome)
      const { envelopeId, sender, sentAtMs, isError, body } = answer
      const file = fileForPrograms(answer, outcome)
      return { envelopeId, sender, sentAtMs, isError, file, outcome, bodyBase64: Buffer.from(body).toString('base64') }
    },
    setStatus: async (status) => {
      peer.setStatus(status)
      return null
    },
    directory: async () => {
      const [members, online] = await Promise.all([peer.members(), onlineOf(peer)])
      return { members, online }
    },
    members: () => peer.members(),
    revokeInvite: async (inviteId) => {
      await peer.revokeInvite(inviteId)
      return null
    },
    consent: (update) => peer.updateConsent(update),
    rotateBoxKey: () => rotate.boxKey(),
    rotateIdentity: () => rotate.identity(),
    ...groupCallsOf(peer, withStateOf),
    ...deviceCallsOf(peer),
    ...poolCallsOf(peer),
    sessionFacts: async () => ({ durability: await online, waiting: peer.pendingCount }),
  }
}

/** This peer itself is among those whom the broker tells of first. */
async function onlineOf(peer: Peer): Promise<PresenceEntry[]> {
  const told = Promise.withResolvers<void>()
  const off = peer.watchPresence(({ peer: key, isOnline }) => {
    if (key === peer.key && isOnline) told.resolve()
  })
  try {
    if (!peer.presence.get(peer.key)?.isOnline) await told.promise
    return [...peer.presence.values()].filter(({ isOnline }) => isOnline)
  } finally {
    off()
  }
}

export interface DeviceInviteParams {
  readonly label: string
  readonly joinByMs: number
}

export interface DeviceCalls {
  inviteDevice(params: DeviceInviteParams): Promise<string>
  /** Of a person; null: of this one. */
  devices(person: PeerKey | null): Promise<readonly Device[]>
  removeDevice(device: PeerKey): Promise<null>
  /** Resolves when the broker has stored it for each device of the person, or refused it. */
  sendToEveryDevice(params: SendParams): Promise<readonly MemberResult[]>
  /** Resolves with the device that has it. */
  sendToFreeDevice(params: SendParams): Promise<PeerKey>
}

export function deviceCallsOf({ users: persons }: Peer): DeviceCalls {
  return {
    inviteDevice: async ({ label, joinByMs }) => persons.inviteDevice(label, { joinByMs }),
    devices: (person) => persons.devices(person ?? undefined),
    removeDevice: async (device) => {
      await persons.removeDevice(device)
      return null
    },
    sendToEveryDevice: async ({ to, bodyBase64, priority, ttlSeconds }) => {
      const { stored } = await persons.send(to, Buffer.from(bodyBase64, 'base64'), { priority, ttlSeconds })
      return (await stored).map(({ peer, error }) => ({ peer, code: error?.code ?? null }))
    },
    sendToFreeDevice: ({ to, bodyBase64, priority, ttlSeconds }) =>
      persons.sendToAvailable(to, Buffer.from(bodyBase64, 'base64'), { priority, ttlSeconds }),
  }
}

/** What a command asks of its profile's peer about groups. Everything travels as JSON. */

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
