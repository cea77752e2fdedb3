/**
 * A store in one file, for Node and Bun: `@sealpost/sdk/file-store`. Only its owner can read it; bodies of messages that
 * wait unsealed, since no session has been there yet, stand in it in clear.
 */
import type { PeerStore } from '../../store.ts'
import { nodeFiles } from './file-layer.ts'
import { Journal } from './journal.ts'
import { lockStore } from './store-lock.ts'

export { lockStore, type StoreLock } from './store-lock.ts'

/**
 * Opens the store at this path, or makes one. Its folder must exist. Whatever was kept is kept through crashes of the
 * process and losses of power.
 * @throws SealpostError `store_in_use`, `store_corrupt`, `store_failed`
 */
export async function openFileStore(path: string): Promise<PeerStore> {
  const lock = await lockStore(path)
  try {
    const journal = await Journal.open(nodeFiles, path)
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
