/**
 * Stores the records of turns in a file, one line of JSON each. All workers of a profile share the file, so that each
 * knows the turns of the others, also of those that were killed. A worker appends a record under a lock, after it has
 * read what the others have appended. Replies wait in the file unencrypted until they are sent; only the owner can read
 * it.
 */
import { randomUUID } from 'node:crypto'
import { type FileHandle, mkdir, open, readdir, rename, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { isLockHeld, lockStore, lockStoreInTurn, nodeFiles, type StoreLock } from '@sealpost/sdk/file-store'
import { type Millis, OperatingError } from '@sealpost/std'
import { fileMalformed, fileUnwritable, isRecord, parseJson } from '../profile/profile.ts'
import { type TurnRecord, Turns } from './turns.ts'

/** The file is replaced by a snapshot after this many bytes, most of which are replies that were sent. */
const REPLACED_AFTER_BYTES = 4 * 2 ** 20
/** How long a worker waits for the others, each of which needs the file for a moment. */
const LOCKED_WITHIN_MS: Millis = 60_000
/** The beginning of the names of the workers' locks. */
const WORKER = 'worker-'

/** Appends a record, and resolves when it would survive a power loss. */
export type AppendRecord = (record: TurnRecord) => Promise<void>

interface JournalParts {
  readonly folder: string
  readonly worker: string
  readonly lock: StoreLock
}

export class TurnJournal implements AsyncDisposable {
  readonly turns = new Turns()
  /** Identifies this worker in the records. */
  readonly worker: string
  readonly #folder: string
  /** Shows the other workers that this one runs. */
  readonly #lock: StoreLock
  #file: OpenFile | null = null
  #last: Promise<unknown> = Promise.resolve()

  private constructor({ folder, worker, lock }: JournalParts) {
    this.#folder = folder
    this.worker = worker
    this.#lock = lock
  }

  /**
   * Opens the journal in this folder, which is created if it does not exist, and drops obsolete records.
   * @throws OperatingError `file_malformed`, `file_unwritable`; SealpostError `store_in_use`, `store_failed`
   */
  static async open(folder: string): Promise<TurnJournal> {
    await mkdir(folder, { recursive: true, mode: 0o700 }).catch((cause) => {
      throw fileUnwritable(folder, cause)
    })
    const worker = randomUUID()
    const journal = new TurnJournal({ folder, worker, lock: await lockStore(join(folder, `${WORKER}${worker}`)) })
    try {
      await journal.#inTurn(async () => {
        await journal.#readNew()
        await journal.#replace()
        await removeLocksOfTheDead(folder)
      })
      return journal
    } catch (error) {
      await journal[Symbol.asyncDispose]()
      throw error
    }
  }

  /**
   * Reads what other workers have appended.
   * @throws OperatingError `file_malformed`, `file_unwritable`; SealpostError `store_in_use`
   */
  async refresh(): Promise<void> {
    await this.#last.catch(() => undefined)
    if (!(await this.#file?.isCurrent(this.#path))) await this.exclusive(async () => undefined)
  }

  /** Appends a record, and resolves when it is on disk. @throws the errors of `refresh` */
  append(record: TurnRecord): Promise<void> {
    return this.exclusive((append) => append(record))
  }

  /** Calls the function with all records applied, while no other worker can append any. @throws the errors of `refresh` */
  exclusive<T>(step: (append: AppendRecord) => Promise<T>): Promise<T> {
    const result = this.#last.then(() => this.#inTurn(() => this.#afterReading(step)))
    this.#last = result.catch(() => undefined) // the caller reports the error
    return result
  }

  /** Returns whether a worker runs. Records of earlier versions name no worker. */
  async isRunning(worker: string | undefined): Promise<boolean> {
    return worker !== undefined && (worker === this.worker || isLockHeld(join(this.#folder, `${WORKER}${worker}`)))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#last
    await this.#file?.close()
    await this.#lock.release()
  }

  get #path(): string {
    return join(this.#folder, 'turns')
  }

  async #inTurn<T>(step: () => Promise<T>): Promise<T> {
    const lock = await lockPatiently(this.#path)
    try {
      return await step()
    } finally {
      await lock.release()
    }
  }

  async #afterReading<T>(step: (append: AppendRecord) => Promise<T>): Promise<T> {
    await this.#readNew()
    const result = await step((record) => this.#write(record))
    if (this.#file!.size >= this.#file!.sizeAtFirst + REPLACED_AFTER_BYTES) await this.#replace()
    return result
  }

  async #readNew(): Promise<void> {
    if (!(await this.#file?.isAt(this.#path))) {
      await this.#file?.close()
      this.#file = await OpenFile.at(this.#path)
      this.turns.clear()
    }
    for (const record of await this.#file!.readRecords()) this.turns.apply(record)
  }

  async #write(record: TurnRecord): Promise<void> {
    await this.#file!.append(record)
    this.turns.apply(record)
  }

  /** Replaces the file by one that contains only a snapshot. The other workers then read that one. */
  async #replace(): Promise<void> {
    const former = this.#file
    this.turns.apply(this.turns.snapshot())
    this.#file = await OpenFile.replace(this.#path, this.turns)
    await former?.close()
  }
}

/** The file as one worker has read it. */
class OpenFile {
  readonly #file: FileHandle
  readonly #path: string
  readonly #inode: number
  /** The length of the complete lines that were read or written. */
  size: number
  /** The length when the file was opened. */
  sizeAtFirst: number

  private constructor(file: FileHandle, { path, inode, size }: { path: string; inode: number; size: number }) {
    this.#file = file
    this.#path = path
    this.#inode = inode
    this.size = size
    this.sizeAtFirst = size
  }

  /** Opens the file, which is created if it does not exist. */
  static async at(path: string): Promise<OpenFile> {
    try {
      const file = await open(path, 'a+', 0o600)
      const opened = new OpenFile(file, { path, inode: (await file.stat()).ino, size: 0 })
      return opened
    } catch (cause) {
      throw fileUnwritable(path, cause)
    }
  }

  static async replace(path: string, turns: Turns): Promise<OpenFile> {
    const fresh = `${path}.new`
    try {
      await rm(fresh, { force: true })
      const file = await open(fresh, 'a+', 0o600)
      const line = lineOf(turns.snapshot())
      await file.appendFile(line)
      await file.sync()
      await rename(fresh, path)
      await nodeFiles.syncFolder(path)
      return new OpenFile(file, { path, inode: (await file.stat()).ino, size: Buffer.byteLength(line) })
    } catch (cause) {
      throw fileUnwritable(path, cause)
    }
  }

  /** Returns whether this is still the file at the path. */
  async isAt(path: string): Promise<boolean> {
    return (await infoOf(path))?.ino === this.#inode
  }

  /** Returns whether the file was neither replaced nor extended. */
  async isCurrent(path: string): Promise<boolean> {
    const info = await infoOf(path)
    return info?.ino === this.#inode && info.size === this.size
  }

  /**
   * Returns the records that were not read yet. Call under the lock. Removes an incomplete last line, which a crash has
   * left and whose record was not reported as stored. @throws OperatingError `file_malformed`
   */
  async readRecords(): Promise<TurnRecord[]> {
    const { size } = await this.#file.stat()
    if (size === this.size) return []
    const bytes = Buffer.alloc(size - this.size)
    await this.#file.read(bytes, 0, bytes.length, this.size)
    const complete = bytes.subarray(0, bytes.lastIndexOf('\n') + 1)
    if (complete.length < bytes.length) await this.#file.truncate(this.size + complete.length)
    const records = complete
      .toString()
      .split('\n')
      .slice(0, -1)
      .map((line) => recordOf(line) ?? this.#refuse())
    if (this.size === 0) this.sizeAtFirst = complete.length
    this.size += complete.length
    return records
  }

  async append(record: TurnRecord): Promise<void> {
    const line = lineOf(record)
    try {
      await this.#file.appendFile(line)
      await this.#file.datasync()
      this.size += Buffer.byteLength(line)
    } catch (cause) {
      throw new OperatingError('file_unwritable', "Can't write the journal of turns.", { cause })
    }
  }

  close(): Promise<void> {
    return this.#file.close()
  }

  #refuse(): never {
    throw fileMalformed(this.#path)
  }
}

const infoOf = (path: string) => stat(path).catch(() => null)

const lineOf = (record: TurnRecord): string => `${JSON.stringify(record)}\n`

function recordOf(line: string): TurnRecord | null {
  const value = parseJson(line)
  return isRecord(value) && typeof value.kind === 'string' ? (value as unknown as TurnRecord) : null
}

async function lockPatiently(path: string): Promise<StoreLock> {
  for (const lateMs = performance.now() + LOCKED_WITHIN_MS; ; ) {
    try {
      return await lockStoreInTurn(path)
    } catch (error) {
      const isBusy = (error as { code?: string }).code === 'store_in_use'
      if (!isBusy || performance.now() > lateMs) throw error
    }
  }
}

async function removeLocksOfTheDead(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    const worker = /^(worker-[0-9a-f-]{36})\.lock-/.exec(name)?.[1]
    if (worker !== undefined && !(await isLockHeld(join(folder, worker)))) await rm(join(folder, name), { force: true })
  }
}
