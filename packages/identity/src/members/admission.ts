/**
 * Proves members that join with an invite of several uses (docs/adr/0017). Such an invite contains a secret key that the broker
 * never sees, and the issuer's grant for its public key. A new member signs its own key and name with the secret key. The result
 * proves the membership without the invite, so it can be published while others still use the invite.
 *
 * Grant: lp(mesh id), lp(admission key), u16 role, lp(issuer), and the issuer's signature over the context
 * `sealpost-admission-key/1` and these fields. Admission: lp(grant), lp(member), lp(name), u64 atMs, and the signatures of the
 * admission key and of the member over the context `sealpost-admission/1` and these fields. Vector:
 * packages/protocol/vectors/admission.json.
 */
import { assert, fromHex, isHex, type MeshId, type Millis, type PeerKey, toHex } from '@sealpost/std'
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u16, u64, utf8 } from '../byte-fields.ts'
import { SIGNATURE_BYTES, type SigningKeys, sign, verify } from '../keys/keys.ts'
import type { InviteRole } from './enrolment.ts'

interface Grant {
  readonly meshId: MeshId
  readonly admissionKey: PeerKey
  readonly role: InviteRole
  readonly issuer: PeerKey
}

/** What an invite of several uses gives to each new member. */
export interface AdmissionSecret {
  readonly grant: Uint8Array
  readonly signing: SigningKeys
}

export interface Admission extends Pick<Grant, 'meshId' | 'role' | 'issuer'> {
  readonly peerKey: PeerKey
  readonly name: string
  /** By the member's clock. */
  readonly atMs: Millis
}

const GRANT = 'sealpost-admission-key/1'
const ADMISSION = 'sealpost-admission/1'
const ROLES = ['member', 'admin'] as const // the index is the number
const NAME_MAX = 64

/** @throws AssertionError unless the terms are valid */
export function signAdmissionGrant(issuer: SigningKeys, terms: Omit<Grant, 'issuer'>): Uint8Array {
  const grant = { ...terms, issuer: issuer.publicKey }
  assert(isGrant(grant), 'a grant has a mesh, a key and a role')
  const fields = grantFields(grant)
  return concatBytes([fields, sign(issuer, concatBytes([context(GRANT), fields]))])
}

/** Returns null unless the issuer signed the grant. Never throws. */
export function readAdmissionGrant(bytes: Uint8Array): Grant | null {
  const reader = new FieldReader(bytes)
  const grant: Grant = {
    meshId: toHex(reader.prefixed()) as MeshId,
    admissionKey: toHex(reader.prefixed()) as PeerKey,
    role: ROLES[reader.u16()]!,
    issuer: toHex(reader.prefixed()) as PeerKey,
  }
  const signature = reader.take(SIGNATURE_BYTES)
  if (!reader.isAtEnd || !isGrant(grant)) return null
  return verify(grant.issuer, concatBytes([context(GRANT), grantFields(grant)]), signature) ? grant : null
}

/** Signs the admission of a member that has joined with this name. @throws AssertionError unless the terms are valid */
export function signAdmission(
  member: SigningKeys,
  { grant, signing }: AdmissionSecret,
  { name, atMs }: { name: string; atMs: Millis },
): Uint8Array {
  const fields = concatBytes([...[grant, fromHex(member.publicKey), utf8(name)].map(lengthPrefixed), u64(atMs)])
  const text = concatBytes([context(ADMISSION), fields])
  const bytes = concatBytes([fields, sign(signing, text), sign(member, text)])
  assert(readAdmission(bytes), 'an admission has a grant for its key, a name and a time')
  return bytes
}

/** Reads an admission. Returns null unless the issuer, the admission key and the member signed it. Never throws. */
export function readAdmission(bytes: Uint8Array): Admission | null {
  const reader = new FieldReader(bytes)
  const grant = readAdmissionGrant(reader.prefixed())
  const peerKey = toHex(reader.prefixed()) as PeerKey
  const name = String.fromCharCode(...reader.prefixed().subarray(0, NAME_MAX + 1))
  const atMs = reader.u64()
  const [byGrant, byMember] = [reader.take(SIGNATURE_BYTES), reader.take(SIGNATURE_BYTES)]
  if (!reader.isAtEnd || !grant || !isHex(peerKey, 32) || !isUnsigned(atMs, Number.MAX_SAFE_INTEGER)) return null
  if (name.length > NAME_MAX || !/^[ -~]*$/.test(name)) return null
  const text = concatBytes([context(ADMISSION), bytes.subarray(0, bytes.length - 2 * SIGNATURE_BYTES)])
  if (!verify(grant.admissionKey, text, byGrant) || !verify(peerKey, text, byMember)) return null
  return { meshId: grant.meshId, role: grant.role, issuer: grant.issuer, peerKey, name, atMs }
}

function isGrant({ meshId, admissionKey, role, issuer }: Grant): boolean {
  return isHex(meshId, 16) && isHex(admissionKey, 32) && isHex(issuer, 32) && ROLES.includes(role)
}

function grantFields({ meshId, admissionKey, role, issuer }: Grant): Uint8Array {
  return concatBytes([
    ...[meshId, admissionKey].map((hex) => lengthPrefixed(fromHex(hex))),
    u16(ROLES.indexOf(role)),
    lengthPrefixed(fromHex(issuer)),
  ])
}
