/**
 * Ends the resources that a command has started, in reverse order. A signal runs the teardown; a second signal kills
 * everything immediately.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { constants, tmpdir } from 'node:os'
import { join } from 'node:path'

export interface TeardownStep {
  /** Ends the resource gracefully. */
  readonly end: () => Promise<unknown>
  /** Kills the resource before the function returns. */
  readonly kill?: () => unknown
}

/** A program that can be stopped gracefully or killed. */
export interface Stoppable {
  stop(): Promise<unknown>
  kill(): unknown
}

export class Teardown {
  readonly #waiting = new Set<TeardownStep>()
  #ending: TeardownStep | undefined
  #running: Promise<void> | undefined

  /** Whether the teardown has begun. */
  get isRunning(): boolean {
    return this.#running !== undefined
  }

  /** @returns a function that ends this step now, before the others */
  add(step: TeardownStep): () => Promise<void> {
    this.#waiting.add(step)
    return async () => {
      if (this.#waiting.delete(step)) await step.end()
    }
  }

  /** Adds a program that the teardown stops or kills. */
  addProgram(program: Stoppable): () => Promise<void> {
    return this.add({ end: () => program.stop(), kill: () => program.kill() })
  }

  /**
   * Adds a resource that is still starting. If the teardown runs before the resource has started, it ends the resource
   * as soon as it has. In this case, the returned promise never settles, because the command is about to exit.
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

  /** Does what `starting` does, for a program. */
  startingProgram<Program extends Stoppable>(promise: Promise<Program>): Promise<Program> {
    return this.starting(promise, (program) => ({ end: () => program.stop(), kill: () => program.kill() }))
  }

  /** Runs all steps once. A step that fails does not prevent the other steps. */
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

/** Makes Ctrl-C, SIGTERM and SIGHUP run the teardown and exit with `exitCode`, by default 128 plus the signal's number. */
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

/** Never settles. An interrupted command awaits this promise until the teardown exits. */
export function forever(): Promise<never> {
  return new Promise(() => undefined)
}

/** Creates an empty folder that the teardown removes. */
export function temporaryFolder(name: string, teardown: Teardown): Promise<string> {
  return teardown.starting(mkdtemp(join(tmpdir(), `sealpost-${name}-`)), (folder) => ({
    end: () => rm(folder, { recursive: true, force: true }),
  }))
}
