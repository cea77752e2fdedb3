/**
 * Loss of power: every program of Postgres dies at once, and with them whatever was written and not fsynced. That takes a
 * file system that forgets: LazyFS, where it is installed (https://github.com/dsrhaslab/lazyfs).
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { OperatingError } from '@sealpost/std'
import type { Scenario } from '../scenario.ts'

const MOUNTED_WITHIN_MS = 10_000
const LOOK_MS = 20

export const powerLoss: Scenario = {
  name: 'power-loss',
  summary: 'Postgres dies, and what it had written without fsync is gone',
  obstacle: () => {
    if (Bun.which('lazyfs') && existsSync('/dev/fuse')) return null
    return 'it needs a file system that drops what was not fsynced: LazyFS (the program lazyfs) and FUSE'
  },
  alone: () => {
    const folder = mkdtempSync(join(tmpdir(), 'sealpost-torture-power-'))
    chmodSync(folder, 0o755)
    const mounted = mountForgetful(folder)
    const end = async () => {
      spawnSync('umount', [join(folder, 'mnt')])
      mounted.kill()
      rmSync(folder, { recursive: true, force: true })
    }
    return { setting: { postgres: { dataDir: join(folder, 'mnt/postgres') } }, place: folder, end }
  },
  strike: async (stage, fault) => {
    await stage.acks(50)
    fault.begins()
    await stage.postgres.killAll()
    await forget(stage.place!)
    await stage.postgres.start()
    fault.ends()
  },
}

function mountForgetful(folder: string): ChildProcess {
  const [root, mnt, config] = ['root', 'mnt', 'lazyfs.toml'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ]
  mkdirSync(root, { mode: 0o777 })
  mkdirSync(mnt, { mode: 0o777 })
  const lines = [
    ['[faults]', `fifo_path="${join(folder, 'orders')}"`, `fifo_path_completed="${join(folder, 'done')}"`],
    ['[cache]', 'apply_eviction=false', '[cache.simple]', 'custom_size="1GB"', 'blocks_per_page=1'],
    ['[file system]', 'log_all_operations=false', `logfile="${join(folder, 'log')}"`],
  ]
  writeFileSync(config, `${lines.flat().join('\n')}\n`)
  for (const name of ['orders', 'done']) spawnSync('mkfifo', [join(folder, name)])
  const words = [
    mnt,
    '--config-path',
    config,
    '-o',
    'allow_other',
    '-o',
    'modules=subdir',
    '-o',
    `subdir=${root}`,
    '-f',
  ]
  const child = spawn('lazyfs', words, { stdio: 'ignore' })
  const deadline = performance.now() + MOUNTED_WITHIN_MS
  while (!readFileSync('/proc/mounts', 'utf8').includes(` ${mnt} `)) {
    if (performance.now() > deadline) throw new OperatingError('not_mounted', 'LazyFS did not mount its file system.')
    Bun.sleepSync(LOOK_MS)
  }
  return child
}

/** Resolves when it has forgotten. */
async function forget(folder: string): Promise<void> {
  const answer = spawn('head', ['-n', '1', join(folder, 'done')], { stdio: 'ignore' })
  const answered = new Promise((resolve) => answer.once('close', resolve))
  writeFileSync(join(folder, 'orders'), 'lazyfs::clear-cache\n')
  await answered
}
