/** Shows progress: a bar on a terminal, otherwise a line every five seconds. */

import { count } from '@sealpost/harness/report/text'
import progress, { type SingleBar } from 'cli-progress'
import type { Progress } from '../generators/fleet.ts'

export interface Display {
  step(name: string): void
  begin(total: number): void
  update(progress: Progress): void
  end(): void
}

export function openDisplay(stream: NodeJS.WriteStream = process.stderr): Display {
  return stream.isTTY ? new Bar(stream) : new Lines(stream)
}

class Bar implements Display {
  readonly #stream: NodeJS.WriteStream
  #bar: SingleBar | undefined

  constructor(stream: NodeJS.WriteStream) {
    this.#stream = stream
  }

  step(name: string): void {
    this.#stream.clearLine(0)
    this.#stream.cursorTo(0)
    this.#stream.write(`  ${name} …`)
  }

  begin(total: number): void {
    this.#stream.clearLine(0)
    this.#stream.cursorTo(0)
    const format = '  {bar} {percentage} %  {value} of {total} delivered, {acked} acked  {duration_formatted}'
    this.#bar = new progress.SingleBar(
      { format, stream: this.#stream, barsize: 30, hideCursor: true, clearOnComplete: true },
      progress.Presets.shades_classic,
    )
    this.#bar.start(total, 0, { acked: 0 })
  }

  update({ delivered, acked }: Progress): void {
    this.#bar?.update(delivered, { acked })
  }

  end(): void {
    this.#bar?.stop()
    this.#bar = undefined
  }
}

const LINE_MS = 5_000

class Lines implements Display {
  readonly #stream: NodeJS.WriteStream
  #total = 0
  #startMs = 0
  #printedMs = 0

  constructor(stream: NodeJS.WriteStream) {
    this.#stream = stream
  }

  step(name: string): void {
    this.#stream.write(`${name} …\n`)
  }

  begin(total: number): void {
    this.#total = total
    this.#startMs = performance.now()
    this.#printedMs = this.#startMs
    this.#stream.write(`sending ${count(total)} messages …\n`)
  }

  update({ delivered, acked }: Progress): void {
    const nowMs = performance.now()
    if (nowMs - this.#printedMs < LINE_MS) return
    this.#printedMs = nowMs
    const seconds = ((nowMs - this.#startMs) / 1000).toFixed(0)
    this.#stream.write(`${seconds} s: ${count(delivered)} of ${count(this.#total)} delivered, ${count(acked)} acked\n`)
  }

  end(): void {
    this.#printedMs = 0
  }
}
