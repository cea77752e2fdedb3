/** Runs the load test for tests, with its own database and folder. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { scratchDatabase } from '@sealpost/schema/testing'
import { afterEach, beforeEach } from 'vitest'

const SCRIPT = join(import.meta.dirname, '../../../../scripts/load-test.ts')

export interface Ended {
  code: number | null
  out: string
  err: string
  /** Files left in the temporary folder. */
  left: string[]
}

export interface Running {
  pid: number
  /** Resolves with the output once it contains this text. */
  says(text: string): Promise<string>
  signal(name: NodeJS.Signals): void
  ended: Promise<Ended>
}

/** A test's world. */
export class LoadTestWorld {
  folder = ''
  databaseUrl = ''
  #drop: (() => Promise<void>) | undefined
  /** Processes that a failed test may have left. */
  readonly #running = new Set<ChildProcess>()

  constructor() {
    beforeEach(async () => {
      this.folder = await mkdtemp(join(tmpdir(), 'sealpost-load-test-'))
      const database = await scratchDatabase()
      this.databaseUrl = database.url
      this.#drop = () => database.drop()
    })
    afterEach(async () => {
      for (const child of this.#running) child.kill()
      await Promise.all([...this.#running].map((child) => once(child, 'close')))
      await this.#drop?.()
      await rm(this.folder, { recursive: true, force: true })
    })
  }

  get resultFile(): string {
    return join(this.folder, 'result.json')
  }

  async result<T>(): Promise<T> {
    return (await Bun.file(this.resultFile).json()) as T
  }

  run(words: string[], env?: Record<string, string>): Promise<Ended> {
    return this.start(words, env).ended
  }

  start(words: string[], env: Record<string, string> = {}): Running {
    const child = spawn(process.execPath, [SCRIPT, ...words], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        ...process.env,
        DATABASE_URL: this.databaseUrl,
        TMPDIR: this.folder,
        BROKER_WS_URL: '',
        LIMITS: '',
        ...env,
      },
    })
    this.#running.add(child)
    child.on('close', () => this.#running.delete(child))
    let out = ''
    let err = ''
    const listeners = new Set<() => void>()
    child.stdout.on('data', (bytes) => {
      out += String(bytes)
      for (const look of listeners) look()
    })
    child.stderr.on('data', (bytes) => {
      err += String(bytes)
      for (const look of listeners) look()
    })
    const ended = once(child, 'close').then(async ([code]) => {
      for (const look of listeners) look()
      const left = await readdir(this.folder)
      return { code: code as number | null, out, err, left: left.filter((name) => name.startsWith('sealpost-')) }
    })
    const says = (text: string) =>
      new Promise<string>((resolve, reject) => {
        const look = () => {
          if (`${err}${out}`.includes(text)) resolve(`${err}${out}`)
          else if (child.exitCode !== null) reject(new Error(`It ended and never said "${text}":\n${err}${out}`))
        }
        listeners.add(look)
        look()
      })
    return { pid: child.pid!, says, signal: (name) => void child.kill(name), ended }
  }
}

/** Returns the running programs with this text in their environment, which orphans keep. */
export async function programsOf(marker: string): Promise<string[]> {
  const pids = (await readdir('/proc').catch(() => [])).filter((name) => /^\d+$/.test(name))
  const found: string[] = []
  for (const pid of pids) {
    const environment = await Bun.file(`/proc/${pid}/environ`)
      .text()
      .catch(() => '')
    if (environment.includes(marker)) found.push(pid)
  }
  return found
}
