/**
 * Implements a store in one file, for Node and Bun: `@sealpost/sdk/file-store`. Only the owner can read the file.
 * Messages that wait unsealed, for example before the first session, are stored unencrypted.
 */
import type { PeerStore, StoreRecord } from '../store.ts'
import { nodeFiles } from './files.ts'
import { StoreJournal, storedRecords, storeFailed } from './journal.ts'
import { lockStore } from './lock.ts'

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
    return {
      load: () => journal.load(),
      write: (changes) => journal.write(changes),
      close: () => journal.close().finally(lock.release),
    }
  } catch (error) {
    await lock.release()
    throw error
  }
}

/**
 * Reads the records of a store that another process may have open. Returns an empty list if there is no store.
 * @throws SealpostError `store_corrupt`, `store_failed`
 * @internal
 */
export async function readStoreRecords(path: string): Promise<StoreRecord[]> {
  const whole = await nodeFiles.read(path).catch((cause) => Promise.reject(storeFailed(cause)))
  return whole ? storedRecords(whole) : []
}
