/**
 * Stores the records of turns in a file, one line of JSON each. `append` resolves once the record would survive a power
 * loss. Replies wait in the file unencrypted until they are sent; only the owner can read it.
 */
import { type FileHandle, mkdir, open, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { lockStore, nodeFiles, type StoreLock } from '@sealpost/sdk/file-store'
import { OperatingError } from '@sealpost/std'
import { fileMalformed, fileUnwritable, isRecord, parseJson, readTextFile } from '../profile/profile.ts'
import { type TurnRecord, Turns } from './turns.ts'

/** The file is replaced by a snapshot after this many bytes, most of which are replies that were sent. */
const REPLACED_AFTER_BYTES = 4 * 2 ** 20

interface OpenJournal {
  readonly path: string
  readonly file: FileHandle
  readonly lock: StoreLock
}

export class TurnJournal implements AsyncDisposable {
  readonly turns: Turns
  readonly #path: string
  readonly #lock: StoreLock
  #file: FileHandle
  /** The bytes that were appended since the file was last replaced. */
  #appended = 0
  #last: Promise<void> = Promise.resolve()

  private constructor(turns: Turns, { path, file, lock }: OpenJournal) {
    this.turns = turns
    this.#path = path
    this.#file = file
    this.#lock = lock
  }

  /**
   * Opens the journal in this folder, which is created if it does not exist, and drops obsolete records.
   * @throws OperatingError `file_malformed`, `file_unwritable`; SealpostError `store_in_use`
   */
  static async open(folder: string): Promise<TurnJournal> {
    const path = join(folder, 'turns')
    await mkdir(folder, { recursive: true, mode: 0o700 }).catch((cause) => {
      throw fileUnwritable(path, cause)
    })
    const lock = await lockStore(path)
    try {
      const turns = new Turns()
      for (const record of await readRecords(path)) turns.apply(record)
      return new TurnJournal(turns, { path, lock, file: await replaceFile(path, turns) })
    } catch (error) {
      await lock.release()
      throw error
    }
  }

  /** Applies a record at once, and resolves when it is on disk. @throws OperatingError `file_unwritable` */
  append(record: TurnRecord): Promise<void> {
    this.turns.apply(record)
    this.#last = this.#last.then(() => this.#write(record))
    this.#last.catch(() => undefined) // the caller reports the error
    return this.#last
  }

  async #write(record: TurnRecord): Promise<void> {
    const line = lineOf(record)
    await appendLine(this.#file, line)
    this.#appended += line.length
    if (this.#appended < REPLACED_AFTER_BYTES) return
    const former = this.#file
    this.turns.apply(this.turns.snapshot())
    this.#file = await replaceFile(this.#path, this.turns)
    this.#appended = 0
    await former.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#last.catch(() => undefined)
    await this.#file.close().finally(() => this.#lock.release())
  }
}

const lineOf = (record: TurnRecord): string => `${JSON.stringify(record)}\n`

async function appendLine(file: FileHandle, line: string): Promise<void> {
  try {
    await file.appendFile(line)
    await file.datasync()
  } catch (cause) {
    throw new OperatingError('file_unwritable', "Can't write the journal of turns.", { cause })
  }
}

/** Reads the records. A crash can leave only the last line incomplete. @throws OperatingError `file_malformed` */
async function readRecords(path: string): Promise<TurnRecord[]> {
  const lines = ((await readTextFile(path)) ?? '').split('\n')
  return lines.flatMap((line, index) => {
    const record = recordOf(line)
    if (record) return [record]
    if (index >= lines.length - 2) return [] // the last line, whose record was not reported as stored, or the end
    throw fileMalformed(path)
  })
}

function recordOf(line: string): TurnRecord | null {
  const value = parseJson(line)
  return isRecord(value) && typeof value.kind === 'string' ? (value as unknown as TurnRecord) : null
}

/** Replaces the file by one that contains only a snapshot, and leaves it open for more. */
async function replaceFile(path: string, turns: Turns): Promise<FileHandle> {
  const fresh = `${path}.new`
  try {
    const file = await open(fresh, 'w', 0o600)
    await file.writeFile(lineOf(turns.snapshot()))
    await file.sync()
    await rename(fresh, path)
    await nodeFiles.syncFolder(path)
    return file
  } catch (cause) {
    throw fileUnwritable(path, cause)
  }
}
