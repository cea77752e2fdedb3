/** Key epochs in a store of their own: `@sealpost/sdk/key-epochs`, for peers and spaces that share no process. */
import type { MeshId, PeerKey } from '@sealpost/std'
import { KeepingStore } from './keeping-store.ts'
import { KeyEpochs } from './key-epochs.ts'
import { loadStore, type PeerStore, type StoreRecord } from './store.ts'

export class StoredKeyEpochs extends KeyEpochs implements AsyncDisposable {
  readonly #store: KeepingStore

  /** Use `openKeyEpochs`. */
  constructor(self: PeerKey, store: PeerStore, records: readonly StoreRecord[]) {
    const keeping = new KeepingStore(store)
    super({ self, records, keep: (key, record) => keeping.put(key, record) })
    this.#store = keeping
  }

  /** Resolves when all epochs are kept and the store is closed. @throws SealpostError `store_failed` */
  close(): Promise<void> {
    return this.#store.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }
}

/**
 * Give the result to `connect`, `openPeer` or `openState` as `keyEpochs`, and close it after them.
 * @throws SealpostError `store_foreign`, `store_corrupt`, `store_failed`
 */
export async function openKeyEpochs(
  store: PeerStore,
  owner: { readonly meshId: MeshId; readonly peerKey: PeerKey },
  formerKeys: readonly PeerKey[] = [],
): Promise<StoredKeyEpochs> {
  try {
    return new StoredKeyEpochs(owner.peerKey, store, await loadStore(store, owner, formerKeys))
  } catch (error) {
    await store.close().catch(() => undefined) // the first failure is the one to report
    throw error
  }
}
