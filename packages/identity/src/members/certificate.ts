/**
 * Defines the statements that prove who is a member of a mesh, and verifies chains of them (docs/adr/0017).
 *
 * - *Certificate*: the invite and the signed enrolment. Bytes: lp(invite), lp(T("enrol")), lp(name), lp(signature of the
 *   key binding), signature of the new member (`EnrolmentFields`).
 * - *Endorsement*: the root or an admin names a member. Bytes: lp(mesh id), lp(member), lp(name), u16 role, u64 atMs,
 *   lp(issuer), signature of the issuer over the context `sealpost-endorsement/1` and these fields.
 * - *Revocation*: an admin ends a membership. Bytes: lp(mesh id), u32 number, lp(hash of the previous revocation), lp(member),
 *   u64 atMs, lp(issuer), signature of the issuer over the context `sealpost-revocation/1` and these fields.
 *
 * Vector: packages/protocol/vectors/certificate.json.
 */
import {
  asciiName,
  assert,
  fromHex,
  type InviteId,
  isHex,
  type MeshId,
  type Millis,
  OperatingError,
  type PeerKey,
  tidyName,
  toHex,
  unicodeName,
} from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u16, u32, u64, utf8 } from '../byte-fields.ts'
import { readEnrolmentTranscript, type Transcript, transcriptBytes } from '../handshake/transcript.ts'
import {
  generateSigningKeys,
  SIGNATURE_BYTES,
  type SigningKeys,
  sign,
  signingKeysFromSeed,
  verify,
} from '../keys/keys.ts'
import { hash256, sodium } from '../sodium.ts'
import { type AdmissionSecret, readAdmission, readAdmissionGrant, signAdmissionGrant } from './admission.ts'
import { type Invite, type InviteRole, parseInvite, readInvite } from './enrolment.ts'

/** What a certificate or an endorsement claims. The chain of its issuer decides whether the claim is true. */
export interface MemberClaim {
  readonly meshId: MeshId
  readonly peerKey: PeerKey
  /** The ASCII form. */
  readonly name: string
  readonly role: InviteRole
  /** The root, or an admin. */
  readonly issuer: PeerKey
  /** When the statement was signed, in ms since 1970: for an endorsement by its issuer's clock, otherwise by the broker's. */
  readonly atMs: Millis
  readonly kind: 'certificate' | 'endorsement' | 'admission'
  /** The invite of a certificate, which only one member can use. */
  readonly inviteId?: InviteId
}

export type EndorsementTerms = Pick<MemberClaim, 'meshId' | 'peerKey' | 'name' | 'role' | 'atMs'>

export interface Revocation {
  readonly meshId: MeshId
  /** 1 for the first revocation of the mesh, and one more for each. */
  readonly number: number
  /** The hash of the revocation before this one, as 64 hex digits; zeros for the first. */
  readonly previous: string
  readonly peerKey: PeerKey
  readonly atMs: Millis
  readonly issuer: PeerKey
}

/** The hash that the first revocation names as its predecessor. */
export const NO_REVOCATION: string = '0'.repeat(64)
export const CERTIFICATE_BYTES_MAX = 2048

const ROLES = ['member', 'admin'] as const // the index is the number
const NAME_MAX = 64
const ENDORSEMENT = 'sealpost-endorsement/1'
const REVOCATION = 'sealpost-revocation/1'

/** The parts of an enrolment that its signature covers. */
export interface SignedEnrolment {
  readonly invite: Uint8Array
  readonly transcript: Transcript
  readonly name: string
  readonly bindingSignature: Uint8Array
  readonly signature: Uint8Array
}

/** Returns the certificate of an enrolment whose signatures the caller has verified. */
export function certificateOf({ invite, transcript, name, bindingSignature, signature }: SignedEnrolment): Uint8Array {
  const fields = [invite, transcriptBytes('enrol', transcript), utf8(name), bindingSignature]
  return concatBytes([...fields.map(lengthPrefixed), signature])
}

/** Reads a certificate. Returns null unless its issuer signed the invite and the member the enrolment. Never throws. */
export function readCertificate(bytes: Uint8Array): MemberClaim | null {
  if (bytes.length > CERTIFICATE_BYTES_MAX) return null
  const reader = new FieldReader(bytes)
  const [inviteBytes, transcript, name, binding] = [0, 1, 2, 3].map(() => reader.prefixed())
  const signature = reader.take(SIGNATURE_BYTES)
  if (!reader.isAtEnd) return null
  const invite = parseInvite(inviteBytes!)
  const enrolment = readEnrolmentTranscript(transcript!)
  if (!invite || invite.meshId !== enrolment?.meshId) return null
  const signed = concatBytes([transcript!, ...[hash256(inviteBytes!), name!, binding!].map(lengthPrefixed)])
  if (!verify(enrolment.peerKey, signed, signature)) return null
  const { meshId, role, issuer, inviteId } = invite
  const { peerKey, issuedAtMs: atMs } = enrolment
  return { meshId, peerKey, name: normalized(asciiText(name!)), role, issuer, atMs, inviteId, kind: 'certificate' }
}

/** @throws AssertionError unless the terms are valid */
export function signEndorsement(issuer: SigningKeys, terms: EndorsementTerms): Uint8Array {
  const claim: MemberClaim = { ...terms, issuer: issuer.publicKey, kind: 'endorsement' }
  assert(isEndorsement(claim), 'an endorsement has a mesh, a member, a name, a role and a time')
  const fields = endorsementFields(claim)
  return concatBytes([fields, sign(issuer, concatBytes([context(ENDORSEMENT), fields]))])
}

/** Reads an endorsement. Returns null unless its issuer signed it. Never throws. */
export function readEndorsement(bytes: Uint8Array): MemberClaim | null {
  const reader = new FieldReader(bytes)
  const claim: MemberClaim = {
    meshId: toHex(reader.prefixed()) as MeshId,
    peerKey: toHex(reader.prefixed()) as PeerKey,
    name: asciiText(reader.prefixed()),
    role: ROLES[reader.u16()]!,
    atMs: reader.u64(),
    issuer: toHex(reader.prefixed()) as PeerKey,
    kind: 'endorsement',
  }
  const signature = reader.take(SIGNATURE_BYTES)
  if (!reader.isAtEnd || !isEndorsement(claim)) return null
  return verify(claim.issuer, concatBytes([context(ENDORSEMENT), endorsementFields(claim)]), signature) ? claim : null
}

/** @throws AssertionError unless the terms are valid */
export function signRevocation(admin: SigningKeys, terms: Omit<Revocation, 'issuer'>): Uint8Array {
  const revocation = { ...terms, issuer: admin.publicKey }
  assert(isRevocation(revocation), 'a revocation has a mesh, a number, a hash, a member and a time')
  const fields = revocationFields(revocation)
  return concatBytes([fields, sign(admin, concatBytes([context(REVOCATION), fields]))])
}

/** Reads a revocation. Returns null unless its issuer signed it. Never throws. */
export function readRevocation(bytes: Uint8Array): Revocation | null {
  const reader = new FieldReader(bytes)
  const revocation: Revocation = {
    meshId: toHex(reader.prefixed()) as MeshId,
    number: reader.u32(),
    previous: toHex(reader.prefixed()),
    peerKey: toHex(reader.prefixed()) as PeerKey,
    atMs: reader.u64(),
    issuer: toHex(reader.prefixed()) as PeerKey,
  }
  const signature = reader.take(SIGNATURE_BYTES)
  if (!reader.isAtEnd || !isRevocation(revocation)) return null
  const signed = concatBytes([context(REVOCATION), revocationFields(revocation)])
  return verify(revocation.issuer, signed, signature) ? revocation : null
}

/** Returns the hash by which the next revocation names this one. */
export const revocationHash = (bytes: Uint8Array): string => toHex(hash256(bytes))

/**
 * An invite that names the root of the mesh. The line consists of `sealpost2:` and the base64url of lp(invite), lp(root), u32
 * revocations, and the issuer's signature over the context `sealpost-invite-root/1` and these fields.
 *
 * An invite of several uses is a line `sealpost3:`. Between the number of revocations and the signature, it contains lp(seed of the
 * admission key) and lp(grant) (`admission.ts`). The context is `sealpost-invite-many/1`.
 */
export interface RootedInvite {
  readonly invite: Invite
  /** Null for a line that names none (`sealpost1:`). */
  readonly root: PeerKey | null
  /** How many revocations the issuer knew. */
  readonly revocations: number
  /** With what a new member proves its membership itself; null for an invite with one use. */
  readonly admission: AdmissionSecret | null
}

const ROOTED_PREFIX = 'sealpost2:'
const ROOTED = 'sealpost-invite-root/1'
const MANY_PREFIX = 'sealpost3:'
const MANY = 'sealpost-invite-many/1'
const SEED_BYTES = 32
const TEXT_MAX = 2048

const isRooted = (text: string): boolean => text.startsWith(ROOTED_PREFIX) || text.startsWith(MANY_PREFIX)

/** Returns the claim of an admission. Returns null unless it is valid. Never throws. */
export function readAdmissionClaim(bytes: Uint8Array): MemberClaim | null {
  const admission = readAdmission(bytes)
  return admission && { ...admission, name: normalized(admission.name), kind: 'admission' }
}

/** Adds the root to a line that `createInvite` returned for the same issuer. @throws OperatingError `invite_malformed` */
export function nameRoot(
  issuer: SigningKeys,
  line: string,
  { root, revocations }: { root: PeerKey; revocations: number },
): string {
  const { bytes, issuer: signer } = readInvite(line)
  assert(signer === issuer.publicKey, 'the issuer of an invite names the root')
  const fields = concatBytes([lengthPrefixed(bytes), lengthPrefixed(fromHex(root)), u32(revocations)])
  return rootedText(ROOTED_PREFIX, concatBytes([fields, sign(issuer, concatBytes([context(ROOTED), fields]))]))
}

/**
 * Like `nameRoot`, for an invite of several uses: those who join with the line prove their membership themselves.
 * @throws OperatingError `invite_malformed`
 */
export function nameRootForMany(
  issuer: SigningKeys,
  line: string,
  {
    root,
    revocations,
    admission = generateSigningKeys(),
  }: { root: PeerKey; revocations: number; admission?: SigningKeys },
): string {
  const { bytes, issuer: signer, meshId, role } = readInvite(line)
  assert(signer === issuer.publicKey, 'the issuer of an invite names the root')
  const grant = signAdmissionGrant(issuer, { meshId, role, admissionKey: admission.publicKey })
  const seed = admission.secretKey.subarray(0, SEED_BYTES)
  const head = [lengthPrefixed(bytes), lengthPrefixed(fromHex(root)), u32(revocations)]
  const fields = concatBytes([...head, lengthPrefixed(seed), lengthPrefixed(grant)])
  return rootedText(MANY_PREFIX, concatBytes([fields, sign(issuer, concatBytes([context(MANY), fields]))]))
}

/** Reads an invite of either form, ignoring white space around it. @throws OperatingError `invite_malformed` */
export function readAnyInvite(text: string): RootedInvite {
  if (!isRooted(text.trim())) return { invite: readInvite(text), root: null, revocations: 0, admission: null }
  const found = readRooted(text.trim())
  if (found) return found
  throw new OperatingError('invite_malformed', 'This is not an invite, or a part of it is missing or changed.')
}

function readRooted(text: string): RootedInvite | null {
  if (text.length > TEXT_MAX) return null
  const prefix = text.startsWith(MANY_PREFIX) ? MANY_PREFIX : ROOTED_PREFIX
  try {
    const bytes = sodium.from_base64(text.slice(prefix.length), sodium.base64_variants.URLSAFE_NO_PADDING)
    return rootedText(prefix, bytes) === text ? rootedOf(prefix, bytes) : null // an invite has only one valid spelling
  } catch {
    return null // not base64url; the library's message would quote the invite
  }
}

function rootedOf(prefix: string, bytes: Uint8Array): RootedInvite | null {
  const reader = new FieldReader(bytes)
  const invite = parseInvite(reader.prefixed().slice())
  const root = toHex(reader.prefixed()) as PeerKey
  const revocations = reader.u32()
  const isForMany = prefix === MANY_PREFIX
  const [seed, grant] = isForMany ? [reader.prefixed(), reader.prefixed().slice()] : []
  const signature = reader.take(SIGNATURE_BYTES)
  if (!reader.isAtEnd || !invite || !isHex(root, 32)) return null
  const signed = concatBytes([context(isForMany ? MANY : ROOTED), bytes.subarray(0, bytes.length - SIGNATURE_BYTES)])
  if (!verify(invite.issuer, signed, signature)) return null
  const admission = seed && grant ? admissionOf(invite, { seed, grant }) : null
  return isForMany && !admission ? null : { invite, root, revocations, admission }
}

/** Returns null unless the grant is that of the invite, for the key of this seed. */
function admissionOf(
  { meshId, role, issuer }: Invite,
  { seed, grant }: { seed: Uint8Array; grant: Uint8Array },
): AdmissionSecret | null {
  const granted = readAdmissionGrant(grant)
  if (seed.length !== SEED_BYTES || granted?.meshId !== meshId) return null
  const signing = signingKeysFromSeed(seed)
  const isOfInvite = granted.role === role && granted.issuer === issuer && granted.admissionKey === signing.publicKey
  return isOfInvite ? { grant, signing } : null
}

const rootedText = (prefix: string, bytes: Uint8Array): string =>
  prefix + sodium.to_base64(bytes, sodium.base64_variants.URLSAFE_NO_PADDING)

function isEndorsement({ meshId, peerKey, name, role, atMs, issuer }: MemberClaim): boolean {
  const isClaim = isHex(meshId, 16) && isHex(peerKey, 32) && ROLES.includes(role) && isHex(issuer, 32)
  return isClaim && isNameText(name) && isUnsigned(atMs, Number.MAX_SAFE_INTEGER)
}

function isRevocation({ meshId, number, previous, peerKey, atMs, issuer }: Revocation): boolean {
  const isPlaced = isUnsigned(number, 0x7fffffff) && number > 0 && isHex(previous, 32)
  const isOfKeys = isHex(meshId, 16) && isHex(peerKey, 32) && isHex(issuer, 32)
  return isPlaced && isOfKeys && isUnsigned(atMs, Number.MAX_SAFE_INTEGER)
}

const isNameText = (name: string): boolean => name.length <= NAME_MAX && /^[ -~]*$/.test(name)

const asciiText = (bytes: Uint8Array): string => String.fromCharCode(...bytes.subarray(0, NAME_MAX + 1))

/** Returns the name as the broker stores it, which normalizes the name in an `enrol`. */
function normalized(name: string): string {
  if (!isNameText(name)) return name
  return asciiName(unicodeName(tidyName(name)))
}

function endorsementFields({ meshId, peerKey, name, role, atMs, issuer }: MemberClaim): Uint8Array {
  return concatBytes([
    ...[fromHex(meshId), fromHex(peerKey), utf8(name)].map(lengthPrefixed),
    u16(ROLES.indexOf(role)),
    u64(atMs),
    lengthPrefixed(fromHex(issuer)),
  ])
}

function revocationFields({ meshId, number, previous, peerKey, atMs, issuer }: Revocation): Uint8Array {
  return concatBytes([
    lengthPrefixed(fromHex(meshId)),
    u32(number),
    ...[previous, peerKey].map((hex) => lengthPrefixed(fromHex(hex))),
    u64(atMs),
    lengthPrefixed(fromHex(issuer)),
  ])
}
