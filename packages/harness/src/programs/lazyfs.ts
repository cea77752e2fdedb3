/**
 * Mounts a folder that simulates power loss. LazyFS (https://github.com/dsrhaslab/lazyfs) keeps writes in memory until
 * fsync, and drops unsynced writes on command.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { OperatingError } from '@sealpost/std'

const MOUNTS_WITHIN_MS = 15_000
/** The number of attempts; one start in fifteen hung. */
const MOUNT_TRIES = 3
const POLL_MS = 20
const PROBE = 'unsynced'

/** Returns why this machine can't simulate power loss; null if it can. */
export function powerObstacle(): string | null {
  if (Bun.which('lazyfs') && existsSync('/dev/fuse')) return null
  return 'the scenario needs a file system that drops unsynced writes: LazyFS (the program lazyfs) and FUSE'
}

export interface LazyFolder {
  /** The mount point, writable for all accounts. */
  readonly path: string
  unmount(): void
}

/**
 * Mounts a folder, and checks that `cutPower` drops its unsynced writes.
 * @throws OperatingError `not_mounted`, `power_kept`
 */
export async function mountLazyFolder(): Promise<LazyFolder> {
  for (let tries = 1; ; tries++) {
    try {
      return await mountOnce()
    } catch (error) {
      const { code } = error as { code?: unknown }
      if (tries === MOUNT_TRIES || code !== 'not_mounted') throw error
    }
  }
}

async function mountOnce(): Promise<LazyFolder> {
  const folder = mkdtempSync(join(tmpdir(), 'sealpost-lazyfs-'))
  const path = join(folder, 'mnt')
  for (const each of [join(folder, 'root'), path]) mkdirSync(each)
  for (const each of [join(folder, 'root'), path]) chmodSync(each, 0o777) // mkdir applies the umask
  chmodSync(folder, 0o755)
  for (const name of ['commands', 'done']) spawnSync('mkfifo', [join(folder, name)])
  writeFileSync(join(folder, 'lazyfs.toml'), configOf(folder))
  const server = serve(folder)
  const unmount = () => {
    spawnSync('umount', ['--lazy', path])
    server.kill('SIGKILL')
    rmSync(folder, { recursive: true, force: true })
  }
  try {
    await mounted(path, server)
    await provePowerLoss(path)
    return { path, unmount }
  } catch (error) {
    unmount()
    throw error
  }
}

/** Drops all unsynced writes below this mount point. */
export async function cutPower(path: string): Promise<void> {
  const folder = dirname(path)
  const done = openSync(join(folder, 'done'), 'r+') // LazyFS drops its reply without a reader, so open the pipe first
  try {
    const reader = spawn('head', ['-n', '1'], { stdio: [done, 'ignore', 'ignore'] })
    const dropped = new Promise((resolve) => reader.once('close', resolve))
    writeFileSync(join(folder, 'commands'), 'lazyfs::clear-cache\n')
    await dropped
  } finally {
    closeSync(done)
  }
}

async function mounted(path: string, server: ChildProcess): Promise<void> {
  const deadlineMs = performance.now() + MOUNTS_WITHIN_MS
  while (!readFileSync('/proc/mounts', 'utf8').includes(` ${path} `)) {
    if (performance.now() > deadlineMs || server.exitCode !== null)
      throw new OperatingError('not_mounted', 'LazyFS did not mount its file system.')
    await Bun.sleep(POLL_MS)
  }
}

/** Checks that unsynced writes are lost; otherwise, a run would prove nothing. */
async function provePowerLoss(path: string): Promise<void> {
  const probe = join(path, PROBE)
  writeFileSync(probe, PROBE)
  await cutPower(path)
  if (existsSync(probe) && readFileSync(probe, 'utf8').includes(PROBE))
    throw new OperatingError('power_kept', 'LazyFS did not drop an unsynced write.')
  rmSync(probe, { force: true })
}

function configOf(folder: string): string {
  const lines = [
    ['[faults]', `fifo_path="${join(folder, 'commands')}"`, `fifo_path_completed="${join(folder, 'done')}"`],
    ['[cache]', 'apply_eviction=false', '[cache.simple]', 'custom_size="512mb"', 'blocks_per_page=1'],
    ['[filesystem]', 'log_all_operations=false', `logfile="${join(folder, 'log')}"`],
  ]
  return `${lines.flat().join('\n')}\n`
}

function serve(folder: string): ChildProcess {
  const mount = ['-o', 'allow_other', '-o', 'modules=subdir', '-o', `subdir=${join(folder, 'root')}`, '-f']
  return spawn('lazyfs', [join(folder, 'mnt'), '--config-path', join(folder, 'lazyfs.toml'), ...mount], {
    stdio: 'ignore',
  })
}
