/** Reads the fixed header of a record, described in docs/PROTOCOL.md under State and history. */
import { type MeshId, type PeerKey, type SpaceId, toHex } from '@sealpost/std'

export interface RecordPlace {
  readonly meshId: MeshId
  readonly spaceId: SpaceId
  readonly author: PeerKey
  readonly bodyId: string
}

/** Requires at least the header's bytes. Readers of the history verify the rest, including the signature. */
export function readRecordPlace(record: Uint8Array): RecordPlace {
  const at = (from: number, length: number) => toHex(record.subarray(from, from + length))
  return {
    meshId: at(5, 16) as MeshId,
    spaceId: at(21, 16) as SpaceId,
    author: at(37, 32) as PeerKey,
    bodyId: at(69, 32),
  }
}
