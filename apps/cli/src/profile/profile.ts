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
import { existsSync } from 'node:fs'
import { chmod, mkdir, rename, unlink } from 'node:fs/promises'
import { join } from 'node:path'
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
import { isHex, OperatingError } from '@sealpost/std'
import type { Settings } from '../settings.ts'
import { isRecord, readJsonFile, writeJsonFile } from './json-file.ts'
import { Passphrase } from './passphrase.ts'

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
