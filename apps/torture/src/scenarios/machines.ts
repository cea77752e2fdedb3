/** Simulates machines whose disk is full or whose clock is set, each with its own Postgres or brokers. */
import { spawnSync } from 'node:child_process'
import { chmodSync, closeSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TortureCluster } from '../cluster/stage.ts'
import type { TortureScenario } from '../run.ts'
import { missed } from '../run.ts'

const DISK_BYTES = 224 * 1024 * 1024
const HOUR_S = 3600
const LIBRARIES = ['/usr/lib/x86_64-linux-gnu', '/usr/lib/aarch64-linux-gnu', '/usr/lib', '/usr/local/lib']

/** Creates a folder that the Postgres user may enter. */
function folderFor(name: string): string {
  const folder = mkdtempSync(join(tmpdir(), `sealpost-torture-${name}-`))
  chmodSync(folder, 0o755)
  return folder
}

function mount(folder: string): boolean {
  const args = ['-t', 'tmpfs', '-o', `size=${DISK_BYTES}`, 'sealpost-torture', folder]
  return process.platform === 'linux' && spawnSync('mount', args).status === 0
}

function unmount(folder: string): void {
  spawnSync('umount', [folder])
  rmSync(folder, { recursive: true, force: true })
}

export const diskFull: TortureScenario = {
  name: 'disk-full',
  summary: 'the disk of Postgres fills up, then has space again',
  obstacle: () => {
    const folder = folderFor('mount')
    const canMount = mount(folder)
    unmount(folder)
    return canMount ? null : 'the scenario needs a small tmpfs, which only root can mount'
  },
  alone: () => {
    const folder = folderFor('disk')
    mount(folder)
    const settings = { max_wal_size: '48MB', min_wal_size: '32MB' }
    return {
      setting: { postgres: { dataDir: join(folder, 'postgres'), settings } },
      end: () => Promise.resolve(unmount(folder)),
      place: folder,
    }
  },
  inject: async (stage, fault) => {
    const ballast = join(stage.place!, 'ballast')
    const { brokers, postgres } = stage
    const complaints = brokers.complaints
    fault.begins()
    fillUp(ballast)
    await stage.until('the brokers have noticed', () => postgres.hasEnded || brokers.complaints > complaints)
    await Bun.sleep(stage.amount(500, 4000))
    rmSync(ballast)
    if (postgres.hasEnded) await postgres.start()
    await postgres.answers()
    fault.ends()
  },
}

function fillUp(file: string): void {
  const opened = openSync(file, 'w')
  for (let chunk = Buffer.alloc(1024 * 1024); chunk.length > 0; ) {
    try {
      writeSync(opened, chunk)
    } catch {
      chunk = chunk.subarray(0, chunk.length >> 1) // half of the chunk may fit
    }
  }
  closeSync(opened)
}

const libfaketime = (): string | undefined => {
  const paths = LIBRARIES.map((folder) => join(folder, 'faketime/libfaketime.so.1'))
  return paths.find((path) => spawnSync('test', ['-r', path]).status === 0)
}

/** Creates a file that sets the clock of programs with this environment. */
function fakeClock(): { environment: Record<string, string>; file: string; end: () => Promise<void> } {
  const folder = folderFor('clock')
  const file = join(folder, 'offset')
  setClock(file, 0)
  const environment = {
    LD_PRELOAD: libfaketime() ?? '',
    FAKETIME_TIMESTAMP_FILE: file,
    FAKETIME_NO_CACHE: '1', // a cache would let processes of one server read different times
    FAKETIME_DONT_FAKE_MONOTONIC: '1',
  }
  return { environment, file, end: async () => rmSync(folder, { recursive: true, force: true }) }
}

function setClock(file: string, seconds: number): void {
  writeFileSync(file, `${seconds < 0 ? '' : '+'}${seconds}\n`, { mode: 0o644 })
}

const needsFaketime = () => (libfaketime() ? null : 'the scenario needs libfaketime (the Debian package faketime)')

function clockScenario(
  name: string,
  summary: string,
  parts: {
    settingOf: (environment: Record<string, string>) => object
    clockMs: (stage: TortureCluster) => Promise<number>
  },
): TortureScenario {
  return {
    name,
    summary,
    obstacle: needsFaketime,
    alone: () => {
      const { environment, file, end } = fakeClock()
      return { setting: parts.settingOf(environment), place: file, end }
    },
    inject: async (stage, fault) => {
      for (const seconds of [HOUR_S, 0, -HOUR_S, 0]) {
        fault.begins()
        setClock(stage.place!, seconds)
        const isSet = async () => Math.abs((await parts.clockMs(stage)) - Date.now() - seconds * 1000) < HOUR_S * 100
        await stage.until('the clock is set', isSet)
        fault.ends()
        await stage.acks(stage.amount(100, 3000))
      }
      if (libfaketime() === undefined) throw missed('libfaketime is missing.')
    },
  }
}

export const clockDatabase = clockScenario(
  'clock-database',
  'the clock of Postgres is set an hour ahead, back, an hour behind, and back again',
  {
    settingOf: (environment) => ({ postgres: { environment } }),
    clockMs: ({ postgres }) => postgres.clockMs(),
  },
)

export const clockBroker = clockScenario(
  'clock-broker',
  'the clock of every broker is set an hour ahead, back, an hour behind, and back again',
  {
    settingOf: (env) => ({ env }),
    clockMs: async ({ brokers }) => {
      const answers = await Promise.all(brokers.httpUrls.map((url) => fetch(`${url}/livez`)))
      return Math.min(...answers.map(({ headers }) => Date.parse(headers.get('date') ?? '')))
    },
  },
)
