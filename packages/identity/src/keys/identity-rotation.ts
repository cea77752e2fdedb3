/**
 * One identity key follows another: a statement that both signed, the old one so that nobody else can send its contacts
 * elsewhere, the new one so that nobody can pass its mail to a key that is another's.
 *
 * Bytes: lp(mesh id), lp(old key), lp(new key), u64 atMs, then the signatures of the old and of the new key over the
 * context `sealpost-identity-rotation/1` and these fields. Vector: packages/protocol/vectors/device.json.
 */
import { assert, fromHex, isHex, type MeshId, type Millis, type PeerKey, toHex } from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u64 } from '../byte-fields.ts'
import { SIGNATURE_BYTES, type SigningKeys, sign, verify } from './keys.ts'

export interface IdentityRotation {
  readonly meshId: MeshId
  readonly former: PeerKey
  readonly successor: PeerKey
  /** By the clock of the peer that rotated its key, ms since 1970. */
  readonly atMs: Millis
}

/** @throws AssertionError for a key that follows itself */
export function signIdentityRotation(
  { former, successor }: { former: SigningKeys; successor: SigningKeys },
  { meshId, atMs }: Pick<IdentityRotation, 'meshId' | 'atMs'>,
): Uint8Array {
  const succession = { meshId, former: former.publicKey, successor: successor.publicKey, atMs }
  assert(isWellFormed(succession), 'a succession has a mesh, two different keys and a time')
  const fields = fieldBytes(succession)
  const text = signedBytes(fields)
  return concatBytes([fields, sign(former, text), sign(successor, text)])
}

/** Null unless both keys signed it. Never throws. */
export function readIdentityRotation(bytes: Uint8Array): IdentityRotation | null {
  const reader = new FieldReader(bytes)
  const succession: IdentityRotation = {
    meshId: toHex(reader.prefixed()) as MeshId,
    former: toHex(reader.prefixed()) as PeerKey,
    successor: toHex(reader.prefixed()) as PeerKey,
    atMs: reader.u64(),
  }
  const [byFormer, bySuccessor] = [reader.take(SIGNATURE_BYTES), reader.take(SIGNATURE_BYTES)]
  if (!reader.isAtEnd || !isWellFormed(succession)) return null
  const text = signedBytes(fieldBytes(succession))
  return verify(succession.former, text, byFormer) && verify(succession.successor, text, bySuccessor)
    ? succession
    : null
}

function isWellFormed({ meshId, former, successor, atMs }: IdentityRotation): boolean {
  return (
    isHex(meshId, 16) &&
    isHex(former, 32) &&
    isHex(successor, 32) &&
    former !== successor &&
    isUnsigned(atMs, Number.MAX_SAFE_INTEGER)
  )
}

function signedBytes(fields: Uint8Array): Uint8Array {
  return concatBytes([context('sealpost-identity-rotation/1'), fields])
}

function fieldBytes({ meshId, former, successor, atMs }: IdentityRotation): Uint8Array {
  return concatBytes([...[meshId, former, successor].map((id) => lengthPrefixed(fromHex(id))), u64(atMs)])
}
