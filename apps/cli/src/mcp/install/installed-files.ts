/**
 * Reads and replaces the files of clients, and records what was changed, so that it can be undone. The record is the file
 * `.mcp-installs.json` beside the profiles.
 */
import { constants, lstatSync } from 'node:fs'
import { chmod, chown, copyFile, mkdir, readFile, realpath, rename, rm, rmdir, stat } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { OperatingError } from '@sealpost/std'
import { applyPatch, reversePatch, type StructuredPatch, structuredPatch } from 'diff'
import { isRecord, readJsonFile, updateJsonFile, writeSynced } from '../../profile/profile.ts'
import {
  existingContent,
  type FileContent,
  isEmptyContent,
  isParsable,
  missingContainers,
  putContent,
  removeContent,
} from './config-text.ts'

interface FileRecord {
  readonly path: string
  readonly content: FileContent
  /** The difference between the user's text and the text with the content. */
  readonly patch: StructuredPatch
  readonly containers: readonly (readonly string[])[]
  /** What `--force` replaced. */
  readonly replaced: FileContent | null
  readonly isNew: boolean
  /** The folders that the installation created, outermost first. */
  readonly folders: readonly string[]
}

export interface InstallRecord {
  readonly client: string
  /** The folder of the project; null for the user's scope. */
  readonly project: string | null
  readonly files: readonly FileRecord[]
}

interface Records {
  readonly version: 1
  readonly installs: readonly InstallRecord[]
}

interface ConfigFile {
  readonly path: string
  /** The file that a link points to. */
  readonly target: string
  /** Undefined: the file does not exist. */
  readonly text: string | undefined
  readonly mode: number
  readonly owner: { readonly uid: number; readonly gid: number }
}

/** A change of a file that is not made yet. */
export interface FileChange {
  readonly file: ConfigFile
  /** Undefined: the file does not exist or is deleted. */
  readonly before: string | undefined
  readonly after: string | undefined
  /** The text for the backup; undefined if there is nothing to keep. */
  readonly backup: string | undefined
  readonly record: FileRecord | null
}

export const isChange = ({ before, after }: FileChange): boolean => before !== after

export const backupPath = (path: string): string => `${path}.sealpost.bak`

const recordsFile = (home: string): string => join(home, '.mcp-installs.json')

const isRecords = (value: unknown): value is Records =>
  isRecord(value) && value.version === 1 && Array.isArray(value.installs)

const isFor =
  ({ client, project }: Pick<InstallRecord, 'client' | 'project'>) =>
  (record: InstallRecord) =>
    record.client === client && record.project === project

export interface FoundInstalls {
  readonly own: InstallRecord | undefined
  /** The files of other clients' installations. Two clients can read one skill. */
  readonly shared: readonly FileRecord[]
}

/** @throws OperatingError `file_unreadable`, `file_malformed` */
export async function findInstalls(
  home: string,
  key: Pick<InstallRecord, 'client' | 'project'>,
): Promise<FoundInstalls> {
  const { installs = [] } = (await readJsonFile(recordsFile(home), isRecords)) ?? {}
  const others = installs.filter((each) => !isFor(key)(each))
  return { own: installs.find(isFor(key)), shared: others.flatMap(({ files }) => files) }
}

/** Replaces the record of an installation. One without files is forgotten. */
export async function saveInstall(home: string, install: InstallRecord): Promise<void> {
  await mkdir(home, { recursive: true, mode: 0o700 })
  await updateJsonFile(recordsFile(home), isRecords, (records): Records => {
    const others = (records?.installs ?? []).filter((each) => !isFor(install)(each))
    return { version: 1, installs: install.files.length > 0 ? [...others, install] : others }
  })
}

interface InstallPlan {
  readonly files: readonly { readonly path: string; readonly content: FileContent }[]
  readonly found: FoundInstalls
  readonly isForced: boolean
}

/**
 * Returns the changes of an installation, which replaces the previous one. Changes nothing.
 * @throws OperatingError `config_malformed`, `config_unsupported`, `config_unreadable`, `config_readonly`,
 * `mcp_entry_exists`
 */
export async function planInstall({ files, found: { own, shared }, isForced }: InstallPlan): Promise<FileChange[]> {
  const changes: FileChange[] = []
  for (const { path, content } of files) {
    const record = [...(own?.files ?? []), ...shared].find((each) => each.path === path)
    changes.push(planFile(await readConfigFile(path), { content, record, isForced }))
  }
  const dropped = own?.files.filter(({ path }) => files.every((each) => each.path !== path)) ?? []
  for (const record of unshared(dropped, shared)) changes.push(planUndo(await readConfigFile(record.path), record))
  for (const change of changes) if (isChange(change)) checkWritable(change.file)
  return changes
}

export interface Undoing {
  readonly record: FileRecord
  readonly change: FileChange
}

/** Returns the changes that undo an installation. @throws the errors of `planInstall` */
export async function planUninstall(
  { files }: InstallRecord,
  shared: readonly FileRecord[],
): Promise<readonly Undoing[]> {
  const undoings: Undoing[] = []
  for (const record of unshared(files, shared))
    undoings.push({ record, change: planUndo(await readConfigFile(record.path), record) })
  for (const { change } of undoings) if (isChange(change)) checkWritable(change.file)
  return undoings
}

const unshared = (files: readonly FileRecord[], shared: readonly FileRecord[]): FileRecord[] =>
  files.filter(({ path }) => shared.every((each) => each.path !== path))

interface FilePlan {
  readonly content: FileContent
  readonly record: FileRecord | undefined
  readonly isForced: boolean
}

function planFile(file: ConfigFile, { content, record, isForced }: FilePlan): FileChange {
  const options = { file: file.path, isForced }
  const before = file.text
  if (record && before !== undefined && isDeepStrictEqual(record.content, asSaved(content))) {
    const isSame = putContent(before, content, { ...options, isForced: true }) === before
    if (isSame) return { file, before, after: before, backup: undefined, record }
  }
  const base = record ? undone(before, record) : before
  const text = base ?? ''
  const after = putContent(text, content, options)
  const isOurs = record !== undefined || after !== text
  const fresh: FileRecord = {
    path: file.path,
    content,
    patch: structuredPatch('', '', text, after, '', '', { context: 3 }),
    containers: missingContainers(text, content, file.path),
    replaced: isForced ? existingContent(text, content, file.path) : null,
    isNew: base === undefined,
    folders: record?.folders ?? missingFolders(file.path),
  }
  return { file, before, after, backup: after === before ? undefined : base, record: isOurs ? fresh : null }
}

/** Returns whether the uninstallation leaves a file of its own, which the user has changed. */
export const isLeft = ({ record, change: { before, after } }: Undoing): boolean =>
  record.content.kind === 'whole' && before !== undefined && before === after

/** Returns the value as it is read from the record. */
const asSaved = (content: FileContent): unknown => JSON.parse(JSON.stringify(content))

function planUndo(file: ConfigFile, record: FileRecord): FileChange {
  return { file, before: file.text, after: undone(file.text, record), backup: undefined, record: null }
}

/** Returns the user's text; undefined if the file goes. */
function undone(text: string | undefined, record: FileRecord): string | undefined {
  if (text === undefined) return undefined
  const { path, content, replaced } = record
  if (content.kind === 'whole' && text !== content.text) return text
  const reverted = applyPatch(text, reversePatch(record.patch), { fuzzFactor: 0, autoConvertLineEndings: false })
  if (reverted !== false && isParsable(reverted, content)) return record.isNew && reverted === '' ? undefined : reverted
  // The user has changed lines nearby.
  const without = removeContent(text, content, { file: path, containers: record.containers })
  if (record.isNew && isEmptyContent(without, content)) return undefined
  return replaced ? putContent(without, replaced, { file: path, isForced: true }) : without
}

/** @throws OperatingError `config_unreadable`, `config_malformed` */
async function readConfigFile(path: string): Promise<ConfigFile> {
  const target = await realpath(path).catch((error) => {
    if ((error as { code?: string }).code === 'ENOENT' && !isLink(path)) return undefined
    throw unreadable(path, error)
  })
  if (target === undefined) return { path, target: path, text: undefined, mode: 0o666, owner: { uid: -1, gid: -1 } }
  try {
    const [bytes, { mode, uid, gid }] = [await readFile(target), await stat(target)]
    return { path, target, text: decode(bytes, path), mode: mode & 0o7777, owner: { uid, gid } }
  } catch (error) {
    if (error instanceof OperatingError) throw error
    throw unreadable(path, error)
  }
}

function isLink(path: string): boolean {
  try {
    return lstatSync(path).isSymbolicLink()
  } catch {
    return false // the caller reports why the path can not be read
  }
}

function unreadable(path: string, cause: unknown): OperatingError {
  const reason = isLink(path)
    ? 'it is a link to a file that can not be read'
    : ((cause as { code?: string }).code ?? 'unknown')
  return new OperatingError('config_unreadable', `Can't read ${path} (${reason}). Nothing was changed.`, { cause })
}

function decode(bytes: Uint8Array, path: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch (cause) {
    throw new OperatingError('config_malformed', `Can't change ${path}: it is not UTF-8 text. Nothing was changed.`, {
      cause,
    })
  }
}

/** Refuses a read-only file, which a rename would replace. @throws OperatingError `config_readonly` */
function checkWritable({ path, text, mode }: ConfigFile): void {
  if (text !== undefined && (mode & (constants.S_IWUSR | 0o022)) === 0)
    throw new OperatingError('config_readonly', `${path} is read-only. Nothing was changed.`)
}

/** Returns the folders above a file that do not exist, outermost first. */
function missingFolders(path: string): string[] {
  const folder = dirname(path)
  if (folder === path || lstatSync(folder, { throwIfNoEntry: false })) return []
  return [...missingFolders(folder), folder]
}

/**
 * Makes a change, and writes its backup first.
 * @throws OperatingError `config_changed`, `config_unwritable`
 */
export async function applyChange({ file, before, after, backup }: FileChange): Promise<void> {
  const { path, target } = file
  if ((await readConfigFile(path)).text !== before)
    throw new OperatingError('config_changed', `Another program changed ${path} meanwhile. Run the command again.`)
  try {
    if (after === undefined) await rm(target, { force: true })
    else await replaceFile(file, after, backup)
  } catch (cause) {
    const { code = 'unknown' } = cause as { code?: string }
    throw new OperatingError('config_unwritable', `Can't write ${path} (${code}).`, { cause })
  }
}

async function replaceFile(
  { path, target, mode, owner, text }: ConfigFile,
  after: string,
  backup?: string,
): Promise<void> {
  await mkdir(dirname(target), { recursive: true })
  if (backup !== undefined) await writeBackup(path, { backup, mode, current: text, target })
  const fresh = `${target}.${process.pid}.new`
  try {
    await writeSynced(fresh, after, mode)
    if (text !== undefined) await keepAttributes(fresh, { mode, owner })
    await rename(fresh, target)
  } catch (error) {
    await rm(fresh, { force: true })
    throw error
  }
}

async function keepAttributes(path: string, { mode, owner }: Pick<ConfigFile, 'mode' | 'owner'>): Promise<void> {
  const { uid, gid } = await stat(path)
  if (uid !== owner.uid || gid !== owner.gid) await chown(path, owner.uid, owner.gid)
  await chmod(path, mode)
}

interface Backup {
  readonly backup: string
  readonly mode: number
  readonly current: string | undefined
  readonly target: string
}

async function writeBackup(path: string, { backup, mode, current, target }: Backup): Promise<void> {
  if (backup === current) await copyFile(target, backupPath(path))
  else await writeSynced(backupPath(path), backup, mode)
  await chmod(backupPath(path), mode)
}

/** Removes the backup that equals the restored file, and the folders that the installation created and that are empty. */
export async function tidyAfterUndo({ path, folders }: FileRecord): Promise<void> {
  const [text, backup] = await Promise.all(
    [path, backupPath(path)].map((each) => readFile(each).catch(() => undefined)),
  )
  if (text && backup?.equals(text)) await rm(backupPath(path), { force: true })
  for (const folder of folders.toReversed()) await rmdir(folder).catch(() => undefined) // others use the folder
}

/** Undoes changes that were made before another one failed. */
export async function rollBack(changes: readonly FileChange[]): Promise<void> {
  for (const { file, before, after, record } of changes.toReversed()) {
    if (before === after) continue
    if (before === undefined) await rm(file.target, { force: true })
    else await replaceFile(file, before)
    if (record) await tidyAfterUndo(record)
  }
}
