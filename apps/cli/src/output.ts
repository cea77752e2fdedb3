/**
 * What a command says: what was asked for on stdout, everything else on stderr. With --json each answer is one line of
 * JSON; --quiet leaves out what is only nice to know.
 */
import Table from 'cli-table3'
import pc from 'picocolors'

export type Paint = ReturnType<typeof pc.createColors>

export interface OutputOptions {
  readonly isJson: boolean
  readonly isQuiet: boolean
  /** Null: as the terminal has it. */
  readonly hasColors: boolean | null
}

export interface OutputStream {
  readonly isTTY?: boolean
  readonly columns?: number
  write(text: string, written: (error?: Error | null) => void): unknown
}

export interface OutputStreams {
  readonly out: OutputStream
  readonly err: OutputStream
}

export const platformStreams: OutputStreams = { out: process.stdout, err: process.stderr }

export class Output {
  readonly isJson: boolean
  readonly paint: Paint
  readonly #isQuiet: boolean
  readonly #screens: OutputStreams
  readonly #errPaint: Paint

  constructor(options: OutputOptions, screens: OutputStreams = platformStreams) {
    this.isJson = options.isJson
    this.#isQuiet = options.isQuiet
    this.#screens = screens
    const paintFor = (screen: OutputStream) => pc.createColors(options.hasColors ?? screen.isTTY === true)
    this.paint = paintFor(screens.out)
    this.#errPaint = paintFor(screens.err)
  }

  /** Someone looks at a terminal, and may be shown what changes. */
  get isInteractive(): boolean {
    return this.#screens.err.isTTY === true && !this.#isQuiet && !this.isJson
  }

  /** An answer: the object with --json, else the text. Resolves when it was taken. @throws when nobody reads any more */
  result(json: object, text: () => string): Promise<void> {
    return write(this.#screens.out, `${this.isJson ? jsonLine(json) : text()}\n`)
  }

  /** Many answers of one kind: one object a line, or a table. */
  async results(rows: readonly object[], table: () => string): Promise<void> {
    if (!this.isJson) return write(this.#screens.out, `${table()}\n`)
    for (const row of rows) await write(this.#screens.out, `${jsonLine(row)}\n`)
  }

  /** Nice to know. */
  info(text: string): void {
    if (!this.#isQuiet) this.#tell(this.#errPaint.dim(text))
  }

  /** To be known. */
  warn(text: string): void {
    this.#tell(this.#errPaint.yellow(text))
  }

  fail(code: string, sentence: string): void {
    if (this.isJson) this.#tell(jsonLine({ error: { code, message: sentence } }))
    else this.#tell(`${this.#errPaint.red('error:')} ${sentence}${this.#codeAfter(sentence, code)}`)
  }

  /** Beside an answer, as it is: pictures. */
  show(text: string): void {
    if (!this.#isQuiet) this.#tell(this.#errPaint.isColorSupported ? onBlack(text) : text)
  }

  /** Columns without a frame, as wide as they need to be. */
  table(head: readonly string[], rows: readonly (readonly string[])[]): string {
    const table = new Table({
      head: head.map((name) => this.paint.dim(name)),
      chars: NO_FRAME,
      style: { head: [], border: [], 'padding-left': 0, 'padding-right': 2 },
    })
    table.push(...rows.map((row) => [...row]))
    return table
      .toString()
      .split('\n')
      .map((line) => line.trimEnd())
      .join('\n')
  }

  /** Name and value, a line each. */
  facts(facts: readonly (readonly [name: string, value: string])[]): string {
    const width = Math.max(...facts.map(([name]) => name.length))
    return facts.map(([name, value]) => `${this.paint.dim(name.padEnd(width))}  ${value}`).join('\n')
  }

  #codeAfter(sentence: string, code: string): string {
    return sentence.includes(`(${code})`) ? '' : this.#errPaint.dim(` (${code})`)
  }

  #tell(text: string): void {
    this.#screens.err.write(`${text}\n`, () => undefined) // nobody is left to be told that nobody reads
  }
}

/** What `JSON.stringify` leaves as it is and a terminal obeys or hides: DEL, C1 controls, format characters, line separators. */
const UNSAFE_IN_JSON = /[\u007f-\u009f\p{Cf}\u2028\u2029]/gu

/** For a parser the same as `JSON.stringify`, also when a person reads it, at once or later in a log. */
export const jsonLine = (value: object): string =>
  JSON.stringify(value).replace(UNSAFE_IN_JSON, (unsafe) =>
    Array.from({ length: unsafe.length }, (_, i) => `\\u${unsafe.charCodeAt(i).toString(16).padStart(4, '0')}`).join(
      '',
    ),
  )

/** Light on dark whatever the colours of the terminal are. */
const onBlack = (text: string): string =>
  text
    .split('\n')
    .map((line) => `\x1b[97;40m${line}\x1b[0m`)
    .join('\n')

const NO_FRAME = Object.fromEntries(
  ['top', 'bottom', 'left', 'right', 'mid']
    .flatMap((side) => [side, `${side}-mid`, `${side}-left`, `${side}-right`])
    .concat('middle')
    .map((name) => [name, '']),
)

function write(screen: OutputStream, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    screen.write(text, (error) => (error ? reject(error) : resolve()))
  })
}

/**
 * Text of peers on its way to a terminal. What could move the cursor, colour, turn the direction of reading or hide is
 * shown as an escape, so that nobody can write a line that looks like another one's. `output.ts` escapes JSON output in the way of JSON.
 */

/** Controls (ANSI begins with one), format characters such as direction overrides, line separators, lone surrogates. */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu
/** Joiners shape letters of some scripts and emoji; in running text they stay. */
const JOINERS = ['\u200c', '\u200d']

/** A name, or anything else that must stay in one line and look like nothing else. */
export function escapeName(text: string): string {
  return text.replace(UNSAFE, escaped)
}

/** Running text. Further lines begin with `indent`, so that none can be taken for a line of ours. */
export function escapeText(text: string, indent: string): string {
  return text
    .replace(/\r?\n$/, '')
    .split(/\r?\n/)
    .map((line) => line.replace(UNSAFE, (unsafe) => (isHarmless(unsafe) ? unsafe : escaped(unsafe))))
    .join(`\n${indent}`)
}

const isHarmless = (character: string): boolean => character === '\t' || JOINERS.includes(character)

function escaped(character: string): string {
  const point = character.codePointAt(0)!
  if (character === '\n') return '\\n'
  return point <= 0xff ? `\\x${point.toString(16).padStart(2, '0')}` : `\\u{${point.toString(16)}}`
}
