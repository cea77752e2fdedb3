/**
 * Implements a store in one file, for Node and Bun: `@sealpost/sdk/file-store`. Only the owner can read the file.
 * Messages that wait unsealed, for example before the first session, are stored unencrypted.
 */
import type { StoreRecord } from '../records.ts'
import type { PeerStore } from '../store.ts'
import { nodeFiles } from './files.ts'
import { readStore, StoreJournal } from './journal.ts'
import { lockStore } from './lock.ts'
import { keysPathOf, SecretSegments } from './secret-segments.ts'

export { nodeFiles } from './files.ts'
export { isLockHeld, lockStore, lockStoreInTurn, processStartedAt, type StoreLock, tryLockStore } from './lock.ts'

/**
 * Opens the store at this path, or creates one. Its folder must exist. Stored data survives crashes of the process and
 * power loss.
 * @throws SealpostError `store_in_use`, `store_corrupt`, `store_failed`
 * @example const store = await openFileStore('peer.store')
 */
export async function openFileStore(path: string): Promise<PeerStore> {
  const lock = await lockStore(path)
  try {
    const journal = await StoreJournal.open(nodeFiles, path)
    const erasure = new Erasure(journal)
    return {
      load: () => journal.load(),
      write: async (changes) => {
        await journal.write(changes)
        erasure.request()
      },
      close: () => journal.close().finally(lock.release),
    }
  } catch (error) {
    await lock.release()
    throw error
  }
}

const READS_MAX = 5

/**
 * Reads the records of a store that another process may have open. Returns an empty list if there is no store.
 * @throws SealpostError `store_corrupt`, `store_failed`
 * @internal
 */
export async function readStoreRecords(path: string): Promise<StoreRecord[]> {
  for (let read = 1; ; read++) {
    try {
      const { changes } = await readStore(nodeFiles, path)
      return changes.flatMap(({ record }) => record ?? [])
    } catch (error) {
      if (read === READS_MAX) throw error // otherwise, the other process may have changed its keys between two reads
    }
  }
}

/**
 * Deletes a store that no process uses. Its secret records can't be read afterwards. If the process ends in between, the
 * next store at this path erases them.
 * @internal
 */
export async function deleteFileStore(path: string): Promise<void> {
  await nodeFiles.remove(path)
  const segments = await SecretSegments.open(nodeFiles, keysPathOf(path))
  await segments.destroyFormer()
  await segments.close()
  await nodeFiles.remove(keysPathOf(path))
}

const ERASE_EVERY_MS = 1_000

/** Erases the former versions of secret records soon after a batch, and at most once per second. */
class Erasure {
  readonly #journal: StoreJournal
  #timer: NodeJS.Timeout | null = null
  #nextAtMs = 0

  constructor(journal: StoreJournal) {
    this.#journal = journal
  }

  request(): void {
    if (this.#timer || !this.#journal.hasObsoleteSecrets) return
    this.#timer = setTimeout(() => this.#erase(), Math.max(0, this.#nextAtMs - performance.now()))
    this.#timer.unref() // if the process ends first, the next one erases them when it opens the store
  }

  async #erase(): Promise<void> {
    try {
      await this.#journal.eraseObsoleteSecrets()
    } catch {
      return // the next write reports the failure
    }
    this.#nextAtMs = performance.now() + ERASE_EVERY_MS
    this.#timer = null
    this.request()
  }
}
