/** Runs commands for tests, as processes with their own profiles or in the test's process. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { runCli } from '../program.ts'
import { type EnvironmentVariables, readSettings } from '../settings.ts'

const SOURCE = [process.execPath, join(import.meta.dirname, '../main.ts')]
const WITHIN_MS = 120_000

export const AS_ALICE = ['--port', '0', '--name', 'alice']

export interface Ended {
  readonly code: number | null
  readonly stdout: string
  readonly stderr: string
}

export interface RunOptions {
  readonly stdin?: string | Uint8Array
  readonly env?: Readonly<Record<string, string>>
}

/** A folder with the profiles of a test. */
export class Machine implements AsyncDisposable {
  readonly folder: string
  readonly #program: readonly string[]
  readonly #running = new Set<Running>()

  private constructor(folder: string, program: readonly string[]) {
    this.folder = folder
    this.#program = program
  }

  /** `program`: the command that runs `sealpost`. */
  static async make(program: readonly string[] = SOURCE): Promise<Machine> {
    return new Machine(await mkdtemp(join(tmpdir(), 'sealpost-cli-')), program)
  }

  /** Returns a machine that runs `sealpost up` as Alice, with more members. */
  static async withBroker(...names: string[]): Promise<Machine> {
    const machine = await Machine.make()
    await startUp(machine, AS_ALICE)
    for (const name of names) await letIn(machine, name)
    return machine
  }

  get environment(): Record<string, string> {
    return {
      PATH: '/usr/local/bin:/usr/bin:/bin',
      HOME: this.folder,
      SEALPOST_HOME: join(this.folder, 'profiles'),
      NO_COLOR: '1',
    }
  }

  async run(words: readonly string[], { stdin = '', env = {} }: RunOptions = {}): Promise<Ended> {
    const running = this.start(words, env)
    running.type(stdin)
    running.endInput()
    return running.ended()
  }

  /** Starts a command that keeps running. */
  start(words: readonly string[], env: Readonly<Record<string, string>> = {}): Running {
    const running = new Running(this.#program, words, { ...this.environment, ...env })
    this.#running.add(running)
    return running
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const running of [...this.#running].reverse()) await running.interrupt()
    await rm(this.folder, { recursive: true, force: true })
  }
}

export class Running {
  readonly child: ChildProcess
  stdout = ''
  stderr = ''
  #isClosed = false
  readonly #name: string
  readonly #closed: Promise<unknown>
  readonly #watchers = new Set<() => void>()

  constructor(program: readonly string[], words: readonly string[], env: Record<string, string>) {
    this.#name = `sealpost ${words.join(' ')}`
    this.child = spawn(program[0]!, [...program.slice(1), ...words], { env, stdio: ['pipe', 'pipe', 'pipe'] })
    this.child.stdin!.on('error', () => undefined) // the command may end before it reads its input
    this.child.stdout!.setEncoding('utf8').on('data', (stdout: string) => this.#heard({ stdout }))
    this.child.stderr!.setEncoding('utf8').on('data', (stderr: string) => this.#heard({ stderr }))
    this.#closed = once(this.child, 'close').then(() => {
      this.#isClosed = true
      this.#heard({})
    })
  }

  get lines(): string[] {
    return this.stdout.split('\n').slice(0, -1)
  }
  get isOver(): boolean {
    return this.child.exitCode !== null || this.child.signalCode !== null
  }

  type(text: string | Uint8Array): void {
    this.child.stdin!.write(text)
  }
  endInput(): void {
    this.child.stdin!.end()
  }

  /** Resolves with the condition's first truthy value. */
  async until<T>(claim: string, condition: (self: Running) => T): Promise<NonNullable<T>> {
    const giveUp = Promise.withResolvers<never>()
    const told = () => `${this.#name}: ${claim}\nstdout: ${this.stdout}\nstderr: ${this.stderr}`
    const timer = setTimeout(() => giveUp.reject(new Error(`not in time: ${told()}`)), WITHIN_MS)
    try {
      for (;;) {
        const fact = condition(this)
        if (fact) return fact
        if (this.#isClosed) throw new Error(`it ended first: ${told()}`)
        const news = Promise.withResolvers<void>()
        this.#watchers.add(news.resolve)
        await Promise.race([news.promise, giveUp.promise])
        this.#watchers.delete(news.resolve)
      }
    } finally {
      clearTimeout(timer)
    }
  }

  async ended(): Promise<Ended> {
    const timer = setTimeout(() => this.child.kill('SIGKILL'), WITHIN_MS)
    await this.#closed
    clearTimeout(timer)
    return { code: this.child.exitCode, stdout: this.stdout, stderr: this.stderr }
  }

  async interrupt(): Promise<Ended> {
    if (!this.isOver) this.child.kill('SIGINT')
    return this.ended()
  }

  #heard({ stdout = '', stderr = '' }: { stdout?: string; stderr?: string }): void {
    this.stdout += stdout
    this.stderr += stderr
    for (const watch of this.#watchers) watch()
  }
}

export interface UpFacts {
  readonly demoUrl: string | null
  readonly url: string
  readonly pid: number
  readonly meshId: string
  /** The root of the mesh. */
  readonly root: string | null
  readonly folder: string
  readonly postgresPort: number
  readonly postgresPid: number
}

export interface Up {
  readonly process: Running
  readonly facts: UpFacts
  brokerPid(): number
}

/** Runs `sealpost up` until it is ready. */
export async function startUp(machine: Machine, words: readonly string[] = [], env = {}): Promise<Up> {
  const up = machine.start(['up', '--json', '--data', join(machine.folder, 'data'), ...words], env)
  const facts = await up.until('it is ready', ({ lines }) => (lines[0] ? (JSON.parse(lines[0]) as UpFacts) : null))
  return { process: up, facts, brokerPid: () => (JSON.parse(up.lines.at(-1)!) as UpFacts).pid }
}

/** Returns the database URL with its owner's login, as `up` prints it. */
export async function ownerUrl({ facts }: Up): Promise<string> {
  const password = (await Bun.file(join(facts.folder, 'postgres/password')).text()).trim()
  return `postgres://sealpost:${password}@127.0.0.1:${facts.postgresPort}/postgres`
}

/** Enrols a member with an invite from the default profile. */
export async function letIn(machine: Machine, name: string): Promise<void> {
  const invited = await machine.run(['invite', 'create', '--quiet'])
  if (invited.code !== 0) throw new Error(invited.stderr)
  const invite = invited.stdout.trim()
  const joined = await machine.run(['join', invite, '--name', name, '--profile', name])
  if (joined.code !== 0) throw new Error(joined.stderr)
}

type Printed = Pick<Ended, 'stdout'>

/** Returns the only object that `--json` has printed. */
export const jsonOf = ({ stdout }: Printed) => JSON.parse(stdout)

/** Returns every object that a command with `--json` has printed. */
// biome-ignore lint/suspicious/noExplicitAny: each test names the fields that it expects
export const jsonLinesOf = ({ stdout }: Printed): any[] =>
  stdout
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line))

/** Returns the error on the last line of `--json`. */
export const errorOf = ({ stderr }: Pick<Ended, 'stderr'>): { code: string; message: string } =>
  JSON.parse(stderr.trim().split('\n').at(-1)!).error

export const failureOf = (ended: Ended) => [ended.code, errorOf(ended).code]

/** Runs a command in this process. */
export async function runHere(words: readonly string[], env: EnvironmentVariables) {
  const printed = { out: '', err: '' }
  const stream = (name: keyof typeof printed) => ({
    write: (text: string, written: () => void) => {
      printed[name] += text
      written()
    },
  })
  const code = await runCli(words, {
    settings: readSettings({ NO_COLOR: '1', ...env }),
    signal: new AbortController().signal,
    screens: { out: stream('out'), err: stream('err') },
  })
  return { code, ...printed }
}
