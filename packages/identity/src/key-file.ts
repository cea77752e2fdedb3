/**
 * Keys on disk, for Node and Bun: JSON with a format, a version and a kind, readable by its owner only. Of the signing
 * key the seed is kept and the public key beside it, so that a damaged file is noticed. Error messages name the path and
 * never anything of the contents.
 */
import { type FileHandle, open, unlink } from 'node:fs/promises'
import { platform } from 'node:os'
import { assert, fromHex, isHex, type MeshId, OperatingError, type PeerKey, toHex } from '@sealpost/std'
import { isUnsigned } from './byte-fields.ts'
import { type BoxKeys, boxKeysFromSecret, type Identity, type SigningKeys, signingKeysFromSeed } from './keys.ts'
import { ready } from './sodium.ts'

/** Where a peer is enrolled: what its invite said. */
export interface Enrolment {
  readonly meshId: MeshId
  readonly authority: string
  readonly brokerKey: PeerKey
}

export interface PeerKeyFile {
  readonly kind: 'peer'
  readonly identity: Identity
  /** Box keys from before a rotation, newest first. */
  readonly formerBoxKeys: readonly BoxKeys[]
  readonly enrolment: Enrolment | null
}

export interface BrokerKeyFile {
  readonly kind: 'broker'
  readonly signing: SigningKeys
}

export type KeyFile = PeerKeyFile | BrokerKeyFile

/** `warning`: the file's mode lets others than its owner at it. Mounted secrets are like that, so the caller decides. */
export interface KeyFileRead {
  readonly contents: KeyFile
  readonly warning: { readonly code: 'key_file_exposed'; readonly message: string } | null
}

/**
 * Creates the file with mode 0600 and syncs it. What exists at the path, a link included, is left as it is.
 * @throws OperatingError `key_file_exists`, `key_file_unwritable`
 */
export async function writeKeyFile(path: string, contents: KeyFile): Promise<void> {
  const file = await open(path, 'wx', 0o600).catch((cause) => {
    throw codeOf(cause) === 'EEXIST'
      ? new OperatingError('key_file_exists', `There is a file at ${path} already; keys are never overwritten.`)
      : new OperatingError('key_file_unwritable', `No key file can be created at ${path}.`, { cause })
  })
  try {
    await file.writeFile(`${JSON.stringify(toJson(contents), null, 2)}\n`)
    await file.sync()
  } catch (cause) {
    await unlink(path) // half a key file would bar the next attempt
    throw new OperatingError('key_file_unwritable', `The key file at ${path} can't be written.`, { cause })
  } finally {
    await file.close()
  }
}

/** @throws OperatingError `key_file_missing`, `key_file_unreadable`, `key_file_malformed` */
export async function readKeyFile(path: string): Promise<KeyFileRead> {
  await ready()
  const { text, mode } = await readText(path)
  const contents = fromText(text)
  if (!contents) throw new OperatingError('key_file_malformed', `The file at ${path} is no key file of this version.`)
  return { contents, warning: isExposed(mode) ? exposure(path) : null }
}

const FORMAT = 'sealpost-key'
const VERSION = 1
const FILE_BYTES_MAX = 65_536
const FORMER_KEYS_MAX = 64

async function readText(path: string): Promise<{ text: string; mode: number }> {
  const unreadable = (cause: unknown) =>
    new OperatingError('key_file_unreadable', `The key file at ${path} can't be read.`, { cause })
  const file = await open(path, 'r').catch((cause) => {
    if (codeOf(cause) !== 'ENOENT') throw unreadable(cause)
    throw new OperatingError('key_file_missing', `There is no key file at ${path}.`, { cause })
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

/** Windows has no such modes. */
function isExposed(mode: number): boolean {
  return platform() !== 'win32' && (mode & 0o077) !== 0
}

function exposure(path: string) {
  return {
    code: 'key_file_exposed',
    message: `The key file at ${path} is open to others than its owner: chmod 600 it, and think of the key as known.`,
  } as const
}

function toJson(contents: KeyFile): object {
  const head = { format: FORMAT, version: VERSION, kind: contents.kind }
  if (contents.kind === 'broker') return { ...head, ...signingToJson(contents.signing) }
  const { identity, formerBoxKeys, enrolment } = contents
  assert(formerBoxKeys.length <= FORMER_KEYS_MAX, 'a key file keeps a bounded number of former box keys')
  return {
    ...head,
    ...signingToJson(identity.signing),
    boxKeys: [identity.box, ...formerBoxKeys].map((box) => ({ epoch: box.epoch, secretKey: toHex(box.secretKey) })),
    enrolment,
  }
}

function signingToJson(signing: SigningKeys): object {
  return { publicKey: signing.publicKey, signingSeed: toHex(signing.secretKey.subarray(0, 32)) }
}

/** Null for anything but a whole key file. The parser's own error is dropped: it may quote the text. */
function fromText(text: string): KeyFile | null {
  const fields = fieldsOf(parseJson(text))
  if (fields?.format !== FORMAT || fields.version !== VERSION) return null
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
    return null // malformed, which the caller says in its own words
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
  return enrolment === 'malformed' ? null : { kind: 'peer', identity: { signing, box }, formerBoxKeys, enrolment }
}

function boxFromJson(value: unknown): BoxKeys | null {
  const { epoch, secretKey } = fieldsOf(value) ?? {}
  if (!isHex(secretKey, 32) || typeof epoch !== 'number' || !isUnsigned(epoch, 0xffffffff)) return null
  return boxKeysFromSecret(fromHex(secretKey), epoch)
}

function enrolmentFromJson(value: unknown): Enrolment | null | 'malformed' {
  if (value === null) return null
  const fields = fieldsOf(value)
  const { meshId, authority, brokerKey } = fields ?? {}
  if (!isHex(meshId, 16) || typeof authority !== 'string' || !isHex(brokerKey, 32)) return 'malformed'
  return { meshId: meshId as MeshId, authority, brokerKey: brokerKey as PeerKey }
}
