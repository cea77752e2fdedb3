/**
 * Signs and checks key bindings. A key binding is a peer's signed statement that a box key is its own, in one mesh,
 * until a certain time. Without the signature, a broker's directory could substitute its own box key and read the mail.
 *
 * Signed: context, lp(mesh id), lp(peer key), lp(box key), u32 epoch, u64 notAfterMs.
 */
import { assert, fromHex, isHex, type MeshId, type Millis, type PeerKey, toHex } from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u32, u64 } from '../byte-fields.ts'
import { type Identity, SIGNATURE_BYTES, type SigningKeys, sign, verify } from './keys.ts'

export interface KeyBinding {
  readonly meshId: MeshId
  readonly peerKey: PeerKey
  readonly boxKey: Uint8Array
  readonly boxEpoch: number
  readonly notAfterMs: Millis
  readonly signature: Uint8Array
}

/** `binding_foreign`: for another mesh or peer than requested. */
export type KeyBindingVerdict = 'ok' | 'binding_forged' | 'binding_expired' | 'binding_foreign'

/** Signs the identity's box key for one mesh, until `notAfterMs` inclusive. */
export function bindBoxKey(identity: Identity, meshId: MeshId, notAfterMs: Millis): KeyBinding {
  const { signing, box } = identity
  const claim = { meshId, peerKey: signing.publicKey, boxKey: box.publicKey, boxEpoch: box.epoch, notAfterMs }
  assert(isBinding(claim), 'invalid key binding')
  return { ...claim, signature: sign(signing, signedBinding(claim)) }
}

/**
 * Checks an entry of the directory. The caller must refuse an epoch lower than a known one. A peer that stores no
 * verdict may pass `verifyForSelf`, which is faster.
 */
export function checkKeyBinding(
  binding: KeyBinding,
  expected: { meshId: MeshId; peerKey: PeerKey; nowMs: Millis },
  isSigned: typeof verify = verify,
): KeyBindingVerdict {
  if (binding.meshId !== expected.meshId || binding.peerKey !== expected.peerKey) return 'binding_foreign'
  if (!isBinding(binding)) return 'binding_forged'
  if (!isSigned(binding.peerKey, signedBinding(binding), binding.signature)) return 'binding_forged'
  return expected.nowMs > binding.notAfterMs ? 'binding_expired' : 'ok'
}

type Claim = Omit<KeyBinding, 'signature'>

function isBinding(claim: Claim): boolean {
  return (
    isHex(claim.meshId, 16) &&
    isHex(claim.peerKey, 32) &&
    claim.boxKey.length === 32 &&
    isUnsigned(claim.boxEpoch, 0xffffffff) &&
    isUnsigned(claim.notAfterMs, Number.MAX_SAFE_INTEGER)
  )
}

function signedBinding(claim: Claim): Uint8Array {
  return concatBytes([
    context('sealpost-keybind/1'),
    lengthPrefixed(fromHex(claim.meshId)),
    lengthPrefixed(fromHex(claim.peerKey)),
    lengthPrefixed(claim.boxKey),
    u32(claim.boxEpoch),
    u64(claim.notAfterMs),
  ])
}

/**
 * A statement, signed by both identity keys, that one replaces the other. The old key's signature prevents others from
 * redirecting the peer's contacts; the new key's signature prevents the peer from passing its mail to a key that
 * belongs to someone else.
 *
 * Bytes: lp(mesh id), lp(old key), lp(new key), u64 atMs, then the signatures of the old and of the new key over the
 * context `sealpost-identity-rotation/1` and these fields. Vector: packages/protocol/vectors/device.json.
 */
export interface IdentityRotation {
  readonly meshId: MeshId
  readonly former: PeerKey
  readonly successor: PeerKey
  /** When the key was rotated, according to the peer's clock, in ms since 1970. */
  readonly atMs: Millis
}

/** @throws AssertionError if both keys are the same */
export function signIdentityRotation(
  { former, successor }: { former: SigningKeys; successor: SigningKeys },
  { meshId, atMs }: Pick<IdentityRotation, 'meshId' | 'atMs'>,
): Uint8Array {
  const succession = { meshId, former: former.publicKey, successor: successor.publicKey, atMs }
  assert(isRotation(succession), 'invalid succession')
  const fields = rotationFields(succession)
  const text = signedRotation(fields)
  return concatBytes([fields, sign(former, text), sign(successor, text)])
}

/** Reads a rotation. Returns null unless both keys signed it. Never throws. */
export function readIdentityRotation(bytes: Uint8Array): IdentityRotation | null {
  const reader = new FieldReader(bytes)
  const succession: IdentityRotation = {
    meshId: toHex(reader.prefixed()) as MeshId,
    former: toHex(reader.prefixed()) as PeerKey,
    successor: toHex(reader.prefixed()) as PeerKey,
    atMs: reader.u64(),
  }
  const [byFormer, bySuccessor] = [reader.take(SIGNATURE_BYTES), reader.take(SIGNATURE_BYTES)]
  if (!reader.isAtEnd || !isRotation(succession)) return null
  const text = signedRotation(rotationFields(succession))
  return verify(succession.former, text, byFormer) && verify(succession.successor, text, bySuccessor)
    ? succession
    : null
}

function isRotation({ meshId, former, successor, atMs }: IdentityRotation): boolean {
  return (
    isHex(meshId, 16) &&
    isHex(former, 32) &&
    isHex(successor, 32) &&
    former !== successor &&
    isUnsigned(atMs, Number.MAX_SAFE_INTEGER)
  )
}

function signedRotation(fields: Uint8Array): Uint8Array {
  return concatBytes([context('sealpost-identity-rotation/1'), fields])
}

function rotationFields({ meshId, former, successor, atMs }: IdentityRotation): Uint8Array {
  return concatBytes([...[meshId, former, successor].map((id) => lengthPrefixed(fromHex(id))), u64(atMs)])
}
