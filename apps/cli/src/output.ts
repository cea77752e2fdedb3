/** Writes a command's output: results to stdout (with `--json`, a line of JSON each), everything else to stderr. */
import type CliTable from 'cli-table3'
import pc from 'picocolors'

/** Loads the table library late, because that takes 15 ms. */
const loadTable = (): typeof CliTable => require('cli-table3')

export type Paint = ReturnType<typeof pc.createColors>

export interface OutputOptions {
  readonly isJson: boolean
  readonly isQuiet: boolean
  /** Null: depends on the terminal. */
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
  readonly isQuiet: boolean
  readonly paint: Paint
  readonly #screens: OutputStreams
  readonly #errPaint: Paint

  constructor(options: OutputOptions, screens: OutputStreams = platformStreams) {
    this.isJson = options.isJson
    this.isQuiet = options.isQuiet
    this.#screens = screens
    const paintFor = (screen: OutputStream) => pc.createColors(options.hasColors ?? screen.isTTY === true)
    this.paint = paintFor(screens.out)
    this.#errPaint = paintFor(screens.err)
  }

  /** Whether stderr is a terminal, for progress. */
  get isInteractive(): boolean {
    return this.#screens.err.isTTY === true && !this.isQuiet && !this.isJson
  }

  /** Writes a result: an object with `--json`, otherwise text. Rejects if the reader has closed the stream. */
  result(json: object, text: () => string): Promise<void> {
    return write(this.#screens.out, `${this.isJson ? jsonLine(json) : text()}\n`)
  }

  /** Writes results: an object per line with `--json`, otherwise a table. */
  async results(rows: readonly object[], table: () => string): Promise<void> {
    if (!this.isJson) return write(this.#screens.out, `${table()}\n`)
    for (const row of rows) await write(this.#screens.out, `${jsonLine(row)}\n`)
  }

  /** Writes informational output, unless `--quiet`. */
  info(text: string): void {
    if (!this.isQuiet) this.#tell(this.#errPaint.dim(text))
  }

  warn(text: string): void {
    this.#tell(this.#errPaint.yellow(text))
  }

  fail(code: string, sentence: string): void {
    if (this.isJson) this.#tell(jsonLine({ error: { code, message: sentence } }))
    else this.#tell(`${this.#errPaint.red('error:')} ${sentence}${this.#codeAfter(sentence, code)}`)
  }

  show(text: string): void {
    if (!this.isQuiet) this.#tell(this.#errPaint.isColorSupported ? onBlack(text) : text)
  }

  /** Formats columns without a frame. */
  table(head: readonly string[], rows: readonly (readonly string[])[]): string {
    const Table = loadTable()
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

  facts(facts: readonly (readonly [name: string, value: string])[]): string {
    const width = Math.max(...facts.map(([name]) => name.length))
    return facts.map(([name, value]) => `${this.paint.dim(name.padEnd(width))}  ${value}`).join('\n')
  }

  #codeAfter(sentence: string, code: string): string {
    return sentence.includes(`(${code})`) ? '' : this.#errPaint.dim(` (${code})`)
  }

  #tell(text: string): void {
    this.#screens.err.write(`${text}\n`, () => undefined) // an error on stderr can't be reported anywhere
  }
}

/**
 * Characters that `JSON.stringify` keeps but terminals interpret or hide: DEL, C1 controls, format characters, line
 * separators.
 */
const UNSAFE_IN_JSON = /[\u007f-\u009f\p{Cf}\u2028\u2029]/gu

/** Returns a line of JSON that is safe on a terminal. */
export const jsonLine = (value: object): string =>
  JSON.stringify(value).replace(UNSAFE_IN_JSON, (unsafe) =>
    Array.from({ length: unsafe.length }, (_, i) => `\\u${unsafe.charCodeAt(i).toString(16).padStart(4, '0')}`).join(
      '',
    ),
  )

/** Formats a QR code as dark on light, in every colour scheme. */
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
 * Matches characters with which a peer could imitate other lines: controls (as in ANSI sequences), format characters,
 * line separators, and lone surrogates.
 */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu
/** Joiners, which some scripts and emoji need, are kept in running text. */
const JOINERS = ['\u200c', '\u200d']

/** Escapes text that must stay on one line. */
export function escapeName(text: string): string {
  return text.replace(UNSAFE, escaped)
}

/** Escapes running text. Indents later lines, so that none looks like the command's own. */
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
