/**
 * A program of ours that runs beside a script and talks with it over a private channel. It ends when its starter is
 * gone (by the channel's end), and one that ends by itself is an error.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { OperatingError } from '@sealpost/std'

const STOP_WITHIN_MS = 5_000

export class Child<Order extends object, Answer extends object> {
  /** What to call it in an error. */
  readonly name: string
  /** Rejects when it ends without having been asked to. */
  readonly died: Promise<never>
  readonly #child: ChildProcess
  #isEnding = false

  /** @param words - for the platform, before the file: `--cpu-prof` and the like */
  constructor(name: string, file: string, words: readonly string[] = []) {
    this.name = name
    this.#child = fork(file, {
      detached: true,
      execArgv: [...words],
      serialization: 'advanced',
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    })
    this.died = once(this.#child, 'exit').then(([code, signal]) => {
      if (this.#isEnding) return new Promise<never>(() => undefined)
      throw new OperatingError('child_died', `${name} ended during the run (${signal ?? `exit code ${code}`}).`)
    })
    this.died.catch(() => undefined) // told to whoever waits for it
    this.#child.on('error', () => undefined) // `exit` follows, or the channel closed on our own order
  }

  get pid(): number {
    return this.#child.pid!
  }

  order(order: Order): void {
    if (this.#child.connected) this.#child.send(order) // otherwise it is ending, which is told by `died`
  }

  onAnswer(take: (answer: Answer) => void): void {
    this.#child.on('message', (answer) => take(answer as Answer))
  }

  /** The next answer of this kind, or the error of its death. */
  answer<A extends Answer>(isWanted: (answer: Answer) => answer is A): Promise<A> {
    const wanted = new Promise<A>((resolve) => {
      const take = (answer: unknown): void => {
        if (!isWanted(answer as Answer)) return
        this.#child.off('message', take)
        resolve(answer as A)
      }
      this.#child.on('message', take)
    })
    return Promise.race([wanted, this.died])
  }

  async stop(): Promise<void> {
    const hasEnded = this.#child.exitCode !== null || this.#child.signalCode !== null
    this.#isEnding = true
    if (hasEnded) return
    const ended = once(this.#child, 'exit')
    if (this.#child.connected) this.#child.disconnect() // which it takes as the end
    const timer = setTimeout(() => this.#child.kill('SIGKILL'), STOP_WITHIN_MS)
    await ended
    clearTimeout(timer)
  }

  kill(): void {
    this.#isEnding = true
    this.#child.kill('SIGKILL')
  }
}
