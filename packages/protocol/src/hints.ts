/**
 * Defines the hints between shards. Like frames, they have a number, a name and fields. A hint may be lost, duplicated,
 * late or forged: it only makes a shard query the database, which decides.
 */
import type { DeliveryId, GroupId, MeshId, PeerNo, PoolId, ShardId, SpaceId } from '@sealpost/std'
import { Malformed, Reader, Writer } from './cursor.ts'
import { AVAILABILITIES } from './frames.ts'
import { envelopeId, peerKey } from './items.ts'
import { blob, choice, type Field, flag, hex, struct, token, u32, u53 } from './layout.ts'
import { ENVELOPE_BYTES_MIN, SUMMARY_MAX } from './limits.ts'

/** The largest ephemeral envelope that fits in a Postgres notification. */
export const EPHEMERAL_HINT_BYTES_MAX = 4096

const meshId = hex<MeshId>(16)
const shardId = hex<ShardId>(16)
const peerNo = u32 as unknown as Field<PeerNo>

const inMesh = { meshId }

/** Shards of two versions share a bus during an upgrade, so a number never changes its meaning. */
const kinds = {
  /** A delivery may wait for this peer or pool. */
  wake: { number: 1, body: struct({ ...inMesh, peer: peerNo }) },
  superseded: { number: 3, body: struct({ ...inMesh, peer: peerNo, epoch: u53 }) },
  revoked: { number: 4, body: struct({ ...inMesh, peer: peerNo }) },
  /** Requests reports about the presence of this mesh's peers: the current state and, for a while, every change. */
  whoIsThere: { number: 5, body: struct(inMesh) },
  /** The presence of one peer on this shard; the highest `moment` of an epoch applies. */
  presence: {
    number: 6,
    body: struct({
      ...inMesh,
      peer: peerKey,
      epoch: u53,
      moment: u53,
      isOnline: flag,
      availability: choice(AVAILABILITIES),
      summary: token(SUMMARY_MAX),
    }),
  },
  /**
   * An ephemeral message to a peer on another shard. `user` is the sender's user, to whom the recipient's consent
   * applies.
   */
  ephemeral: {
    number: 7,
    body: struct({
      ...inMesh,
      recipient: peerKey,
      sender: peerKey,
      user: peerNo,
      envelopeId,
      envelope: blob(ENVELOPE_BYTES_MIN, EPHEMERAL_HINT_BYTES_MAX),
    }),
  },
  /** Another shard may have cached what this shard has changed. */
  staleConsent: { number: 8, body: struct({ ...inMesh, user: peerNo }) },
  staleGroup: { number: 9, body: struct({ ...inMesh, group: hex<GroupId>(16) }) },
  stalePool: { number: 10, body: struct({ ...inMesh, pool: hex<PoolId>(32) }) },
  /** A space has a new event: a changed entry or a recorded message. */
  happened: { number: 12, body: struct({ ...inMesh, space: hex<SpaceId>(16) }) },
  staleSpace: { number: 13, body: struct({ ...inMesh, space: hex<SpaceId>(16) }) },
  staleKey: { number: 11, body: struct({ ...inMesh, peer: peerKey }) },
  /**
   * This shard serves the peer under this epoch, or no longer does if `isOn` is unset. While it does, other shards may
   * lease its mail on insert.
   */
  serves: { number: 14, body: struct({ ...inMesh, peer: peerNo, epoch: u53, isOn: flag }) },
  /** Deliveries were leased on insert to the peer's session of this epoch. `id` is the last one in its block. */
  born: { number: 15, body: struct({ ...inMesh, peer: peerNo, epoch: u53, id: u53 as unknown as Field<DeliveryId> }) },
  shards: { number: 2, body: struct({}) },
}

type Kinds = typeof kinds
type FieldsOf<Name extends keyof Kinds> = Kinds[Name]['body'] extends Field<infer Fields> ? Fields : never
export type HintOf<Name extends keyof Kinds> = { readonly type: Name } & Readonly<FieldsOf<Name>>
export type Hint = { [Name in keyof Kinds]: HintOf<Name> }[keyof Kinds]

export interface Packet {
  readonly from: ShardId
  readonly hints: readonly Hint[]
}

/** The first byte of a packet. Packets with another version are dropped. */
const PACKET_VERSION = 1

const byNumber = new Map(Object.entries(kinds).map(([type, { number, body }]) => [number, { type, body }]))
const writer = new Writer()

export function encodePacketHeader(from: ShardId): Uint8Array {
  return written(() => {
    writer.u8(PACKET_VERSION)
    shardId.write(writer, from)
  })
}

/**
 * Encodes one hint. A packet consists of a header and hints. @throws Malformed if the hint is invalid, which is a bug
 * in the caller
 */
export function encodeHint(hint: Hint): Uint8Array {
  return written(() => {
    const { number, body } = kinds[hint.type]
    writer.u8(number)
    ;(body as Field<unknown>).write(writer, hint)
  })
}

/** Decodes a packet. Returns null unless the bytes are a complete, valid packet. */
export function decodePacket(bytes: Uint8Array): Packet | null {
  try {
    const reader = new Reader(bytes)
    if (reader.u8() !== PACKET_VERSION) return null
    const from = shardId.read(reader)
    const hints: Hint[] = []
    while (!reader.isAtEnd) hints.push(readHint(reader))
    return { from, hints }
  } catch (error) {
    if (error instanceof Malformed) return null
    throw error
  }
}

function readHint(reader: Reader): Hint {
  const kind = byNumber.get(reader.u8())
  if (!kind) throw new Malformed('unknown hint')
  return { type: kind.type, ...(kind.body as Field<object>).read(reader) } as Hint
}

function written(write: () => void): Uint8Array {
  try {
    write()
    return writer.finish().slice()
  } catch (error) {
    writer.abandon()
    throw error
  }
}
