/**
 * Defines the checkpoint of a mesh's log: a broker's signed statement that the log has this root (docs/adr/0023). It
 * has 140 bytes, so that messages can contain one.
 *
 * Bytes: signer (32), u32 size, root hash (32), u64 atMs, then the signature of the signer over the context
 * `sealpost-checkpoint/1`, lp(mesh id) and these fields. The signer is the broker key that peers have pinned, or the key
 * of a shard that the pinned key certifies. Vector: packages/protocol/vectors/log.json.
 */
import { assert, fromHex, isHex, type MeshId, type Millis, type PeerKey, toHex } from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u32, u64 } from '../byte-fields.ts'
import { readShardCertificate } from '../handshake/transcript.ts'
import { SIGNATURE_BYTES, type SigningKeys, sign, verify } from '../keys/keys.ts'
import { isConsistent, LEAVES_MAX, type TreeHead } from './merkle-tree.ts'

export interface Checkpoint extends TreeHead {
  readonly meshId: MeshId
  readonly signer: PeerKey
  /** When the broker signed, by its clock. */
  readonly atMs: Millis
  /** The encoded checkpoint. */
  readonly bytes: Uint8Array
}

export const CHECKPOINT_BYTES = 140
const HASH_BYTES = 32

export function signCheckpoint(
  broker: SigningKeys,
  { meshId, size, rootHash, atMs }: Omit<Checkpoint, 'signer' | 'bytes'>,
): Uint8Array {
  assert(isUnsigned(size, LEAVES_MAX) && rootHash.length === HASH_BYTES, 'a checkpoint has a size and a root hash')
  const fields = concatBytes([fromHex(broker.publicKey), u32(size), rootHash, u64(atMs)])
  return concatBytes([fields, sign(broker, signedCheckpoint(meshId, fields))])
}

/**
 * Reads a checkpoint of this mesh. Returns null unless its signer signed it. Never throws. The caller must check with
 * `isBrokerKey` who the signer is.
 */
export function readCheckpoint(bytes: Uint8Array, meshId: MeshId): Checkpoint | null {
  if (bytes.length !== CHECKPOINT_BYTES || !isHex(meshId, 16)) return null
  const reader = new FieldReader(bytes)
  const signer = toHex(reader.take(HASH_BYTES)) as PeerKey
  const size = reader.u32()
  const rootHash = reader.take(HASH_BYTES).slice()
  const atMs = reader.u64()
  if (!isUnsigned(atMs, Number.MAX_SAFE_INTEGER)) return null
  const fields = bytes.subarray(0, CHECKPOINT_BYTES - SIGNATURE_BYTES)
  const isSigned = verify(signer, signedCheckpoint(meshId, fields), reader.take(SIGNATURE_BYTES))
  return isSigned ? { meshId, signer, size, rootHash, atMs, bytes } : null
}

/**
 * Returns whether the signer is the pinned broker, or a shard that the pinned key certified for this time.
 * `certificate`: the shard's certificate; null if none is known.
 */
export function isBrokerKey(
  { signer, atMs }: Pick<Checkpoint, 'signer' | 'atMs'>,
  { brokerKey, certificate }: { readonly brokerKey: PeerKey; readonly certificate: Uint8Array | null },
): boolean {
  if (signer === brokerKey) return true
  const claim = certificate && readShardCertificate(certificate)
  return claim?.clusterKey === brokerKey && claim.shardKey === signer && atMs <= claim.notAfterMs
}

/**
 * Compares two checkpoints of one mesh, in any order. `path`: the consistency proof between their sizes, empty if they
 * are equal. `forked`: no log contains both trees, or the proof is not valid.
 */
export function compareCheckpoints(a: TreeHead, b: TreeHead, path: readonly Uint8Array[]): 'consistent' | 'forked' {
  const [smaller, greater] = a.size <= b.size ? [a, b] : [b, a]
  return isConsistent(smaller, greater, path) ? 'consistent' : 'forked'
}

const signedCheckpoint = (meshId: MeshId, fields: Uint8Array): Uint8Array =>
  concatBytes([context('sealpost-checkpoint/1'), lengthPrefixed(fromHex(meshId)), fields])
