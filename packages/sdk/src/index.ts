/** Exports the SDK: `connect` returns a `Peer`. */
export { type BoxKeys, fingerprint, generateIdentity, type Identity, ready, type SigningKeys } from '@sealpost/identity'
export type { RatchetNews } from '@sealpost/identity/ratchet'
export type { Availability, Priority, ReceiptEvent, ReceiptWish } from '@sealpost/protocol'
export type { EnvelopeId, GroupId, InviteId, MeshId, PeerKey, PoolId } from '@sealpost/std'
export { connect, openPeer } from './client.ts'
export { certificateErrorCode, certificateUntrusted } from './connection/certificate-errors.ts'
export type { DeviceMembership, Membership } from './connection/join.ts'
export { clockMs } from './driver.ts'
export { type SdkCode, type SealpostCode, SealpostError } from './errors.ts'
export type { MessageHandler } from './inbox/dispatcher.ts'
export type { DeliveryReceipt } from './inbox/inbox.ts'
export {
  Message,
  type MessageGroup,
  type MessagePool,
  type ReplyOptions,
} from './inbox/message.ts'
export type { KnownKey } from './keys/key-directory.ts'
export type { KeyEpochs } from './keys/key-epochs.ts'
export type { Receipt, SendOptions } from './outbox/lane.ts'
export type { ConnectOptions, Enqueued, Peer, RequestOptions } from './peer.ts'
export type {
  EphemeralMessage,
  KeyRefusal,
  LostMessage,
  PeerCounters,
  PeerEvent,
  PresenceEntry,
  UserTamper,
  WebSocketConstructor,
  WebSocketLike,
} from './ports.ts'
export { type Status, validateStatus } from './presence/presence-client.ts'
export type { ConsentState, ConsentUpdate, MemberEntry } from './requests/requests.ts'
export type { InboxRecord, KeyEpochRecord, OutboxRecord, OwnerRecord, StoreRecord } from './stores/records.ts'
export type { PeerStore, StoreChange } from './stores/store.ts'
