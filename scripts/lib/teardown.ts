/**
 * What a script has started and must end, however it ends itself: last begun, first ended. A signal ends it in order;
 * a second one ends it at once, and everything it started with it.
 */
import { constants } from 'node:os'

export interface Undoing {
  /** In order, politely. */
  readonly end: () => Promise<unknown>
  /** At once: what matters of it must happen before it returns. */
  readonly kill?: () => unknown
}

export class Teardown {
  readonly #waiting = new Set<Undoing>()
  #ending: Undoing | undefined
  #running: Promise<void> | undefined

  /** From the first step of ending on. */
  get isRunning(): boolean {
    return this.#running !== undefined
  }

  /** @returns ends this one now, before the others */
  add(step: Undoing): () => Promise<void> {
    this.#waiting.add(step)
    return async () => {
      if (this.#waiting.delete(step)) await step.end()
    }
  }

  /**
   * The same for what takes a while to start. Interrupted meanwhile, it is ended as soon as it has started, and whoever
   * waits for it waits on, until the script is gone.
   */
  async starting<T>(promise: Promise<T>, undoing: (started: T) => Undoing): Promise<T> {
    let started: Undoing | undefined
    const end = () =>
      promise.then(
        (value) => undoing(value).end(),
        () => undefined, // whoever waits for it is told
      )
    this.add({ end, kill: () => started?.kill?.() })
    const value = await promise
    started = undoing(value)
    return this.isRunning ? forever() : value
  }

  /** Ends everything, once; a step that fails does not keep the others from ending. */
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

  get #last(): Undoing | undefined {
    return [...this.#waiting].at(-1)
  }
}

/** Ctrl-C and its kin run the teardown and exit with 128 + the signal's number, or with what `exitCode` says. */
export function endOnSignals(teardown: Teardown, exitCode?: () => number | undefined): void {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(signal, () => {
      const code = exitCode?.() ?? 128 + constants.signals[signal]
      if (teardown.isRunning) {
        teardown.kill()
        process.exit(code)
      }
      void teardown.run().finally(() => process.exit(code))
    })
  }
}

/** For whoever is interrupted by the teardown, which ends the script: to go on or to complain would be noise. */
export function forever(): Promise<never> {
  return new Promise(() => undefined)
}
