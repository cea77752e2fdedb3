/**
 * A profile: one identity of its user, in a folder of its own.
 *
 * - `key.json`: the keys, 0600, locked with a passphrase if wanted; replaced by a rotation and by nothing else
 * - `key-next.json`: those of another identity, while it takes the place of this one
 * - `membership.json`: the mesh it joined, and how to reach the broker
 * - `contacts.json`: names and the keys they are pinned to (`contacts.ts`)
 * - `messages`: what waits to be sent and what was received, kept by the SDK
 * - `state`: keys of shared state and what was seen of it, kept by the SDK
 * - `box-keys`: the newest epochs of others' box keys that were seen, kept by the SDK
 * - `session.sock`: where a running command of this profile is asked by others (`session-daemon.ts`)
 */
import { existsSync, readFileSync } from 'node:fs'
import { chmod, mkdir, open, readFile, rename, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline/promises'
import { Writable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { generateIdentity, type Identity, ready } from '@sealpost/identity'
import {
  type KeyFileRead,
  type PeerKeyFile,
  readKeyFile,
  replaceKeyFile,
  writeKeyFile,
} from '@sealpost/identity/key-file'
import { AVAILABILITIES, type Availability } from '@sealpost/protocol'
import type { Membership, Status } from '@sealpost/sdk'
import { lockStore, type StoreLock } from '@sealpost/sdk/file-store'
import { isHex, type Millis, OperatingError } from '@sealpost/std'
import type { Settings } from '../settings.ts'

/** The passphrase of a profile's keys: from a file, from the environment, or from the person at the terminal. */
interface PassphraseSources {
  /** Its first line is the passphrase. */
  readonly file?: string | undefined
  readonly fromEnvironment?: string | undefined
  /** Null: nobody is there to be asked. */
  readonly terminal?: PassphraseTerminal | null
}

/** Someone who types without being seen. */
type PassphraseTerminal = (prompt: string) => Promise<string>

export class Passphrase {
  readonly #places: PassphraseSources
  #known: Promise<string> | null = null

  constructor(places: PassphraseSources) {
    this.#places = places
  }

  /** That of keys which are there; asked for once. @throws OperatingError `key_file_locked`, `file_missing` */
  get(): Promise<string> {
    this.#known ??= this.#find('passphrase: ')
    return this.#known
  }

  /** One for new keys; a person types it twice. @throws OperatingError `usage`, `key_file_locked`, `file_missing` */
  choose(): Promise<string> {
    this.#known ??= this.#findNew()
    return this.#known
  }

  async #findNew(): Promise<string> {
    const isTyped = this.#places.file === undefined && this.#places.fromEnvironment === undefined
    const first = await this.#find('new passphrase: ')
    if (first === '') throw new OperatingError('usage', 'A passphrase has at least one character.')
    if (isTyped && first !== (await this.#find('once more: ')))
      throw new OperatingError('usage', 'These are two different passphrases; no keys were made.')
    return first
  }

  async #find(prompt: string): Promise<string> {
    const { file, fromEnvironment, terminal } = this.#places
    if (file !== undefined) return firstLineOf(file)
    if (fromEnvironment !== undefined) return fromEnvironment
    if (terminal) return terminal(prompt)
    throw new OperatingError(
      'key_file_locked',
      'There is no terminal to ask for the passphrase: name it with SEALPOST_PASSPHRASE or --passphrase-file.',
    )
  }
}

/** Null unless a person sits at both ends of this program. `signal`: ends waiting for them. */
export function platformTerminal(signal: AbortSignal): PassphraseTerminal | null {
  return process.stdin.isTTY && process.stderr.isTTY ? (prompt) => typedUnseen(prompt, signal) : null
}

async function typedUnseen(prompt: string, signal: AbortSignal): Promise<string> {
  const nowhere = new Writable({ write: (_chunk, _encoding, written) => written() })
  const lines = createInterface({ input: process.stdin, output: nowhere, terminal: true })
  const interrupt = new AbortController()
  lines.once('SIGINT', () => interrupt.abort())
  process.stderr.write(prompt) // only now is nothing shown of what is typed
  try {
    return await lines.question('', { signal: AbortSignal.any([signal, interrupt.signal]) })
  } catch {
    throw new OperatingError('interrupted', 'Ctrl-C')
  } finally {
    lines.close()
    process.stderr.write('\n')
  }
}

function firstLineOf(file: string): string {
  try {
    return readFileSync(file, 'utf8').split(/\r?\n/, 1)[0]!
  } catch (cause) {
    throw new OperatingError('file_missing', `The passphrase file ${file} can't be read.`, { cause })
  }
}

/** Small JSON files of a profile: private to their owner, and whole or not there at all. */
const TURN_WITHIN_MS: Millis = 10_000
const TURN_EVERY_MS: Millis = 20

/**
 * @returns undefined when there is no such file
 * @throws OperatingError `file_unreadable`, `file_malformed`
 */
export async function readJsonFile<T>(path: string, isWhole: (value: unknown) => value is T): Promise<T | undefined> {
  const text = await readFile(path, 'utf8').catch((cause) => {
    if ((cause as { code?: string }).code === 'ENOENT') return undefined
    throw new OperatingError('file_unreadable', `The file at ${path} can't be read.`, { cause })
  })
  if (text === undefined) return undefined
  const value = parse(text)
  if (isWhole(value)) return value
  throw new OperatingError('file_malformed', `The file at ${path} is not one that this command wrote.`)
}

/** @throws OperatingError `file_unwritable` */
export async function writeJsonFile(path: string, value: object): Promise<void> {
  const fresh = `${path}.${process.pid}.new`
  try {
    const file = await open(fresh, 'w', 0o600)
    try {
      await file.writeFile(`${JSON.stringify(value, null, 2)}\n`)
      await file.sync()
    } finally {
      await file.close()
    }
    await chmod(fresh, 0o600) // one left by a crash keeps its own mode
    await rename(fresh, path)
  } catch (cause) {
    throw new OperatingError('file_unwritable', `The file at ${path} can't be written.`, { cause })
  }
}

/**
 * Changes a file as it stands now: one command after the other, so that none undoes what another one wrote.
 * @returns what stands in it then
 * @throws OperatingError as `readJsonFile` and `writeJsonFile`, and what `change` throws: the file is left as it was
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

async function takeTurn(path: string): Promise<StoreLock> {
  for (const lateMs = performance.now() + TURN_WITHIN_MS; ; ) {
    try {
      return await lockStore(path)
    } catch (cause) {
      const isBusy = (cause as { code?: string }).code === 'store_in_use'
      if (!isBusy || performance.now() > lateMs)
        throw new OperatingError('file_unwritable', `The file at ${path} can't be written.`, { cause })
    }
    await delay(TURN_EVERY_MS * (1 + Math.random())) // of two that came at once both may have given way
  }
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined // told as malformed, with the path
  }
}

export type { Membership } from '@sealpost/sdk'
export type SavedStatus = Required<Pick<Status, 'availability' | 'summary'>>

/** What a peer is opened with, and what is to be said about the file it came from. */
export interface ProfileKeys extends Pick<PeerKeyFile, 'identity' | 'formerBoxKeys' | 'formerKeys'> {
  readonly warning: KeyFileRead['warning']
}

/** As it stands in its file. */
interface SavedMembership extends Membership {
  /** The public addresses of the cell that serves the mesh since it was moved. */
  readonly cell?: readonly string[]
}

interface OpenedKeyFile extends Omit<KeyFileRead, 'contents'> {
  readonly contents: PeerKeyFile
}

export class Profile {
  readonly name: string
  readonly folder: string
  readonly #passphrase: Passphrase
  /** Kept: a locked one takes a while to open. */
  #opened: Promise<OpenedKeyFile> | null = null

  /** @throws OperatingError `usage` for a name that is no plain folder name */
  constructor(settings: Pick<Settings, 'home'>, name: string, passphrase = new Passphrase({})) {
    if (!/^[a-z0-9][a-z0-9._-]{0,63}$/i.test(name))
      throw new OperatingError('usage', 'A profile is named by letters, digits, dots, dashes and underscores.')
    this.name = name
    this.#passphrase = passphrase
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
  get statusFile(): string {
    return join(this.folder, 'status.json')
  }
  get hasKeys(): boolean {
    return existsSync(this.keyFile)
  }

  /** @throws OperatingError `key_file_exists`, `key_file_unwritable` */
  makeKeys(): Promise<Identity> {
    return this.#writeNewKeys(null)
  }

  /** The same, locked with a passphrase. @throws OperatingError as `makeKeys`, and those of `Passphrase.choose` */
  async makeLockedKeys(): Promise<Identity> {
    if (this.hasKeys) return this.makeKeys() // which refuses, before anybody is asked for anything
    return this.#writeNewKeys({ passphrase: await this.#passphrase.choose() })
  }

  /** @throws OperatingError `profile_missing`, `key_file_wrong_kind`, and those of the key file and its passphrase */
  async readKeys(): Promise<ProfileKeys> {
    const { contents, warning } = await this.#openKeyFile()
    const { identity, formerBoxKeys, formerKeys = [] } = contents
    return { identity, formerBoxKeys, formerKeys, warning }
  }

  /** As it stands on disk now. @throws as `readKeys` */
  async readKeyFile(): Promise<PeerKeyFile> {
    this.#opened = null
    return (await this.#openKeyFile()).contents
  }

  /** Locked as it was before. @throws OperatingError `key_file_unwritable`, and as `readKeys` */
  async replaceKeys(contents: PeerKeyFile): Promise<void> {
    const { isLocked } = await this.#openKeyFile()
    const lock = isLocked ? { passphrase: await this.#passphrase.get() } : null
    await replaceKeyFile(this.keyFile, contents, lock)
    this.#opened = null
  }

  /** Of an identity that is about to take the place of this one. */
  async findNextKeys(): Promise<PeerKeyFile | null> {
    if (!existsSync(this.#nextKeyFile)) return null
    const { contents } = await readKeyFile(this.#nextKeyFile, () => this.#passphrase.get())
    return contents.kind === 'peer' ? contents : null
  }

  async writeNextKeys(contents: PeerKeyFile): Promise<void> {
    const { isLocked } = await this.#openKeyFile()
    await replaceKeyFile(this.#nextKeyFile, contents, isLocked ? { passphrase: await this.#passphrase.get() } : null)
  }

  /** The broker has it: it is this profile's from now on. */
  async promoteNextKeys(): Promise<void> {
    await rename(this.#nextKeyFile, this.keyFile)
    this.#opened = null
  }

  /** Tries the identity that stands beside this one, which takes its place. Said twice, nothing has changed. */
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
        `The profile ${this.name} has no keys yet: \`sealpost join INVITE\` makes them, and so does \`sealpost keygen\`.`,
      )
    const { contents, ...facts } = await readKeyFile(this.keyFile, () => this.#passphrase.get())
    if (contents.kind === 'peer') return { ...facts, contents }
    throw new OperatingError('key_file_wrong_kind', `The key file ${this.keyFile} is not a peer's.`)
  }

  /** @throws OperatingError `not_joined` */
  async readMembership(): Promise<Membership> {
    const membership = await this.findMembership()
    if (membership) return membership
    throw new OperatingError(
      'not_joined',
      `The profile ${this.name} belongs to no mesh yet: use an invite with \`sealpost join INVITE\`.`,
    )
  }

  /** `url` is an address of the cell that serves the mesh now. */
  async findMembership(): Promise<Membership | undefined> {
    const kept = await this.#findKeptMembership()
    if (!kept) return undefined
    const { cell: [url = kept.url] = [], brokerKey, meshId, name } = kept
    return { url, brokerKey, meshId, name }
  }

  /** Every address that is known, those of the cell that serves the mesh now first. @throws OperatingError `not_joined` */
  async readUrls(): Promise<string[]> {
    await this.readMembership()
    const { cell = [], url } = (await this.#findKeptMembership())!
    return [...new Set([...cell, url])]
  }

  /** The address that the profile was made with. It is dialled when none of the cell answers. */
  async readFirstUrl(): Promise<string | undefined> {
    return (await this.#findKeptMembership())?.url
  }

  /** Where the mesh was moved to; empty: it is served at the first address again. */
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

  /** What this peer says of itself whenever it has a session. */
  readStatus(): Promise<SavedStatus | undefined> {
    return readJsonFile(this.statusFile, isStatus)
  }

  writeStatus(status: SavedStatus): Promise<void> {
    return writeJsonFile(this.statusFile, status)
  }

  async #writeNewKeys(lock: { passphrase: string } | null): Promise<Identity> {
    await ready()
    const identity = generateIdentity()
    await this.#makeFolder()
    await writeKeyFile(this.keyFile, { kind: 'peer', identity, formerBoxKeys: [], enrolment: null }, lock)
    return identity
  }

  /** @throws OperatingError `profile_unwritable` */
  async #makeFolder(): Promise<void> {
    try {
      await mkdir(this.folder, { recursive: true, mode: 0o700 })
      await chmod(this.folder, 0o700)
    } catch (cause) {
      throw new OperatingError('profile_unwritable', `The folder ${this.folder} can't be made.`, { cause })
    }
  }
}

function isMembership(value: unknown): value is SavedMembership {
  if (!isRecord(value)) return false
  const { url, brokerKey, meshId, name, cell = [] } = value
  if (!Array.isArray(cell) || !cell.every((each) => typeof each === 'string')) return false
  return typeof url === 'string' && isHex(brokerKey, 32) && isHex(meshId, 16) && typeof name === 'string'
}

function isStatus(value: unknown): value is SavedStatus {
  if (!isRecord(value)) return false
  return AVAILABILITIES.includes(value.availability as Availability) && typeof value.summary === 'string'
}
