/**
 * The frames, in one table: number on the wire, name, direction and fields. `docs/PROTOCOL.md` says what each means.
 * A number, once given, never changes its meaning.
 */
import type { MeshId } from '@sealpost/std'
import { ackItem, deliveryId, envelopeId, peerKey, pushItem, sendItem } from './items.ts'
import { bytes, choice, type Field, hex, list, type StructOf, struct, token, u16, u32, u53 } from './layout.ts'
import { BATCH_MAX, LOOKUP_MAX } from './limits.ts'
import { refusalCodes } from './refusals.ts'

export { PRIORITIES, type Priority } from './items.ts'

const meshId = hex<MeshId>(16)
const refusalCode = choice(refusalCodes)
const batch = <T>(item: Field<T>) => list(item, 1, BATCH_MAX)

export const keyBinding = struct({
  peer: peerKey,
  boxKey: bytes(32),
  boxEpoch: u32,
  notAfterMs: u53,
  signature: bytes(64),
})

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
} as const // biome-ignore format: a table

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
