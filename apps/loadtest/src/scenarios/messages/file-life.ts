/** One life of a program that sends or fetches a file: what it told, and its end. */
import { join } from 'node:path'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { OperatingError } from '@sealpost/std'
import type { FileLine, FileOrder } from './attachment-peer.ts'

const PROGRAM = join(import.meta.dirname, 'attachment-peer.ts')

export class FileLife {
  /** Chunks that left it, or that it asked for, but for those that were refused. */
  chunks = 0
  bytes = 0
  /** Over what it was after the first chunk. */
  grownMb = 0
  /** Resolves when it has come so far. */
  readonly #child: Bun.Subprocess<'ignore', 'pipe', 'inherit'>
  readonly #ended: Promise<void>
  readonly #watchers = new Set<() => void>()
  #what: string | null = null

  constructor(order: FileOrder, teardown: Teardown) {
    this.#child = Bun.spawn([process.execPath, PROGRAM, JSON.stringify(order)], {
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'inherit',
    })
    const child = this.#child
    teardown.add({ end: async () => child.kill('SIGKILL'), kill: () => child.kill('SIGKILL') })
    this.#ended = this.#read().finally(() => this.#tell())
  }

  /** What it made. @throws OperatingError `file_life_failed` */
  async done(): Promise<string> {
    await this.#ended
    if (this.#what === null)
      throw new OperatingError('file_life_failed', 'A program that sends or fetches a file failed.')
    return this.#what
  }

  /** This number of bytes of the file, or its end. */
  async reached(bytes: number): Promise<void> {
    let isOver = false
    void this.#ended.then(() => (isOver = true))
    while (this.bytes < bytes && !isOver) await new Promise<void>((resolve) => this.#watchers.add(resolve))
  }

  async kill(): Promise<void> {
    this.#child.kill('SIGKILL')
    await this.#ended
  }

  async #read(): Promise<void> {
    const decoder = new TextDecoder()
    let rest = ''
    for await (const part of this.#child.stdout) {
      const lines = (rest + decoder.decode(part, { stream: true })).split('\n')
      rest = lines.pop()!
      for (const line of lines) this.#take(JSON.parse(line) as FileLine)
      this.#tell()
    }
    await this.#child.exited
  }

  #take(line: FileLine): void {
    switch (line.said) {
      case 'chunk':
        this.chunks += 1
        return
      case 'refused':
        this.chunks -= 1
        return
      case 'progress':
        this.bytes = line.bytes
        this.grownMb = Math.max(this.grownMb, line.rssMb - line.baseMb)
        return
      case 'done':
        this.#what = line.what
    }
  }

  #tell(): void {
    for (const watcher of this.#watchers) watcher()
    this.#watchers.clear()
  }
}
