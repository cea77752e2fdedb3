/**
 * Runs a PostgreSQL server from npm, on 127.0.0.1 with a free port and a random password. It is durable (`fsync` is
 * on), and ends with its process.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, chown, mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { OperatingError } from '@sealpost/std'
import { packagedFolder } from './archive.ts'
import { type DataCluster, inUse, openCluster, readLock, SUPERUSER, unusable } from './folder.ts'
import {
  type Account,
  type Binaries,
  chooseAccount,
  prepareBinaries,
  programEnvironment,
  runProgram,
} from './programs.ts'

export { findPrograms } from './archive.ts'

export interface EmbeddedOptions {
  /** The cluster's folder. Default: a temporary one, which `stop` removes. */
  dataDir?: string
  /** The programs' folder, from `findPrograms`. Default: the npm package. */
  programs?: string
  /** The port. Default: a free one below 32768, outside the range of outgoing connections. */
  port?: number
  /** Settings that override the defaults. */
  settings?: Record<string, string>
  /** The programs' environment, which inherits nothing. */
  environment?: Record<string, string>
  /** Called with each line of the server's log. */
  onLog?: (line: string) => void
}

export interface EmbeddedPostgres {
  /** The URL of the database `postgres`, including the password. */
  readonly url: string
  readonly port: number
  readonly pid: number
  readonly dataDir: string
  /** '18.4' */
  readonly version: string
  /** Resolves once the server has ended for any reason. */
  readonly exited: Promise<void>
  /** Stops the server with a fast shutdown, which rolls transactions back. Idempotent. */
  stop(): Promise<void>
  /** Kills the server to simulate a crash, and removes a temporary folder. */
  kill(): Promise<void>
}

/**
 * Starts a server. This takes about 1.5 s with a new cluster, and 0.2 s with an existing one.
 *
 * On Linux, the server ends with the thread that started it. Ctrl-C in a terminal does not reach it, so the caller
 * controls the shutdown.
 * @throws OperatingError `embedded_missing`, `embedded_unusable`, `embedded_needs_account`, `embedded_folder_unusable`,
 * `embedded_in_use`, `embedded_port_taken`, `embedded_not_started`
 */
export async function startEmbedded(options: EmbeddedOptions = {}): Promise<EmbeddedPostgres> {
  const account = await chooseAccount(options.dataDir && join(options.dataDir, 'cluster'))
  const temporary = await temporaryFolder(account)
  const dataDir = resolve(options.dataDir ?? join(temporary, 'data'))
  let cluster: DataCluster | undefined
  try {
    const binaries = await prepareBinaries(options.programs ?? packagedFolder(), temporary, account)
    // A temporary cluster need not survive: removing 1,000 synced files can take a second.
    const initdbArgs = options.dataDir === undefined ? ['--no-sync'] : []
    cluster = await openCluster(dataDir, { binaries, account, initdbArgs })
    const server = await startServer({ account, binaries, cluster, options })
    const { child, port, exited } = server
    const end = (signal: NodeJS.Signals) => endServer(server, signal).then(() => removeFolder(temporary))
    return {
      url: `postgres://${SUPERUSER}:${cluster.password}@127.0.0.1:${port}/postgres`,
      port,
      pid: child.pid as number,
      dataDir,
      version: binaries.version,
      exited,
      stop: () => end('SIGINT'),
      kill: () => end('SIGKILL'),
    }
  } catch (error) {
    await removeFolder(temporary)
    throw error
  } finally {
    await cluster?.close()
  }
}

interface Start {
  account: Account
  binaries: Binaries
  cluster: DataCluster
  options: EmbeddedOptions
}

interface Server {
  child: ChildProcess
  port: number
  exited: Promise<void>
  lastLines: string[]
}

async function startServer(start: Start): Promise<Server> {
  const deadline = performance.now() + 120_000 // recovery after a crash may take long
  for (let attempt = 1; ; attempt++) {
    const server = spawnServer(start, start.options.port ?? (await freePort()))
    const isReady = await untilReady(server, start.cluster, deadline)
    if (isReady) return server
    const log = server.lastLines.join('\n')
    const isPortTaken = /could not bind|Address already in use/i.test(log)
    if (isPortTaken && start.options.port !== undefined) throw portTaken(start.options.port)
    // A killed server's backends end later, so retry.
    const isLeftover = /pre-existing shared memory block/.test(log) && attempt < 50
    if (!isLeftover && !(isPortTaken && attempt < 10)) throw await startFailure(log, start.cluster)
    if (isLeftover) await delay(100)
  }
}

function spawnServer({ account, binaries, cluster, options }: Start, port: number): Server {
  const settings = { ...ourSettings, ...options.settings, port: String(port) }
  const args = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  // `env` after setpriv loads a preloaded library only under the server's account.
  const given = Object.entries(options.environment ?? {}).map(([name, value]) => `${name}=${value}`)
  const command = given.length > 0 ? ['env', ...given, binaries.postgres] : [binaries.postgres]
  const [program, ...rest] = [...account.boundPrefix, ...command, '-D', cluster.path, ...args]
  const child = spawn(program as string, rest, {
    stdio: ['ignore', 'pipe', 'pipe', ...(cluster.descriptor === undefined ? [] : [cluster.descriptor])],
    env: { ...programEnvironment, ...binaries.environment },
    cwd: '/',
    detached: account.diesWithParent, // a separate process group for Ctrl-C; pdeathsig ends an orphaned server
  })
  const lastLines: string[] = []
  for (const stream of [child.stdout, child.stderr]) {
    eachLine(stream, (line) => {
      lastLines.push(line)
      if (lastLines.length > 30) lastLines.shift()
      options.onLog?.(line)
    })
  }
  const exited = once(child, 'close').then(
    () => undefined,
    (error) => void lastLines.push(`FATAL: ${(error as Error).message}`),
  )
  return { child, port, exited, lastLines }
}

const ourSettings = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  fsync: 'on',
  synchronous_commit: 'on',
  full_page_writes: 'on',
  max_connections: '200', // several brokers have up to seventeen connections each
  shared_buffers: '256MB',
  logging_collector: 'off',
}

/** Waits for the state in the server's lock file, like pg_ctl. Returns false if the server ended. */
async function untilReady(server: Server, cluster: DataCluster, deadline: number): Promise<boolean> {
  let hasEnded = false
  void server.exited.then(() => (hasEnded = true))
  while (!hasEnded) {
    const lock = await readLock(cluster.folder)
    if (lock?.pid === server.child.pid && lock?.status === 'ready') return true
    if (performance.now() > deadline) await endServer(server, 'SIGQUIT')
    await Promise.race([delay(15), server.exited])
  }
  return false
}

async function endServer({ child, exited }: Server, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) child.kill(signal)
  const immediate = setTimeout(() => child.kill('SIGQUIT'), 15_000) // an immediate shutdown, after which the next start recovers
  const killed = setTimeout(() => child.kill('SIGKILL'), 20_000)
  await exited
  clearTimeout(immediate)
  clearTimeout(killed)
}

async function startFailure(log: string, cluster: DataCluster): Promise<OperatingError> {
  const lock = /lock file .* (already exists|is empty)/.test(log) ? await readLock(cluster.folder) : undefined
  if (lock) return inUse(cluster.folder, lock.pid)
  if (/wrong ownership/.test(log)) return unusable(cluster.folder, 'belongs to another account')
  const reason = /(?:FATAL|PANIC): +(.*)/.exec(log)?.[1] ?? log.split('\n').at(-1)
  return new OperatingError(
    'embedded_not_started',
    `The embedded PostgreSQL did not start: ${reason || 'no reason given'}`,
  )
}

function portTaken(port: number): OperatingError {
  return new OperatingError('embedded_port_taken', `Another program uses port ${port} on 127.0.0.1`)
}

/** Root needs a folder that the server's account can reach, which TMPDIR may not be. */
async function temporaryFolder(account: Account): Promise<string> {
  for (const place of new Set([tmpdir(), '/tmp', '/var/tmp'])) {
    const folder = await mkdtemp(join(place, 'sealpost-postgres-')).catch(() => undefined)
    if (!folder) continue
    if (!account.owner) return folder
    await chown(folder, account.owner.uid, account.owner.gid)
    await chmod(folder, 0o700)
    if ((await runProgram(account, ['test', '-w', folder])).code === 0) return folder
    await removeFolder(folder)
  }
  throw new OperatingError('embedded_unusable', `${account.name} can't write to any temporary folder`)
}

async function removeFolder(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 })
}

/**
 * Returns a free port on 127.0.0.1, outside the range of outgoing connections, which could take it.
 * @throws OperatingError `embedded_port_taken`
 */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 100; attempt++) {
    const port = 20_000 + Math.floor(Math.random() * 12_000)
    const listener = createServer()
    const isFree = await new Promise<boolean>((settle) => {
      listener.once('error', () => settle(false))
      listener.listen({ port, host: '127.0.0.1', exclusive: true }, () => settle(true))
    })
    await new Promise((closed) => listener.close(closed))
    if (isFree) return port
  }
  throw new OperatingError('embedded_port_taken', 'No free port between 20000 and 32000 on 127.0.0.1')
}

function eachLine(stream: NodeJS.ReadableStream | null, take: (line: string) => void): void {
  let rest = ''
  stream?.on('data', (bytes) => {
    const lines = `${rest}${bytes}`.split('\n')
    rest = lines.pop() ?? ''
    for (const line of lines) take(line)
  })
  stream?.on('end', () => rest && take(rest))
}
