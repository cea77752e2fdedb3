/** The SDK. Applications use `connect`; the pure engine is exported for simulators and other drivers. */
export type { BoxKeys, Identity, SealedEnvelope } from '@sealpost/identity'
export type { Availability, Form, Priority, ReceiptEvent, ReceiptWish } from '@sealpost/protocol'
export type { EnvelopeId, GroupId, InviteId, MeshId, PeerKey, PoolId } from '@sealpost/std'
export { connect, openPeer } from './client.ts'
export { certificateErrorCode, certificateUntrusted } from './connection/addresses.ts'
export type { ConnectionState } from './connection/connection.ts'
export type { DeviceMembership, Membership } from './connection/join.ts'
export { clockMs } from './driver.ts'
export { type EngineStore, PeerEngine, type PeerEngineOptions } from './engine.ts'
export { type SdkCode, type SealpostCode, SealpostError } from './errors.ts'
export type { MemberOutcome } from './groups/group-client.ts'
export type { MessageGroup } from './groups/group-message.ts'
export { Group, type GroupSendOptions, Groups, type PendingGroupSend } from './groups/groups.ts'
export type { MessageHandler } from './inbox/dispatcher.ts'
export type { DeliveryReceipt } from './inbox/inbox.ts'
export {
  Message,
  type MessagePool,
  type OpenedHeader,
  type OpenVerdict,
  type ReplyOptions,
} from './inbox/message.ts'
export type { KnownKey } from './keys/key-directory.ts'
export type { KeyEpochs } from './keys/key-epochs.ts'
export { sodiumCrypto } from './keys/sodium-crypto.ts'
export type { OutgoingMessage, Receipt, SendOptions } from './outbox/lane.ts'
export type { ConnectOptions } from './peer.ts'
export { type Enqueued, Peer, type RequestOptions } from './peer.ts'
export { Pool, type PoolSendOptions, Pools } from './pools/pools.ts'
export type {
  ConnectionTarget,
  CryptoPort,
  EphemeralMessage,
  GroupCrypto,
  KeyRefusal,
  LostMessage,
  PeerCounters,
  PeerEffects,
  PeerEvent,
  PoolCrypto,
  PresenceEntry,
  UserTamper,
  WebSocketConstructor,
  WebSocketLike,
} from './ports.ts'
export { type Status, validateStatus } from './presence/presence-client.ts'
export type { ConsentState, ConsentUpdate, MemberEntry } from './requests/requests.ts'
export type {
  InboxRecord,
  KeyEpochRecord,
  OutboxRecord,
  OwnerRecord,
  PeerStore,
  StoreChange,
  StoreRecord,
} from './stores/store.ts'
export type { Device } from './users/users.ts'
export { type DeviceInviteOptions, type PendingUserSend, Users } from './users/users.ts'
