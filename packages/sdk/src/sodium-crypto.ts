/** The real cryptography behind `CryptoPort`. Await `ready()` of the identity package before the first call. */
import {
  checkKeyBinding,
  type Identity,
  openEnvelope,
  Sealer,
  type StreamId,
  sealInStream,
  signAsClient,
  verifyBroker,
} from '@sealpost/identity'
import { type EnvelopeId, type MeshId, toHex } from '@sealpost/std'
import { v7 } from 'uuid'
import type { CryptoPort } from './ports.ts'

export function sodiumCrypto(identity: Identity, meshId: MeshId): CryptoPort {
  const sealer = new Sealer({ identity, meshId })
  return {
    signAuth: (transcript) => signAsClient(identity.signing, transcript),
    isBrokerProof: verifyBroker,
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
    newNonce: () => randomBytes(32),
    newEnvelopeId: () => toHex(v7(undefined, scratch)) as EnvelopeId,
    newStreamId: () => toHex(randomBytes(16)) as StreamId,
  }
}

const scratch = new Uint8Array(16)
const randomBytes = (length: number): Uint8Array => crypto.getRandomValues(new Uint8Array(length))
