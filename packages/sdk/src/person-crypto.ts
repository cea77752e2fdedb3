/** What persons, their devices and the turn of an identity key need of cryptography, with the real one behind it. */
import {
  createDeviceInvite,
  type DeviceInviteTerms,
  type DeviceRemoval,
  type DeviceStatement,
  type Identity,
  readDevice,
  readRemoval,
  readSuccession,
  type SigningKeys,
  type Succession,
  signRemoval,
  signSuccession,
} from '@sealpost/identity'
import type { MeshId, PeerKey } from '@sealpost/std'

/** Of one identity in one mesh. Each reader answers null for what its signers did not sign, or of another mesh. */
export interface PersonCrypto {
  readDevice(bytes: Uint8Array): DeviceStatement | null
  readRemoval(bytes: Uint8Array): DeviceRemoval | null
  readSuccession(bytes: Uint8Array): Succession | null
}

/** What only the holder of the identity key can say. */
export interface PersonKeys {
  /** One line for a new device of this person. */
  inviteDevice(terms: Omit<DeviceInviteTerms, 'meshId'>): string
  removeDevice(device: PeerKey): Uint8Array
  succeed(next: Identity): Uint8Array
}

export function sodiumPersons(meshId: MeshId): PersonCrypto {
  const ours = <T extends { meshId: MeshId }>(read: T | null): T | null => (read?.meshId === meshId ? read : null)
  return {
    readDevice: (bytes) => ours(readDevice(bytes)),
    readRemoval: (bytes) => ours(readRemoval(bytes)),
    readSuccession: (bytes) => ours(readSuccession(bytes)),
  }
}

export function personKeys(signing: SigningKeys, meshId: MeshId): PersonKeys {
  return {
    inviteDevice: (terms) => createDeviceInvite(signing, { ...terms, meshId }),
    removeDevice: (device) => signRemoval(signing, { meshId, person: signing.publicKey, device }),
    succeed: (next) => signSuccession({ former: signing, successor: next.signing }, { meshId, atMs: Date.now() }),
  }
}

/** Of nobody: for simulators and tests in which no person has devices. */
export const NO_PERSONS: PersonCrypto = {
  readDevice: () => null,
  readRemoval: () => null,
  readSuccession: () => null,
}
