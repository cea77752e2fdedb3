/** The text of a key file: JSON, and locked with a passphrase the same JSON inside another. */
import { assert, fromHex, isHex, type MeshId, type Millis, type PeerKey, toHex } from '@sealpost/std'
import { isUnsigned } from '../byte-fields.ts'
import { type BoxKeys, boxKeysFromSecret, type Identity, type SigningKeys, signingKeysFromSeed } from './keys.ts'
import { isLockHeader, type Locked, lockText, type PassphraseCost, unlockText } from './passphrase.ts'

/** Where a peer is enrolled: what its invite said. */
export interface KeyFileEnrolment {
  readonly meshId: MeshId
  readonly authority: string
  readonly brokerKey: PeerKey
}

export interface FormerBoxKeys extends BoxKeys {
  /** When another one took its place; absent where that is not known. */
  readonly retiredAtMs?: Millis
}

export interface PeerKeyFile {
  readonly kind: 'peer'
  readonly identity: Identity
  /** Box keys from before a rotation, newest first; one of a higher epoch is about to be published. */
  readonly formerBoxKeys: readonly FormerBoxKeys[]
  readonly enrolment: KeyFileEnrolment | null
  /** Identity keys that this one has followed, newest first. Absent: none. */
  readonly formerKeys?: readonly PeerKey[]
}

export interface BrokerKeyFile {
  readonly kind: 'broker'
  readonly signing: SigningKeys
}

export type KeyFile = PeerKeyFile | BrokerKeyFile

const FORMAT = 'sealpost-key'
const VERSION = 1
const LOCKED_VERSION = 2
export const FORMER_KEYS_MAX = 64

export interface LockedKeyFile extends Locked {
  readonly kind: string
  readonly publicKey: string
}

export function plainText(contents: KeyFile): string {
  return `${JSON.stringify(toJson(contents), null, 2)}\n`
}

export async function lockedText(contents: KeyFile, passphrase: string, cost: PassphraseCost): Promise<string> {
  const { publicKey } = contents.kind === 'peer' ? contents.identity.signing : contents.signing
  const outside = { kind: contents.kind, publicKey }
  const locked = await lockText(plainText(contents), passphrase, { context: contextOf(outside), cost })
  return `${JSON.stringify({ format: FORMAT, version: LOCKED_VERSION, ...outside, ...locked }, null, 2)}\n`
}

/** Null for anything but a whole key file. */
export function readText(text: string): KeyFile | LockedKeyFile | null {
  const fields = fieldsOf(parseJson(text))
  if (fields?.format !== FORMAT) return null
  if (fields.version === LOCKED_VERSION) return lockedFromJson(fields)
  return fields.version === VERSION ? fromJson(fields) : null
}

/** Null for another passphrase, or a file that was changed: nobody can tell which. */
export async function unlock(locked: LockedKeyFile, passphrase: string): Promise<KeyFile | null> {
  const text = await unlockText(locked, passphrase, contextOf(locked))
  const contents = text === null ? null : readText(text)
  return contents && !isLocked(contents) ? contents : null
}

export function isLocked(contents: KeyFile | LockedKeyFile): contents is LockedKeyFile {
  return 'lock' in contents
}

const contextOf = ({ kind, publicKey }: { kind: string; publicKey: string }): string =>
  `${FORMAT}/${LOCKED_VERSION} ${kind} ${publicKey}`

function lockedFromJson({ kind, publicKey, lock, sealed }: Fields): LockedKeyFile | null {
  const header = fieldsOf(lock)
  if (typeof kind !== 'string' || typeof publicKey !== 'string' || typeof sealed !== 'string') return null
  return header && isLockHeader(header) ? { kind, publicKey, sealed, lock: header as unknown as Locked['lock'] } : null
}

function toJson(contents: KeyFile): object {
  const head = { format: FORMAT, version: VERSION, kind: contents.kind }
  if (contents.kind === 'broker') return { ...head, ...signingToJson(contents.signing) }
  const { identity, formerBoxKeys, enrolment, formerKeys = [] } = contents
  assert(formerBoxKeys.length <= FORMER_KEYS_MAX, 'a key file keeps a bounded number of former box keys')
  return {
    ...head,
    ...signingToJson(identity.signing),
    boxKeys: [identity.box, ...formerBoxKeys].map(boxToJson),
    enrolment,
    ...(formerKeys.length === 0 ? {} : { formerKeys }),
  }
}

function boxToJson({ epoch, secretKey, retiredAtMs }: FormerBoxKeys): object {
  return { epoch, secretKey: toHex(secretKey), ...(retiredAtMs === undefined ? {} : { retiredAtMs }) }
}

function signingToJson(signing: SigningKeys): object {
  return { publicKey: signing.publicKey, signingSeed: toHex(signing.secretKey.subarray(0, 32)) }
}

function fromJson(fields: Fields): KeyFile | null {
  const signing = signingFromJson(fields)
  if (!signing) return null
  if (fields.kind === 'broker') return { kind: 'broker', signing }
  return fields.kind === 'peer' ? peerFromJson(signing, fields) : null
}

type Fields = { readonly [name: string]: unknown }

function fieldsOf(value: unknown): Fields | null {
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Fields) : null
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null // the parser's own error may quote the text
  }
}

function signingFromJson(fields: Fields): SigningKeys | null {
  if (!isHex(fields.signingSeed, 32)) return null
  const signing = signingKeysFromSeed(fromHex(fields.signingSeed))
  return signing.publicKey === fields.publicKey ? signing : null
}

function peerFromJson(signing: SigningKeys, fields: Fields): PeerKeyFile | null {
  if (!Array.isArray(fields.boxKeys) || fields.boxKeys.length > FORMER_KEYS_MAX + 1) return null
  const [box, ...formerBoxKeys] = fields.boxKeys.map(boxFromJson)
  if (!box || !formerBoxKeys.every((former) => former !== null)) return null
  const enrolment = enrolmentFromJson(fields.enrolment)
  const formerKeys = formerKeysFromJson(fields.formerKeys)
  if (enrolment === 'malformed' || !formerKeys) return null
  const peer = { kind: 'peer', identity: { signing, box }, formerBoxKeys, enrolment } as const
  return formerKeys.length === 0 ? peer : { ...peer, formerKeys }
}

function formerKeysFromJson(value: unknown): PeerKey[] | null {
  if (value === undefined) return []
  const isList = Array.isArray(value) && value.length <= FORMER_KEYS_MAX
  return isList && value.every((key) => isHex(key, 32)) ? (value as PeerKey[]) : null
}

function boxFromJson(value: unknown): FormerBoxKeys | null {
  const { epoch, secretKey, retiredAtMs } = fieldsOf(value) ?? {}
  if (!isHex(secretKey, 32) || typeof epoch !== 'number' || !isUnsigned(epoch, 0xffffffff)) return null
  const box: BoxKeys = boxKeysFromSecret(fromHex(secretKey), epoch)
  if (retiredAtMs === undefined) return box
  return typeof retiredAtMs === 'number' && isUnsigned(retiredAtMs, Number.MAX_SAFE_INTEGER)
    ? { ...box, retiredAtMs }
    : null
}

function enrolmentFromJson(value: unknown): KeyFileEnrolment | null | 'malformed' {
  if (value === null) return null
  const fields = fieldsOf(value)
  const { meshId, authority, brokerKey } = fields ?? {}
  if (!isHex(meshId, 16) || typeof authority !== 'string' || !isHex(brokerKey, 32)) return 'malformed'
  return { meshId: meshId as MeshId, authority, brokerKey: brokerKey as PeerKey }
}
