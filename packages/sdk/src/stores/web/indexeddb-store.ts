/** Stores records in the browser's database: `@sealpost/sdk/indexeddb-store`. A Web Lock keeps other tabs out. */
import { SealpostError } from '../../errors.ts'
import type { StoreRecord } from '../records.ts'
import type { PeerStore } from '../store.ts'

export interface IndexedDbOptions {
  /** Default: the browser's implementation. */
  readonly indexedDB?: IdbFactory
  /** Default: the browser's implementation, which is only available in secure contexts. */
  readonly locks?: LockManager
}

const RECORDS = 'records'
const VERSION = 1

/**
 * Opens the database with this name, or creates one. Stored data survives the tab, the browser and, as far as the
 * browser honours `strict`, a power loss. When disk space is low, a browser may still delete the whole database, unless
 * `navigator.storage.persist()` was granted.
 * @throws SealpostError `store_in_use` if another tab has it open; `store_failed` if the browser has no database or
 * locks
 * @example const store = await openIndexedDbStore('peer')
 */
export async function openIndexedDbStore(name: string, options: IndexedDbOptions = {}): Promise<PeerStore> {
  const { indexedDB = platform().indexedDB, locks = platform().navigator?.locks } = options
  if (!indexedDB || !locks)
    throw new SealpostError('store_failed', 'IndexedDB or Web Locks are unavailable. They need a secure context.')
  const unlock = await lock(locks, `sealpost ${name}`)
  try {
    return storeOn(await openDatabase(indexedDB, name), unlock)
  } catch (error) {
    unlock()
    throw error
  }
}

function storeOn(database: IdbDatabase, unlock: () => void): PeerStore {
  database.onversionchange = () => database.close() // Another tab deletes the database. Later writes fail.
  return {
    load: async () => {
      const request = begin(database, 'readonly').objectStore(RECORDS).getAll()
      return answerOf(request) as Promise<StoreRecord[]>
    },
    write: async (changes) => {
      const transaction = begin(database, 'readwrite')
      const records = transaction.objectStore(RECORDS)
      for (const { key, record } of changes) {
        if (record) records.put(compact(record), key)
        else records.delete(key)
      }
      await committed(transaction)
    },
    close: async () => {
      database.close()
      unlock()
    },
  }
}

/** Copies views, because the database would store the whole buffer of each. */
function compact(record: StoreRecord): StoreRecord {
  if (!('bytes' in record) || record.bytes.length === record.bytes.buffer.byteLength) return record
  return { ...record, bytes: record.bytes.slice() }
}

function begin(database: IdbDatabase, mode: 'readonly' | 'readwrite'): IdbTransaction {
  try {
    return database.transaction(RECORDS, mode, { durability: 'strict' })
  } catch (cause) {
    throw failed(cause)
  }
}

function lock(locks: LockManager, name: string): Promise<() => void> {
  return new Promise((resolve, reject) => {
    const hold: LockHolder = (granted) => {
      if (!granted) return reject(new SealpostError('store_in_use', 'Another tab or worker has this store open.'))
      return new Promise<void>((release) => resolve(release))
    }
    locks.request(name, { ifAvailable: true }, hold).catch((cause) => reject(failed(cause)))
  })
}

function openDatabase(indexedDB: IdbFactory, name: string): Promise<IdbDatabase> {
  const request = indexedDB.open(name, VERSION)
  request.onupgradeneeded = () => request.result.createObjectStore(RECORDS)
  return answerOf(request)
}

function answerOf<T>(request: IdbRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result)
    request.onerror = () => reject(failed(request.error))
  })
}

function committed(transaction: IdbTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve()
    transaction.onabort = () => reject(failed(transaction.error))
  })
}

function failed(cause: unknown): SealpostError {
  return new SealpostError('store_failed', 'The database of this store refused the request.', { cause })
}

interface Platform {
  readonly indexedDB?: IdbFactory
  readonly navigator?: { readonly locks?: LockManager }
}

const platform = (): Platform => globalThis as Platform

/** The subset of the IndexedDB and Web Locks standards that the store uses. Browsers and fakes implement it. */
export interface IdbRequest<T> {
  readonly result: T
  readonly error: unknown
  onsuccess: ((event: never) => void) | null
  onerror: ((event: never) => void) | null
}

export interface IdbOpenRequest extends IdbRequest<IdbDatabase> {
  onupgradeneeded: ((event: never) => void) | null
}

export interface IdbFactory {
  open(name: string, version: number): IdbOpenRequest
}

export interface IdbDatabase {
  createObjectStore(name: string): unknown
  transaction(name: string, mode: 'readonly' | 'readwrite', options: { durability: 'strict' }): IdbTransaction
  close(): void
  onversionchange: ((event: never) => void) | null
}

export interface IdbTransaction {
  readonly error: unknown
  objectStore(name: string): IdbObjectStore
  oncomplete: ((event: never) => void) | null
  onabort: ((event: never) => void) | null
}

export interface IdbObjectStore {
  getAll(): IdbRequest<unknown[]>
  put(record: unknown, key: string): unknown
  delete(key: string): unknown
}

export type LockHolder = (granted: unknown) => Promise<void> | void

export interface LockManager {
  request(name: string, options: { ifAvailable: true }, hold: LockHolder): Promise<unknown>
}
