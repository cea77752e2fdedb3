/** Finds passphrases: in a file, in the environment, or at the terminal. */
import { readFileSync } from 'node:fs'
import { createInterface, type ReadLineOptions } from 'node:readline/promises'
import { Writable } from 'node:stream'
import { OperatingError } from '@sealpost/std'

interface PassphraseSources {
  /** A file with the passphrase on its first line. */
  readonly file?: string | undefined
  readonly fromEnvironment?: string | undefined
  /** Null without a terminal. */
  readonly terminal?: PassphraseTerminal | null
}

type PassphraseTerminal = (prompt: string) => Promise<string>

export class Passphrase {
  readonly #places: PassphraseSources
  #known: Promise<string> | null = null

  constructor(places: PassphraseSources) {
    this.#places = places
  }

  /**
   * Returns the passphrase for the existing keys. Prompts at most once. @throws OperatingError `key_file_locked`,
   * `file_missing`
   */
  get(): Promise<string> {
    this.#known ??= this.#find('passphrase: ')
    return this.#known
  }

  /**
   * Returns a passphrase for new keys, typed twice at a terminal. @throws OperatingError `usage`, `key_file_locked`,
   * `file_missing`
   */
  choose(): Promise<string> {
    this.#known ??= this.#findNew()
    return this.#known
  }

  /** Returns a passphrase that replaces an existing one, typed twice at a terminal. @throws the errors of `choose` */
  chooseNew(): Promise<string> {
    return this.#findNew()
  }

  /** Returns the passphrase of an existing backup. @throws the errors of `get` */
  getForBackup(): Promise<string> {
    return this.#find('passphrase of the backup: ')
  }

  /** Returns a passphrase for a new backup, typed twice at a terminal. @throws the errors of `choose` */
  chooseForBackup(): Promise<string> {
    return this.#findNew('passphrase for the backup: ')
  }

  async #findNew(prompt = 'new passphrase: '): Promise<string> {
    const isTyped = this.#places.file === undefined && this.#places.fromEnvironment === undefined
    const first = await this.#find(prompt)
    if (first === '') throw new OperatingError('usage', 'A passphrase has at least one character.')
    if (isTyped && first !== (await this.#find('repeat it: ')))
      throw new OperatingError('usage', 'The passphrases differ. Nothing was written.')
    return first
  }

  async #find(prompt: string): Promise<string> {
    const { file, fromEnvironment, terminal } = this.#places
    if (file !== undefined) return firstLineOf(file)
    if (fromEnvironment !== undefined) return fromEnvironment
    if (terminal) return terminal(prompt)
    throw new OperatingError(
      'key_file_locked',
      'There is no terminal to ask for the passphrase. Set SEALPOST_PASSPHRASE or --passphrase-file.',
    )
  }
}

/** Returns a prompt for passphrases, if stdin and stderr are a terminal. `signal` aborts it. */
export function platformTerminal(signal: AbortSignal): PassphraseTerminal | null {
  return process.stdin.isTTY && process.stderr.isTTY ? (prompt) => typedUnseen(prompt, signal) : null
}

async function typedUnseen(prompt: string, signal: AbortSignal): Promise<string> {
  const nowhere = new Writable({ write: (_chunk, _encoding, written) => written() })
  const typed = typedLine('', signal, { output: nowhere, terminal: true })
  process.stderr.write(prompt) // the terminal now shows no input
  return typed.finally(() => process.stderr.write('\n'))
}

/** Asks a question at the terminal. Returns whether the answer is yes. @throws OperatingError `interrupted` */
export async function typedYes(question: string, signal: AbortSignal): Promise<boolean> {
  return /^y(es)?$/i.test((await typedLine(`${question} [y/N] `, signal, { output: process.stderr })).trim())
}

/** Prints the prompt and returns the next line of the terminal. @throws OperatingError `interrupted` */
async function typedLine(
  prompt: string,
  signal: AbortSignal,
  options: Pick<ReadLineOptions, 'output' | 'terminal'>,
): Promise<string> {
  const lines = createInterface({ input: process.stdin, ...options })
  const interrupt = new AbortController()
  lines.once('SIGINT', () => interrupt.abort())
  try {
    return await lines.question(prompt, { signal: AbortSignal.any([signal, interrupt.signal]) })
  } catch {
    throw new OperatingError('interrupted', 'Ctrl-C')
  } finally {
    lines.close()
  }
}

function firstLineOf(file: string): string {
  try {
    return readFileSync(file, 'utf8').split(/\r?\n/, 1)[0]!
  } catch (cause) {
    throw new OperatingError('file_missing', `Can't read the passphrase file ${file}.`, { cause })
  }
}
