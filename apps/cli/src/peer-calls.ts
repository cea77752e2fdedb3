/** What a command asks of its profile's peer, whichever command holds the session. Everything travels as JSON. */
import type {
  ConsentState,
  ConsentUpdate,
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
import { type DeviceCalls, deviceCallsOf } from './device-calls.ts'
import { type GroupCalls, groupCallsOf, type WithStateOf } from './group-calls.ts'
import { type FileForPrograms, fileForPrograms } from './incoming-message.ts'
import { type PoolCalls, poolCallsOf } from './pool-calls.ts'
import { endWith, type FileFate } from './received-files.ts'

export interface SendQuestion {
  readonly to: PeerKey
  readonly bodyBase64: string
  readonly priority: Priority
  /** 0: the broker's default. */
  readonly ttlSeconds: number
  /** The reference to a file that was uploaded. */
  readonly attachment?: string
}

export interface RequestQuestion extends SendQuestion {
  readonly timeoutMs: number
  /** Ask only a peer that is online. */
  readonly ifOnline: boolean
  /** Where the file of the answer is saved, an absolute path. */
  readonly folder?: string
}

export interface RequestAnswer {
  readonly envelopeId: EnvelopeId
  readonly sender: PeerKey
  readonly sentAtMs: number
  readonly bodyBase64: string
  /** The other side says that what was asked for failed. */
  readonly isError: boolean
  readonly file: FileForPrograms | null
  /** What became of the file. Unless it was saved, the answer comes again as a message. */
  readonly fate: FileFate
}

/** Everybody, and of those that are online what they say of themselves. */
export interface Roster {
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
  /** Answers when the message is kept in the profile: it leaves now or later, once. */
  keep(question: SendQuestion): Promise<null>
  /** Answers when the broker has stored it. */
  send(question: SendQuestion): Promise<{ envelopeId: EnvelopeId; isDuplicate: boolean }>
  /** Answers when the other peer has. */
  request(question: RequestQuestion): Promise<RequestAnswer>
  /** For as long as this session lasts. */
  setStatus(status: Status): Promise<null>
  roster(question: null): Promise<Roster>
  members(question: null): Promise<readonly MemberEntry[]>
  revokeInvite(inviteId: InviteId): Promise<null>
  /** An empty update only asks. */
  consent(update: ConsentUpdate): Promise<ConsentState>
  /** Answers the epoch of the new key. */
  rotateBoxKey(question: null): Promise<number>
  /** Answers the new identity key; the session is over then. */
  rotateIdentity(question: null): Promise<PeerKey>
  /** Answers once the broker was reached. */
  facts(question: null): Promise<SessionFacts>
}

/** With the key file, which only the profile can open. */
export interface Rotations {
  boxKey(): Promise<number>
  identity(): Promise<PeerKey>
}

/** What the profile gives to calls of its peer. */
export interface CallPorts {
  readonly online: Promise<Durability>
  readonly rotate: Rotations
  readonly withStateOf: WithStateOf
  receiveFile(message: Message, folder: string | undefined): Promise<FileFate>
}

export function callsOf(peer: Peer, { online, rotate, withStateOf, receiveFile }: CallPorts): PeerCalls {
  const post = ({ to, bodyBase64, ...options }: SendQuestion) =>
    peer.post(to, Buffer.from(bodyBase64, 'base64'), options)
  return {
    keep: async (question) => {
      await post(question)
      return null
    },
    send: async (question) => {
      const { receipt } = await post(question)
      const { envelopeId, isDuplicate } = await receipt
      return { envelopeId, isDuplicate }
    },
    request: async ({ to, bodyBase64, folder, ...options }) => {
      const answer = await peer.request(to, Buffer.from(bodyBase64, 'base64'), options)
      const fate = await receiveFile(answer, folder).catch((error) => {
        answer.retry()
        throw error
      })
      endWith(answer, fate)
      const { envelopeId, sender, sentAtMs, isError, body } = answer
      const file = fileForPrograms(answer, fate)
      return { envelopeId, sender, sentAtMs, isError, file, fate, bodyBase64: Buffer.from(body).toString('base64') }
    },
    setStatus: async (status) => {
      peer.setStatus(status)
      return null
    },
    roster: async () => {
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
    facts: async () => ({ durability: await online, waiting: peer.pendingCount }),
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
