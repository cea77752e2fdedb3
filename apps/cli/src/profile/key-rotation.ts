/** Rotations, with the key file in step: the next key is on disk before anybody can seal to it. */
import { beginBoxKeyRotation, beginIdentityRotation, completeBoxKeyRotation } from '@sealpost/identity/key-file'
import type { Peer, PeerKey } from '@sealpost/sdk'
import type { Profile } from './profile.ts'

/**
 * Said again after a crash or a lost answer, it continues with the key it began with.
 * @returns the epoch of the new key
 * @throws those of `Peer.lookup`, `Peer.rotateBoxKey` and the key file
 */
export async function rotateBoxKey(profile: Profile, peer: Peer): Promise<number> {
  const published = await peer.lookupKey(peer.key)
  const { next, file } = beginBoxKeyRotation(await profile.readKeyFile(), published)
  await profile.replaceKeys(file)
  await peer.rotateBoxKey(next)
  await profile.replaceKeys(completeBoxKeyRotation(file, next, Date.now()))
  return next.epoch
}

/**
 * The next identity stands beside the key file until the broker has it. Said again after a crash or a lost answer, it goes
 * on with the one it began with.
 * @throws those of `Peer.lookup`, `Peer.rotateIdentity` and the key file
 */
export async function rotateIdentity(profile: Profile, peer: Peer): Promise<PeerKey> {
  const { boxEpoch } = await peer.lookupKey(peer.key)
  const file =
    (await profile.findNextKeys()) ?? beginIdentityRotation(await profile.readKeyFile(), boxEpoch, Date.now())
  await profile.writeNextKeys(file)
  await peer.rotateIdentity(file.identity)
  await profile.promoteNextKeys()
  return file.identity.signing.publicKey
}
