/** The SDK. Applications use `connect`; the pure engine is exported for simulators and other drivers. */

export type { BoxKeys, Identity } from '@sealpost/identity'
export type { Availability, Form, Priority, ReceiptEvent, ReceiptWish } from '@sealpost/protocol'
export type { EnvelopeId, GroupId, InviteId, MeshId, PeerKey, PoolId } from '@sealpost/std'
export { certificateTrouble, certificateUntrusted } from './certificate.ts'
export { connect, openPeer } from './client.ts'
export type { ConnectOptions } from './connect-options.ts'
export type { ConnectionState } from './connection.ts'
export type { ConsentState, ConsentUpdate } from './consent.ts'
export type { DeviceMembership } from './device-join.ts'
export { clockMs } from './driver.ts'
export { type SdkCode, type SealpostCode, SealpostError } from './errors.ts'
export type { KeyRefusal, LostMail, PeerCounters, PeerEvent } from './events.ts'
export type { GroupCrypto } from './group-crypto.ts'
export type { MessageGroup } from './group-message.ts'
export type { MessagePool } from './group-opening.ts'
export type { MemberOutcome } from './group-sends.ts'
export { Group, type GroupPosted, type GroupSendOptions, Groups } from './groups.ts'
export type { MessageHandler } from './incoming.ts'
export type { Membership } from './join.ts'
export type { KnownKey } from './key-directory.ts'
export type { KeyEpochs } from './key-epochs.ts'
export type { Post, Receipt } from './lane.ts'
export type { MemberEntry } from './members.ts'
export { Message, type ReplyOptions } from './message.ts'
export { Peer, type Posted, type RequestOptions } from './peer.ts'
export { type EngineStore, PeerEngine, type PeerEngineOptions } from './peer-engine.ts'
export type { Device, PersonTamper } from './person-book.ts'
export { type DeviceInviteOptions, type PersonPosted, Persons } from './persons.ts'
export type { PoolCrypto } from './pool-crypto.ts'
export { Pool, type PoolSendOptions, Pools } from './pools.ts'
export type { CryptoPort, Opened, OpenedHeader, PeerEffects, PeerPlace, Sealed } from './ports.ts'
export type { DeliveryReceipt } from './receipts.ts'
export type { SendOptions } from './send-options.ts'
export { sodiumCrypto } from './sodium-crypto.ts'
export { checkedStatus, type PresenceEntry, type Status } from './standing.ts'
export type {
  InboxRecord,
  KeyEpochRecord,
  OutboxRecord,
  OwnerRecord,
  PeerStore,
  StoreChange,
  StoreRecord,
} from './store.ts'
export type { WebSocketConstructor, WebSocketLike } from './web-socket.ts'
export type { Whisper } from './whispers.ts'
