/** The passphrase of a profile's keys: from a file, from the environment, or from the person at the terminal. */
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline/promises'
import { Writable } from 'node:stream'
import { OperatingError } from '@sealpost/std'

export interface PassphraseSources {
  /** Its first line is the passphrase. */
  readonly file?: string | undefined
  readonly fromEnvironment?: string | undefined
  /** Null: nobody is there to be asked. */
  readonly terminal?: PassphraseTerminal | null
}

/** Someone who types without being seen. */
export type PassphraseTerminal = (prompt: string) => Promise<string>

export class Passphrase {
  readonly #places: PassphraseSources
  #known: Promise<string> | null = null

  constructor(places: PassphraseSources) {
    this.#places = places
  }

  /** That of keys which are there; asked for once. @throws OperatingError `key_file_locked`, `file_missing` */
  get(): Promise<string> {
    this.#known ??= this.#find('passphrase: ')
    return this.#known
  }

  /** One for new keys; a person types it twice. @throws OperatingError `usage`, `key_file_locked`, `file_missing` */
  choose(): Promise<string> {
    this.#known ??= this.#findNew()
    return this.#known
  }

  async #findNew(): Promise<string> {
    const isTyped = this.#places.file === undefined && this.#places.fromEnvironment === undefined
    const first = await this.#find('new passphrase: ')
    if (first === '') throw new OperatingError('usage', 'A passphrase has at least one character.')
    if (isTyped && first !== (await this.#find('once more: ')))
      throw new OperatingError('usage', 'These are two different passphrases; no keys were made.')
    return first
  }

  async #find(prompt: string): Promise<string> {
    const { file, fromEnvironment, terminal } = this.#places
    if (file !== undefined) return firstLineOf(file)
    if (fromEnvironment !== undefined) return fromEnvironment
    if (terminal) return terminal(prompt)
    throw new OperatingError(
      'key_file_locked',
      'There is no terminal to ask for the passphrase: name it with SEALPOST_PASSPHRASE or --passphrase-file.',
    )
  }
}

/** Null unless a person sits at both ends of this program. `signal`: ends waiting for them. */
export function platformTerminal(signal: AbortSignal): PassphraseTerminal | null {
  return process.stdin.isTTY && process.stderr.isTTY ? (prompt) => typedUnseen(prompt, signal) : null
}

async function typedUnseen(prompt: string, signal: AbortSignal): Promise<string> {
  const nowhere = new Writable({ write: (_chunk, _encoding, written) => written() })
  const lines = createInterface({ input: process.stdin, output: nowhere, terminal: true })
  const interrupt = new AbortController()
  lines.once('SIGINT', () => interrupt.abort())
  process.stderr.write(prompt) // only now is nothing shown of what is typed
  try {
    return await lines.question('', { signal: AbortSignal.any([signal, interrupt.signal]) })
  } catch {
    throw new OperatingError('interrupted', 'Ctrl-C')
  } finally {
    lines.close()
    process.stderr.write('\n')
  }
}

function firstLineOf(file: string): string {
  try {
    return readFileSync(file, 'utf8').split(/\r?\n/, 1)[0]!
  } catch (cause) {
    throw new OperatingError('file_missing', `The passphrase file ${file} can't be read.`, { cause })
  }
}
