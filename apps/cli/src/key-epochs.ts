/** The newest epochs of others' box keys that any command of this profile has seen: a later one goes back behind none. */
import type { MeshId } from '@sealpost/sdk'
import { openKeyEpochs, type StoredKeyEpochs } from '@sealpost/sdk/key-epochs'
import type { Profile, ProfileKeys } from './profile.ts'
import { SharedStore } from './shared-store.ts'

/** The caller closes it after what uses it. @throws SealpostError of the store */
export function openProfileKeyEpochs(
  profile: Profile,
  { identity, formerKeys }: Pick<ProfileKeys, 'identity' | 'formerKeys'>,
  meshId: MeshId,
): Promise<StoredKeyEpochs> {
  const owner = { meshId, peerKey: identity.signing.publicKey }
  return openKeyEpochs(new SharedStore(profile.keyEpochsFile), owner, formerKeys)
}
