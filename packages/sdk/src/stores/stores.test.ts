import { mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { IDBFactory } from 'fake-indexeddb'
import { storeConformance } from '../test/conformance-store.ts'
import { TestingLocks } from '../test/web-locks.ts'
import { openFileStore } from './file/file-store.ts'
import { MemoryStore } from './memory-store.ts'
import type { PeerStore } from './store.ts'
import { type IdbFactory, openIndexedDbStore } from './web/indexeddb-store.ts'

storeConformance({ name: 'memory', isDurable: false }, async () => {
  let store = new MemoryStore()
  return {
    open: async () => {
      store = new MemoryStore(store.records)
      return store
    },
    crash: async () => undefined,
    end: async () => undefined,
  }
})

storeConformance({ name: 'file', isDurable: true }, async () => {
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-test-'))
  const opened: PeerStore[] = []
  return {
    open: async () => {
      const store = await openFileStore(join(folder, 'peer.store'))
      opened.push(store)
      return store
    },
    // This process created the store's locks and is alive, so they do not count as stale; remove them.
    crash: async () => {
      for (const name of await readdir(folder)) if (name.includes('.lock-')) await rm(join(folder, name))
    },
    end: async () => {
      for (const store of opened) await store.close() // close the files that crashed stores still have open
      await rm(folder, { recursive: true })
    },
  }
})

storeConformance({ name: 'IndexedDB', isDurable: true }, async () => {
  const indexedDB = new IDBFactory() as unknown as IdbFactory
  const locks = new TestingLocks()
  return {
    open: () => openIndexedDbStore('peer', { indexedDB, locks }),
    crash: async () => locks.crash(),
    end: async () => undefined,
  }
})
