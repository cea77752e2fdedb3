/** How a key file goes to another identity: what the one before could open, the next one can. */
import type { Millis } from '@sealpost/std'
import type { FormerBoxKeys, PeerKeyFile } from './key-file.ts'
import { FORMER_KEYS_MAX } from './key-file-text.ts'
import { generateBoxKeys, generateSigningKeys } from './keys.ts'

/** The file of the next identity, to be written beside this one before it is published. `boxEpoch`: the published one. */
export function nextIdentity(file: PeerKeyFile, boxEpoch: number, nowMs: Millis): PeerKeyFile {
  const { identity, formerBoxKeys, formerKeys = [] } = file
  const others: FormerBoxKeys[] = [identity.box, ...formerBoxKeys]
  const epoch = Math.max(boxEpoch, ...others.map((key) => key.epoch)) + 1
  const retired = others.map((key) => ({ ...key, retiredAtMs: key.retiredAtMs ?? nowMs }))
  return {
    ...file,
    identity: { signing: generateSigningKeys(), box: generateBoxKeys(epoch) },
    formerBoxKeys: retired.slice(0, FORMER_KEYS_MAX),
    formerKeys: [identity.signing.publicKey, ...formerKeys].slice(0, FORMER_KEYS_MAX),
  }
}
