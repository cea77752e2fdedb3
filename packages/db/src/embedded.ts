/**
 * A real PostgreSQL server from npm, for tests, demos and load tests: nothing to install, a port of its own, gone when
 * its starter is. It is durable like any other (`fsync` on) and listens on 127.0.0.1 only, behind a random password.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, chown, mkdtemp, rm } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { OperatingError } from '@sealpost/std'
import { type Account, chooseAccount, programEnvironment, runProgram } from './embedded-account.ts'
import { type Binaries, prepareBinaries } from './embedded-binaries.ts'
import { type Cluster, inUse, openCluster, readLock, SUPERUSER, unusable } from './embedded-folder.ts'

export interface EmbeddedOptions {
  /** Kept over `stop`, and used again. Without it: a temporary folder, removed by `stop`. */
  dataDir?: string
  /** Without it: a free one below 32768, where no outgoing connection takes it. */
  port?: number
  /** Settings of postgresql.conf, over ours. */
  settings?: Record<string, string>
  /** Of the server's programs, over ours, which hand on nothing of our own environment. */
  environment?: Record<string, string>
  /** Lines of the server's log. */
  onLog?: (line: string) => void
}

export interface EmbeddedPostgres {
  /** With the password in it; database `postgres`. */
  readonly url: string
  readonly port: number
  readonly pid: number
  readonly dataDir: string
  /** '18.4' */
  readonly version: string
  /** Settles when the server has ended, for whatever reason. */
  readonly exited: Promise<void>
  /** Fast shutdown: open transactions are rolled back. Idempotent. */
  stop(): Promise<void>
  /** As a crash would: SIGKILL. A temporary folder is removed all the same. */
  kill(): Promise<void>
}

/**
 * Starts a server; about 1.5 s with a new cluster, 0.2 s with an old one.
 *
 * Call it from a thread that lives as long as the server shall: on Linux the server ends with the thread that started
 * it. A terminal's Ctrl-C does not reach it, so that its starter can stop things in its own order.
 * @throws OperatingError `embedded_missing`, `embedded_unusable`, `embedded_needs_account`,
 *   `embedded_folder_unusable`, `embedded_in_use`, `embedded_port_taken`, `embedded_not_started`
 */
export async function startEmbedded(options: EmbeddedOptions = {}): Promise<EmbeddedPostgres> {
  const account = await chooseAccount(options.dataDir && join(options.dataDir, 'cluster'))
  const temporary = await temporaryFolder(account)
  const dataDir = resolve(options.dataDir ?? join(temporary, 'data'))
  let cluster: Cluster | undefined
  try {
    const binaries = await prepareBinaries(temporary, account)
    // What is thrown away need not be synced once before: removing 1,000 synced files can take a second.
    const initdbWords = options.dataDir === undefined ? ['--no-sync'] : []
    cluster = await openCluster(dataDir, { binaries, account, initdbWords })
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
  cluster: Cluster
  options: EmbeddedOptions
}

interface Server {
  child: ChildProcess
  port: number
  exited: Promise<void>
  lastLines: string[]
}

async function startServer(start: Start): Promise<Server> {
  const giveUpAt = performance.now() + 120_000 // recovery after a crash takes its time
  for (let attempt = 1; ; attempt++) {
    const server = spawnServer(start, start.options.port ?? (await freePort()))
    const isReady = await untilReady(server, start.cluster, giveUpAt)
    if (isReady) return server
    const log = server.lastLines.join('\n')
    const isPortTaken = /could not bind|Address already in use/i.test(log)
    if (isPortTaken && start.options.port !== undefined) throw portTaken(start.options.port)
    // Backends of a killed server notice its death a little later than we do.
    const isLeftover = /pre-existing shared memory block/.test(log) && attempt < 50
    if (!isLeftover && !(isPortTaken && attempt < 10)) throw await startFailure(log, start.cluster)
    if (isLeftover) await delay(100)
  }
}

function spawnServer({ account, binaries, cluster, options }: Start, port: number): Server {
  const settings = { ...ourSettings, ...options.settings, port: String(port) }
  const words = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`])
  // By `env`, behind setpriv: a library to preload is loaded by the server's account, and for nobody else.
  const given = Object.entries(options.environment ?? {}).map(([name, value]) => `${name}=${value}`)
  const command = given.length > 0 ? ['env', ...given, binaries.postgres] : [binaries.postgres]
  const [program, ...rest] = [...account.leashedPrefix, ...command, '-D', cluster.path, ...words]
  const child = spawn(program as string, rest, {
    stdio: ['ignore', 'pipe', 'pipe', ...(cluster.descriptor === undefined ? [] : [cluster.descriptor])],
    env: { ...programEnvironment, ...binaries.environment },
    cwd: '/',
    detached: account.isLeashed, // out of the terminal's process group; the leash sees to orphans
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
  max_connections: '200', // several brokers, at up to seventeen each
  shared_buffers: '256MB',
  logging_collector: 'off',
}

/** The server's own word in its lock file, as pg_ctl reads it. @returns false when it has ended instead */
async function untilReady(server: Server, cluster: Cluster, giveUpAt: number): Promise<boolean> {
  let hasEnded = false
  void server.exited.then(() => (hasEnded = true))
  while (!hasEnded) {
    const lock = await readLock(cluster.folder)
    if (lock?.pid === server.child.pid && lock?.status === 'ready') return true
    if (performance.now() > giveUpAt) await endServer(server, 'SIGQUIT')
    await Promise.race([delay(15), server.exited])
  }
  return false
}

async function endServer({ child, exited }: Server, signal: NodeJS.Signals): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) child.kill(signal)
  const harder = setTimeout(() => child.kill('SIGQUIT'), 15_000) // immediate shutdown: the next start recovers
  const hardest = setTimeout(() => child.kill('SIGKILL'), 20_000)
  await exited
  clearTimeout(harder)
  clearTimeout(hardest)
}

async function startFailure(log: string, cluster: Cluster): Promise<OperatingError> {
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
  return new OperatingError('embedded_port_taken', `Port ${port} on 127.0.0.1 is taken by another program`)
}

/** As root it must be one that the server's account can reach, whatever TMPDIR says. */
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
  throw new OperatingError('embedded_unusable', `No temporary folder can be written by ${account.name}`)
}

async function removeFolder(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 })
}

async function freePort(): Promise<number> {
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
