/** Starts a PgBouncer for tests in front of a Postgres server, on a free loopback port. */
import { type ChildProcess, spawn } from 'node:child_process'
import { chmodSync, existsSync } from 'node:fs'
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

const PROGRAM = ['/usr/sbin/pgbouncer', '/usr/bin/pgbouncer'].find((path) => existsSync(path)) ?? null
/** Whether PgBouncer tests are skipped, which CI never does. */
export const isPgBouncerMissing = PROGRAM === null && process.env.CI !== 'true'
/** The account for PgBouncer, which refuses to run as root. */
const ACCOUNT =
  process.getuid?.() === 0 ? ['/usr/bin/setpriv', '--reuid=nobody', '--regid=nogroup', '--clear-groups'] : []
const DIE_WITH_PARENT = existsSync('/usr/bin/setpriv') ? ['/usr/bin/setpriv', '--pdeathsig', 'KILL'] : []

/** The startup parameters of a broker's connections, which PgBouncer's configuration must list. */
export const STARTUP_PARAMETERS = [
  ...['extra_float_digits', 'options', 'synchronous_commit', 'statement_timeout', 'lock_timeout', 'plan_cache_mode'],
  ...['idle_in_transaction_session_timeout', 'tcp_keepalives_idle', 'tcp_keepalives_interval', 'tcp_keepalives_count'],
  ...['tcp_user_timeout', 'client_connection_check_interval', 'jit', 'enable_seqscan'],
]

export interface PgBouncerOptions {
  readonly mode: 'session' | 'transaction'
  /** Startup parameters that PgBouncer drops silently; another unknown one ends the connection. */
  readonly ignored?: readonly string[]
  /** How long a client waits for a server connection. */
  readonly waitSeconds?: number
}

export class PgBouncer {
  readonly url: string
  readonly #child: ChildProcess
  readonly #folder: string

  private constructor(url: string, child: ChildProcess, folder: string) {
    this.url = url
    this.#child = child
    this.#folder = folder
  }

  static async start(
    serverUrl: string,
    { mode, ignored = [], waitSeconds = 60 }: PgBouncerOptions,
  ): Promise<PgBouncer> {
    const { hostname, port, username, password, pathname } = new URL(serverUrl)
    const folder = await mkdtemp(join(tmpdir(), 'sealpost-pgbouncer-'))
    const ownPort = await freePort()
    const lines = [
      '[databases]',
      `* = host=${hostname} port=${port} user=${username} password=${password}`,
      '[pgbouncer]',
      `listen_addr = 127.0.0.1\nlisten_port = ${ownPort}\nunix_socket_dir =`,
      `auth_type = any\npool_mode = ${mode}\nquery_wait_timeout = ${waitSeconds}`,
      `ignore_startup_parameters = ${ignored.join(', ')}`,
    ]
    await writeFile(join(folder, 'pgbouncer.ini'), lines.join('\n'))
    await chmod(folder, 0o755)
    chmodSync(join(folder, 'pgbouncer.ini'), 0o644)
    const child = await started(join(folder, 'pgbouncer.ini'))
    return new PgBouncer(`postgres://${username}:${password}@127.0.0.1:${ownPort}${pathname}`, child, folder)
  }

  async stop(): Promise<void> {
    const ended = new Promise((resolve) => this.#child.once('exit', resolve))
    this.#child.kill('SIGKILL')
    await ended
    await rm(this.#folder, { recursive: true, force: true })
  }
}

async function started(file: string): Promise<ChildProcess> {
  const [program, ...rest] = [...ACCOUNT, ...DIE_WITH_PARENT, PROGRAM!, file]
  const child = spawn(program!, rest, { stdio: ['ignore', 'ignore', 'pipe'] })
  const lines: string[] = []
  for await (const line of createInterface({ input: child.stderr! })) {
    lines.push(line)
    if (line.includes('process up')) {
      child.stderr!.resume()
      return child
    }
  }
  throw new Error(`pgbouncer did not start: ${lines.join('\n')}`)
}

async function freePort(): Promise<number> {
  const listener = createServer()
  await new Promise<void>((listening) => listener.listen(0, '127.0.0.1', listening))
  const { port } = listener.address() as { port: number }
  await new Promise((closed) => listener.close(closed))
  return port
}
