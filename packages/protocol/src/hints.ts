/**
 * What shards tell each other, in one table: number, name and fields, as the frames of peers have. A hint may be lost,
 * doubled, late or forged: it makes a shard look, and the database decides.
 */
import type { MeshId, PeerNo, ShardId } from '@sealpost/std'
import { Malformed, Reader, Writer } from './cursor.ts'
import { type Field, hex, struct, u32, u53 } from './layout.ts'

const meshId = hex<MeshId>(16)
const shardId = hex<ShardId>(16)
const peerNo = u32 as unknown as Field<PeerNo>

const inMesh = { meshId }

/** A number, once given, never changes its meaning: shards of two versions share a bus during an upgrade. */
const kinds = {
  /** Something may wait for this peer, or for this pool. */
  wake: { number: 1, body: struct({ ...inMesh, peer: peerNo }) },
  /** This shard has opened a session of this peer. */
  superseded: { number: 3, body: struct({ ...inMesh, peer: peerNo, epoch: u53 }) },
  /** This member was revoked, or has another key. */
  revoked: { number: 4, body: struct({ ...inMesh, peer: peerNo }) },
  /** A shard came or went. */
  shards: { number: 2, body: struct({}) },
}

type Kinds = typeof kinds
type FieldsOf<Name extends keyof Kinds> = Kinds[Name]['body'] extends Field<infer Fields> ? Fields : never
export type HintOf<Name extends keyof Kinds> = { readonly type: Name } & Readonly<FieldsOf<Name>>
export type Hint = { [Name in keyof Kinds]: HintOf<Name> }[keyof Kinds]

/** Hints of one shard that travel together. */
export interface Packet {
  readonly from: ShardId
  readonly hints: readonly Hint[]
}

/** Before everything else in a packet; a shard that reads another one drops it. */
const PACKET_VERSION = 1
export const PACKET_HEADER_BYTES = 17

const byNumber = new Map(Object.entries(kinds).map(([type, { number, body }]) => [number, { type, body }]))
const writer = new Writer()

export function encodePacketHeader(from: ShardId): Uint8Array {
  return written(() => {
    writer.u8(PACKET_VERSION)
    shardId.write(writer, from)
  })
}

/** A packet is its header and so many of these. @throws Malformed for what could not be decoded: a bug of the caller */
export function encodeHint(hint: Hint): Uint8Array {
  return written(() => {
    const { number, body } = kinds[hint.type]
    writer.u8(number)
    ;(body as Field<unknown>).write(writer, hint)
  })
}

/** `null` for anything else than a packet, whole and in order. */
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
