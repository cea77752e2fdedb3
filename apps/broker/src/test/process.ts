/** Provides tests with a broker in its own process, and its output. */
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Millis, PeerKey } from '@sealpost/std'

export type Environment = Readonly<Record<string, string>>

export type LogLine = Readonly<Record<string, unknown>> & { readonly event: string }

export interface Ended {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

export interface Launch {
  /** The working directory of the process. */
  readonly folder?: string
  /** The command that runs the broker program. Default: the source of this repository. */
  readonly program?: readonly string[]
}

const SOURCE = [process.execPath, join(import.meta.dirname, '../main.ts')]
const READY_WITHIN_MS = 60_000
/** Ends processes that a timed-out test left behind. */
const SETPRIV = Bun.which('setpriv')
const DIE_WITH_PARENT = SETPRIV ? [SETPRIV, '--pdeathsig', 'KILL'] : []

/** Polls until the condition holds. @throws after `withinMs` */
export async function until<T>(
  claim: string,
  condition: () => T | Promise<T>,
  withinMs: Millis = 60_000,
): Promise<NonNullable<T>> {
  const deadline = performance.now() + withinMs
  while (performance.now() < deadline) {
    const fact = await condition()
    if (fact) return fact
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  throw new Error(`not within ${withinMs} ms: ${claim}`)
}

export class BrokerProcess {
  readonly readyAfterMs: Millis
  readonly exited: Promise<Ended>
  private readonly spawned: Spawned
  private readonly ready: LogLine

  private constructor(spawned: Spawned, ready: LogLine, readyAfterMs: Millis) {
    this.spawned = spawned
    this.exited = spawned.exited
    this.ready = ready
    this.readyAfterMs = readyAfterMs
  }

  static async start(env: Environment, launch: Launch = {}): Promise<BrokerProcess> {
    const startedAtMs = performance.now()
    const spawned = spawn(env, [], launch)
    let ended: Ended | undefined
    void spawned.exited.then((how) => {
      ended = how
    })
    const ready = await until(
      'the broker is ready',
      () => {
        if (ended) throw new Error(`the broker ended with ${ended.code}: ${ended.stderr}${ended.stdout}`)
        return linesOf(spawned.stdout()).find((line) => line.event === 'broker.ready')
      },
      READY_WITHIN_MS,
    ).catch((error) => {
      spawned.child.kill('SIGKILL')
      throw error
    })
    return new BrokerProcess(spawned, ready, performance.now() - startedAtMs)
  }

  get url(): string {
    return String(this.ready.url)
  }
  /** The process's `PUBLIC_URL`. */
  get shardUrl(): string {
    return `${new URL(this.url).protocol}//${this.authority}`
  }
  get httpUrl(): string {
    return String(this.ready.httpUrl)
  }
  get adminUrl(): string {
    return String(this.ready.adminUrl)
  }
  get authority(): string {
    return new URL(this.url).host
  }
  get port(): number {
    return Number(new URL(this.url).port)
  }
  get key(): PeerKey {
    return this.ready.brokerKey as PeerKey
  }
  get pid(): number {
    return this.spawned.child.pid
  }
  get isAlive(): boolean {
    return this.spawned.child.exitCode === null && this.spawned.child.signalCode === null
  }
  get output(): string {
    return this.spawned.stdout() + this.spawned.stderr()
  }
  get log(): LogLine[] {
    return linesOf(this.spawned.stdout())
  }

  signal(signal: 'SIGTERM' | 'SIGINT' | 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): void {
    this.spawned.child.kill(signal)
  }
  async kill(): Promise<void> {
    this.signal('SIGKILL')
    await this.exited
  }

  /** Closes the output's pipe, as a dying log collector does. */
  async closeOutput(): Promise<void> {
    await this.spawned.close()
  }

  /** Reads a value from `/metrics`; NaN if missing. */
  async metric(name: string): Promise<number> {
    const text = await (await fetch(`${this.adminUrl}/metrics`)).text()
    return Number(new RegExp(`^${RegExp.escape(name)} (\\S+)$`, 'm').exec(text)?.[1] ?? Number.NaN)
  }
}

/** Runs a broker that is expected to end by itself. */
export async function runBroker(env: Environment, words: readonly string[] = [], launch: Launch = {}): Promise<Ended> {
  const { child, exited } = spawn(env, words, launch)
  const bound = setTimeout(() => child.kill('SIGKILL'), READY_WITHIN_MS)
  try {
    return await exited
  } finally {
    clearTimeout(bound)
  }
}

interface Spawned {
  readonly child: Bun.Subprocess<'ignore', 'pipe', 'pipe'>
  readonly stdout: () => string
  readonly stderr: () => string
  readonly exited: Promise<Ended>
  readonly close: () => Promise<void>
}

/** Passes no variable of the current environment, so that the machine's variables can't affect a test. */
function spawn(env: Environment, words: readonly string[], { folder = tmpdir(), program = SOURCE }: Launch): Spawned {
  const child = Bun.spawn([...DIE_WITH_PARENT, ...program, ...words], {
    env: { PATH: '/usr/local/bin:/usr/bin:/bin', PORT: '0', ADMIN_PORT: '0', ...env },
    cwd: folder,
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
  })
  const stdout = collect(child.stdout)
  const stderr = collect(child.stderr)
  const exited = Promise.all([child.exited, stdout.whole, stderr.whole]).then(([code, out, err]) => ({
    code,
    stdout: out,
    stderr: err,
  }))
  const close = async () => {
    await stdout.cancel()
  }
  return { child, stdout: stdout.soFar, stderr: stderr.soFar, exited, close }
}

function collect(stream: ReadableStream<Uint8Array>) {
  const decoder = new TextDecoder()
  const reader = stream.getReader()
  let text = ''
  const read = async () => {
    for (;;) {
      const { done, value } = await reader.read()
      if (done) return text
      text += decoder.decode(value, { stream: true })
    }
  }
  return { soFar: () => text, whole: read(), cancel: () => reader.cancel() }
}

function linesOf(text: string): LogLine[] {
  const whole = text.slice(0, text.lastIndexOf('\n') + 1)
  return whole.split('\n').flatMap((line) => (line.startsWith('{') ? [JSON.parse(line) as LogLine] : []))
}
