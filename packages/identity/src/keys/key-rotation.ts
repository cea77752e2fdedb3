/**
 * How a key file goes through a rotation of the box key. The next key is kept before it is published, as one that opens
 * and does not seal, so that a crash between the two loses nothing; and the one before is kept until mail sealed to it is
 * gone.
 */
import { isSameBytes, type Millis } from '@sealpost/std'
import { FORMER_KEYS_MAX, type FormerBoxKeys, type PeerKeyFile } from './key-file-text.ts'
import { type BoxKeys, generateBoxKeys, generateSigningKeys } from './keys.ts'

/** Longer than any time to live of mail that a broker may be set to, and the time its senders may take. */
const KEPT_MS = 60 * 24 * 3600_000

/**
 * The key to publish next, above every epoch that the directory has seen: the one that an attempt left which broke off, or
 * a new one. `file` is to be written before it is published.
 */
export function beginBoxKeyRotation(file: PeerKeyFile, published: { boxKey: Uint8Array; boxEpoch: number }) {
  const { identity, formerBoxKeys } = file
  const left = formerBoxKeys.find(({ epoch }) => epoch > identity.box.epoch)
  if (left && (left.epoch > published.boxEpoch || isSameBytes(left.publicKey, published.boxKey)))
    return { next: left, file }
  const epochs = [published.boxEpoch, identity.box.epoch, ...formerBoxKeys.map(({ epoch }) => epoch)]
  const next = generateBoxKeys(Math.max(...epochs) + 1)
  return { next, file: { ...file, formerBoxKeys: [next, ...formerBoxKeys].slice(0, FORMER_KEYS_MAX) } }
}

/** The file once the key is published. */
export function completeBoxKeyRotation(file: PeerKeyFile, next: BoxKeys, nowMs: Millis): PeerKeyFile {
  const { identity, formerBoxKeys } = file
  const others = [identity.box, ...formerBoxKeys].filter(({ epoch }) => epoch !== next.epoch)
  const retired = others.map((key: FormerBoxKeys) => ({ ...key, retiredAtMs: key.retiredAtMs ?? nowMs }))
  const kept = retired.filter(({ retiredAtMs }) => nowMs - retiredAtMs < KEPT_MS).slice(0, FORMER_KEYS_MAX)
  const { publicKey, secretKey, epoch } = next
  return { ...file, identity: { ...identity, box: { publicKey, secretKey, epoch } }, formerBoxKeys: kept }
}

/** The file of the next identity, to be written beside this one before it is published. `boxEpoch`: the published one. */
export function beginIdentityRotation(file: PeerKeyFile, boxEpoch: number, nowMs: Millis): PeerKeyFile {
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
