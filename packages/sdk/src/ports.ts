/**
 * What the pure part of the SDK needs from outside: cryptography, and someone who carries out its commands. The client
 * implements both with libsodium and a WebSocket, the simulator with a cheap fake and a network of its own.
 */
import type {
  Correspondent,
  checkShardCertificate,
  DeviceInviteTerms,
  DeviceRemoval,
  DeviceStatement,
  EnvelopeDraft,
  GroupFields,
  GroupStatement,
  Identity,
  IdentityRotation,
  KeyBindingVerdict,
  PoolFields,
  PoolStatement,
  SealedBody,
  SealedEnvelope,
  StreamId,
  Transcript,
} from '@sealpost/identity'
import type { ClientFrame, FrameOf, KeyBindingEntry } from '@sealpost/protocol'
import type { EnvelopeId, MeshId, Millis, PeerKey } from '@sealpost/std'
import type { KnownAddresses } from './connection/addresses.ts'
import type { SealpostError } from './errors.ts'
import type { PeerEvent } from './events.ts'
import type { Message, OpenVerdict } from './inbox/message.ts'

/** One identity in one mesh. Synchronous; keys of others are kept by the caller. */
export interface CryptoPort {
  signAuth(transcript: Transcript): Uint8Array
  /** Whether WELCOME was signed with `transcript.brokerKey`, the pinned key, over this very AUTH. */
  isBrokerProof(transcript: Transcript, clientSignature: Uint8Array, proof: Uint8Array): boolean
  checkCertificate: typeof checkShardCertificate
  checkBinding(binding: KeyBindingEntry, expected: { peer: PeerKey; nowMs: Millis }): KeyBindingVerdict
  /** Throws when the recipient's box key is unusable. */
  seal(draft: EnvelopeDraft): SealedEnvelope
  /** Never throws on what the network brought. `does_not_open` as the reason asks for a newer key of the sender. */
  open(from: Correspondent, arrival: { envelopeId: EnvelopeId; envelope: Uint8Array }): OpenVerdict
  /** Whether this box key of one's own is none of those held, and none of them is newer. */
  lacksBoxKey(key: Pick<Correspondent, 'boxKey' | 'boxEpoch'>): boolean
  /** 32 random bytes. */
  newNonce(): Uint8Array
  newEnvelopeId(): EnvelopeId
  newStreamId(): StreamId
  readonly groups: GroupCrypto
  readonly users: UserCrypto
  readonly pools: PoolCrypto
}

/** The commands. Each dial has a number of its own, and every answer names it, so that a late one is told apart. */
export interface PeerEffects {
  /** Answer: `opened`, then `received`; or `closed`. */
  dial(dialNo: number, url: string): void
  /** End this dial's socket. Nothing of it is listened to any more; `closed` need not be called. */
  closeSocket(dialNo: number): void
  transmit(frame: ClientFrame): void
  /** A message for the application, handed out once in this process's life. */
  deliver(message: Message): void
  emit(event: PeerEvent): void
  /** Call `flush` soon, but after the code that runs now, so that what it still asks for goes out together. */
  flushSoon(): void
}

export interface ConnectionTarget {
  /** Where the cluster is dialled, at least one: in turns. */
  readonly urls: readonly string[]
  /** What former sessions have taught. */
  readonly known?: KnownAddresses | undefined
  /** The pinned key. */
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
  readonly peerKey: PeerKey
}

/** Of one identity in one mesh. */
export interface GroupCrypto {
  /** A group of one's own, at its first epoch. */
  create(draft: Pick<GroupFields, 'name' | 'members'>): GroupStatement
  /** The next epoch of a group of one's own. */
  change(group: GroupStatement, change: Partial<Pick<GroupFields, 'name' | 'members'>>): GroupStatement
  /** The statement that ends a group of one's own. */
  end(group: GroupStatement): GroupStatement
  /** Null for what is no statement, not signed by its owner, or of another mesh. */
  read(statement: Uint8Array): GroupStatement | null
  sealBody(body: Uint8Array): SealedBody
  /** Null unless these are the very bytes that the ticket was made for. */
  openBody(bytes: Uint8Array, ticket: Uint8Array): Uint8Array | null
}

/** Of one identity in one mesh. */
export interface PoolCrypto {
  /** A pool of one's own, at its first epoch. */
  create(draft: Pick<PoolFields, 'name' | 'members'>): PoolStatement
  /** The next epoch of a pool of one's own. */
  change(pool: PoolStatement, change: Partial<Pick<PoolFields, 'name' | 'members'>>): PoolStatement
  /** The statement that ends a pool of one's own. */
  end(pool: PoolStatement): PoolStatement
  /** Null for what is no statement, not signed by its owner, or of another mesh. */
  read(statement: Uint8Array): PoolStatement | null
}

/** Of one identity in one mesh. Each reader answers null for what its signers did not sign, or of another mesh. */
export interface UserCrypto {
  readDevice(bytes: Uint8Array): DeviceStatement | null
  readRemoval(bytes: Uint8Array): DeviceRemoval | null
  readIdentityRotation(bytes: Uint8Array): IdentityRotation | null
}

/** What only the holder of the identity key can say. */
export interface UserKeys {
  /** One line for a new device of this user. */
  inviteDevice(terms: Omit<DeviceInviteTerms, 'meshId'>): string
  removeDevice(device: PeerKey): Uint8Array
  rotateIdentity(next: Identity): Uint8Array
}

/** A part of the engine with frames of its own. */
export interface EnginePart {
  /** A session began. */
  connected?(welcome: FrameOf<'welcome'>, nowMs: Millis): void
  /** The session ended. Nothing is due until the next one, unless it is due offline. */
  disconnected(): void
  /** Returns the frames to send now; called in a session only. */
  takeFrames(nowMs: Millis): readonly ClientFrame[]
  /** When the part has frames without a further call, or has to be ticked; Infinity for never. */
  readonly wakeAtMs: Millis
  /** Refuses everything that waits for a reply. */
  close?(error: SealpostError): void
}

/** Shared, so that a part with nothing to send makes no object. */
export const NO_FRAMES: readonly never[] = []
