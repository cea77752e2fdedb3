/**
 * `sealpost key backup` writes a profile's identity to one encrypted file; `sealpost key restore` makes a profile of it.
 *
 * The file is JSON: format, version, lock, sealed contents, checksum. The passphrase protects the contents like those of
 * a key file. The checksum only distinguishes damage from a wrong passphrase. The contents are the keys of the profile and of its
 * sessions, the membership, the contacts, the groups that the member has left, the status, and the stores of box-key
 * epochs and of shared state. They contain no mail: each process begins new streams, so a restored identity never
 * repeats a position in a stream.
 */
import { mkdir, mkdtemp, open, readdir, readFile, rename, rm, rmdir } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { fingerprint, hash256, ready } from '@sealpost/identity'
import { type KeyFileLock, plainText, readKeyFile, readText, writeKeyFile } from '@sealpost/identity/key-file'
import {
  isLockHeader,
  type Locked,
  lockText,
  type PassphraseCost,
  USUAL_COST,
  unlockText,
} from '@sealpost/identity/passphrase-lock'
import { fromBase64url, OperatingError, toBase64url, toHex } from '@sealpost/std'
import { Command } from 'commander'
import { escapeName } from '../output.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { newKeychainLock } from './keychain.ts'
import { fileUnwritable, isRecord, type Profile, parseJson, readTextFile, writeSynced } from './profile.ts'

const FORMAT = 'sealpost-backup'
const VERSION = 1
const CONTEXT = `${FORMAT}/${VERSION}`
/** Files with text, and stores, whose incomplete last batch a reader drops. */
const TEXTS = ['membership.json', 'contacts.json', 'left-groups.json', 'status.json']
const STORES = ['box-keys', 'state']
const KEY_FILES = /^(?:key|key-next|sessions\/[\w%!~*'()-]+\/key)\.json$/
const SESSION_FILES = /^sessions\/[\w%!~*'()-]+\/session\.json$/

/** The contents of a backup: the files of the profile by their path. Keys are plain text. */
export interface IdentityBackup {
  readonly createdAtMs: number
  readonly profile: string
  /** Whether the key files were encrypted. */
  readonly isLocked: boolean
  readonly texts: Readonly<Record<string, string>>
  /** Binary files, as base64url. */
  readonly stores: Readonly<Record<string, string>>
}

/** Returns the text of a backup file. */
export async function sealBackup(backup: IdentityBackup, passphrase: string, cost: PassphraseCost = USUAL_COST) {
  const locked = await lockText(JSON.stringify(backup), passphrase, { context: CONTEXT, cost })
  return `${JSON.stringify({ format: FORMAT, version: VERSION, ...locked, checksum: checksumOf(locked) })}\n`
}

/** Checks the outside of a backup file. @throws OperatingError `backup_malformed`, `backup_version` */
export async function readBackup(text: string, path: string): Promise<Locked> {
  await ready()
  const file = parseJson(text)
  if (!isRecord(file) || file.format !== FORMAT)
    throw malformed(`The file ${path} is not a backup of sealpost, or its end is missing.`)
  if (file.version !== VERSION)
    throw new OperatingError('backup_version', `The backup ${path} was written by a newer version of sealpost.`)
  const { lock, sealed, checksum } = file
  if (!isRecord(lock) || !isLockHeader(lock) || typeof sealed !== 'string')
    throw malformed(`The backup ${path} is damaged.`)
  const locked = { lock, sealed } as unknown as Locked
  if (checksum !== checksumOf(locked)) throw malformed(`The backup ${path} is damaged.`)
  return locked
}

/** Decrypts a backup. @throws OperatingError `passphrase_wrong`, `backup_malformed` */
export async function openBackup(locked: Locked, passphrase: string, path: string): Promise<IdentityBackup> {
  const text = await unlockText(locked, passphrase, CONTEXT)
  if (text === null) throw new OperatingError('passphrase_wrong', `The passphrase does not decrypt the backup ${path}.`)
  const backup = parseJson(text)
  if (!isBackup(backup)) throw malformed(`The backup ${path} contains no identity.`)
  return backup
}

const malformed = (message: string) => new OperatingError('backup_malformed', message)

const checksumOf = ({ lock, sealed }: Locked): string =>
  toHex(hash256(new TextEncoder().encode(`${CONTEXT} ${JSON.stringify(lock)} ${sealed}`)))

function isBackup(value: unknown): value is IdentityBackup {
  if (!isRecord(value) || !isRecord(value.texts) || !isRecord(value.stores)) return false
  const isText = ([path, text]: [string, unknown]) =>
    typeof text === 'string' && (TEXTS.includes(path) || SESSION_FILES.test(path) || isKeyText(path, text))
  const isStore = ([path, text]: [string, unknown]) => typeof text === 'string' && STORES.includes(path)
  return (
    typeof value.createdAtMs === 'number' &&
    'key.json' in value.texts &&
    Object.entries(value.texts).every(isText) &&
    Object.entries(value.stores).every(isStore)
  )
}

function isKeyText(path: string, text: string): boolean {
  const keys = KEY_FILES.test(path) ? readText(text) : null
  return keys !== null && !('lock' in keys) && keys.kind === 'peer'
}

/** Reads the identity of a profile. @throws the errors of `Profile.readKeys` and of reading its files */
export async function gatherBackup(profile: Profile): Promise<IdentityBackup> {
  await profile.readKeys()
  const passphrase = await profile.findPassphrase()
  const texts: Record<string, string> = {}
  for (const path of await keyFilesOf(profile.folder)) {
    const { contents } = await readKeyFile(join(profile.folder, path), () => passphrase ?? '')
    texts[path] = plainText(contents)
  }
  const sessions = Object.keys(texts).flatMap((path) => (path.includes('/') ? [`${dirname(path)}/session.json`] : []))
  for (const path of [...TEXTS, ...sessions]) {
    const text = await readTextFile(join(profile.folder, path))
    if (text !== undefined) texts[path] = text
  }
  const stores: Record<string, string> = {}
  for (const path of STORES) {
    const bytes = await readFile(join(profile.folder, path)).catch(() => null) // the profile has not used it yet
    if (bytes) stores[path] = toBase64url(new Uint8Array(bytes))
  }
  return { createdAtMs: Date.now(), profile: profile.name, isLocked: passphrase !== null, texts, stores }
}

/** Returns the paths of the profile's key files and of its sessions' key files. */
export async function keyFilesOf(folder: string): Promise<string[]> {
  const sessions = await readdir(join(folder, 'sessions')).catch(() => []) // no session was opened yet
  const paths = ['key.json', 'key-next.json', ...sessions.map((name) => `sessions/${name}/key.json`)]
  const found = await Promise.all(paths.map((path) => Bun.file(join(folder, path)).exists()))
  return paths.filter((path, i) => found[i] && KEY_FILES.test(path))
}

/** Writes the files of a backup to a folder. @throws OperatingError `key_file_unwritable`, `file_unwritable` */
async function writeBackup(folder: string, { texts, stores }: IdentityBackup, lock: KeyFileLock | null) {
  for (const [path, text] of Object.entries(texts)) {
    const target = join(folder, path)
    await mkdir(dirname(target), { recursive: true, mode: 0o700 })
    const keys = KEY_FILES.test(path) ? readText(text) : null
    if (keys && !('lock' in keys)) await writeKeyFile(target, keys, lock)
    else await writeSynced(target, text, 0o600)
  }
  for (const [path, text] of Object.entries(stores)) await writeSynced(join(folder, path), fromBase64url(text), 0o600)
}

export function backupCommand(run: RunAction): Command {
  return new Command('backup')
    .description('Write the identity of this profile to one encrypted file, which "key restore" reads on any machine')
    .argument('<FILE>', 'the file to create; an existing file is never overwritten')
    .addHelpText(
      'after',
      `
The file contains the keys of the profile and of its sessions, the membership, the contacts and the newest keys of other
members, groups and spaces. It contains no messages. It is encrypted with a passphrase from a prompt, SEALPOST_PASSPHRASE or
--passphrase-file. Make a new backup after "key rotate", and after you have named a new session.
${examples('sealpost key backup alice.sealpost', 'sealpost key backup alice.sealpost --passphrase-file ~/.backup-passphrase')}`,
    )
    .action(run(backup))
}

async function backup({ profile, output }: Shell, _options: object, path: string): Promise<void> {
  if (await Bun.file(path).exists())
    throw new OperatingError('backup_exists', `The file ${path} already exists. Backups are never overwritten.`)
  const contents = await gatherBackup(profile)
  await createFile(path, await sealBackup(contents, await profile.passphrase.chooseForBackup()))
  const facts = { ...(await factsOf(contents)), file: resolve(path) }
  await output.result(facts, () => output.facts(lines(facts)))
}

async function createFile(path: string, text: string): Promise<void> {
  const file = await open(path, 'wx', 0o600).catch((cause) => {
    throw fileUnwritable(path, cause)
  })
  try {
    await file.writeFile(text)
    await file.sync()
  } catch (cause) {
    await rm(path, { force: true }) // an incomplete backup would look like one
    throw fileUnwritable(path, cause)
  } finally {
    await file.close()
  }
}

export function restoreCommand(run: RunAction): Command {
  return new Command('restore')
    .description('Make a profile from a backup. An existing profile is never overwritten.')
    .argument('<FILE>', 'the file that "key backup" has written')
    .option('--keychain', "encrypt the keys with a random passphrase in the operating system's keychain")
    .addHelpText(
      'after',
      `
The passphrase comes from a prompt, SEALPOST_PASSPHRASE or --passphrase-file. If the keys were encrypted when you made the
backup, they are encrypted with the passphrase of the backup, unless you set --keychain. The sessions of the profile keep their names. Do not use the
identity on two machines: the connection that was opened last ends the other one. Messages that the lost machine had not sent
yet are lost; messages that it had not settled are delivered again.
${examples('sealpost key restore alice.sealpost', 'sealpost key restore alice.sealpost --profile work')}`,
    )
    .action(run(restore))
}

async function restore({ profile, output }: Shell, options: { keychain?: boolean }, path: string): Promise<void> {
  await refuseExisting(profile)
  const text = await readTextFile(path)
  if (text === undefined) throw new OperatingError('file_missing', `The file ${path} does not exist.`)
  const locked = await readBackup(text, path)
  const passphrase = await profile.passphrase.getForBackup()
  const contents = await openBackup(locked, passphrase, path)
  const lock: KeyFileLock | null = options.keychain
    ? await newKeychainLock(profile.name)
    : contents.isLocked
      ? { passphrase }
      : null
  await createProfile(profile, (folder) => writeBackup(folder, contents, lock))
  const facts = { ...(await factsOf(contents)), profile: profile.name }
  await output.result(facts, () => output.facts(lines(facts)))
  if (lock && lock.keychain === undefined) output.info('the keys are encrypted with the passphrase of the backup')
}

/** Fills a new folder, which becomes the profile once it is complete. */
async function createProfile(profile: Profile, fill: (folder: string) => Promise<void>): Promise<void> {
  const home = dirname(profile.folder)
  await mkdir(home, { recursive: true, mode: 0o700 }).catch((cause) => {
    throw fileUnwritable(home, cause)
  })
  const fresh = await mkdtemp(join(home, '.restore-')) // has mode 0700; a profile's name begins with no dot
  try {
    await fill(fresh)
    await rmdir(profile.folder).catch(() => undefined) // refuses a folder with files, as does the rename
    await rename(fresh, profile.folder).catch((cause) => {
      throw cause.code === 'ENOTEMPTY' || cause.code === 'EEXIST'
        ? existing(profile)
        : fileUnwritable(profile.folder, cause)
    })
  } finally {
    await rm(fresh, { recursive: true, force: true })
  }
}

async function refuseExisting(profile: Profile): Promise<void> {
  const files = await readdir(profile.folder).catch(() => []) // there is no folder
  if (files.length > 0) throw existing(profile)
}

const existing = ({ name }: Profile) =>
  new OperatingError(
    'profile_exists',
    `The profile ${name} already exists and is never overwritten. Choose another profile with --profile.`,
  )

async function factsOf({ texts, createdAtMs }: IdentityBackup) {
  const keys = readText(texts['key.json']!)
  if (!keys || 'lock' in keys || keys.kind !== 'peer') throw malformed('The backup contains no identity.')
  const key = keys.identity.signing.publicKey
  const membership = parseJson(texts['membership.json'] ?? '')
  const name = isRecord(membership) && typeof membership.name === 'string' ? membership.name : null
  const labels = Object.entries(texts).flatMap(([path, text]) => (SESSION_FILES.test(path) ? [labelOf(text)] : []))
  return { key, fingerprint: fingerprint(key), name, sessions: labels.filter((label) => label !== ''), createdAtMs }
}

function labelOf(text: string): string {
  const file = parseJson(text)
  return isRecord(file) && typeof file.label === 'string' ? file.label : ''
}

interface Facts extends Awaited<ReturnType<typeof factsOf>> {
  readonly file?: string
  readonly profile?: string
}

function lines({ file, profile, name, sessions, createdAtMs, fingerprint: print }: Facts): [string, string][] {
  const rows: [string, string | null | undefined][] = [
    ['file', file],
    ['profile', profile],
    ['name', name],
    ['fingerprint', print],
    ['sessions', sessions.join(', ')],
    ['made', new Date(createdAtMs).toISOString()],
  ]
  return rows.flatMap(([label, value]) => (value ? [[label, escapeName(value)]] : []))
}
