/**
 * What a newcomer signs when it uses an invite: the transcript of this very connection, the invite, the name it asks for
 * and its key binding. Whoever gets hold of the frame can neither use it on another connection nor become a member with
 * another key or name.
 *
 * Signed: T("enrol"), lp(BLAKE2b-256(invite)), lp(name), lp(signature of the key binding).
 */
import { assert } from '@sealpost/std'
import { concatBytes, isUnsigned, lengthPrefixed, u32, utf8 } from '../byte-fields.ts'
import { type Signatures, type SigningKeys, sign, sodiumSignatures, verify } from '../keys/keys.ts'
import { hash256 } from '../sodium.ts'
import { isEncodable, type Transcript, transcriptBytes } from './transcript.ts'

export interface EnrolmentFields {
  /** The bytes of the invite. */
  readonly invite: Uint8Array
  /** Printable ASCII. */
  readonly name: string
  readonly bindingSignature: Uint8Array
}

export function signEnrolment(keys: SigningKeys, transcript: Transcript, enrolment: EnrolmentFields): Uint8Array {
  assert(keys.publicKey === transcript.peerKey, 'a newcomer signs with the key it names')
  return sign(keys, enrolmentBytes(transcript, enrolment))
}

/** Never throws: a transcript that has no encoding has no signature either. */
export function verifyEnrolment(transcript: Transcript, enrolment: EnrolmentFields, signature: Uint8Array): boolean {
  return isEncodable(transcript) && verify(transcript.peerKey, enrolmentBytes(transcript, enrolment), signature)
}

function enrolmentBytes(transcript: Transcript, { invite, name, bindingSignature }: EnrolmentFields): Uint8Array {
  return concatBytes([
    transcriptBytes('enrol', transcript),
    lengthPrefixed(hash256(invite)),
    lengthPrefixed(utf8(name)),
    lengthPrefixed(bindingSignature),
  ])
}

export function signTokenRequest(keys: SigningKeys, transcript: Transcript, ttlSeconds: number): Uint8Array {
  assert(keys.publicKey === transcript.peerKey, 'a peer signs with the key it names')
  return sign(keys, requestBytes(transcript, ttlSeconds))
}

/** Never throws: a transcript that has no encoding has no signature either. */
export function verifyTokenRequest(
  transcript: Transcript,
  ttlSeconds: number,
  signature: Uint8Array,
  by: Signatures = sodiumSignatures,
): boolean {
  if (!isEncodable(transcript) || !isUnsigned(ttlSeconds, 0xffffffff)) return false
  return by.verify(transcript.peerKey, requestBytes(transcript, ttlSeconds), signature)
}

function requestBytes(transcript: Transcript, ttlSeconds: number): Uint8Array {
  return concatBytes([transcriptBytes('token', transcript), u32(ttlSeconds)])
}
