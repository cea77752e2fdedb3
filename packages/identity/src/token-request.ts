/**
 * What a peer signs to be given a token for HTTP: the transcript of the challenge it was asked, and how long the token is
 * to live. The broker answers as it answers AUTH, over the hash of this signature.
 *
 * Signed: T("token"), u32 seconds.
 */
import { assert } from '@sealpost/std'
import { concatBytes, isUnsigned, u32 } from './byte-fields.ts'
import { type Signatures, type SigningKeys, sign, sodiumSignatures } from './keys.ts'
import { isEncodable, type Transcript, transcriptBytes } from './transcript.ts'

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
