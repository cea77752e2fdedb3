/**
 * A shard's certificate: the cluster's word that a key is that of one of its shards, under some names and until a time.
 * With it the key that peers have pinned need not lie on every machine, and a shard that was broken into is shut out when
 * its certificate ends.
 *
 * Fields: lp(cluster key), lp(shard key), u64 notAfterMs, u16 count, lp(authority) each. Signed by the cluster's key: the
 * context `sealpost-shard/1`, then the fields. Vector: packages/protocol/vectors/shard.json.
 */
import { assert, fromHex, isHex, type Millis, type PeerKey, toHex } from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u16, u64, utf8 } from '../byte-fields.ts'
import { SIGNATURE_BYTES, type SigningKeys, sign, verify } from '../keys/keys.ts'
import { sodium } from '../sodium.ts'

export interface ShardCertificateTerms {
  readonly shardKey: PeerKey
  /** Where the shard is dialled, in the form of `normalizeAuthority`: one to four. */
  readonly authorities: readonly string[]
  /** Good up to and including this time, by the reader's clock, ms since 1970. */
  readonly notAfterMs: Millis
}

export interface ShardCertificate extends ShardCertificateTerms {
  /** The key that signed it, which peers have pinned. */
  readonly clusterKey: PeerKey
  /** All of it, as frames carry it. */
  readonly bytes: Uint8Array
}

/** `certificate_foreign`: genuine perhaps, but by another cluster, for another key or another name. */
export type ShardCertificateVerdict = 'ok' | 'certificate_forged' | 'certificate_expired' | 'certificate_foreign'

const AUTHORITIES_MAX = 4
const AUTHORITY = /^[!-~]{1,255}$/
const PREFIX = 'sealpost-shard1:'

/** In bytes, as frames carry it. */
export function signShardCertificate(cluster: SigningKeys, terms: ShardCertificateTerms): Uint8Array {
  const claim = { ...terms, clusterKey: cluster.publicKey }
  assert(isWellFormed(claim), 'a certificate has a key, one to four authorities and a time')
  const fields = fieldBytes(claim)
  return concatBytes([fields, sign(cluster, signedBytes(fields))])
}

/** Null when it is none, or is not as it was signed. Never throws. */
export function readShardCertificate(bytes: Uint8Array): ShardCertificate | null {
  if (bytes.length <= SIGNATURE_BYTES) return null
  const fields = bytes.subarray(0, bytes.length - SIGNATURE_BYTES)
  const claim = claimOf(fields)
  if (!claim || !verify(claim.clusterKey, signedBytes(fields), bytes.slice(fields.length))) return null
  return { ...claim, bytes }
}

/** Whether this key may use this name. */
export function checkShardCertificate(
  bytes: Uint8Array,
  expected: { clusterKey: PeerKey; shardKey: PeerKey; authority: string; nowMs: Millis },
): ShardCertificateVerdict {
  const certificate = readShardCertificate(bytes)
  if (!certificate) return 'certificate_forged'
  const { clusterKey, shardKey, authorities, notAfterMs } = certificate
  if (clusterKey !== expected.clusterKey || shardKey !== expected.shardKey) return 'certificate_foreign'
  if (!authorities.includes(expected.authority)) return 'certificate_foreign'
  return expected.nowMs > notAfterMs ? 'certificate_expired' : 'ok'
}

/** As it stands in a file: one line. */
export function shardCertificateText(bytes: Uint8Array): string {
  return PREFIX + sodium.to_base64(bytes, sodium.base64_variants.URLSAFE_NO_PADDING)
}

/** Null when it is none. White space around it is cut off. */
export function readShardCertificateText(text: string): ShardCertificate | null {
  const line = text.trim()
  if (!line.startsWith(PREFIX)) return null
  try {
    return readShardCertificate(
      sodium.from_base64(line.slice(PREFIX.length), sodium.base64_variants.URLSAFE_NO_PADDING),
    )
  } catch {
    return null // not base64url
  }
}

type Claim = Omit<ShardCertificate, 'bytes'>

function claimOf(fields: Uint8Array): Claim | null {
  const reader = new FieldReader(fields)
  const [clusterKey, shardKey] = [toHex(reader.prefixed()) as PeerKey, toHex(reader.prefixed()) as PeerKey]
  const notAfterMs = reader.u64()
  const count = Math.min(reader.u16(), AUTHORITIES_MAX + 1)
  const authorities = Array.from({ length: count }, () => String.fromCharCode(...reader.prefixed().subarray(0, 256)))
  const claim = { clusterKey, shardKey, notAfterMs, authorities }
  return reader.isAtEnd && isWellFormed(claim) ? claim : null
}

function isWellFormed({ clusterKey, shardKey, notAfterMs, authorities }: Claim): boolean {
  return (
    isHex(clusterKey, 32) &&
    isHex(shardKey, 32) &&
    isUnsigned(notAfterMs, Number.MAX_SAFE_INTEGER) &&
    authorities.length >= 1 &&
    authorities.length <= AUTHORITIES_MAX &&
    authorities.every((authority) => AUTHORITY.test(authority))
  )
}

function fieldBytes({ clusterKey, shardKey, notAfterMs, authorities }: Claim): Uint8Array {
  return concatBytes([
    lengthPrefixed(fromHex(clusterKey)),
    lengthPrefixed(fromHex(shardKey)),
    u64(notAfterMs),
    u16(authorities.length),
    ...authorities.map((authority) => lengthPrefixed(utf8(authority))),
  ])
}

function signedBytes(fields: Uint8Array): Uint8Array {
  return concatBytes([context('sealpost-shard/1'), fields])
}
