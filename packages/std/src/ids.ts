/**
 * The nouns every package shares. Fixed-length ids are lower-case hex strings in memory: they compare, hash and print
 * as they are, and Postgres takes them as `uuid` and `bytea` text without a conversion.
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
/** The epoch of the statement that ends a group: an `integer` of the database holds no more, so nothing can follow it. */
export const GROUP_EPOCH_LAST = 2 ** 31 - 1
/** A pool of peers, addressed like one: 64 hex digits. */
export type PoolId = Branded<string, 'PoolId'>
/** A file that is kept apart from envelopes, as its sender names it: 32 hex digits, random. */
export type AttachmentId = Branded<string, 'AttachmentId'>
/** The sender's own id of an envelope, a UUID v7: 32 hex digits. */
export type EnvelopeId = Branded<string, 'EnvelopeId'>
/** The broker's sequence number of a delivery, a safe integer. It means nothing outside one incarnation of a broker. */
export type DeliveryId = Branded<number, 'DeliveryId'>
/**
 * Delivery ids come in blocks of so many: an id is its block, drawn from the sequence `delivery_block`, times this, and
 * its number in the block. Those of one block were all given by the same shard, in ascending order.
 */
export const ID_BLOCK = 2 ** 16
export const blockOf = (id: number): number => Math.floor(id / ID_BLOCK)
/** A peer's number inside its mesh; it never leaves the server. */
export type PeerNo = Branded<number, 'PeerNo'>
/** One broker process: 32 hex digits. */
export type ShardId = Branded<string, 'ShardId'>
/** Milliseconds, of a duration or since 1970. */
export type Millis = number
