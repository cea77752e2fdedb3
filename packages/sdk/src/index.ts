/** The SDK. Applications use `connect`; the pure engine is exported for simulators and other drivers. */

export type { Identity } from '@sealpost/identity'
export type { Form, Priority } from '@sealpost/protocol'
export type { EnvelopeId, InviteId, MeshId, PeerKey } from '@sealpost/std'
export { type ConnectOptions, clockMs, connect, openPeer, Peer, type Posted, type SendOptions } from './client.ts'
export type { ConnectionState } from './connection.ts'
export { type SdkCode, type SealpostCode, SealpostError } from './errors.ts'
export type { KeyRefusal, PeerCounters, PeerEvent } from './events.ts'
export type { MessageHandler } from './incoming.ts'
export { type JoinOptions, join, type Membership } from './join.ts'
export type { KnownKey } from './key-directory.ts'
export type { Post, Receipt } from './lane.ts'
export type { MemberEntry } from './members.ts'
export { Message } from './message.ts'
export { type EngineStore, PeerEngine, type PeerEngineOptions } from './peer-engine.ts'
export type { CryptoPort, Opened, OpenedHeader, PeerEffects, PeerPlace, Sealed } from './ports.ts'
export { sodiumCrypto } from './sodium-crypto.ts'
export type {
  InboxRecord,
  OutboxRecord,
  OwnerRecord,
  PeerStore,
  StoreChange,
  StoreRecord,
} from './store.ts'
export type { WebSocketConstructor, WebSocketLike } from './web-socket.ts'
