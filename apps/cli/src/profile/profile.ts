/**
 * A profile is a folder that holds one identity.
 * - `key.json`: the keys, with mode 0600, optionally locked with a passphrase; only a rotation replaces it
 * - `key-next.json`: the next identity, while a rotation is in progress
 * - `membership.json`: the mesh that the profile has joined, and the broker's addresses
 * - `contacts.json`: names and their pinned keys (`contacts.ts`)
 * - `messages`: the SDK's store of unsent and received messages
 * - `state`: the SDK's store of shared state: keys and the newest revisions
 * - `box-keys`: the SDK's store of the newest box-key epochs of other peers
 * - `member-proofs`: the SDK's store of the mesh's root and of what proves its members
 * - `recoveries`: the SDK's store of heirs, and of when new keys of contacts were first seen
 * - `recovery-check.json`: when the profile last checked for such keys
 * - `root-key.json`: the root of the mesh, if this profile adopted it
 * - `left-groups.json`: groups that the member has left (`group-leaves.ts`)
 * - `schedules.json`: recurring messages (`schedules.ts`)
 * - `sessions`: the keys, stores and locks of the profile's sessions, and the socket of their host
 * - `session.sock`: the socket of the command that has the connection of the profile's own key (`session-daemon.ts`)
 */
import { existsSync } from 'node:fs'
import { chmod, mkdir, open, readFile, rename, unlink } from 'node:fs/promises'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import { generateIdentity, type Identity, ready } from '@sealpost/identity'
import {
  type KeyFileLock,
  type KeyFileRead,
  type PeerKeyFile,
  readKeyFile,
  replaceKeyFile,
  writeKeyFile,
} from '@sealpost/identity/key-file'
import { AVAILABILITIES, type Availability } from '@sealpost/protocol'
import type { Membership, Status } from '@sealpost/sdk'
import { lockStoreInTurn, type StoreLock } from '@sealpost/sdk/file-store'
import { isChosenName, isHex, NAME_LENGTH_MAX, OperatingError, type PeerKey, tidyName } from '@sealpost/std'
import type { Settings } from '../settings.ts'
import { deleteFromKeychain, keychainLock, newKeychainLock, readKeychain } from './keychain.ts'
import { Passphrase } from './passphrase.ts'

/**
 * Reads a JSON file; undefined if it does not exist.
 * @throws OperatingError `file_unreadable`, `file_malformed`
 */
export async function readJsonFile<T>(path: string, isWhole: (value: unknown) => value is T): Promise<T | undefined> {
  const text = await readTextFile(path)
  if (text === undefined) return undefined
  const value = parseJson(text)
  if (isWhole(value)) return value
  throw fileMalformed(path)
}

/** Reads a file; undefined if it does not exist. @throws OperatingError `file_unreadable` */
export function readTextFile(path: string): Promise<string | undefined> {
  return readFile(path, 'utf8').catch((cause) => {
    if ((cause as { code?: string }).code === 'ENOENT') return undefined
    throw new OperatingError('file_unreadable', `Can't read the file ${path}.`, { cause })
  })
}

export const fileMalformed = (path: string): OperatingError =>
  new OperatingError('file_malformed', `The file ${path} was not written by sealpost.`)

export const fileUnwritable = (path: string, cause: unknown): OperatingError =>
  new OperatingError('file_unwritable', `Can't write the file ${path}.`, { cause })

/** Writes a JSON file atomically. @throws OperatingError `file_unwritable` */
export async function writeJsonFile(path: string, value: object): Promise<void> {
  const fresh = `${path}.${process.pid}.new`
  try {
    await writeSynced(fresh, `${JSON.stringify(value, null, 2)}\n`, 0o600)
    await chmod(fresh, 0o600) // a crash may have left a temporary file with other permissions
    await rename(fresh, path)
  } catch (cause) {
    throw fileUnwritable(path, cause)
  }
}

/** Creates or truncates a file, and resolves when its contents are on disk. */
export async function writeSynced(path: string, contents: string | Uint8Array, mode: number): Promise<void> {
  const file = await open(path, 'w', mode)
  try {
    await file.writeFile(contents)
    await file.sync()
  } finally {
    await file.close()
  }
}

/**
 * Changes a file under a lock, so that concurrent commands lose no changes.
 * @returns the new contents
 * @throws the errors of `readJsonFile`, `writeJsonFile` and `change`, after which the file is unchanged
 */
export async function updateJsonFile<T extends object>(
  path: string,
  isWhole: (value: unknown) => value is T,
  change: (value: T | undefined) => T,
): Promise<T> {
  const lock = await takeTurn(path)
  try {
    const changed = change(await readJsonFile(path, isWhole))
    await writeJsonFile(path, changed)
    return changed
  } finally {
    await lock.release()
  }
}

function takeTurn(path: string): Promise<StoreLock> {
  return lockStoreInTurn(path).catch((cause) => {
    throw fileUnwritable(path, cause)
  })
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Parses JSON; undefined if the text is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined // the caller knows where the text comes from
  }
}

export type { Membership } from '@sealpost/sdk'
export type SavedStatus = Required<Pick<Status, 'availability' | 'summary'>>

export interface ProfileKeys extends Pick<PeerKeyFile, 'identity' | 'formerBoxKeys' | 'formerKeys'> {
  readonly warning: KeyFileRead['warning']
}

interface SavedMembership extends Membership {
  /** The public addresses of the mesh's current cell, after a move. */
  readonly cell?: readonly string[]
}

interface OpenedKeyFile extends Omit<KeyFileRead, 'contents'> {
  readonly contents: PeerKeyFile
}

export class Profile {
  readonly name: string
  readonly folder: string
  readonly passphrase: Passphrase
  /** Cached, because opening a locked file is slow. */
  #opened: Promise<OpenedKeyFile> | null = null
  #fromKeychain: Promise<string> | null = null

  /** Returns the profile, which may not exist. @throws OperatingError `usage` for an invalid name */
  constructor(settings: Pick<Settings, 'home'>, name: string, passphrase = new Passphrase({})) {
    if (!/^[a-z0-9][a-z0-9._-]{0,63}$/i.test(name))
      throw new OperatingError(
        'usage',
        'The name of a profile contains only letters, digits, dots, dashes and underscores.',
      )
    this.name = name
    this.passphrase = passphrase
    this.folder = join(settings.home, name)
  }

  get keyFile(): string {
    return join(this.folder, 'key.json')
  }
  get #nextKeyFile(): string {
    return join(this.folder, 'key-next.json')
  }
  get membershipFile(): string {
    return join(this.folder, 'membership.json')
  }
  get contactsFile(): string {
    return join(this.folder, 'contacts.json')
  }
  get stateFile(): string {
    return join(this.folder, 'state')
  }
  get keyEpochsFile(): string {
    return join(this.folder, 'box-keys')
  }
  get proofsFile(): string {
    return join(this.folder, 'member-proofs')
  }
  get recoveriesFile(): string {
    return join(this.folder, 'recoveries')
  }
  get recoveryCheckFile(): string {
    return join(this.folder, 'recovery-check.json')
  }
  get rootKeyFile(): string {
    return join(this.folder, 'root-key.json')
  }
  get statusFile(): string {
    return join(this.folder, 'status.json')
  }
  get hasKeys(): boolean {
    return existsSync(this.keyFile)
  }

  /** Generates the profile's keys. @throws OperatingError `key_file_exists`, `key_file_unwritable` */
  makeKeys(): Promise<Identity> {
    return this.#writeNewKeys(null)
  }

  /** Generates keys and locks them with a passphrase. @throws the errors of `makeKeys` and `Passphrase.choose` */
  async makeLockedKeys(): Promise<Identity> {
    if (this.hasKeys) return this.makeKeys() // refuse an existing key file before the prompt
    return this.#writeNewKeys({ passphrase: await this.passphrase.choose() })
  }

  /**
   * Reads the profile's keys. @throws OperatingError `profile_missing`, `key_file_wrong_kind`, and the errors of
   * opening the key file
   */
  async readKeys(): Promise<ProfileKeys> {
    const { contents, warning } = await this.#openKeyFile()
    const { identity, formerBoxKeys, formerKeys = [] } = contents
    return { identity, formerBoxKeys, formerKeys, warning }
  }

  /** Returns the profile's own key. @throws the errors of `readKeys` */
  async readOwnKey(): Promise<PeerKey> {
    return (await this.readKeys()).identity.signing.publicKey
  }

  /** Returns the passphrase of a locked key file; null if it is not locked. @throws the errors of `readKeys` */
  async findPassphrase(): Promise<string | null> {
    return (await this.findLock())?.passphrase ?? null
  }

  /** Returns the lock of the key file; null if it is not locked. @throws the errors of `readKeys` */
  async findLock(): Promise<KeyFileLock | null> {
    const { isLocked, keychain } = await this.#openKeyFile()
    if (!isLocked) return null
    const passphrase = await this.#passphraseOf(keychain)
    return keychain === undefined ? { passphrase } : keychainLock(keychain, passphrase)
  }

  #passphraseOf(keychain?: string): Promise<string> {
    if (keychain === undefined) return this.passphrase.get()
    this.#fromKeychain ??= readKeychain(keychain)
    return this.#fromKeychain
  }

  /** Reads the key file again. @throws the errors of `readKeys` */
  async readKeyFile(): Promise<PeerKeyFile> {
    this.#opened = null
    return (await this.#openKeyFile()).contents
  }

  /**
   * Replaces the key file's contents. A locked file stays locked. @throws OperatingError `key_file_unwritable`, and the
   * errors of `readKeys`
   */
  async replaceKeys(contents: PeerKeyFile): Promise<void> {
    await replaceKeyFile(this.keyFile, contents, await this.findLock())
    this.#opened = null
  }

  /** Returns the next identity of an unfinished rotation. */
  async findNextKeys(): Promise<PeerKeyFile | null> {
    if (!existsSync(this.#nextKeyFile)) return null
    const { contents } = await readKeyFile(this.#nextKeyFile, (keychain) => this.#passphraseOf(keychain))
    return contents.kind === 'peer' ? contents : null
  }

  async writeNextKeys(contents: PeerKeyFile): Promise<void> {
    await replaceKeyFile(this.#nextKeyFile, contents, await this.findLock())
  }

  /** Replaces the identity by the next one. Call once the broker has accepted the rotation. */
  async promoteNextKeys(): Promise<void> {
    await rename(this.#nextKeyFile, this.keyFile)
    this.#opened = null
  }

  async swapKeys(): Promise<void> {
    const between = join(this.folder, 'key-between.json')
    await rename(this.keyFile, between)
    await rename(this.#nextKeyFile, this.keyFile)
    await rename(between, this.#nextKeyFile)
    this.#opened = null
  }

  async deleteNextKeys(): Promise<void> {
    await unlink(this.#nextKeyFile)
  }

  #openKeyFile(): Promise<OpenedKeyFile> {
    this.#opened ??= this.#openOnce().catch((error) => {
      this.#opened = null
      throw error
    })
    return this.#opened
  }

  async #openOnce(): Promise<OpenedKeyFile> {
    if (!this.hasKeys)
      throw new OperatingError(
        'profile_missing',
        `The profile ${this.name} has no keys. Generate them with \`sealpost join INVITE\` or \`sealpost keygen\`.`,
      )
    const { contents, ...facts } = await readKeyFile(this.keyFile, (keychain) => this.#passphraseOf(keychain))
    if (contents.kind === 'peer') return { ...facts, contents }
    throw new OperatingError('key_file_wrong_kind', `The file ${this.keyFile} is not the key file of a peer.`)
  }

  /** @throws OperatingError `not_joined` */
  async readMembership(): Promise<Membership> {
    const membership = await this.findMembership()
    if (membership) return membership
    throw new OperatingError(
      'not_joined',
      `The profile ${this.name} belongs to no mesh. Join one with \`sealpost join INVITE\`.`,
    )
  }

  /** Returns the membership, if the profile has joined a mesh. `url` is the current cell's. */
  async findMembership(): Promise<Membership | undefined> {
    const kept = await this.#findKeptMembership()
    if (!kept) return undefined
    const { cell: [url = kept.url] = [], brokerKey, meshId, name, root, revocations } = kept
    return { url, brokerKey, meshId, name, ...(root && { root }), ...(revocations && { revocations }) }
  }

  /** Returns all known addresses, the current cell's first. @throws OperatingError `not_joined` */
  async readUrls(): Promise<string[]> {
    await this.readMembership()
    const { cell = [], url } = (await this.#findKeptMembership())!
    return [...new Set([...cell, url])]
  }

  /** Returns the invite's address, for when the current cell does not respond. */
  async readFirstUrl(): Promise<string | undefined> {
    return (await this.#findKeptMembership())?.url
  }

  /** Stores the current cell's addresses; none at the first address. */
  async writeCell(cell: readonly string[]): Promise<void> {
    const kept = await this.#findKeptMembership()
    if (kept && `${kept.cell ?? []}` !== `${cell}`) await writeJsonFile(this.membershipFile, { ...kept, cell })
  }

  #findKeptMembership(): Promise<SavedMembership | undefined> {
    return readJsonFile(this.membershipFile, isMembership)
  }

  async writeMembership(membership: Membership): Promise<void> {
    await this.#makeFolder()
    await writeJsonFile(this.membershipFile, membership)
  }

  /** Returns the status for each session. */
  readStatus(): Promise<SavedStatus | undefined> {
    return readJsonFile(this.statusFile, isStatus)
  }

  writeStatus(status: SavedStatus): Promise<void> {
    return writeJsonFile(this.statusFile, status)
  }

  /**
   * Generates keys and locks them with a passphrase in the keychain. @throws the errors of `makeKeys` and
   * `newKeychainLock`
   */
  async makeKeychainKeys(): Promise<Identity> {
    if (this.hasKeys) return this.makeKeys()
    const lock = await newKeychainLock(this.name)
    return this.#writeNewKeys(lock).catch(async (error) => {
      await deleteFromKeychain(lock.keychain)
      throw error
    })
  }

  async #writeNewKeys(lock: KeyFileLock | null): Promise<Identity> {
    await ready()
    const identity = generateIdentity()
    await this.#makeFolder()
    await writeKeyFile(this.keyFile, { kind: 'peer', identity, formerBoxKeys: [], enrolment: null }, lock)
    return identity
  }

  /** Creates the profile's folder. @throws OperatingError `profile_unwritable` */
  async #makeFolder(): Promise<void> {
    try {
      await mkdir(this.folder, { recursive: true, mode: 0o700 })
      await chmod(this.folder, 0o700)
    } catch (cause) {
      throw new OperatingError('profile_unwritable', `Can't create the folder ${this.folder}.`, { cause })
    }
  }
}

/** Generates the profile's keys unless they exist. @returns the public key */
export async function ensureKeys(profile: Profile, { keychain = false } = {}): Promise<PeerKey> {
  if (profile.hasKeys) return profile.readOwnKey()
  const identity = await (keychain ? profile.makeKeychainKeys() : profile.makeKeys())
  return identity.signing.publicKey
}

/** Returns the account name without characters that names can't contain. */
export function userName(account = userInfo().username): string {
  const given = tidyName(account)
    .replace(/[^ -~\p{L}\p{M}\p{Nd}]|[/,*()]/gu, '')
    .replace(/^[ -]+/, '')
  const ascii = given.replace(/[^ -~]/g, '')
  const names = [given, ascii].map((name) => tidyName(name.slice(0, NAME_LENGTH_MAX)))
  return names.find(isChosenName) ?? 'someone'
}

function isMembership(value: unknown): value is SavedMembership {
  if (!isRecord(value)) return false
  const { url, brokerKey, meshId, name, cell = [], root, revocations = 0 } = value
  if ((root !== undefined && !isHex(root, 32)) || typeof revocations !== 'number') return false
  if (!Array.isArray(cell) || !cell.every((each) => typeof each === 'string')) return false
  return typeof url === 'string' && isHex(brokerKey, 32) && isHex(meshId, 16) && typeof name === 'string'
}

export function isStatus(value: unknown): value is SavedStatus {
  if (!isRecord(value)) return false
  return AVAILABILITIES.includes(value.availability as Availability) && typeof value.summary === 'string'
}
