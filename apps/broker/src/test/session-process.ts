/** Runs the sessions and hosts of a member in processes of their own. */
import { join } from 'node:path'

const PROGRAMS = join(import.meta.dirname, '../../../../packages/sdk/src/test')

/** A session, or a host, in a process of its own. */
export class SessionProcess {
  readonly #child: Bun.Subprocess<'pipe', 'pipe', 'inherit'>
  #text = ''
  readonly #read: Promise<void>

  constructor(program: string, ...words: string[]) {
    this.#child = Bun.spawn([process.execPath, join(PROGRAMS, program), ...words], {
      stdin: 'pipe',
      stdout: 'pipe',
      stderr: 'inherit',
    })
    this.#read = this.#collect()
  }

  /** Advances the clock of a host. */
  advance(byMs: number): void {
    this.#child.stdin.write(`${byMs}\n`)
    this.#child.stdin.flush()
  }

  /** Returns the events of one kind so far. */
  told(kind: string): string[] {
    const lines = this.#text.slice(0, this.#text.lastIndexOf('\n') + 1).split('\n')
    return lines.flatMap((line) => {
      const told: Readonly<Record<string, string>> = line === '' ? {} : JSON.parse(line)
      return told[kind] === undefined ? [] : [told[kind]]
    })
  }

  /** Resolves when the process has ended. */
  get ended(): Promise<unknown> {
    return this.#child.exited
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL')
    await this.ended
    await this.#read
  }

  async #collect(): Promise<void> {
    const decoder = new TextDecoder()
    for await (const bytes of this.#child.stdout) this.#text += decoder.decode(bytes, { stream: true })
  }
}
