/** Writes a command's output: results to stdout (with `--json`, a line of JSON each), everything else to stderr. */
import pc from 'picocolors'

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

/** Returns what the user can do about an error with this code, as a sentence that follows another one, or nothing. */
export function remedyOf(code: string, peerName = 'NAME'): string {
  if (code !== 'ratchet_required' && code !== 'ratchet_downgrade') return ''
  return ` If the peer confirms that it has lost its keys or stopped using ratchets, run \`sealpost peers --forget-ratchets ${peerName}\`.`
}

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

  /** Formats columns without a frame. Wide and combining characters take the cells that a terminal gives them. */
  table(head: readonly string[], rows: readonly (readonly string[])[]): string {
    return this.columns([head.map((name) => this.paint.dim(name)), ...rows])
  }

  /** Aligns lines of cells. */
  columns(lines: readonly (readonly string[])[]): string {
    const widths = (lines[0] ?? []).map((_, column) => Math.max(...lines.map((line) => widthOf(line[column] ?? ''))))
    const padded = (cell: string, column: number) => cell + ' '.repeat(widths[column]! - widthOf(cell) + 2)
    return lines.map((line) => line.map(padded).join('').trimEnd()).join('\n')
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

/** The cells that a terminal uses for the text, without its colors and isolates. */
const widthOf = (text: string): number => Bun.stringWidth(text.replace(/[\u2068\u2069]/g, ''))

/** Formats a time as `2026-12-01 09:00` in UTC; empty for null. */
export const formatTime = (ms: number | null): string =>
  ms === null ? '' : new Date(ms).toISOString().slice(0, 16).replace('T', ' ')

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

/** Matches letters that are written from right to left. */
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u

/** Escapes text that must stay on one line. Isolates text from right to left, so that it doesn't reorder the line. */
export function escapeName(text: string): string {
  const safe = text.replace(UNSAFE, escaped)
  return RIGHT_TO_LEFT.test(safe) ? `\u2068${safe}\u2069` : safe
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
