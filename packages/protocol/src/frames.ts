/**
 * Defines the table of frames, with their wire numbers, names, directions and fields. `docs/PROTOCOL.md` describes each
 * frame. A number never changes its meaning.
 */
import type { GroupId, InviteId, MeshId, PoolId } from '@sealpost/std'
import {
  ackItem,
  body,
  bodyItem,
  deliveryId,
  envelope,
  envelopeId,
  peerKey,
  pushItem,
  sendItem,
  terms,
} from './items.ts'
import {
  blob,
  bytes,
  choice,
  type Field,
  flag,
  hex,
  list,
  type StructOf,
  struct,
  token,
  u16,
  u32,
  u53,
} from './layout.ts'
import {
  BATCH_MAX,
  CERTIFICATE_BYTES_MAX,
  CONSENT_CHANGES_MAX,
  CONSENT_MAX,
  DEVICE_BYTES_MAX,
  DEVICE_PAGE_MAX,
  DEVICE_REMOVAL_BYTES_MAX,
  FANOUT_MAX,
  GROUP_BYTES_MAX,
  GROUP_PAGE_MAX,
  INVITE_BYTES_MAX,
  KEY_HISTORY_MAX,
  LOOKUP_MAX,
  MEMBER_PAGE_MAX,
  NAME_MAX,
  REASON_MAX,
  RECORD_BYTES_MAX,
  RECORD_BYTES_MIN,
  SHARDS_TOLD_MAX,
  SUCCESSION_BYTES_MAX,
  SUMMARY_MAX,
  URL_MAX,
  USERS_MAX,
} from './limits.ts'
import { refusalCodes } from './refusals.ts'
import { DEATHS, RECEIPT_EVENTS, RECEIPT_WISHES } from './terms.ts'

export { PRIORITIES, type Priority } from './items.ts'

const meshId = hex<MeshId>(16)
const inviteId = hex<InviteId>(16)
const name = token(NAME_MAX, 1)
const refusalCode = choice(refusalCodes)
const batch = <T>(item: Field<T>) => list(item, 1, BATCH_MAX)

export const keyBinding = struct({
  peer: peerKey,
  boxKey: bytes(32),
  boxEpoch: u32,
  notAfterMs: u53,
  signature: bytes(64),
})

export const MEMBER_ROLES = ['member', 'admin'] as const
export type MemberRole = (typeof MEMBER_ROLES)[number]

/** From whom a peer accepts messages: everyone except blocked peers (`open`), or only allowed peers (`contacts`). */
export const CONSENT_POLICIES = ['open', 'contacts'] as const
export type ConsentPolicy = (typeof CONSENT_POLICIES)[number]
export const CONSENT_VERDICTS = ['allowed', 'blocked'] as const

export const AVAILABILITIES = ['idle', 'working', 'dnd'] as const
export type Availability = (typeof AVAILABILITIES)[number]
const summary = token(SUMMARY_MAX)
const sendTerms = struct({
  notBeforeMs: u53,
  receipts: choice(RECEIPT_WISHES),
  thread: hex(16),
  hops: u16,
  noAutoReply: flag,
  ifOnline: flag,
})

const groupId = hex<GroupId>(16)
const poolId = hex<PoolId>(32)
const statement = blob(1, GROUP_BYTES_MAX)
const device = blob(1, DEVICE_BYTES_MAX)
const removal = blob(1, DEVICE_REMOVAL_BYTES_MAX)
const url = token(URL_MAX, 1)
const succession = blob(1, SUCCESSION_BYTES_MAX)

const SERVER = {
  hello: [1, struct({
    versions: list(u16, 1, 16),
    brokerKey: peerKey,
    connectionId: bytes(16),
    nonce: bytes(32),
    issuedAtMs: u53,
    authWithinMs: u32,
  })],
  welcome: [2, struct({
    proof: bytes(64),
    epoch: u53,
    incarnation: hex(16),
    durability: choice(['fsync', 'degraded']),
    heartbeatMs: u32,
    leaseMs: u32,
    dedupeSeconds: u32,
    creditMax: u16,
    envelopeBytesMax: u32,
    ttlSecondsMax: u32,
    inFlightMax: u32,
  })],
  ack: [3, struct({ items: batch(ackItem) })],
  nack: [4, struct({ items: batch(struct({ envelopeId, code: refusalCode, retryAfterMs: u32 })) })],
  push: [5, struct({ deliveries: batch(pushItem) })],
  directory: [6, struct({ ref: u32, bindings: list(keyBinding, 0, LOOKUP_MAX), unknown: list(peerKey, 0, LOOKUP_MAX) })],
  refused: [7, struct({ code: refusalCode, retryAfterMs: u32, reason: token(120) })],
  goaway: [8, struct({ retryAfterMs: u32 })],
  pong: [9, struct({ ref: u32 })],
  recovered: [10, struct({
    lost: list(struct({ id: deliveryId, envelopeId, sender: peerKey, reason: choice(DEATHS) }), 0, BATCH_MAX),
    isAll: flag,
  })],
  enrolled: [11, struct({ proof: bytes(64), name })],
  roster: [12, struct({
    ref: u32,
    members: list(struct({ peer: peerKey, name: token(NAME_MAX), role: choice(MEMBER_ROLES) }), 0, MEMBER_PAGE_MAX),
    isLast: flag,
  })],
  revoked: [13, struct({ ref: u32, outcome: choice(['done', 'not_admin']), unknown: list(peerKey, 0, MEMBER_PAGE_MAX) })],
  pushWith: [14, struct({ deliveries: batch(struct({ push: pushItem, terms })) })],
  receipts: [15, struct({
    items: batch(struct({ id: deliveryId, envelopeId, recipient: peerKey, event: choice(RECEIPT_EVENTS), atMs: u53 })),
  })],
  pushBody: [36, struct({ deliveries: batch(bodyItem) })],
  pushEphemeral: [32, struct({ items: batch(struct({ sender: peerKey, envelopeId, envelope })) })],
  ephemeralFailed: [33, struct({ items: batch(struct({ envelopeId, code: refusalCode })) })],
  presence: [34, struct({
    peers: list(struct({ peer: peerKey, isOnline: flag, availability: choice(AVAILABILITIES), summary }), 0, BATCH_MAX),
    isSnapshot: flag,
  })],
  groupSet: [39, struct({ ref: u32, outcome: choice(['done', 'stale', 'not_owner', 'malformed', 'too_many', 'too_many_own']) })],
  groupList: [40, struct({ ref: u32, statements: list(statement, 0, GROUP_PAGE_MAX), isLast: flag })],
  consented: [49, struct({
    ref: u32,
    outcome: choice(['done', 'too_many']),
    policy: choice(CONSENT_POLICIES),
    peers: list(struct({ peer: peerKey, verdict: choice(CONSENT_VERDICTS) }), 0, CONSENT_MAX),
    unknown: list(peerKey, 0, CONSENT_CHANGES_MAX),
  })],
  bound: [51, struct({ ref: u32, outcome: choice(['done', 'stale_epoch', 'bad_binding']) })],
  keyHistory: [53, struct({ ref: u32, bindings: list(keyBinding, 0, KEY_HISTORY_MAX) })],
  rebound: [54, struct({ peers: list(peerKey, 1, LOOKUP_MAX) })],
  deviceList: [62, struct({
    ref: u32,
    statements: list(device, 0, DEVICE_PAGE_MAX),
    removals: list(removal, 0, DEVICE_PAGE_MAX),
  })],
  deviceRemoved: [64, struct({ ref: u32, outcome: choice(['done', 'malformed', 'unknown_device']) })],
  succeeded: [66, struct({ ref: u32, outcome: choice(['done', 'malformed', 'key_taken', 'bad_binding']) })],
  successions: [67, struct({ statements: list(succession, 1, LOOKUP_MAX) })],
  moved: [68, struct({ url, certificate: blob(0, CERTIFICATE_BYTES_MAX), proof: bytes(64) })],
  certificate: [69, struct({ certificate: blob(1, CERTIFICATE_BYTES_MAX) })],
  shards: [70, struct({ urls: list(url, 0, SHARDS_TOLD_MAX), cell: list(url, 0, SHARDS_TOLD_MAX) })],
  poolJoined: [58, struct({
    ref: u32,
    pool: poolId,
    outcome: choice(['joined', 'left', 'unknown_pool', 'not_in_pool', 'too_many']),
  })],
} as const // biome-ignore format: a table

const broadcast = {
  group: groupId,
  rosterEpoch: u32,
  bodyId: hex(32),
  body,
  terms,
  envelopes: list(sendItem, 1, FANOUT_MAX),
}

const CLIENT = {
  auth: [16, struct({
    version: u16,
    meshId,
    peerKey,
    clientNonce: bytes(32),
    capabilities: list(token(32), 0, 16),
    signature: bytes(64),
    credit: u16,
  })],
  send: [17, struct({ envelopes: batch(sendItem) })],
  settle: [18, struct({ ids: batch(deliveryId) })],
  retry: [19, struct({ items: batch(struct({ id: deliveryId, afterMs: u32 })) })],
  credit: [20, struct({ credit: u16 })],
  lookup: [21, struct({ ref: u32, peers: list(peerKey, 1, LOOKUP_MAX) })],
  ping: [22, struct({ ref: u32 })],
  reject: [23, struct({ items: batch(struct({ id: deliveryId, reason: token(REASON_MAX) })) })],
  enrol: [24, struct({
    version: u16,
    clientNonce: bytes(32),
    invite: blob(1, INVITE_BYTES_MAX),
    peerKey,
    name,
    boxKey: bytes(32),
    boxEpoch: u32,
    bindingNotAfterMs: u53,
    bindingSignature: bytes(64),
    signature: bytes(64),
  })],
  extend: [25, struct({ ids: batch(deliveryId), forMs: u32 })],
  members: [26, struct({ ref: u32, after: peerKey })],
  revoke: [27, struct({ ref: u32, members: list(peerKey, 0, MEMBER_PAGE_MAX), invites: list(inviteId, 0, MEMBER_PAGE_MAX) })],
  status: [28, struct({ availability: choice(AVAILABILITIES), summary, declinesReceipts: flag })],
  sendWith: [29, struct({ envelopes: batch(struct({ send: sendItem, terms: sendTerms })) })],
  sendEphemeral: [30, struct({ items: batch(struct({ envelopeId, recipient: peerKey, envelope })) })],
  watch: [31, struct({ isOn: flag })],
  broadcast: [35, struct(broadcast)],
  broadcastKept: [71, struct({ ...broadcast, record: blob(RECORD_BYTES_MIN, RECORD_BYTES_MAX) })],
  setGroup: [37, struct({ ref: u32, statement })],
  groups: [38, struct({ ref: u32, after: groupId })],
  consent: [48, struct({
    ref: u32,
    policy: choice(['keep', 'open', 'contacts']),
    changes: list(struct({ peer: peerKey, verdict: choice(['allowed', 'blocked', 'forgotten']) }), 0, CONSENT_CHANGES_MAX),
  })],
  bind: [50, struct({ ref: u32, boxKey: bytes(32), boxEpoch: u32, notAfterMs: u53, signature: bytes(64) })],
  lookupHistory: [52, struct({ ref: u32, peer: peerKey })],
  enrolDevice: [60, struct({
    version: u16,
    clientNonce: bytes(32),
    statement: device,
    boxKey: bytes(32),
    boxEpoch: u32,
    bindingNotAfterMs: u53,
    bindingSignature: bytes(64),
    signature: bytes(64),
  })],
  devices: [61, struct({ ref: u32, peers: list(peerKey, 1, USERS_MAX) })],
  removeDevice: [63, struct({ ref: u32, removal })],
  succeed: [65, struct({
    ref: u32,
    statement: succession,
    boxKey: bytes(32),
    boxEpoch: u32,
    bindingNotAfterMs: u53,
    bindingSignature: bytes(64),
  })],
  setPool: [55, struct({ ref: u32, statement })],
  pools: [56, struct({ ref: u32, after: poolId })],
  joinPool: [57, struct({ ref: u32, pool: poolId, credit: u16 })],
  sendPool: [59, struct({ rosterEpoch: u32, bodyId: hex(32), body, terms: sendTerms, send: sendItem })],
} as const // biome-ignore format: a table

type Table = Record<string, readonly [number, Field<unknown>]>
type FramesOf<T extends Table> = {
  [Type in keyof T & string]: { type: Type } & (T[Type][1] extends Field<infer Body> ? Body : never)
}[keyof T & string]

export type ServerFrame = FramesOf<typeof SERVER>
export type ClientFrame = FramesOf<typeof CLIENT>
export type Frame = ServerFrame | ClientFrame
export type FrameOf<Type extends Frame['type']> = Extract<Frame, { type: Type }>
export type KeyBindingEntry = StructOf<{
  peer: typeof peerKey
  boxKey: Field<Uint8Array>
  boxEpoch: Field<number>
  notAfterMs: Field<number>
  signature: Field<Uint8Array>
}>

export interface FrameKind {
  readonly type: string
  readonly number: number
  readonly body: Field<Record<string, unknown>>
}
const kinds = (table: Table): readonly FrameKind[] =>
  Object.entries(table).map(([type, [number, body]]) => ({ type, number, body: body as unknown as FrameKind['body'] }))

export const serverFrames = kinds(SERVER)
export const clientFrames = kinds(CLIENT)
