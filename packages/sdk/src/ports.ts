/**
 * What the pure part of the SDK needs from outside: cryptography, and someone who carries out its commands. The client
 * implements both with libsodium and a WebSocket, the simulator with a cheap fake and a network of its own.
 */
import type {
  Correspondent,
  checkShardCertificate,
  EnvelopeDraft,
  KeyBindingVerdict,
  Note,
  StreamId,
  StreamPosition,
  Transcript,
} from '@sealpost/identity'
import type { ClientFrame, KeyBindingEntry } from '@sealpost/protocol'
import type { EnvelopeId, MeshId, Millis, PeerKey } from '@sealpost/std'
import type { KnownAddresses } from './addresses.ts'
import type { PeerEvent } from './events.ts'
import type { GroupCrypto } from './group-crypto.ts'
import type { Message } from './message.ts'
import type { PersonCrypto } from './person-crypto.ts'
import type { PoolCrypto } from './pool-crypto.ts'

export interface Sealed {
  readonly envelope: Uint8Array
  /** What the next envelope of the stream carries as `prev`. */
  readonly headerHash: Uint8Array
}

export type Opened = OpenedWell | { readonly ok: false; readonly reason: string }

export interface OpenedWell {
  readonly ok: true
  readonly header: OpenedHeader
  /** What the next envelope of the stream has to carry as `prev`; null in no stream. */
  readonly headerHash: Uint8Array | null
  readonly note?: Note | null
  readonly body: Uint8Array
}

export interface OpenedHeader {
  readonly stream: StreamPosition | null
  readonly sentAtMs: Millis
}

/** One identity in one mesh. Synchronous; keys of others are kept by the caller. */
export interface CryptoPort {
  signAuth(transcript: Transcript): Uint8Array
  /** Whether WELCOME was signed with `transcript.brokerKey`, the pinned key, over this very AUTH. */
  isBrokerProof(transcript: Transcript, clientSignature: Uint8Array, proof: Uint8Array): boolean
  checkCertificate: typeof checkShardCertificate
  checkBinding(binding: KeyBindingEntry, expected: { peer: PeerKey; nowMs: Millis }): KeyBindingVerdict
  /** Throws when the recipient's box key is unusable. */
  seal(draft: EnvelopeDraft): Sealed
  /** Never throws on what the network brought. `does_not_open` as the reason asks for a newer key of the sender. */
  open(from: Correspondent, arrival: { envelopeId: EnvelopeId; envelope: Uint8Array }): Opened
  /** Whether this box key of one's own is none of those held, and none of them is newer. */
  lacksBoxKey(key: Pick<Correspondent, 'boxKey' | 'boxEpoch'>): boolean
  /** 32 random bytes. */
  newNonce(): Uint8Array
  newEnvelopeId(): EnvelopeId
  newStreamId(): StreamId
  readonly groups: GroupCrypto
  readonly persons: PersonCrypto
  readonly pools: PoolCrypto
}

/** The commands. Each dial has a number of its own, and every answer names it, so that a late one is told apart. */
export interface PeerEffects {
  /** Answer: `opened`, then `received`; or `closed`. */
  dial(dialNo: number, url: string): void
  /** End this dial's socket. Nothing of it is listened to any more; `closed` need not be called. */
  hangUp(dialNo: number): void
  transmit(frame: ClientFrame): void
  /** A message for the application, handed out once in this process's life. */
  deliver(message: Message): void
  announce(event: PeerEvent): void
  /** Call `flush` soon, but after the code that runs now, so that what it still asks for goes out together. */
  flushSoon(): void
}

export interface PeerPlace {
  /** Where the cluster is dialled, at least one: in turns. */
  readonly urls: readonly string[]
  /** What former sessions have taught. */
  readonly known?: KnownAddresses | undefined
  /** The pinned key. */
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
  readonly peerKey: PeerKey
}
