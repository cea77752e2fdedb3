/**
 * What a newcomer signs when it uses an invite: the transcript of this very connection, the invite, the name it asks for
 * and its key binding. Whoever gets hold of the frame can neither use it on another connection nor become a member with
 * another key or name.
 *
 * Signed: T("enrol"), lp(BLAKE2b-256(invite)), lp(name), lp(signature of the key binding).
 */
import { assert } from '@sealpost/std'
import { concatBytes, lengthPrefixed, utf8 } from './byte-fields.ts'
import { type SigningKeys, sign, verify } from './keys.ts'
import { hash256 } from './sodium.ts'
import { isEncodable, type Transcript, transcriptBytes } from './transcript.ts'

export interface Enrolment {
  /** The bytes of the invite. */
  readonly invite: Uint8Array
  /** Printable ASCII. */
  readonly name: string
  readonly bindingSignature: Uint8Array
}

export function signEnrolment(keys: SigningKeys, transcript: Transcript, enrolment: Enrolment): Uint8Array {
  assert(keys.publicKey === transcript.peerKey, 'a newcomer signs with the key it names')
  return sign(keys, enrolmentBytes(transcript, enrolment))
}

/** Never throws: a transcript that has no encoding has no signature either. */
export function verifyEnrolment(transcript: Transcript, enrolment: Enrolment, signature: Uint8Array): boolean {
  return isEncodable(transcript) && verify(transcript.peerKey, enrolmentBytes(transcript, enrolment), signature)
}

function enrolmentBytes(transcript: Transcript, { invite, name, bindingSignature }: Enrolment): Uint8Array {
  return concatBytes([
    transcriptBytes('enrol', transcript),
    lengthPrefixed(hash256(invite)),
    lengthPrefixed(utf8(name)),
    lengthPrefixed(bindingSignature),
  ])
}
