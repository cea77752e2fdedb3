/**
 * Builds the transcript that both sides of a handshake sign. It contains the nonces, the dialled authority, the pinned
 * key, the connection and the offered versions, so that a signature is not valid on another connection, to another
 * broker, in another mesh, or after a downgrade. Every variable-length field is length-prefixed.
 *
 * The client signs T("client"); a new member signs T("enrol") and the enrolment fields (below). The broker signs
 * T("broker") followed by the BLAKE2b-256 of the client's signature, so its proof belongs to that one AUTH. Vector:
 * packages/protocol/vectors/handshake.json.
 */
import { assert, fromHex, isHex, type MeshId, type Millis, OperatingError, type PeerKey, toHex } from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u16, u32, u64, utf8 } from '../byte-fields.ts'
import { SIGNATURE_BYTES, type Signatures, type SigningKeys, sign, sodiumSignatures, verify } from '../keys/keys.ts'
import { verifyForSelf } from '../platform-crypto.ts'
import { hash256, sodium } from '../sodium.ts'

export interface Transcript {
  /** The version chosen in AUTH. */
  readonly version: number
  /** The versions in HELLO, in their order. */
  readonly versionsOffered: readonly number[]
  /** `host:port` as the client dialled it, in the form of `normalizeAuthority`. */
  readonly authority: string
  /** On the client, the pinned key; on the broker, its own key. Never the key that HELLO claims. */
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
  readonly peerKey: PeerKey
  /** 32 bytes each. */
  readonly serverNonce: Uint8Array
  readonly clientNonce: Uint8Array
  /** 16 bytes. */
  readonly connectionId: Uint8Array
  /** The pinned key on the client, the own key on the broker; never the key in HELLO. */
  readonly issuedAtMs: Millis
  /** Printable ASCII without commas, in any order. */
  readonly capabilities: readonly string[]
}

export type TranscriptRole = 'client' | 'broker' | 'enrol' | 'token'

export function signAsClient(keys: SigningKeys, transcript: Transcript): Uint8Array {
  assert(keys.publicKey === transcript.peerKey, 'a foreign key')
  return sign(keys, transcriptBytes('client', transcript))
}

/** Returns whether the signature is valid. Never throws. */
export function verifyClient(
  transcript: Transcript,
  signature: Uint8Array,
  by: Signatures = sodiumSignatures,
): boolean {
  return isEncodable(transcript) && by.verify(transcript.peerKey, transcriptBytes('client', transcript), signature)
}

export function signAsBroker(
  keys: SigningKeys,
  transcript: Transcript,
  clientSignature: Uint8Array,
  by: Signatures = sodiumSignatures,
): Uint8Array {
  assert(keys.publicKey === transcript.brokerKey, 'a broker signs with the key it names')
  assert(clientSignature.length === SIGNATURE_BYTES, 'a broker answers a signature')
  return by.sign(keys, brokerBytes(transcript, clientSignature))
}

/** Verifies the signature in WELCOME with the pinned key. Never throws. */
export function verifyBroker(transcript: Transcript, clientSignature: Uint8Array, signature: Uint8Array): boolean {
  if (!isEncodable(transcript)) return false
  return verifyForSelf(transcript.brokerKey, brokerBytes(transcript, clientSignature), signature)
}

export function transcriptBytes(role: TranscriptRole, transcript: Transcript): Uint8Array {
  assert(isEncodable(transcript), 'a transcript is well-formed')
  return concatBytes([
    context(`sealpost-auth/1 ${role}`),
    u16(transcript.version),
    lengthPrefixed(concatBytes(transcript.versionsOffered.map(u16))),
    lengthPrefixed(utf8(transcript.authority)),
    lengthPrefixed(fromHex(transcript.brokerKey)),
    lengthPrefixed(fromHex(transcript.meshId)),
    lengthPrefixed(fromHex(transcript.peerKey)),
    lengthPrefixed(transcript.serverNonce),
    lengthPrefixed(transcript.clientNonce),
    lengthPrefixed(transcript.connectionId),
    u64(transcript.issuedAtMs),
    lengthPrefixed(utf8([...transcript.capabilities].sort().join(','))),
  ])
}

function brokerBytes(transcript: Transcript, clientSignature: Uint8Array): Uint8Array {
  return concatBytes([transcriptBytes('broker', transcript), hash256(clientSignature)])
}

const AUTHORITY = /^[!-~]{1,300}$/
const CAPABILITY = /^[!-+\--~]{1,64}$/ // an empty capability or a comma would make two lists join to the same text
const LIST_MAX = 64

function isEncodable(transcript: Transcript): boolean {
  const { versionsOffered, capabilities } = transcript
  return (
    [transcript.version, ...versionsOffered].every((version) => isUnsigned(version, 0xffff)) &&
    versionsOffered.length <= LIST_MAX &&
    AUTHORITY.test(transcript.authority) &&
    isHex(transcript.brokerKey, 32) &&
    isHex(transcript.meshId, 16) &&
    isHex(transcript.peerKey, 32) &&
    transcript.serverNonce.length === 32 &&
    transcript.clientNonce.length === 32 &&
    transcript.connectionId.length === 16 &&
    isUnsigned(transcript.issuedAtMs, Number.MAX_SAFE_INTEGER) &&
    capabilities.length <= LIST_MAX &&
    capabilities.every((capability) => CAPABILITY.test(capability))
  )
}

/**
 * Normalizes dialled addresses to a single spelling: `host:port`, lower case, punycode, IPv6 in brackets, always with a
 * port. Both sides sign the address, so both must spell it the same way. The platform's URL parser does the work.
 */
const PORTS = new Map([
  ['wss:', '443'],
  ['https:', '443'],
  ['ws:', '80'],
  ['http:', '80'],
])

/**
 * Normalizes a URL (`wss://host/path`) or a bare `host` or `host:port`, to which `bareScheme` is applied.
 * @throws OperatingError `authority_malformed`
 */
export function normalizeAuthority(address: string, bareScheme: 'wss' | 'ws' = 'wss'): string {
  const url = parse(/^[a-z][a-z0-9+.-]*:\/\//i.test(address) ? address : `${bareScheme}://${address}`)
  const defaultPort = url && PORTS.get(url.protocol)
  // Never quote the address, which may contain a password.
  if (!url || !defaultPort) throw malformed('It must have the form wss://host:port.')
  if (url.username || url.password) throw malformed('It must not contain a user name or a password.')
  return `${url.hostname}:${url.port || defaultPort}`
}

/** Returns the port of an address, or its scheme's default. @throws the errors of `normalizeAuthority` */
export function portOf(address: string): number {
  const authority = normalizeAuthority(address)
  return Number(authority.slice(authority.lastIndexOf(':') + 1))
}

/**
 * Returns whether a connection to this address leaves the machine unencrypted. @throws the errors of
 * `normalizeAuthority`
 */
export function isExposed(address: string): boolean {
  const authority = normalizeAuthority(address)
  return /^(ws|http):/i.test(address) && !isLoopback(authority.slice(0, authority.lastIndexOf(':')))
}

/** Returns whether this host is the local machine. Accepts a host name or an address; IPv6 with or without brackets. */
export function isLoopback(host: string): boolean {
  const name = host.toLowerCase().replace(/^\[(.*)\]$/, '$1')
  return name === '::1' || name === 'localhost' || name.endsWith('.localhost') || /^127(\.\d{1,3}){3}$/.test(name)
}

function parse(text: string): URL | null {
  return URL.canParse(text) ? new URL(text) : null
}

function malformed(reason: string): OperatingError {
  return new OperatingError('authority_malformed', `The broker's address is invalid. ${reason}`)
}

/**
 * The statement that a new member signs to use an invite. It includes the connection's transcript, the invite, the name
 * and the key binding, so that a thief can't use it on another connection or with another key or name.
 *
 * Signed: T("enrol"), lp(BLAKE2b-256(invite)), lp(name), lp(signature of the key binding).
 */
export interface EnrolmentFields {
  readonly invite: Uint8Array
  /** Printable ASCII. */
  readonly name: string
  readonly bindingSignature: Uint8Array
}

export function signEnrolment(keys: SigningKeys, transcript: Transcript, enrolment: EnrolmentFields): Uint8Array {
  assert(keys.publicKey === transcript.peerKey, 'a new member signs with the key that it names')
  return sign(keys, enrolmentBytes(transcript, enrolment))
}

/** Returns whether the signature is valid. Never throws. */
export function verifyEnrolment(transcript: Transcript, enrolment: EnrolmentFields, signature: Uint8Array): boolean {
  return isEncodable(transcript) && verify(transcript.peerKey, enrolmentBytes(transcript, enrolment), signature)
}

function enrolmentBytes(transcript: Transcript, { invite, name, bindingSignature }: EnrolmentFields): Uint8Array {
  return concatBytes([
    transcriptBytes('enrol', transcript),
    lengthPrefixed(hash256(invite)),
    lengthPrefixed(utf8(name)),
    lengthPrefixed(bindingSignature),
  ])
}

/**
 * Reads the bytes of a transcript that a new member signed. Returns null if they have another form. Never throws. The
 * caller verifies the member's signature over the bytes.
 */
export function readEnrolmentTranscript(
  bytes: Uint8Array,
): Pick<Transcript, 'meshId' | 'peerKey' | 'issuedAtMs'> | null {
  const head = context('sealpost-auth/1 enrol')
  if (!head.every((byte, at) => byte === bytes[at])) return null
  const reader = new FieldReader(bytes.subarray(head.length))
  reader.u16() // the version
  reader.prefixed() // the offered versions
  reader.prefixed() // the authority
  const [, meshId, peerKey] = [reader.prefixed(), toHex(reader.prefixed()), toHex(reader.prefixed())]
  for (const length of [32, 32, 16]) if (reader.prefixed().length !== length) return null
  const issuedAtMs = reader.u64()
  const isBare = reader.prefixed().length === 0 // an enrolment has no capabilities
  if (!reader.isAtEnd || !isBare || !isHex(meshId, 16) || !isHex(peerKey, 32)) return null
  return { meshId: meshId as string as MeshId, peerKey: peerKey as string as PeerKey, issuedAtMs }
}

export function signTokenRequest(keys: SigningKeys, transcript: Transcript, ttlSeconds: number): Uint8Array {
  assert(keys.publicKey === transcript.peerKey, 'a peer signs with the key it names')
  return sign(keys, requestBytes(transcript, ttlSeconds))
}

/** Returns whether the signature is valid. Never throws. */
export function verifyTokenRequest(
  transcript: Transcript,
  ttlSeconds: number,
  signature: Uint8Array,
  by: Signatures = sodiumSignatures,
): boolean {
  if (!isEncodable(transcript) || !isUnsigned(ttlSeconds, 0xffffffff)) return false
  return by.verify(transcript.peerKey, requestBytes(transcript, ttlSeconds), signature)
}

function requestBytes(transcript: Transcript, ttlSeconds: number): Uint8Array {
  return concatBytes([transcriptBytes('token', transcript), u32(ttlSeconds)])
}

/**
 * A shard's certificate is the cluster key's signed statement that a key belongs to one of its shards, under certain
 * names, until a certain time. So the pinned key need not be on every machine, and a compromised shard's certificate
 * expires.
 *
 * Fields: lp(cluster key), lp(shard key), u64 notAfterMs, u16 count, lp(authority) for each. Signed by the cluster's
 * key: the context `sealpost-shard/1`, then the fields. Vector: packages/protocol/vectors/shard.json.
 */
export interface ShardCertificateTerms {
  readonly shardKey: PeerKey
  /** One to four addresses of the shard, in the form of `normalizeAuthority`. */
  readonly authorities: readonly string[]
  /** Valid up to and including this time according to the reader's clock, in ms since 1970. */
  readonly notAfterMs: Millis
}

export interface ShardCertificate extends ShardCertificateTerms {
  /** The cluster's key, which peers have pinned. */
  readonly clusterKey: PeerKey
  /** The encoded certificate, as frames contain it. */
  readonly bytes: Uint8Array
}

/** `certificate_foreign`: from another cluster, or for another key or name. */
export type ShardCertificateVerdict = 'ok' | 'certificate_forged' | 'certificate_expired' | 'certificate_foreign'

const AUTHORITIES_MAX = 4
const CERTIFIED_AUTHORITY = /^[!-~]{1,255}$/
const CERTIFICATE_PREFIX = 'sealpost-shard1:'

export function signShardCertificate(cluster: SigningKeys, terms: ShardCertificateTerms): Uint8Array {
  const claim = { ...terms, clusterKey: cluster.publicKey }
  assert(isCertificate(claim), 'a certificate has a key, one to four authorities and a time')
  const fields = certificateFields(claim)
  return concatBytes([fields, sign(cluster, certificateText(fields))])
}

/** Reads a certificate. Returns null unless it is valid and correctly signed. Never throws. */
export function readShardCertificate(bytes: Uint8Array): ShardCertificate | null {
  if (bytes.length <= SIGNATURE_BYTES) return null
  const fields = bytes.subarray(0, bytes.length - SIGNATURE_BYTES)
  const claim = certificateOf(fields)
  if (!claim || !verify(claim.clusterKey, certificateText(fields), bytes.slice(fields.length))) return null
  return { ...claim, bytes }
}

/** Returns whether this key may use this name. */
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

/** Returns the certificate as one line, for a file. */
export function shardCertificateText(bytes: Uint8Array): string {
  return CERTIFICATE_PREFIX + sodium.to_base64(bytes, sodium.base64_variants.URLSAFE_NO_PADDING)
}

/** Reads a certificate from one line, ignoring white space around it. Returns null if it is invalid. */
export function readShardCertificateText(text: string): ShardCertificate | null {
  const line = text.trim()
  if (!line.startsWith(CERTIFICATE_PREFIX)) return null
  try {
    return readShardCertificate(
      sodium.from_base64(line.slice(CERTIFICATE_PREFIX.length), sodium.base64_variants.URLSAFE_NO_PADDING),
    )
  } catch {
    return null // not base64url
  }
}

type CertificateClaim = Omit<ShardCertificate, 'bytes'>

function certificateOf(fields: Uint8Array): CertificateClaim | null {
  const reader = new FieldReader(fields)
  const [clusterKey, shardKey] = [toHex(reader.prefixed()) as PeerKey, toHex(reader.prefixed()) as PeerKey]
  const notAfterMs = reader.u64()
  const count = Math.min(reader.u16(), AUTHORITIES_MAX + 1)
  const authorities = Array.from({ length: count }, () => String.fromCharCode(...reader.prefixed().subarray(0, 256)))
  const claim = { clusterKey, shardKey, notAfterMs, authorities }
  return reader.isAtEnd && isCertificate(claim) ? claim : null
}

function isCertificate({ clusterKey, shardKey, notAfterMs, authorities }: CertificateClaim): boolean {
  return (
    isHex(clusterKey, 32) &&
    isHex(shardKey, 32) &&
    isUnsigned(notAfterMs, Number.MAX_SAFE_INTEGER) &&
    authorities.length >= 1 &&
    authorities.length <= AUTHORITIES_MAX &&
    authorities.every((authority) => CERTIFIED_AUTHORITY.test(authority))
  )
}

function certificateFields({ clusterKey, shardKey, notAfterMs, authorities }: CertificateClaim): Uint8Array {
  return concatBytes([
    lengthPrefixed(fromHex(clusterKey)),
    lengthPrefixed(fromHex(shardKey)),
    u64(notAfterMs),
    u16(authorities.length),
    ...authorities.map((authority) => lengthPrefixed(utf8(authority))),
  ])
}

function certificateText(fields: Uint8Array): Uint8Array {
  return concatBytes([context('sealpost-shard/1'), fields])
}
