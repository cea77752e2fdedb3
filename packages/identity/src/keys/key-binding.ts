/**
 * A peer's signed word that a box key is its own, in one mesh, until a time. The directory hands these out; without the
 * signature a broker could answer "her box key is this one" and read what is sealed to it.
 *
 * Signed: context, lp(mesh id), lp(peer key), lp(box key), u32 epoch, u64 notAfterMs.
 */
import { assert, fromHex, isHex, type MeshId, type Millis, type PeerKey } from '@sealpost/std'
import { concatBytes, context, isUnsigned, lengthPrefixed, u32, u64 } from '../byte-fields.ts'
import { type Identity, sign, verify } from './keys.ts'

export interface KeyBinding {
  readonly meshId: MeshId
  readonly peerKey: PeerKey
  readonly boxKey: Uint8Array
  readonly boxEpoch: number
  readonly notAfterMs: Millis
  readonly signature: Uint8Array
}

/** `binding_foreign`: genuine perhaps, but of another mesh or peer than the one asked about. */
export type KeyBindingVerdict = 'ok' | 'binding_forged' | 'binding_expired' | 'binding_foreign'

/** Signs the identity's box key for one mesh. A binding is good up to and including `notAfterMs`. */
export function bindBoxKey(identity: Identity, meshId: MeshId, notAfterMs: Millis): KeyBinding {
  const { signing, box } = identity
  const claim = { meshId, peerKey: signing.publicKey, boxKey: box.publicKey, boxEpoch: box.epoch, notAfterMs }
  assert(isWellFormed(claim), 'a key binding has a mesh id, two keys, an epoch and a time')
  return { ...claim, signature: sign(signing, signedBytes(claim)) }
}

/**
 * Whether a directory's entry may be believed. It does not know former entries: refusing an epoch lower than one seen
 * before is the caller's part.
 */
export function checkKeyBinding(
  binding: KeyBinding,
  expected: { meshId: MeshId; peerKey: PeerKey; nowMs: Millis },
): KeyBindingVerdict {
  if (binding.meshId !== expected.meshId || binding.peerKey !== expected.peerKey) return 'binding_foreign'
  if (!isWellFormed(binding)) return 'binding_forged'
  if (!verify(binding.peerKey, signedBytes(binding), binding.signature)) return 'binding_forged'
  return expected.nowMs > binding.notAfterMs ? 'binding_expired' : 'ok'
}

type Claim = Omit<KeyBinding, 'signature'>

function isWellFormed(claim: Claim): boolean {
  return (
    isHex(claim.meshId, 16) &&
    isHex(claim.peerKey, 32) &&
    claim.boxKey.length === 32 &&
    isUnsigned(claim.boxEpoch, 0xffffffff) &&
    isUnsigned(claim.notAfterMs, Number.MAX_SAFE_INTEGER)
  )
}

function signedBytes(claim: Claim): Uint8Array {
  return concatBytes([
    context('sealpost-keybind/1'),
    lengthPrefixed(fromHex(claim.meshId)),
    lengthPrefixed(fromHex(claim.peerKey)),
    lengthPrefixed(claim.boxKey),
    u32(claim.boxEpoch),
    u64(claim.notAfterMs),
  ])
}
