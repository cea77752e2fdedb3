/**
 * Stores keys on disk, for Node and Bun, as JSON with a format, a version and a kind. Only the owner can read the file,
 * and a passphrase can lock it. The file contains the seed and the public key, to detect damage. Errors never quote the
 * contents.
 */
import { type FileHandle, open, rename, unlink } from 'node:fs/promises'
import { platform } from 'node:os'
import { dirname } from 'node:path'
import {
  assert,
  fromHex,
  isHex,
  isSameBytes,
  type MeshId,
  type Millis,
  OperatingError,
  type PeerKey,
  toHex,
} from '@sealpost/std'
import { isUnsigned } from '../byte-fields.ts'
import { ready } from '../sodium.ts'
import {
  type BoxKeys,
  boxKeysFromSecret,
  generateBoxKeys,
  generateSigningKeys,
  type Identity,
  type SigningKeys,
  signingKeysFromSeed,
} from './keys.ts'
import { isLockHeader, type Locked, lockText, type PassphraseCost, USUAL_COST, unlockText } from './passphrase-lock.ts'

/** The mesh and broker where a peer is enrolled, from its invite. */
interface KeyFileEnrolment {
  readonly meshId: MeshId
  readonly authority: string
  readonly brokerKey: PeerKey
}

interface FormerBoxKeys extends BoxKeys {
  /** When the key was retired; absent if unknown. */
  readonly retiredAtMs?: Millis
}

export interface PeerKeyFile {
  readonly kind: 'peer'
  readonly identity: Identity
  /** Former box keys, newest first, and one about to be published, whose epoch is higher than the current one's. */
  readonly formerBoxKeys: readonly FormerBoxKeys[]
  readonly enrolment: KeyFileEnrolment | null
  /** Former identity keys, newest first. */
  readonly formerKeys?: readonly PeerKey[]
}

/** The key of a broker, or the root of a mesh. */
export interface BrokerKeyFile {
  readonly kind: 'broker' | 'root'
  readonly signing: SigningKeys
}

export type KeyFile = PeerKeyFile | BrokerKeyFile

const FORMAT = 'sealpost-key'
const VERSION = 1
const LOCKED_VERSION = 2
export const FORMER_KEYS_MAX = 64

interface LockedKeyFile extends Locked {
  readonly kind: string
  readonly publicKey: string
  readonly keychain?: string
}

export function plainText(contents: KeyFile): string {
  return `${JSON.stringify(toJson(contents), null, 2)}\n`
}

async function lockedText(
  contents: KeyFile,
  { passphrase, cost = USUAL_COST, keychain }: KeyFileLock,
): Promise<string> {
  const { publicKey } = contents.kind === 'peer' ? contents.identity.signing : contents.signing
  const outside = { kind: contents.kind, publicKey }
  const locked = await lockText(plainText(contents), passphrase, { context: contextOf(outside), cost })
  const head = { format: FORMAT, version: LOCKED_VERSION, ...outside, ...(keychain !== undefined && { keychain }) }
  return `${JSON.stringify({ ...head, ...locked }, null, 2)}\n`
}

/** Reads the contents of a key file. Returns null unless they are complete. */
export function readText(text: string): KeyFile | LockedKeyFile | null {
  const fields = fieldsOf(parseJson(text))
  if (fields?.format !== FORMAT) return null
  if (fields.version === LOCKED_VERSION) return lockedFromJson(fields)
  return fields.version === VERSION ? fromJson(fields) : null
}

/** Returns null if the passphrase is wrong or the file was changed, which are indistinguishable. */
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

function lockedFromJson({ kind, publicKey, lock, sealed, keychain }: Fields): LockedKeyFile | null {
  const header = fieldsOf(lock)
  if (typeof kind !== 'string' || typeof publicKey !== 'string' || typeof sealed !== 'string') return null
  if (!header || !isLockHeader(header)) return null
  const locked = { kind, publicKey, sealed, lock: header as unknown as Locked['lock'] }
  return typeof keychain === 'string' ? { ...locked, keychain } : locked
}

function toJson(contents: KeyFile): object {
  const head = { format: FORMAT, version: VERSION, kind: contents.kind }
  if (contents.kind !== 'peer') return { ...head, ...signingToJson(contents.signing) }
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
  if (fields.kind === 'broker' || fields.kind === 'root') return { kind: fields.kind, signing }
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
    return null // the parser's error may quote the contents
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

/** `warning`: other accounts can access the file, as is often the case for mounted secrets. */
export interface KeyFileRead {
  readonly contents: KeyFile
  readonly isLocked: boolean
  /** See `KeyFileLock`. */
  readonly keychain?: string
  readonly warning: { readonly code: 'key_file_exposed'; readonly message: string } | null
}

export interface KeyFileLock {
  readonly passphrase: string
  /** Default: 64 MiB and 3 passes. */
  readonly cost?: PassphraseCost
  /** The name under which the writer stored the passphrase in the operating system's keychain, for its readers. */
  readonly keychain?: string
}

/** Returns the passphrase of a file. `keychain`: as in `KeyFileLock`. */
export type FindPassphrase = (keychain?: string) => string | Promise<string>

/**
 * Creates the file with mode 0600 and syncs it. An existing file or link at the path is left unchanged.
 * @throws OperatingError `key_file_exists`, `key_file_unwritable`
 * @example await writeKeyFile('ada.json', contents, { passphrase: 'correct horse' })
 */
export async function writeKeyFile(path: string, contents: KeyFile, lock: KeyFileLock | null = null): Promise<void> {
  await create(path, await textOf(contents, lock))
}

/**
 * Replaces a key file atomically and syncs it. Only one program may call it at a time.
 * @throws OperatingError `key_file_unwritable`
 * @example await replaceKeyFile('ada.json', contents)
 */
export async function replaceKeyFile(path: string, contents: KeyFile, lock: KeyFileLock | null = null): Promise<void> {
  const text = await textOf(contents, lock)
  const beside = `${path}.next`
  await unlink(beside).catch(() => undefined) // left by a crash; nothing depends on it
  await create(beside, text)
  try {
    await rename(beside, path)
    await syncFolder(dirname(path))
  } catch (cause) {
    throw new OperatingError('key_file_unwritable', `Can't replace the key file ${path}.`, { cause })
  }
}

/**
 * Reads a key file. Calls `passphrase` if the file is locked.
 * @throws OperatingError `key_file_missing`, `key_file_unreadable`, `key_file_malformed`; `key_file_locked` if it needs
 * a passphrase, `passphrase_wrong`
 * @example const { contents } = await readKeyFile('ada.json', () => 'correct horse')
 */
export async function readKeyFile(path: string, passphrase?: FindPassphrase): Promise<KeyFileRead> {
  await ready()
  const { text, mode } = await readWholeText(path)
  const found = readText(text)
  if (!found) throw new OperatingError('key_file_malformed', `The file ${path} is not a key file of this version.`)
  const warning = isExposed(mode) ? exposure(path) : null
  if (!isLocked(found)) return { contents: found, isLocked: false, warning }
  const read = { contents: await unlocked(path, found, passphrase), isLocked: true, warning }
  return found.keychain === undefined ? read : { ...read, keychain: found.keychain }
}

const FILE_BYTES_MAX = 65_536

function textOf(contents: KeyFile, lock: KeyFileLock | null): string | Promise<string> {
  return lock ? lockedText(contents, lock) : plainText(contents)
}

async function unlocked(path: string, locked: LockedKeyFile, passphrase: FindPassphrase | undefined): Promise<KeyFile> {
  if (!passphrase) throw new OperatingError('key_file_locked', `The key file ${path} is encrypted with a passphrase.`)
  const contents = await unlock(locked, await passphrase(locked.keychain))
  if (contents) return contents
  throw new OperatingError('passphrase_wrong', `The passphrase does not decrypt the key file ${path}.`)
}

async function create(path: string, text: string): Promise<void> {
  const file = await open(path, 'wx', 0o600).catch((cause) => {
    throw codeOf(cause) === 'EEXIST'
      ? new OperatingError('key_file_exists', `The file ${path} already exists. Key files are never overwritten.`)
      : new OperatingError('key_file_unwritable', `Can't create the key file ${path}.`, { cause })
  })
  try {
    await file.writeFile(text)
    await file.sync()
  } catch (cause) {
    await unlink(path) // an incomplete key file would block the next attempt
    throw new OperatingError('key_file_unwritable', `Can't write the key file ${path}.`, { cause })
  } finally {
    await file.close()
  }
}

/** Syncs a folder, except on Windows, which can't open folders. */
async function syncFolder(path: string): Promise<void> {
  if (platform() === 'win32') return
  const folder = await open(path, 'r')
  try {
    await folder.sync()
  } finally {
    await folder.close()
  }
}

async function readWholeText(path: string): Promise<{ text: string; mode: number }> {
  const unreadable = (cause: unknown) =>
    new OperatingError('key_file_unreadable', `Can't read the key file ${path}.`, { cause })
  const file = await open(path, 'r').catch((cause) => {
    if (codeOf(cause) !== 'ENOENT') throw unreadable(cause)
    throw new OperatingError('key_file_missing', `The key file ${path} does not exist.`, { cause })
  })
  try {
    return await readWhole(file)
  } catch (cause) {
    throw unreadable(cause)
  } finally {
    await file.close()
  }
}

async function readWhole(file: FileHandle): Promise<{ text: string; mode: number }> {
  const { mode, size } = await file.stat()
  return { text: size > FILE_BYTES_MAX ? '' : await file.readFile('utf8'), mode }
}

function codeOf(cause: unknown): unknown {
  return (cause as { code?: unknown } | null)?.code
}

/** Returns whether other accounts have access. Windows has no modes. */
function isExposed(mode: number): boolean {
  return platform() !== 'win32' && (mode & 0o077) !== 0
}

function exposure(path: string) {
  return {
    code: 'key_file_exposed',
    message: `Other users can access the key file ${path}. Run chmod 600 on it, and treat its keys as compromised.`,
  } as const
}

/** How long former box keys are kept: more than a message may live and a sender needs to learn the new key. */
const KEPT_MS = 60 * 24 * 3600_000

/**
 * Returns the key to publish next: an interrupted attempt's or a new one, with a higher epoch than the directory has
 * seen. Write `file` first: it opens mail with the key, so that a crash loses no mail.
 * @example const { next, file } = beginBoxKeyRotation(keyFile, await peer.lookupKey(peer.key))
 */
export function beginBoxKeyRotation(file: PeerKeyFile, published: { boxKey: Uint8Array; boxEpoch: number }) {
  const { identity, formerBoxKeys } = file
  const left = formerBoxKeys.find(({ epoch }) => epoch > identity.box.epoch)
  if (left && (left.epoch > published.boxEpoch || isSameBytes(left.publicKey, published.boxKey)))
    return { next: left, file }
  const epochs = [published.boxEpoch, identity.box.epoch, ...formerBoxKeys.map(({ epoch }) => epoch)]
  const next = generateBoxKeys(Math.max(...epochs) + 1)
  return { next, file: { ...file, formerBoxKeys: [next, ...formerBoxKeys].slice(0, FORMER_KEYS_MAX) } }
}

/**
 * Returns the key file to write once the key is published.
 * @example const rotated = completeBoxKeyRotation(keyFile, next, Date.now())
 */
export function completeBoxKeyRotation(file: PeerKeyFile, next: BoxKeys, nowMs: Millis): PeerKeyFile {
  const { identity, formerBoxKeys } = file
  const others = [identity.box, ...formerBoxKeys].filter(({ epoch }) => epoch !== next.epoch)
  const retired = others.map((key: FormerBoxKeys) => ({ ...key, retiredAtMs: key.retiredAtMs ?? nowMs }))
  const kept = retired.filter(({ retiredAtMs }) => nowMs - retiredAtMs < KEPT_MS).slice(0, FORMER_KEYS_MAX)
  const { publicKey, secretKey, epoch } = next
  return { ...file, identity: { ...identity, box: { publicKey, secretKey, epoch } }, formerBoxKeys: kept }
}

/**
 * Returns the next identity's key file, to be written alongside the current one before you publish the rotation.
 * `boxEpoch`: the published box key's.
 */
export function beginIdentityRotation(file: PeerKeyFile, boxEpoch: number, nowMs: Millis): PeerKeyFile {
  const { identity, formerBoxKeys, formerKeys = [] } = file
  const others: FormerBoxKeys[] = [identity.box, ...formerBoxKeys]
  const epoch = Math.max(boxEpoch, ...others.map((key) => key.epoch)) + 1
  const retired = others.map((key) => ({ ...key, retiredAtMs: key.retiredAtMs ?? nowMs }))
  return {
    ...file,
    identity: { signing: generateSigningKeys(), box: generateBoxKeys(epoch) },
    formerBoxKeys: retired.slice(0, FORMER_KEYS_MAX),
    formerKeys: [identity.signing.publicKey, ...formerKeys].slice(0, FORMER_KEYS_MAX),
  }
}
