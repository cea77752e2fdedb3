/**
 * Defines the ids that every package shares. Ids of fixed length are lower-case hex strings, which Postgres accepts as
 * `uuid` and `bytea` text.
 */
declare const brand: unique symbol
type Branded<T, Name extends string> = T & { readonly [brand]: Name }

/** A peer: its ed25519 public key, 64 hex digits. */
export type PeerKey = Branded<string, 'PeerKey'>
/** A mesh, the tenant and the unit of sharding: 32 hex digits. */
export type MeshId = Branded<string, 'MeshId'>
/** An invite to a mesh: 32 hex digits. */
export type InviteId = Branded<string, 'InviteId'>
/** A group of peers: 32 hex digits. */
export type GroupId = Branded<string, 'GroupId'>
/** A space of state and history, whose id is its mesh's or group's. */
export type SpaceId = MeshId | GroupId
/** The epoch of the statement that ends a group: the largest `integer`, which no statement can follow. */
export const GROUP_EPOCH_LAST = 2 ** 31 - 1
/** A pool of peers, addressed like a peer: 64 hex digits. */
export type PoolId = Branded<string, 'PoolId'>
/** An attachment, chosen at random by its sender: 32 hex digits. */
export type AttachmentId = Branded<string, 'AttachmentId'>
/** The sender's own id of an envelope, a UUID v7: 32 hex digits. */
export type EnvelopeId = Branded<string, 'EnvelopeId'>
/** The sequence number of a delivery, a safe integer. It is meaningful only within one incarnation of a database. */
export type DeliveryId = Branded<number, 'DeliveryId'>
/**
 * The number of ids in a block. A delivery id is a block number from the sequence `delivery_block`, times this, plus
 * the position. One shard assigns a block's ids in order.
 */
export const ID_BLOCK = 2 ** 16
export const blockOf = (id: number): number => Math.floor(id / ID_BLOCK)
/** A peer's number within its mesh. It never leaves the server. */
export type PeerNo = Branded<number, 'PeerNo'>
/** One broker process: 32 hex digits. */
export type ShardId = Branded<string, 'ShardId'>
/** Milliseconds: a duration, or a time since 1970. */
export type Millis = number
/** Microseconds since 1970, which is the precision of Postgres. They stay below 2^53 until the year 2255. */
export type Micros = number

export interface SpaceRef {
  readonly meshId: MeshId
  readonly spaceId: SpaceId
}

/** A member, identified by its number. */
export interface MemberRef {
  readonly meshId: MeshId
  readonly peer: PeerNo
}

/** A seeded generator for reproducible runs (mulberry32, in the public domain). Not for secrets. */
export interface Random {
  /** Returns a number in [0, 1). */
  next(): number
  /** Returns an integer in [0, below). */
  below(limit: number): number
  chance(probability: number): boolean
}

export function seededRandom(seed: number): Random {
  let state = seed >>> 0
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
  return { next, below: (limit) => Math.floor(next() * limit), chance: (probability) => next() < probability }
}
