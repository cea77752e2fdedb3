/** The real cryptography behind `CryptoPort`. Await `ready()` of the identity package before the first call. */
import {
  type BoxKeys,
  bindBoxKey,
  checkKeyBinding,
  checkShardCertificate,
  type Identity,
  openEnvelope,
  Sealer,
  type StreamId,
  sealInStream,
  signAsClient,
  verifyBroker,
} from '@sealpost/identity'
import { type MeshId, type PeerKey, toHex } from '@sealpost/std'
import { envelopeIds } from './envelope-ids.ts'
import { sodiumGroups } from './group-crypto.ts'
import type { OwnKeys } from './own-keys.ts'
import { personKeys, sodiumPersons } from './person-crypto.ts'
import { sodiumPools } from './pool-crypto.ts'
import type { CryptoPort } from './ports.ts'

/** `others`: box keys beside that of the identity, to open with. `formerKeys`: identity keys that this one has followed. */
export function sodiumCrypto(
  { signing, box }: Identity,
  meshId: MeshId,
  others: readonly BoxKeys[] = [],
  formerKeys: readonly PeerKey[] = [],
): CryptoPort & OwnKeys {
  let sealer = sealerOf(box, others)
  let current = box
  let beside = others
  function sealerOf(own: BoxKeys, formerBoxKeys: readonly BoxKeys[]): Sealer {
    return new Sealer({ identity: { signing, box: own }, meshId, formerBoxKeys, formerKeys })
  }
  function holdKeys(own: BoxKeys, keys: readonly BoxKeys[]): void {
    current = own
    beside = keys.filter((key) => key.epoch !== own.epoch)
    sealer = sealerOf(current, beside)
  }
  return {
    signAuth: (transcript) => signAsClient(signing, transcript),
    isBrokerProof: verifyBroker,
    checkCertificate: checkShardCertificate,
    checkBinding: (entry, { peer, nowMs }) => {
      // The directory doesn't repeat the mesh: the binding is good for ours or for none.
      const binding = { ...entry, peerKey: entry.peer, meshId }
      const verdict = checkKeyBinding(binding, { meshId, peerKey: peer, nowMs })
      if (verdict !== 'ok') return verdict
      try {
        sealer.prepare(binding)
      } catch {
        // A box key of small order: sealing to it says so, opening fails.
      }
      return verdict
    },
    seal: (draft) => sealInStream(sealer, draft),
    open: (from, { envelope, envelopeId }) => openEnvelope(sealer, envelope, { from, envelopeId }),
    lacksBoxKey: ({ boxKey, boxEpoch }) =>
      [current, ...beside].every(({ publicKey, epoch }) => epoch <= boxEpoch && !isSame(publicKey, boxKey)),
    bind: (next, notAfterMs) => {
      holdKeys(current, [next, ...beside.filter((key) => key.epoch !== next.epoch)])
      return bindBoxKey({ signing, box: next }, meshId, notAfterMs)
    },
    bindOther: (next, notAfterMs) => bindBoxKey(next, meshId, notAfterMs),
    turnTo: (next) => holdKeys(next, [current, ...beside]),
    newNonce: () => randomBytes(32),
    newEnvelopeId,
    newStreamId: () => toHex(randomBytes(16)) as StreamId,
    groups: sodiumGroups(signing, meshId),
    persons: sodiumPersons(meshId),
    own: personKeys(signing, meshId),
    pools: sodiumPools(signing, meshId),
  }
}

/** Of all peers of a process: whoever comes again goes on above what it sent. */
const newEnvelopeId = envelopeIds()
const isSame = (a: Uint8Array, b: Uint8Array) => a.length === b.length && a.every((byte, i) => byte === b[i])
const randomBytes = (length: number): Uint8Array => crypto.getRandomValues(new Uint8Array(length))
