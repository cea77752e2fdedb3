/**
 * An invite: one line that lets its holder become a member of a mesh. An admin makes it alone, without asking a
 * broker; the broker checks the signature, and that the issuer is an admin, when it is used. It names the broker and its
 * key, so that a newcomer pins the right one.
 *
 * Text: `sealpost1:` and the base64url of the fields below followed by the signature. Signed: the context
 * `sealpost-invite/1`, then lp(invite id), lp(mesh id), lp(url), lp(broker key), u64 notAfterMs, u16 usesMax, u16 role,
 * lp(issuer). Vector: packages/protocol/vectors/invite.json.
 */
import {
  assert,
  fromHex,
  type InviteId,
  isHex,
  type MeshId,
  type Millis,
  OperatingError,
  type PeerKey,
  toHex,
} from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u16, u64, utf8 } from '../byte-fields.ts'
import { normalizeAuthority } from '../handshake/transcript.ts'
import { SIGNATURE_BYTES, type SigningKeys, sign, verify } from '../keys/keys.ts'
import { sodium } from '../sodium.ts'

export interface InviteTerms {
  readonly meshId: MeshId
  /** The broker, as a newcomer is to dial it: `wss://host[:port]`, or `ws://` on one's own machine. */
  readonly url: string
  readonly brokerKey: PeerKey
  /** Good up to this time, by the clock of the broker's database, ms since 1970. Default: 24 hours from now. */
  readonly notAfterMs?: Millis
  /** How many it lets in, 1 to 65,535. Default 1. */
  readonly usesMax?: number
  /** What they may do. Default `member`. */
  readonly role?: InviteRole
}

export type InviteRole = (typeof ROLES)[number]

export interface Invite extends Required<InviteTerms> {
  readonly inviteId: InviteId
  /** The admin who signed it. */
  readonly issuer: PeerKey
  readonly signature: Uint8Array
  /** All of it, as `enrol` carries it. */
  readonly bytes: Uint8Array
}

const ROLES = ['member', 'admin'] as const // the place is the number
const PREFIX = 'sealpost1:'
const TEXT_MAX = 1400
const URL_MAX = 255
const NOT_AFTER_DEFAULT_MS = 24 * 3600_000

/**
 * The text of a new invite. Anyone who reads it can use it: show it once, and keep only its id, which revokes it.
 * @throws OperatingError `authority_malformed` when the URL is none a client can dial
 */
export function createInvite(issuer: SigningKeys, terms: InviteTerms): string {
  return signInvite(issuer, terms, toHex(crypto.getRandomValues(new Uint8Array(16))) as InviteId)
}

/** The same text from the same id: for test vectors. */
export function signInvite(issuer: SigningKeys, terms: InviteTerms, inviteId: InviteId): string {
  const { notAfterMs = Date.now() + NOT_AFTER_DEFAULT_MS, usesMax = 1, role = 'member' } = terms
  const claim: Claim = { ...terms, notAfterMs, usesMax, role, inviteId, issuer: issuer.publicKey }
  normalizeAuthority(terms.url)
  assert(isWellFormed(claim), 'an invite has a ws:// or wss:// URL without a query, a mesh, keys, uses and a time')
  const fields = fieldBytes(claim)
  return inviteText(concatBytes([fields, sign(issuer, signedBytes(fields))]))
}

/**
 * Reads the text of an invite and checks its signature. Whether the issuer is an admin, and whether it can still be used,
 * only the broker knows. White space around it is cut off.
 * @throws OperatingError `invite_malformed` when it is none, or is not as it was signed
 */
export function readInvite(text: string): Invite {
  const invite = readBytes(text.trim())
  if (!invite) throw new OperatingError('invite_malformed', 'This is no invite, or a part of it is missing or changed.')
  return invite
}

/** An invite from the bytes that `enrol` carries; null when it is none or its signature fails. Never throws. */
export function parseInvite(bytes: Uint8Array): Invite | null {
  if (bytes.length <= SIGNATURE_BYTES) return null
  const fields = bytes.subarray(0, bytes.length - SIGNATURE_BYTES)
  const signature = bytes.slice(fields.length)
  const claim = claimOf(fields)
  if (!claim || !verify(claim.issuer, signedBytes(fields), signature)) return null
  return { ...claim, signature, bytes }
}

type Claim = Omit<Invite, 'signature' | 'bytes'>

function readBytes(text: string): Invite | null {
  if (!text.startsWith(PREFIX) || text.length > TEXT_MAX) return null
  try {
    const bytes = sodium.from_base64(text.slice(PREFIX.length), sodium.base64_variants.URLSAFE_NO_PADDING)
    return inviteText(bytes) === text ? parseInvite(bytes) : null // one invite has one spelling
  } catch {
    return null // not base64url; the library's words would repeat a part of it
  }
}

function inviteText(bytes: Uint8Array): string {
  return PREFIX + sodium.to_base64(bytes, sodium.base64_variants.URLSAFE_NO_PADDING)
}

function claimOf(fields: Uint8Array): Claim | null {
  const reader = new FieldReader(fields)
  const claim: Claim = {
    inviteId: toHex(reader.prefixed()) as InviteId,
    meshId: toHex(reader.prefixed()) as MeshId,
    url: String.fromCharCode(...reader.prefixed().subarray(0, URL_MAX + 1)),
    brokerKey: toHex(reader.prefixed()) as PeerKey,
    notAfterMs: reader.u64(),
    usesMax: reader.u16(),
    role: ROLES[reader.u16()]!,
    issuer: toHex(reader.prefixed()) as PeerKey,
  }
  return reader.isAtEnd && isWellFormed(claim) ? claim : null
}

function isWellFormed({ inviteId, meshId, url, brokerKey, notAfterMs, usesMax, role, issuer }: Claim): boolean {
  return (
    isHex(inviteId, 16) &&
    isHex(meshId, 16) &&
    isHex(brokerKey, 32) &&
    isHex(issuer, 32) &&
    isUnsigned(notAfterMs, Number.MAX_SAFE_INTEGER) &&
    isUnsigned(usesMax, 0xffff) &&
    usesMax > 0 &&
    ROLES.includes(role) &&
    isDialable(url)
  )
}

/** Nothing that would be logged on the way, and no name or password. */
export function isDialable(url: string): boolean {
  if (url.length > URL_MAX || !/^wss?:\/\/[!-~]+$/.test(url) || !URL.canParse(url)) return false
  const { username, password, search, hash } = new URL(url)
  return username + password + search + hash === ''
}

function signedBytes(fields: Uint8Array): Uint8Array {
  return concatBytes([context('sealpost-invite/1'), fields])
}

function fieldBytes(claim: Claim): Uint8Array {
  return concatBytes([
    lengthPrefixed(fromHex(claim.inviteId)),
    lengthPrefixed(fromHex(claim.meshId)),
    lengthPrefixed(utf8(claim.url)),
    lengthPrefixed(fromHex(claim.brokerKey)),
    u64(claim.notAfterMs),
    u16(claim.usesMax),
    u16(ROLES.indexOf(claim.role)),
    lengthPrefixed(fromHex(claim.issuer)),
  ])
}
