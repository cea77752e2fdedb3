/**
 * Cryptography without cryptography: an envelope contains the number of what was sealed, and opening looks it up. The
 * results are those of the real one: whether it opens with these two keys, and the header.
 */
import type { Correspondent, EnvelopeDraft } from '@sealpost/identity'
import type { CryptoPort, OpenVerdict } from '@sealpost/sdk'
import { type EnvelopeId, fromHex, type MeshId, type Millis, type PeerKey, type Random } from '@sealpost/std'
import { isSame, type KeyRing } from './box-key-turns.ts'
import { vaultGroups } from './groups.ts'
import { vaultPools } from './pool.ts'

const unused = (): never => {
  throw new Error('a world has no devices')
}
const NO_PERSONS: CryptoPort['users'] = { readDevice: unused, readRemoval: unused, readIdentityRotation: unused }

interface SealedFacts {
  readonly meshId: MeshId
  readonly from: PeerKey
  readonly draft: EnvelopeDraft
  readonly fromBox: Uint8Array
}

export interface Vault {
  readonly envelopes: SealedFacts[]
  readonly bodies: Uint8Array[]
}

const NO_SIGNATURE = new Uint8Array(64)
const ENVELOPE_BYTES = 40

export interface CryptoPlace {
  readonly meshId: MeshId
  readonly peerKey: PeerKey
  readonly random: Random
  readonly ring: KeyRing
  readonly nowMs: () => Millis
}

export function vaultCrypto(vault: Vault, { meshId, peerKey, random, ring, nowMs }: CryptoPlace): CryptoPort {
  let lastId = 0
  const randomHex = (digits: number) => Array.from({ length: digits }, () => random.below(16).toString(16)).join('')
  return {
    signAuth: () => NO_SIGNATURE,
    isBrokerProof: () => true,
    checkCertificate: () => 'ok',
    checkBinding: (binding, { peer }) => (binding.peer === peer ? 'ok' : 'binding_foreign'),
    seal: (draft) => {
      const number = vault.envelopes.push({ meshId, from: peerKey, draft, fromBox: ring.current })
      const envelope = new Uint8Array(ENVELOPE_BYTES)
      new DataView(envelope.buffer).setUint32(0, number)
      return { envelope, headerHash: hashOf(envelope) }
    },
    open: (from, { envelopeId, envelope }) => {
      const facts = vault.envelopes[new DataView(envelope.buffer, envelope.byteOffset).getUint32(0) - 1]
      const opened = openFacts(facts, { meshId, to: peerKey, from, ring, envelopeId })
      return opened.ok ? { ...opened, headerHash: opened.header.stream && hashOf(envelope) } : opened
    },
    lacksBoxKey: ({ boxKey, boxEpoch }) => boxEpoch >= ring.newestEpoch && !ring.holds(boxKey),
    newNonce: () => new Uint8Array(32),
    newEnvelopeId: () => {
      lastId += 1
      const time = Math.floor(nowMs()).toString(16).padStart(12, '0')
      return `${time}7${(lastId & 0xfff).toString(16).padStart(3, '0')}${randomHex(16)}` as EnvelopeId
    },
    newStreamId: () => randomHex(32) as ReturnType<CryptoPort['newStreamId']>,
    groups: vaultGroups(vault.bodies, meshId),
    users: NO_PERSONS,
    pools: vaultPools(meshId),
  }
}

function openFacts(
  facts: SealedFacts | undefined,
  outside: { meshId: MeshId; from: Correspondent; to: PeerKey; ring: KeyRing; envelopeId: EnvelopeId },
): OpenVerdict {
  if (facts?.from !== outside.from.peerKey || facts.draft.to.peerKey !== outside.to)
    return { ok: false, reason: 'does_not_open' }
  if (!isSame(facts.fromBox, outside.from.boxKey) || !outside.ring.holds(facts.draft.to.boxKey))
    return { ok: false, reason: 'does_not_open' }
  if (facts.meshId !== outside.meshId) return { ok: false, reason: 'foreign_mesh' }
  if (facts.draft.envelopeId !== outside.envelopeId) return { ok: false, reason: 'wrong_envelope_id' }
  const { stream, sentAtMs, note = null, body } = facts.draft
  return { ok: true, header: { stream: stream ?? null, sentAtMs }, headerHash: null, note, body: body.slice() }
}

const hashOf = (envelope: Uint8Array): Uint8Array => envelope.slice(0, 16)

/** A distinct box key for each peer and epoch; nothing is ever sealed with it. */
export const boxKeyOf = (peerKey: PeerKey, epoch: number): Uint8Array => fromHex(peerKey).with(0, epoch)
