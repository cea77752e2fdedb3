/** Whose key may stand in a greeting: the pinned one, or one of a shard that the pinned one vouches for. */
import type { checkShardCertificate, ShardCertificateVerdict } from '@sealpost/identity'
import type { Millis, PeerKey } from '@sealpost/std'

/** `wrong_key`: another key without a word for it; `proof_forged`: it does not hold the key it names. */
export type ShardRefusal = Exclude<ShardCertificateVerdict, 'ok'> | 'wrong_key' | 'proof_forged'

export interface Claimant {
  readonly pinned: PeerKey
  /** As the greeting names it. */
  readonly brokerKey: PeerKey
  /** As it was dialled. */
  readonly authority: string
  /** What came with it, if anything did. */
  readonly certificate: Uint8Array | null
  readonly nowMs: Millis
}

export function judgeKey(
  { pinned, brokerKey, authority, certificate, nowMs }: Claimant,
  check: typeof checkShardCertificate,
): ShardRefusal | 'ok' {
  if (brokerKey === pinned) return 'ok'
  if (certificate === null) return 'wrong_key'
  return check(certificate, { clusterKey: pinned, shardKey: brokerKey, authority, nowMs })
}
