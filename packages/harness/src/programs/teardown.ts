/** Ends a command's resources in reverse order, also after a signal. A second signal kills everything. */
import { mkdtemp, rm } from 'node:fs/promises'
import { constants, tmpdir } from 'node:os'
import { join } from 'node:path'

export interface TeardownStep {
  /** Ends the resource gracefully. */
  readonly end: () => Promise<unknown>
  /** Kills the resource before it returns. */
  readonly kill?: () => unknown
}

export interface Stoppable {
  stop(): Promise<unknown>
  kill(): unknown
}

export class Teardown {
  readonly #waiting = new Set<TeardownStep>()
  #ending: TeardownStep | undefined
  #running: Promise<void> | undefined

  get isRunning(): boolean {
    return this.#running !== undefined
  }

  /** @returns a function that ends this step before the others */
  add(step: TeardownStep): () => Promise<void> {
    this.#waiting.add(step)
    return async () => {
      if (this.#waiting.delete(step)) await step.end()
    }
  }

  /** Adds a program to stop or kill. */
  addProgram(program: Stoppable): () => Promise<void> {
    return this.add({ end: () => program.stop(), kill: () => program.kill() })
  }

  /**
   * Adds a resource that is starting. During the teardown, ends it once it has started, and never settles, because the
   * command exits.
   */
  async starting<T>(promise: Promise<T>, stepOf: (started: T) => TeardownStep): Promise<T> {
    let started: TeardownStep | undefined
    const end = () =>
      promise.then(
        (value) => stepOf(value).end(),
        () => undefined, // the caller receives the error
      )
    this.add({ end, kill: () => started?.kill?.() })
    const value = await promise
    started = stepOf(value)
    return this.isRunning ? forever() : value
  }

  /** Like `starting`, for a program. */
  startingProgram<Program extends Stoppable>(promise: Promise<Program>): Promise<Program> {
    return this.starting(promise, (program) => ({ end: () => program.stop(), kill: () => program.kill() }))
  }

  /** Runs all steps once, even if some fail. */
  run(): Promise<void> {
    this.#running ??= this.#endAll()
    return this.#running
  }

  kill(): void {
    for (const step of [this.#ending, ...this.#waiting]) step?.kill?.()
  }

  async #endAll(): Promise<void> {
    for (let step = this.#last; step; step = this.#last) {
      this.#waiting.delete(step)
      this.#ending = step
      try {
        await step.end()
      } catch (error) {
        process.stderr.write(`${(error as Error).message}\n`)
      }
    }
  }

  get #last(): TeardownStep | undefined {
    return [...this.#waiting].at(-1)
  }
}

/** Runs the teardown on Ctrl-C, SIGTERM and SIGHUP, and exits with `exitCode`, by default 128 plus the signal. */
export function endOnSignals(teardown: Teardown, exitCode?: number): void {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(signal, () => {
      const code = exitCode ?? 128 + constants.signals[signal]
      if (teardown.isRunning) {
        teardown.kill()
        process.exit(code)
      }
      void teardown.run().finally(() => process.exit(code))
    })
  }
}

/** Never settles, for an interrupted command until the teardown exits. */
export function forever(): Promise<never> {
  return new Promise(() => undefined)
}

export function temporaryFolder(name: string, teardown: Teardown): Promise<string> {
  return teardown.starting(mkdtemp(join(tmpdir(), `sealpost-${name}-`)), (folder) => ({
    end: () => rm(folder, { recursive: true, force: true }),
  }))
}
