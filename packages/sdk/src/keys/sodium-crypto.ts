/** Implements `CryptoPort` with libsodium. Await `ready()` of the identity package first. */
import {
  type BoxKeys,
  bindBoxKey,
  checkKeyBinding,
  checkShardCertificate,
  ENVELOPE_OVERHEAD_BYTES,
  type Identity,
  openBody,
  openEnvelope,
  paddedLength,
  readDevice,
  readGroup,
  readIdentityRotation,
  readRemoval,
  Sealer,
  type StreamId,
  sealBody,
  sealInStream,
  signAsClient,
  signIdentityRotation,
  verifyBroker,
  verifyForSelf,
} from '@sealpost/identity'
import { isSameBytes, type MeshId, type PeerKey, toHex } from '@sealpost/std'
import type { CryptoPort, GroupCrypto, UserCrypto } from '../ports.ts'
import type { OwnKeys } from './key-epochs.ts'
import { envelopeIds } from './peer-keys.ts'

/** The fields of `ConnectOptions` with the same names. */
export interface SodiumCryptoOptions {
  readonly identity: Identity
  readonly meshId: MeshId
  readonly formerBoxKeys?: readonly BoxKeys[]
  readonly formerKeys?: readonly PeerKey[]
  readonly padding?: boolean
}

export function sodiumCrypto({
  identity: { signing, box },
  meshId,
  formerBoxKeys: others = [],
  formerKeys = [],
  padding,
}: SodiumCryptoOptions): CryptoPort & OwnKeys {
  let paddedMax = padding ? Infinity : 0
  const padTo = (bytes: number) => paddedUpTo(bytes, paddedMax)
  let sealer = sealerOf(box, others)
  let current = box
  let beside = others
  function sealerOf(own: BoxKeys, formerBoxKeys: readonly BoxKeys[]): Sealer {
    return new Sealer({ identity: { signing, box: own }, meshId, formerBoxKeys, formerKeys, padTo })
  }
  function holdKeys(own: BoxKeys, keys: readonly BoxKeys[]): void {
    current = own
    beside = keys.filter((key) => key.epoch !== own.epoch)
    sealer = sealerOf(current, beside)
  }
  return {
    limitPadding: (envelopeBytesMax) => {
      paddedMax &&= envelopeBytesMax - ENVELOPE_OVERHEAD_BYTES
    },
    signAuth: (transcript) => signAsClient(signing, transcript),
    isBrokerProof: verifyBroker,
    checkCertificate: checkShardCertificate,
    checkBinding: (entry, { peer, nowMs }) => {
      // The directory omits the mesh, so verify the binding as one of our mesh.
      const binding = { ...entry, peerKey: entry.peer, meshId }
      const verdict = checkKeyBinding(binding, { meshId, peerKey: peer, nowMs }, verifyForSelf)
      if (verdict !== 'ok') return verdict
      try {
        sealer.prepare(binding)
      } catch {
        // The box key has small order, so nothing can be sealed to it.
      }
      return verdict
    },
    seal: (draft) => sealInStream(sealer, draft),
    open: (from, { envelope, envelopeId }) => openEnvelope(sealer, envelope, { from, envelopeId }),
    lacksBoxKey: ({ boxKey, boxEpoch }) =>
      [current, ...beside].every(({ publicKey, epoch }) => epoch <= boxEpoch && !isSameBytes(publicKey, boxKey)),
    bindNext: (next, notAfterMs) => {
      holdKeys(current, [next, ...beside.filter((key) => key.epoch !== next.epoch)])
      return bindBoxKey({ signing, box: next }, meshId, notAfterMs)
    },
    bindIdentity: (next, notAfterMs) => bindBoxKey(next, meshId, notAfterMs),
    get current() {
      return current
    },
    activate: (next) => holdKeys(next, [current, ...beside]),
    newNonce: () => randomBytes(32),
    newEnvelopeId,
    newStreamId: () => toHex(randomBytes(16)) as StreamId,
    rotateIdentity: (next) =>
      signIdentityRotation({ former: signing, successor: next.signing }, { meshId, atMs: Date.now() }),
    groups: sodiumGroups(meshId),
    users: sodiumUsers(meshId),
  }
}

/** Returns the padded length, or `max` if that is less; at least `bytes`. */
export const paddedUpTo = (bytes: number, max: number): number => Math.max(bytes, Math.min(paddedLength(bytes), max))

/** Shared by all peers of a process, so that the ids of a reopened peer still ascend. */
const newEnvelopeId = envelopeIds()
const randomBytes = (length: number): Uint8Array => crypto.getRandomValues(new Uint8Array(length))

function sodiumGroups(meshId: MeshId): GroupCrypto {
  return {
    read: (statement) => {
      const group = readGroup(statement)
      return group?.meshId === meshId ? group : null
    },
    sealBody,
    openBody,
  }
}

export function sodiumUsers(meshId: MeshId): UserCrypto {
  const ours = <T extends { meshId: MeshId }>(read: T | null): T | null => (read?.meshId === meshId ? read : null)
  return {
    readDevice: (bytes) => ours(readDevice(bytes)),
    readRemoval: (bytes) => ours(readRemoval(bytes)),
    readIdentityRotation: (bytes) => ours(readIdentityRotation(bytes)),
  }
}
