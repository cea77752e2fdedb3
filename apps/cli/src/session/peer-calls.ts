/** Defines commands' calls to the peer of the profile's own key, in whichever command it is. Values are JSON. */
import type {
  ConsentState,
  ConsentUpdate,
  EnvelopeId,
  GroupId,
  InviteId,
  MemberEntry,
  Message,
  Peer,
  PeerKey,
  PoolId,
  PresenceEntry,
  Status,
} from '@sealpost/sdk'
import { forgetRatchets } from '@sealpost/sdk/forward'
import { groupsOf, type MemberOutcome } from '@sealpost/sdk/groups'
import { poolsOf } from '@sealpost/sdk/pools'
import { prepareSend } from '@sealpost/sdk/prepare'
import { sentLogOf } from '@sealpost/sdk/sent'
import type { State } from '@sealpost/sdk/state'
import { type Device, type SenderUser, usersOf } from '@sealpost/sdk/users'
import { type Millis, OperatingError, toBase64url } from '@sealpost/std'
import { readableName, typedName, unknownName } from '../members/names.ts'
import { type FileOutcome, finishMessage } from '../messages/files.ts'
import { type FileForPrograms, fileForPrograms } from '../messages/incoming-message.ts'
import { type TickCalls, tickCallsOf } from '../schedule/tick-calls.ts'
import type { TickStore } from '../schedule/tick-store.ts'
import { type BulkCalls, bulkCallsOf, type DeviceResult, type MemberResult, type PostParams } from './bulk-calls.ts'
import type { PoolHold, PoolSeats } from './pool-seats.ts'
import { type SendParams, type SentCalls, sentCallsOf } from './sent-calls.ts'

interface ReplyTerms extends PostParams {
  readonly timeoutMs: number
  /** The folder for the reply's file, as an absolute path. */
  readonly folder?: string
  readonly thread?: string
}

interface RequestParams extends ReplyTerms {
  readonly to: PeerKey
  readonly ifOnline: boolean
}

interface GroupRequestParams extends ReplyTerms {
  readonly group: GroupId
}

interface PoolRequestParams extends ReplyTerms {
  readonly pool: PoolId
}

/** `code`: why there is no reply. */
export interface GroupReply extends MemberResult {
  readonly result: RequestResult | null
}

export interface RequestResult {
  readonly envelopeId: EnvelopeId
  readonly sender: PeerKey
  readonly sentAtMs: number
  readonly bodyBase64: string
  readonly isError: boolean
  readonly file: FileForPrograms | null
  /** What happened to the reply's file. Unless it was saved, the reply is redelivered. */
  readonly outcome: FileOutcome
}

/** All members, and presence of those online. */
export interface Directory {
  readonly members: readonly MemberEntry[]
  readonly online: readonly PresenceEntry[]
}

interface PrepareParams extends Omit<SendParams, 'attachment'> {
  readonly validSeconds: number
}

interface PrepareResult {
  readonly envelopeId: EnvelopeId
  /** The request as a literal of the type `bytea`. */
  readonly request: string
  readonly expiresAtMs: number
}

export type Durability = 'fsync' | 'degraded'

interface SessionFacts {
  readonly durability: Durability
  readonly waiting: number
}

export interface PeerCalls extends BulkCalls, TickCalls, GroupCalls, PoolCalls, DeviceCalls, SentCalls {
  /** Resolves when the profile has stored the message, which is then sent exactly once. */
  enqueue(params: SendParams): Promise<null>
  send(params: SendParams): Promise<{ envelopeId: EnvelopeId; isDuplicate: boolean }>
  request(params: RequestParams): Promise<RequestResult>
  /** Seals and signs a message without sending it. */
  prepare(params: PrepareParams): Promise<PrepareResult>
  /** Resolves with the outcome of each member, once all have replied or the time is over. */
  requestGroup(params: GroupRequestParams): Promise<readonly GroupReply[]>
  /** Resolves with the reply of the worker that received the request. */
  requestPool(params: PoolRequestParams): Promise<RequestResult>
  setStatus(status: Status): Promise<null>
  directory(params: null): Promise<Directory>
  members(params: null): Promise<readonly MemberEntry[]>
  revokeInvite(inviteId: InviteId): Promise<null>
  revokeMember(peer: PeerKey): Promise<null>
  /** Changes the consent and returns it. An empty update changes nothing. */
  consent(update: ConsentUpdate): Promise<ConsentState>
  /** Resolves when the member's store has no ratchets with the peer. */
  forgetRatchets(peer: PeerKey): Promise<null>
  /** Resolves with the epoch of the new key. */
  rotateBoxKey(params: null): Promise<number>
  /** Resolves with the new identity key, before the session ends. */
  rotateIdentity(params: null): Promise<PeerKey>
  /** Resolves once the session is connected. */
  sessionFacts(params: null): Promise<SessionFacts>
}

/** The rotations, which change the key file that only the profile can open. */
export interface Rotations {
  boxKey(): Promise<number>
  identity(): Promise<PeerKey>
}

interface CallDependencies {
  readonly online: Promise<Durability>
  readonly rotate: Rotations
  readonly ticks: TickStore
  readonly withStateOf: WithStateOf
  readonly seats: PoolSeats
  setStatus(status: Status): void
  receiveFile(message: Message, folder: string | undefined): Promise<FileOutcome>
}

export function callsOf(peer: Peer, dependencies: CallDependencies): PeerCalls {
  const { online, rotate, ticks, withStateOf, seats, receiveFile } = dependencies
  const finish = (reply: Message, folder: string | undefined) => finishReply(reply, () => receiveFile(reply, folder))
  const post = ({ to, bodyBase64, ...options }: SendParams) =>
    sentLogOf(peer).enqueue(to, Buffer.from(bodyBase64, 'base64'), options)
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
    request: async ({ to, bodyBase64, folder, ...options }) =>
      finish(await peer.request(to, Buffer.from(bodyBase64, 'base64'), options), folder),
    requestGroup: async ({ group, bodyBase64, folder, ...options }) => {
      const { replies } = await (await groupsOf(peer).find(group)).request(Buffer.from(bodyBase64, 'base64'), options)
      return Promise.all(
        (await replies).map(async ({ peer, reply, error }) =>
          reply ? { peer, code: null, result: await finish(reply, folder) } : { peer, code: error.code, result: null },
        ),
      )
    },
    prepare: async ({ to, bodyBase64, ...options }) => {
      const { envelopeId, literal, expiresAtMs } = await prepareSend(
        peer,
        to,
        Buffer.from(bodyBase64, 'base64'),
        options,
      )
      return { envelopeId, request: literal, expiresAtMs }
    },
    requestPool: async ({ pool, bodyBase64, folder, ...options }) =>
      finish(await (await poolsOf(peer).find(pool)).request(Buffer.from(bodyBase64, 'base64'), options), folder),
    setStatus: async (status) => {
      dependencies.setStatus(status)
      return null
    },
    directory: async () => {
      const [members, online] = await Promise.all([membersOf(peer), onlineOf(peer)])
      return { members, online }
    },
    members: () => membersOf(peer),
    revokeInvite: async (inviteId) => {
      await peer.revokeInvite(inviteId)
      return null
    },
    revokeMember: async (member) => {
      await peer.revokeMember(member)
      return null
    },
    consent: (update) => peer.updateConsent(update),
    forgetRatchets: async (other) => {
      await forgetRatchets(peer, other)
      return null
    },
    rotateBoxKey: () => rotate.boxKey(),
    rotateIdentity: () => rotate.identity(),
    ...bulkCallsOf(peer),
    ...tickCallsOf(peer, ticks),
    ...groupCallsOf(peer, withStateOf),
    ...deviceCallsOf(peer),
    ...poolCallsOf(peer, seats),
    ...sentCallsOf(peer),
    sessionFacts: async () => ({ durability: await online, waiting: peer.pendingCount }),
  }
}

/** Saves the file of a reply, if there is one, and settles the reply. */
async function finishReply(reply: Message, receive: () => Promise<FileOutcome>): Promise<RequestResult> {
  const outcome = await receive().catch((error) => {
    reply.retry()
    throw error
  })
  finishMessage(reply, outcome)
  const { envelopeId, sender, sentAtMs, isError, body } = reply
  const file = fileForPrograms(reply, outcome)
  return { envelopeId, sender, sentAtMs, isError, file, outcome, bodyBase64: Buffer.from(body).toString('base64') }
}

/** Returns who is online. The first presence report contains this peer itself. */
async function onlineOf(peer: Peer): Promise<PresenceEntry[]> {
  const told = Promise.withResolvers<void>()
  const off = peer.watchPresence(({ peer: key, isOnline }) => {
    if (key === peer.key && isOnline) told.resolve()
  })
  try {
    if (!peer.presence.get(peer.key)?.isOnline) await told.promise
    return [...peer.presence.values()].filter(({ isOnline }) => isOnline)
  } finally {
    setTimeout(off, WATCHED_FOR_MS).unref()
  }
}

/** The broker repeats no report to a peer that subscribes again within 2 s, so keep the subscription for longer. */
const WATCHED_FOR_MS = 10_000

interface DeviceInviteParams {
  readonly label: string
  readonly joinByMs: number
  readonly root?: PeerKey
  readonly revocations?: number
}

interface DeviceCalls {
  inviteDevice(params: DeviceInviteParams): Promise<string>
  /** Returns the user and the label of each peer, in order. */
  owners(peers: readonly PeerKey[]): Promise<readonly SenderUser[]>
  /** Returns the devices of a user; null means this peer's own user. */
  devices(person: PeerKey | null): Promise<readonly Device[]>
  removeDevice(device: PeerKey): Promise<null>
  /** Resolves when the broker has stored or refused the message for each device. */
  sendToEveryDevice(params: SendParams): Promise<readonly DeviceResult[]>
  /** Resolves with the device that received the message. */
  sendToFreeDevice(params: SendParams): Promise<{ device: PeerKey; envelopeId: EnvelopeId }>
}

function deviceCallsOf(peer: Peer): DeviceCalls {
  const users = usersOf(peer)
  return {
    inviteDevice: async ({ label, ...options }) => users.inviteDevice(label, options),
    owners: (peers) => users.owners(peers),
    devices: (person) => users.devices(person ?? undefined),
    removeDevice: async (device) => {
      await users.removeDevice(device)
      return null
    },
    sendToEveryDevice: async ({ to, bodyBase64, notBefore: _, ...options }) => {
      return (await (await users.send(to, Buffer.from(bodyBase64, 'base64'), options)).stored).map(resultOf)
    },
    sendToFreeDevice: async ({ to, bodyBase64, ...options }) => {
      const { device, receipt } = await users.sendToFree(to, Buffer.from(bodyBase64, 'base64'), options)
      return { device, envelopeId: receipt.envelopeId }
    },
  }
}

const resultOf = ({ peer, receipt, error }: MemberOutcome): DeviceResult => ({
  ...{ peer, envelopeId: receipt?.envelopeId ?? null, code: error?.code ?? null },
})

export type GroupFacts = MemberListFacts<GroupId>

interface GroupChange extends MemberListChange {
  readonly group: GroupId
}

interface GroupSendParams extends PostParams {
  readonly group: GroupId
  /** Whether the group's history records the message. */
  readonly isKept: boolean
}

interface GroupCalls {
  /** Returns the groups that the peer belongs to or owns. */
  groups(params: null): Promise<readonly GroupFacts[]>
  createGroup(params: { name: string; members: readonly PeerKey[] }): Promise<GroupFacts>
  changeGroup(params: GroupChange): Promise<GroupFacts>
  deleteGroup(params: { group: GroupId }): Promise<null>
  /** Resolves when the owner's removal, or the request to the owner, is stored. */
  leaveGroup(params: { group: GroupId }): Promise<null>
  /** Carries out a member's request to leave a group of this peer. Returns whether it was one. */
  takeLeave(request: Pick<Message, 'thread' | 'sender' | 'user'>): Promise<boolean>
  /** Resolves with each member's outcome. */
  sendToGroup(params: GroupSendParams): Promise<readonly DeviceResult[]>
}

type WithStateOf = <T>(group: GroupId, use: (state: State) => Promise<T>) => Promise<T>

function groupCallsOf(peer: Peer, withStateOf: WithStateOf): GroupCalls {
  const groups = groupsOf(peer)
  return {
    groups: async () => (await groups.list()).map(factsOf),
    createGroup: async ({ name, members }) => factsOf(await groups.create(name, members)),
    changeGroup: async ({ group, ...change }) => changeMemberList(await groups.find(group), change),
    deleteGroup: async ({ group }) => {
      await (await groups.find(group)).delete()
      return null
    },
    leaveGroup: async ({ group }) => {
      await (await groups.find(group)).leave()
      return null
    },
    takeLeave: (request) => groups.takeLeave({ ...request, group: null }),
    sendToGroup: async ({ group: id, bodyBase64, isKept, ...options }) => {
      const group = await groups.find(id)
      const body = Buffer.from(bodyBase64, 'base64')
      const stored = async (keep?: State) =>
        (await group.send(body, keep ? { ...options, recordIn: keep } : options)).stored
      return (await (isKept ? withStateOf(id, stored) : stored())).map(resultOf)
    },
  }
}

async function membersOf(peer: Peer): Promise<readonly MemberEntry[]> {
  return (await peer.members()).map((member) => ({ ...member, name: readableName(member.name) }))
}

/** Finds a group by name or id (32 hex digits). @throws OperatingError `unknown_group`, `group_ambiguous` */
export function findGroup(groups: readonly GroupFacts[], word: string): GroupFacts {
  const [group, ...others] = groups.filter(({ id, name }) => id === word || name === typedName(word))
  if (!group)
    throw unknownName('unknown_group', 'There is no group with this name or id that you are a member of or own.', {
      word,
      names: groups.map(({ name }) => name),
    })
  if (others.length === 0) return group
  throw new OperatingError(
    'group_ambiguous',
    'Several groups have this name. Use the id of the group, from "group list".',
  )
}

export type PoolFacts = MemberListFacts<PoolId>

interface PoolChange extends MemberListChange {
  readonly pool: PoolId
}

interface PoolSendParams extends PostParams {
  readonly pool: PoolId
  /** When the broker delivers the message. */
  readonly notBefore?: Millis
}

interface PoolCalls {
  /** Returns all pools of the mesh. */
  pools(params: null): Promise<readonly PoolFacts[]>
  /** Returns the statements of all pools, in base64url. */
  poolStatements(params: null): Promise<readonly string[]>
  createPool(params: { name: string; members: readonly PeerKey[] }): Promise<PoolFacts>
  changePool(params: PoolChange): Promise<PoolFacts>
  deletePool(params: { pool: PoolId }): Promise<null>
  /** Joins the pool for the commands that hold it. */
  joinPool(params: PoolHold): Promise<null>
  /** Stays in the pool until the caller is `gone`. Rejects when this process stops to serve calls. */
  holdPool(params: PoolHold, gone?: AbortSignal): Promise<null>
  /** Resolves when the broker has stored the message. */
  sendToPool(params: PoolSendParams): Promise<{ envelopeId: EnvelopeId; isDuplicate: boolean }>
}

function poolCallsOf(peer: Peer, seats: PoolSeats): PoolCalls {
  const pools = poolsOf(peer)
  return {
    pools: async () => (await pools.list()).map(factsOf),
    poolStatements: async () => (await pools.list()).map(({ statement }) => toBase64url(statement)),
    createPool: async ({ name, members }) => factsOf(await pools.create(name, members)),
    changePool: async ({ pool, ...change }) => changeMemberList(await pools.find(pool), change),
    deletePool: async ({ pool }) => {
      await (await pools.find(pool)).delete()
      return null
    },
    joinPool: async (hold) => {
      await seats.join(hold)
      return null
    },
    holdPool: async (hold, gone = new AbortController().signal) => {
      await seats.hold(hold, gone)
      return null
    },
    sendToPool: async ({ pool: id, bodyBase64, ...options }) => {
      const pool = await pools.find(id)
      const { envelopeId, isDuplicate } = await pool.send(Buffer.from(bodyBase64, 'base64'), options)
      return { envelopeId, isDuplicate }
    },
  }
}

/** Finds a pool by name or id (64 hex digits). @throws OperatingError `unknown_pool`, `pool_ambiguous` */
export function findPool<P extends Pick<PoolFacts, 'id' | 'name'>>(pools: readonly P[], word: string): P {
  const [pool, ...others] = pools.filter(({ id, name }) => id === word || name === typedName(word))
  if (!pool)
    throw unknownName('unknown_pool', 'There is no pool with this name or id in this mesh.', {
      word,
      names: pools.map(({ name }) => name),
    })
  if (others.length === 0) return pool
  throw new OperatingError('pool_ambiguous', 'Several pools have this name. Use the id of the pool, from "pool list".')
}

export interface MemberListFacts<Id extends string> {
  readonly id: Id
  readonly name: string
  readonly epoch: number
  readonly owner: PeerKey
  readonly members: readonly PeerKey[]
}

function factsOf<Id extends string>(list: MemberListFacts<Id>): MemberListFacts<Id> {
  const { id, name, epoch, owner, members } = list
  return { id, name, epoch, owner, members }
}

interface EditableMemberList<Id extends string> extends MemberListFacts<Id> {
  add(...peers: PeerKey[]): Promise<void>
  remove(...peers: PeerKey[]): Promise<void>
}

export interface MemberListChange {
  readonly add: readonly PeerKey[]
  readonly remove: readonly PeerKey[]
}

async function changeMemberList<Id extends string>(
  roster: EditableMemberList<Id>,
  { add, remove }: MemberListChange,
): Promise<MemberListFacts<Id>> {
  if (add.length > 0) await roster.add(...add)
  if (remove.length > 0) await roster.remove(...remove)
  return factsOf(roster)
}
