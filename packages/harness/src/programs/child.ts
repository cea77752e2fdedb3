/** Runs programs of this repository, with a private channel or with JSON lines as output. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { OperatingError } from '@sealpost/std'

const STOP_WITHIN_MS = 5_000

/** Sent by `serveParent` before an error ends it. */
interface Failure {
  readonly failure: string
}

/** A program with a private channel, whose end ends it. A child that fails or exits unasked is an error. */
export class Child<Command extends object, Reply extends object> {
  /** The child's name in errors. */
  readonly name: string
  /** Rejects with `child_failed` or `child_died` when the child fails or exits unasked. */
  readonly died: Promise<never>
  readonly #process: ChildProcess
  #isEnding = false

  /** @param bunArgs - arguments for Bun before the file, such as `--cpu-prof` */
  constructor(name: string, file: string, bunArgs: readonly string[] = []) {
    this.name = name
    this.#process = fork(file, {
      detached: true,
      execArgv: [...bunArgs],
      serialization: 'advanced',
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    })
    this.died = Promise.race([this.#failed(), this.#exited()])
    this.died.catch(() => undefined) // prevents an unhandled rejection
    this.#process.on('error', () => undefined) // `exit` follows, or the channel was closed
  }

  get pid(): number {
    return this.#process.pid!
  }

  send(command: Command): void {
    if (this.#process.connected) this.#process.send(command) // otherwise, `died` rejects
  }

  onReply(listener: (reply: Reply) => void): void {
    this.#process.on('message', (message) => {
      if (!isFailure(message)) listener(message as Reply)
    })
  }

  /** Returns the next reply of this kind. Rejects when `died` rejects. */
  nextReply<R extends Reply>(isWanted: (reply: Reply) => reply is R): Promise<R> {
    const wanted = new Promise<R>((resolve) => {
      const look = (message: unknown): void => {
        if (isFailure(message) || !isWanted(message as Reply)) return
        this.#process.off('message', look)
        resolve(message as R)
      }
      this.#process.on('message', look)
    })
    return Promise.race([wanted, this.died])
  }

  async stop(): Promise<void> {
    const hasExited = this.#process.exitCode !== null || this.#process.signalCode !== null
    this.#isEnding = true
    if (hasExited) return
    const exited = once(this.#process, 'exit')
    if (this.#process.connected) this.#process.disconnect()
    const timer = setTimeout(() => this.#process.kill('SIGKILL'), STOP_WITHIN_MS)
    await exited
    clearTimeout(timer)
  }

  kill(): void {
    this.#isEnding = true
    this.#process.kill('SIGKILL')
  }

  #failed(): Promise<never> {
    return new Promise((_, reject) => {
      this.#process.on('message', (message) => {
        if (isFailure(message)) reject(new OperatingError('child_failed', `${this.name} failed: ${message.failure}`))
      })
    })
  }

  async #exited(): Promise<never> {
    const [code, signal] = await once(this.#process, 'exit')
    if (this.#isEnding) return new Promise(() => undefined)
    throw new OperatingError('child_died', `${this.name} exited during the run (${signal ?? `exit code ${code}`}).`)
  }
}

/** Sends each child its command. Returns the replies of one kind in the children's order. */
export function commandAll<Command extends object, Reply extends object, Wanted extends Reply>(
  children: readonly Child<Command, Reply>[],
  commandOf: (index: number) => Command,
  isWanted: (reply: Reply) => reply is Wanted,
): Promise<Wanted[]> {
  const replies = children.map((child, i) => {
    const reply = child.nextReply(isWanted)
    child.send(commandOf(i))
    return reply
  })
  return Promise.all(replies)
}

const isFailure = (message: unknown): message is Failure => 'failure' in (message as object)

/**
 * Runs the child's side: passes commands to `handle`. Sends an uncaught error to the parent and exits.
 * @param close - called before the program exits with its parent
 */
export function serveParent<Command extends object, Reply extends object>(
  handle: (command: Command, reply: (message: Reply) => void) => unknown,
  close: () => Promise<unknown> = () => Promise.resolve(),
): void {
  const fail = (error: unknown) => {
    process.send?.({ failure: failureText(error) } satisfies Failure)
    setTimeout(() => process.exit(1), 50)
  }
  const reply = (message: Reply) => void process.send?.(message)
  process.on('message', (command: Command) => {
    Promise.resolve(handle(command, reply)).catch(fail)
  })
  process.on('uncaughtException', fail)
  process.on('unhandledRejection', fail)
  process.on('disconnect', () => void close().finally(() => process.exit(0)))
  for (const signal of ['SIGINT', 'SIGHUP'] as const) process.on(signal, () => undefined) // ignored, because the parent ends this program
}

/** Errors with a code are expected, so omit their stack. */
function failureText(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return 'code' in error ? error.message : String(error.stack)
}

/** Runs a program that prints a JSON object per line, and that may be killed between two lines. */
export class JsonLinesProgram<Line> {
  /** Resolves after the last line, once the program has exited. */
  readonly ended: Promise<void>
  readonly #process: Bun.Subprocess<'ignore', 'pipe', 'inherit'>

  constructor(args: readonly string[], onLine: (line: Line) => void) {
    this.#process = Bun.spawn([process.execPath, ...args], { stdio: ['ignore', 'pipe', 'inherit'] })
    this.ended = this.#read(onLine)
  }

  async kill(): Promise<void> {
    this.#process.kill('SIGKILL')
    await this.ended
  }

  async #read(onLine: (line: Line) => void): Promise<void> {
    const decoder = new TextDecoder()
    let rest = ''
    for await (const bytes of this.#process.stdout) {
      const lines = (rest + decoder.decode(bytes, { stream: true })).split('\n')
      rest = lines.pop()!
      for (const line of lines) onLine(JSON.parse(line) as Line)
    }
    await this.#process.exited
  }
}
