/**
 * What a person hands to a new device: one line with the voucher, the secret of its invite key, and where the broker is.
 * Text: `sealpostdevice1:` and the base64url of lp(url), lp(broker key), lp(voucher), lp(seed of the invite key).
 */
import { assert, fromHex, isHex, type MeshId, type Millis, OperatingError, type PeerKey, toHex } from '@sealpost/std'
import { concatBytes, FieldReader, lengthPrefixed, utf8 } from '../byte-fields.ts'
import { normalizeAuthority } from '../handshake/authority.ts'
import { generateSigningKeys, type SigningKeys, signingKeysFromSeed } from '../keys/keys.ts'
import { sodium } from '../sodium.ts'
import { type DeviceVoucher, readVoucher, signDevice, signVoucher } from './device.ts'
import { isDialable } from './invite.ts'

export interface DeviceInviteTerms {
  readonly meshId: MeshId
  /** The broker, as the device is to dial it: `wss://host[:port]`, or `ws://` on one's own machine. */
  readonly url: string
  readonly brokerKey: PeerKey
  /** 1 to 32 characters of printable ASCII, no `/`. */
  readonly label: string
  /** The line is good until then. Default: one hour from now. */
  readonly joinByMs?: Millis
  /** The device is vouched for until then. Default: ten years from now. */
  readonly notAfterMs?: Millis
}

export interface DeviceInvite {
  readonly url: string
  readonly brokerKey: PeerKey
  readonly voucher: DeviceVoucher
  /** The statement of the device that has these keys. */
  statement(device: SigningKeys): Uint8Array
}

const PREFIX = 'sealpostdevice1:'
const TEXT_MAX = 1400
const SEED_BYTES = 32
const JOIN_BY_DEFAULT_MS = 3_600_000
const NOT_AFTER_DEFAULT_MS = 10 * 365 * 24 * 3_600_000

export const isDeviceInvite = (text: string): boolean => text.trim().startsWith(PREFIX)

/**
 * The text of a new invite for one device. Whoever reads it until it is used can become that device.
 * @throws OperatingError `authority_malformed` when the URL is none a client can dial
 */
export function createDeviceInvite(user: SigningKeys, terms: DeviceInviteTerms): string {
  const { meshId, url, brokerKey, label } = terms
  const { joinByMs = Date.now() + JOIN_BY_DEFAULT_MS, notAfterMs = Date.now() + NOT_AFTER_DEFAULT_MS } = terms
  normalizeAuthority(url)
  assert(
    isDialable(url) && isHex(brokerKey, 32),
    'a device invite has a ws:// or wss:// URL without a query, and a key',
  )
  const once = generateSigningKeys()
  const voucher = { meshId, user: user.publicKey, inviteKey: once.publicKey, label, joinByMs, notAfterMs }
  const seed = once.secretKey.subarray(0, SEED_BYTES)
  const parts = [utf8(url), fromHex(brokerKey), signVoucher(user, voucher), seed]
  return textOf(concatBytes(parts.map(lengthPrefixed)))
}

/** White space around it is cut off. @throws OperatingError `invite_malformed` when it is none, or not as it was signed */
export function readDeviceInvite(text: string): DeviceInvite {
  const invite = read(text.trim())
  if (!invite) throw new OperatingError('invite_malformed', 'This is no invite, or a part of it is missing or changed.')
  return invite
}

function read(text: string): DeviceInvite | null {
  if (!text.startsWith(PREFIX) || text.length > TEXT_MAX) return null
  try {
    const bytes = sodium.from_base64(text.slice(PREFIX.length), sodium.base64_variants.URLSAFE_NO_PADDING)
    return textOf(bytes) === text ? inviteOf(new FieldReader(bytes)) : null // one invite has one spelling
  } catch {
    return null // not base64url; the library's words would repeat a part of it
  }
}

function inviteOf(reader: FieldReader): DeviceInvite | null {
  const url = String.fromCharCode(...reader.prefixed())
  const brokerKey = toHex(reader.prefixed()) as PeerKey
  const voucherBytes = reader.prefixed()
  const seed = reader.prefixed()
  const voucher = readVoucher(voucherBytes)
  if (!reader.isAtEnd || !voucher || seed.length !== SEED_BYTES || !isDialable(url) || !isHex(brokerKey, 32))
    return null
  const once = signingKeysFromSeed(seed)
  if (once.publicKey !== voucher.inviteKey) return null
  return { url, brokerKey, voucher, statement: (device) => signDevice(device, once, voucherBytes) }
}

function textOf(bytes: Uint8Array): string {
  return PREFIX + sodium.to_base64(bytes, sodium.base64_variants.URLSAFE_NO_PADDING)
}
