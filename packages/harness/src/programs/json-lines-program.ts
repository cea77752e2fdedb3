/** A program that writes one JSON object per line to standard output and may be killed between two lines. */
export class JsonLinesProgram<Line> {
  /** Resolves after the last line, when the program has exited. */
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
