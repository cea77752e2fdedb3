/**
 * Creates and reads invites, and the statements of devices.
 *
 * A device of a user is a peer with its own keys, vouched for by the user's key. The statement has three signatures, so
 * it can be verified anywhere:
 *
 * - the user's, over the *voucher*: a label, a time, and an invite key, whose secret the new device receives in one
 *   line;
 * - the invite key's, over the device's key, which was unknown when the voucher was signed;
 * - the device's own; without it, a user could claim the messages of a peer that is not its device.
 *
 * Bytes: voucher || lp(device key) || signature of the invite key || signature of the device, both over the context and
 * BLAKE2b-256(voucher) || device key. Voucher: lp(mesh id), lp(user), lp(invite key), lp(label), u64 joinByMs, u64
 * notAfterMs, signature of the user over the context `sealpost-device/1` and these fields. Vector:
 * packages/protocol/vectors/device.json.
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
import { concatBytes, context, FieldReader, isUnsigned, lengthPrefixed, u16, u32, u64, utf8 } from '../byte-fields.ts'
import { normalizeAuthority } from '../handshake/transcript.ts'
import {
  generateSigningKeys,
  SIGNATURE_BYTES,
  type SigningKeys,
  sign,
  signingKeysFromSeed,
  verify,
} from '../keys/keys.ts'
import { hash256, sodium } from '../sodium.ts'

/**
 * An invite is one line that lets its holder become a member of a mesh. An admin creates it offline. When it is used,
 * the broker checks the signature, and that the issuer is an admin. The invite contains the broker's address and key,
 * so a new member pins the right key.
 *
 * The line consists of `sealpost1:` and the base64url of the fields below followed by the signature. Signed: the
 * context `sealpost-invite/1`, then lp(invite id), lp(mesh id), lp(url), lp(broker key), u64 notAfterMs, u16 usesMax,
 * u16 role, lp(issuer). Vector: packages/protocol/vectors/invite.json.
 */
export interface InviteTerms {
  readonly meshId: MeshId
  /** The broker's address for a new member: `wss://host[:port]`, or `ws://` on the same machine. */
  readonly url: string
  readonly brokerKey: PeerKey
  /**
   * Valid until this time, in ms since 1970, according to the clock of the broker's database. Default: 24 hours from
   * now.
   */
  readonly notAfterMs?: Millis
  /** The number of uses, 1 to 65,535. Default: 1. */
  readonly usesMax?: number
  /** The role of the new members. Default: `member`. */
  readonly role?: InviteRole
}

export type InviteRole = (typeof ROLES)[number]

export interface Invite extends Required<InviteTerms> {
  readonly inviteId: InviteId
  /** The signing admin. */
  readonly issuer: PeerKey
  readonly signature: Uint8Array
  /** The encoded invite, as an `enrol` frame contains it. */
  readonly bytes: Uint8Array
}

const ROLES = ['member', 'admin'] as const // the index is the number
const INVITE_PREFIX = 'sealpost1:'
const TEXT_MAX = 1400
const URL_MAX = 255
const INVITE_NOT_AFTER_DEFAULT_MS = 24 * 3600_000

/**
 * Creates an invite. Anyone who reads it can use it, so show it once, and save only its id for a revocation.
 * @throws OperatingError `authority_malformed` if the URL can't be dialled
 */
export function createInvite(issuer: SigningKeys, terms: InviteTerms): string {
  return signInvite(issuer, terms, toHex(crypto.getRandomValues(new Uint8Array(16))) as InviteId)
}

/** Creates the same invite for the same id, for test vectors. */
export function signInvite(issuer: SigningKeys, terms: InviteTerms, inviteId: InviteId): string {
  const { notAfterMs = Date.now() + INVITE_NOT_AFTER_DEFAULT_MS, usesMax = 1, role = 'member' } = terms
  const claim: InviteClaim = { ...terms, notAfterMs, usesMax, role, inviteId, issuer: issuer.publicKey }
  normalizeAuthority(terms.url)
  assert(isInvite(claim), 'an invite has a ws:// or wss:// URL without a query, a mesh, keys, uses and a time')
  const fields = inviteFields(claim)
  return inviteText(concatBytes([fields, sign(issuer, inviteSignedBytes(fields))]))
}

/**
 * Reads an invite and checks its signature. Only the broker can check the issuer's role and whether the invite is
 * usable. Ignores white space around it.
 * @throws OperatingError `invite_malformed` if it is not an invite or its signature is invalid
 */
export function readInvite(text: string): Invite {
  const invite = readText(text.trim())
  if (!invite)
    throw new OperatingError('invite_malformed', 'This is not an invite, or a part of it is missing or changed.')
  return invite
}

/**
 * Reads an invite from the bytes in an `enrol` frame. Returns null if its form or signature is invalid. Never throws.
 */
export function parseInvite(bytes: Uint8Array): Invite | null {
  if (bytes.length <= SIGNATURE_BYTES) return null
  const fields = bytes.subarray(0, bytes.length - SIGNATURE_BYTES)
  const signature = bytes.slice(fields.length)
  const claim = inviteClaim(fields)
  if (!claim || !verify(claim.issuer, inviteSignedBytes(fields), signature)) return null
  return { ...claim, signature, bytes }
}

type InviteClaim = Omit<Invite, 'signature' | 'bytes'>

function readText(text: string): Invite | null {
  if (!text.startsWith(INVITE_PREFIX) || text.length > TEXT_MAX) return null
  try {
    const bytes = sodium.from_base64(text.slice(INVITE_PREFIX.length), sodium.base64_variants.URLSAFE_NO_PADDING)
    return inviteText(bytes) === text ? parseInvite(bytes) : null // an invite has only one valid spelling
  } catch {
    return null // not base64url; the library's message would quote the invite
  }
}

function inviteText(bytes: Uint8Array): string {
  return INVITE_PREFIX + sodium.to_base64(bytes, sodium.base64_variants.URLSAFE_NO_PADDING)
}

function inviteClaim(fields: Uint8Array): InviteClaim | null {
  const reader = new FieldReader(fields)
  const claim: InviteClaim = {
    inviteId: toHex(reader.prefixed()) as InviteId,
    meshId: toHex(reader.prefixed()) as MeshId,
    url: String.fromCharCode(...reader.prefixed().subarray(0, URL_MAX + 1)),
    brokerKey: toHex(reader.prefixed()) as PeerKey,
    notAfterMs: reader.u64(),
    usesMax: reader.u16(),
    role: ROLES[reader.u16()]!,
    issuer: toHex(reader.prefixed()) as PeerKey,
  }
  return reader.isAtEnd && isInvite(claim) ? claim : null
}

function isInvite({ inviteId, meshId, url, brokerKey, notAfterMs, usesMax, role, issuer }: InviteClaim): boolean {
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

/** Returns whether an invite may contain this URL: without credentials or parts that proxies log. */
export function isDialable(url: string): boolean {
  if (url.length > URL_MAX || !/^wss?:\/\/[!-~]+$/.test(url) || !URL.canParse(url)) return false
  const { username, password, search, hash } = new URL(url)
  return username + password + search + hash === ''
}

function inviteSignedBytes(fields: Uint8Array): Uint8Array {
  return concatBytes([context('sealpost-invite/1'), fields])
}

function inviteFields(claim: InviteClaim): Uint8Array {
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

export interface DeviceVoucher {
  readonly meshId: MeshId
  readonly user: PeerKey
  /** Valid for one device. */
  readonly inviteKey: PeerKey
  /** 1 to 32 characters of printable ASCII, no `/`. */
  readonly label: string
  /** A device can join until this time, in ms since 1970, according to the clock of the broker's database. */
  readonly joinByMs: Millis
  /** The voucher is valid until this time inclusive. */
  readonly notAfterMs: Millis
}

export interface DeviceStatement extends DeviceVoucher {
  readonly device: PeerKey
  readonly bytes: Uint8Array
}

const LABEL_MAX = 32

export const isDeviceLabel = (label: string): boolean =>
  label.length <= LABEL_MAX && /^[ -~]+$/.test(label) && !label.includes('/')

/**
 * Returns the bytes of a voucher. @throws AssertionError unless its fields are valid, as described in `DeviceVoucher`
 */
export function signVoucher(user: SigningKeys, voucher: DeviceVoucher): Uint8Array {
  assert(isVoucher(voucher), 'a voucher has a mesh, two keys, a label and two times')
  assert(voucher.user === user.publicKey, 'a user vouches with its own key')
  const fields = voucherFields(voucher)
  return concatBytes([fields, sign(user, concatBytes([context(VOUCHER), fields]))])
}

/** Returns null unless the bytes are exactly one voucher, signed by its user. Never throws. */
function readVoucher(bytes: Uint8Array): DeviceVoucher | null {
  const reader = new FieldReader(bytes)
  const voucher = voucherOf(reader, bytes)
  return reader.isAtEnd ? voucher : null
}

/** Returns a new device's statement. `invite`: the invite key that came with the voucher. */
export function signDevice(device: SigningKeys, invite: SigningKeys, voucher: Uint8Array): Uint8Array {
  const text = concatBytes([hash256(voucher), fromHex(device.publicKey)])
  return concatBytes([
    voucher,
    lengthPrefixed(fromHex(device.publicKey)),
    sign(invite, concatBytes([context(INVITED), text])),
    sign(device, concatBytes([context(BELONGING), text])),
  ])
}

/**
 * Reads a device statement. Returns null unless all three signatures are valid. The caller checks its time. Never
 * throws.
 */
export function readDevice(bytes: Uint8Array): DeviceStatement | null {
  const reader = new FieldReader(bytes)
  const voucher = voucherOf(reader, bytes)
  if (!voucher) return null
  const voucherBytes = bytes.subarray(0, voucherFields(voucher).length + SIGNATURE_BYTES)
  const device = toHex(reader.prefixed()) as PeerKey
  const [byInvite, byDevice] = [reader.take(SIGNATURE_BYTES), reader.take(SIGNATURE_BYTES)]
  if (!reader.isAtEnd || !isHex(device, 32) || device === voucher.user) return null
  const text = concatBytes([hash256(voucherBytes), fromHex(device)])
  const isSigned =
    verify(voucher.inviteKey, concatBytes([context(INVITED), text]), byInvite) &&
    verify(device, concatBytes([context(BELONGING), text]), byDevice)
  return isSigned ? { ...voucher, device, bytes: bytes.slice() } : null
}

/** The user's statement that a device is no longer its own. It never expires. */
export interface DeviceRemoval {
  readonly meshId: MeshId
  readonly user: PeerKey
  readonly device: PeerKey
}

export function signRemoval(user: SigningKeys, removal: DeviceRemoval): Uint8Array {
  assert(removal.user === user.publicKey, 'a user removes devices of its own')
  const fields = removalBytes(removal)
  return concatBytes([fields, sign(user, concatBytes([context(REMOVAL), fields]))])
}

export function readRemoval(bytes: Uint8Array): DeviceRemoval | null {
  const reader = new FieldReader(bytes)
  const removal = {
    meshId: toHex(reader.prefixed()) as MeshId,
    user: toHex(reader.prefixed()) as PeerKey,
    device: toHex(reader.prefixed()) as PeerKey,
  }
  const signature = reader.take(SIGNATURE_BYTES)
  if (!reader.isAtEnd || !isHex(removal.meshId, 16) || !isHex(removal.user, 32) || !isHex(removal.device, 32))
    return null
  return verify(removal.user, concatBytes([context(REMOVAL), removalBytes(removal)]), signature) ? removal : null
}

const VOUCHER = 'sealpost-device/1'
const INVITED = 'sealpost-device-key/1'
const BELONGING = 'sealpost-device-of/1'
const REMOVAL = 'sealpost-device-end/1'

function voucherOf(reader: FieldReader, bytes: Uint8Array): DeviceVoucher | null {
  const voucher: DeviceVoucher = {
    meshId: toHex(reader.prefixed()) as MeshId,
    user: toHex(reader.prefixed()) as PeerKey,
    inviteKey: toHex(reader.prefixed()) as PeerKey,
    label: String.fromCharCode(...reader.prefixed().subarray(0, LABEL_MAX + 1)),
    joinByMs: reader.u64(),
    notAfterMs: reader.u64(),
  }
  if (!isVoucher(voucher)) return null
  const fields = voucherFields(voucher)
  const isPrefix = bytes.length >= fields.length && fields.every((byte, i) => byte === bytes[i])
  const signature = reader.take(SIGNATURE_BYTES)
  return isPrefix && verify(voucher.user, concatBytes([context(VOUCHER), fields]), signature) ? voucher : null
}

function isVoucher({ meshId, user, inviteKey, label, joinByMs, notAfterMs }: DeviceVoucher): boolean {
  return (
    isHex(meshId, 16) &&
    isHex(user, 32) &&
    isHex(inviteKey, 32) &&
    isDeviceLabel(label) &&
    isUnsigned(joinByMs, Number.MAX_SAFE_INTEGER) &&
    isUnsigned(notAfterMs, Number.MAX_SAFE_INTEGER)
  )
}

function voucherFields({ meshId, user, inviteKey, label, joinByMs, notAfterMs }: DeviceVoucher): Uint8Array {
  return concatBytes([
    lengthPrefixed(fromHex(meshId)),
    lengthPrefixed(fromHex(user)),
    lengthPrefixed(fromHex(inviteKey)),
    lengthPrefixed(utf8(label)),
    u64(joinByMs),
    u64(notAfterMs),
  ])
}

function removalBytes({ meshId, user, device }: DeviceRemoval): Uint8Array {
  return concatBytes([fromHex(meshId), fromHex(user), fromHex(device)].map(lengthPrefixed))
}

/**
 * The terms of a device invite, a line that a user gives to a new device. It contains the voucher, the secret of its
 * invite key, and the broker's address. The line consists of `sealpostdevice1:` and the base64url of lp(url), lp(broker
 * key), lp(voucher), lp(seed of the invite key).
 *
 * With a root, the line consists of `sealpostdevice2:` and the base64url of the same fields, lp(root), u32 revocations, and the
 * user's signature over the context `sealpost-device-root/1` and these fields.
 */
export interface DeviceInviteTerms {
  readonly meshId: MeshId
  /** The broker's address for the device: `wss://host[:port]`, or `ws://` on the same machine. */
  readonly url: string
  readonly brokerKey: PeerKey
  /** 1 to 32 characters of printable ASCII, no `/`. */
  readonly label: string
  /** When the invite expires. Default: one hour from now. */
  readonly joinByMs?: Millis
  /** When the voucher expires. Default: ten years from now. */
  readonly notAfterMs?: Millis
  /** The root of the mesh, which the device pins. Earlier versions can't read such a line. Default: none. */
  readonly root?: PeerKey | undefined
  /** How many revocations the user knows. Default: 0. */
  readonly revocations?: number | undefined
}

export interface DeviceInvite {
  readonly url: string
  readonly brokerKey: PeerKey
  readonly voucher: DeviceVoucher
  /** Null for a line that names none. */
  readonly root: PeerKey | null
  readonly revocations: number
  statement(device: SigningKeys): Uint8Array
}

const DEVICE_PREFIX = 'sealpostdevice1:'
const ROOTED_DEVICE_PREFIX = 'sealpostdevice2:'
const ROOTED_DEVICE = 'sealpost-device-root/1'
const SEED_BYTES = 32
const JOIN_BY_DEFAULT_MS = 3_600_000
const DEVICE_NOT_AFTER_DEFAULT_MS = 10 * 365 * 24 * 3_600_000

export const isDeviceInvite = (text: string): boolean => /^sealpostdevice[12]:/.test(text.trim())

/**
 * Creates an invite for one device. Anyone who reads it first can become that device.
 * @throws OperatingError `authority_malformed` if the URL can't be dialled
 */
export function createDeviceInvite(user: SigningKeys, terms: DeviceInviteTerms): string {
  const { meshId, url, brokerKey, label } = terms
  const { joinByMs = Date.now() + JOIN_BY_DEFAULT_MS, notAfterMs = Date.now() + DEVICE_NOT_AFTER_DEFAULT_MS } = terms
  normalizeAuthority(url)
  assert(
    isDialable(url) && isHex(brokerKey, 32),
    'a device invite has a ws:// or wss:// URL without a query, and a key',
  )
  const once = generateSigningKeys()
  const voucher = { meshId, user: user.publicKey, inviteKey: once.publicKey, label, joinByMs, notAfterMs }
  const seed = once.secretKey.subarray(0, SEED_BYTES)
  const parts = [utf8(url), fromHex(brokerKey), signVoucher(user, voucher), seed]
  const fields = concatBytes(parts.map(lengthPrefixed))
  if (terms.root === undefined) return deviceInviteText(DEVICE_PREFIX, fields)
  const rooted = concatBytes([fields, lengthPrefixed(fromHex(terms.root)), u32(terms.revocations ?? 0)])
  const signature = sign(user, concatBytes([context(ROOTED_DEVICE), rooted]))
  return deviceInviteText(ROOTED_DEVICE_PREFIX, concatBytes([rooted, signature]))
}

/**
 * Reads a device invite, ignoring white space around it. @throws OperatingError `invite_malformed` if it is not one or
 * its signature is invalid
 */
export function readDeviceInvite(text: string): DeviceInvite {
  const invite = readDeviceText(text.trim())
  if (!invite)
    throw new OperatingError('invite_malformed', 'This is not an invite, or a part of it is missing or changed.')
  return invite
}

function readDeviceText(text: string): DeviceInvite | null {
  if (!isDeviceInvite(text) || text.length > TEXT_MAX) return null
  const prefix = text.startsWith(DEVICE_PREFIX) ? DEVICE_PREFIX : ROOTED_DEVICE_PREFIX
  try {
    const bytes = sodium.from_base64(text.slice(prefix.length), sodium.base64_variants.URLSAFE_NO_PADDING)
    return deviceInviteText(prefix, bytes) === text ? deviceInviteOf(prefix, bytes) : null // an invite has only one valid spelling
  } catch {
    return null // not base64url; the library's message would quote the invite
  }
}

function deviceInviteOf(prefix: string, bytes: Uint8Array): DeviceInvite | null {
  const reader = new FieldReader(bytes)
  const url = String.fromCharCode(...reader.prefixed())
  const brokerKey = toHex(reader.prefixed()) as PeerKey
  const voucherBytes = reader.prefixed()
  const seed = reader.prefixed()
  const voucher = readVoucher(voucherBytes)
  const isRooted = prefix === ROOTED_DEVICE_PREFIX
  const [root, revocations] = isRooted ? [toHex(reader.prefixed()) as PeerKey, reader.u32()] : [null, 0]
  const signature = isRooted ? reader.take(SIGNATURE_BYTES) : null
  if (!reader.isAtEnd || !voucher || seed.length !== SEED_BYTES || !isDialable(url) || !isHex(brokerKey, 32))
    return null
  const once = signingKeysFromSeed(seed)
  if (once.publicKey !== voucher.inviteKey) return null
  const signed = concatBytes([context(ROOTED_DEVICE), bytes.subarray(0, bytes.length - SIGNATURE_BYTES)])
  if (signature && !(isHex(root, 32) && verify(voucher.user, signed, signature))) return null
  return { url, brokerKey, voucher, root, revocations, statement: (device) => signDevice(device, once, voucherBytes) }
}

function deviceInviteText(prefix: string, bytes: Uint8Array): string {
  return prefix + sodium.to_base64(bytes, sodium.base64_variants.URLSAFE_NO_PADDING)
}
