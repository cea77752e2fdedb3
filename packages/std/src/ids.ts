/**
 * Ids that every package shares. Those of fixed length are lower-case hex strings in memory: they compare, hash and
 * print as they are, and Postgres accepts them as `uuid` and `bytea` text.
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
/** A space of state and history: the mesh's own has the id of the mesh, a group's the id of the group. */
export type SpaceId = MeshId | GroupId
/** The epoch of the statement that ends a group: the largest `integer` in Postgres, so that no statement can follow. */
export const GROUP_EPOCH_LAST = 2 ** 31 - 1
/** A pool of peers, addressed like one: 64 hex digits. */
export type PoolId = Branded<string, 'PoolId'>
/** An attachment, chosen at random by its sender: 32 hex digits. */
export type AttachmentId = Branded<string, 'AttachmentId'>
/** The sender's own id of an envelope, a UUID v7: 32 hex digits. */
export type EnvelopeId = Branded<string, 'EnvelopeId'>
/** The sequence number of a delivery, a safe integer. It is meaningful only within one incarnation of a database. */
export type DeliveryId = Branded<number, 'DeliveryId'>
/**
 * The size of a block of delivery ids. A delivery id is a block number from the sequence `delivery_block` times this,
 * plus the number within the block. One shard assigns all ids of a block, in ascending order.
 */
export const ID_BLOCK = 2 ** 16
export const blockOf = (id: number): number => Math.floor(id / ID_BLOCK)
/** A peer's number inside its mesh; it never leaves the server. */
export type PeerNo = Branded<number, 'PeerNo'>
/** One broker process: 32 hex digits. */
export type ShardId = Branded<string, 'ShardId'>
/** Milliseconds, of a duration or since 1970. */
export type Millis = number
/** Microseconds since 1970, as precise as Postgres keeps time; below 2^53 until the year 2255. */
export type Micros = number

export interface SpaceRef {
  readonly meshId: MeshId
  readonly spaceId: SpaceId
}

/** A member, by its number. */
export interface MemberRef {
  readonly meshId: MeshId
  readonly peer: PeerNo
}
