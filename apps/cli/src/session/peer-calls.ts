/** What a command asks of its profile's peer, whichever command holds the session. Everything travels as JSON. */
import type {
  ConsentState,
  ConsentUpdate,
  Device,
  EnvelopeId,
  InviteId,
  MemberEntry,
  Message,
  Peer,
  PeerKey,
  PresenceEntry,
  Priority,
  Status,
} from '@sealpost/sdk'
import { type FileForPrograms, fileForPrograms } from '../messages/incoming-message.ts'
import { type FileOutcome, finishMessage } from '../messages/received-files.ts'
import {
  type GroupCalls,
  groupCallsOf,
  type MemberResult,
  type PoolCalls,
  poolCallsOf,
  type WithStateOf,
} from './group-calls.ts'

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
