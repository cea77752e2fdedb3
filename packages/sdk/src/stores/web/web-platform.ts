/** What is needed of IndexedDB and Web Locks: the standards' own surfaces, so that browsers and fakes both fit. */

export interface Request<T> {
  readonly result: T
  readonly error: unknown
  onsuccess: ((event: never) => void) | null
  onerror: ((event: never) => void) | null
}

export interface OpenRequest extends Request<Database> {
  onupgradeneeded: ((event: never) => void) | null
}

export interface DatabaseFactory {
  open(name: string, version: number): OpenRequest
}

export interface Database {
  createObjectStore(name: string): unknown
  transaction(name: string, mode: 'readonly' | 'readwrite', options: { durability: 'strict' }): Transaction
  close(): void
  onversionchange: ((event: never) => void) | null
}

export interface Transaction {
  readonly error: unknown
  objectStore(name: string): ObjectStore
  oncomplete: ((event: never) => void) | null
  onabort: ((event: never) => void) | null
}

export interface ObjectStore {
  getAll(): Request<unknown[]>
  put(record: unknown, key: string): unknown
  delete(key: string): unknown
}

export type LockHolder = (granted: unknown) => Promise<void> | void

export interface LockManager {
  request(name: string, options: { ifAvailable: true }, hold: LockHolder): Promise<unknown>
}
