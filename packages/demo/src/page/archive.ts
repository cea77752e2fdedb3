/** Stores this browser's keys, membership and conversations. */
import type { Identity, Membership, PeerKey } from '@sealpost/sdk'
import { type DBSchema, deleteDB, type IDBPDatabase, openDB } from 'idb'
import type { ChatLine, Fate, LineFile, ReceivedLine, WrittenLine } from './chat.ts'

/** Stored before the first attempt to join, because a retry needs the same identity. */
export interface StoredProfile {
  readonly identity: Identity
  readonly stage:
    | { readonly name: 'invited'; readonly invite: string }
    | { readonly name: 'member'; readonly membership: Membership }
}

export interface PeerRecord {
  readonly peer: PeerKey
  readonly name: string
  readonly readNo: number
}

interface Tables extends DBSchema {
  profile: { key: 'own'; value: StoredProfile }
  peers: { key: PeerKey; value: PeerRecord }
  lines: { key: number; value: ChatLine; indexes: { envelopeId: string } }
}

const NAME = 'sealpost demo'
const VERSION = 1
/** Flushes writes to disk: the page settles a message after storing it, and the broker then deletes its copy. */
const STRICT = { durability: 'strict' } as const

type Unnumbered<L extends ChatLine> = Omit<L, 'no'>

export class Archive {
  readonly #db: IDBPDatabase<Tables>

  private constructor(db: IDBPDatabase<Tables>) {
    this.#db = db
  }

  static async open(): Promise<Archive> {
    const db = await openDB<Tables>(NAME, VERSION, {
      upgrade: (fresh) => {
        fresh.createObjectStore('profile')
        fresh.createObjectStore('peers', { keyPath: 'peer' })
        const lines = fresh.createObjectStore('lines', { keyPath: 'no', autoIncrement: true })
        lines.createIndex('envelopeId', 'envelopeId', { unique: true })
      },
    })
    return new Archive(db)
  }

  profile(): Promise<StoredProfile | undefined> {
    return this.#db.get('profile', 'own')
  }

  async keepProfile(profile: StoredProfile): Promise<void> {
    const { store, done } = this.#db.transaction('profile', 'readwrite', STRICT)
    await Promise.all([store.put(profile, 'own'), done])
  }

  async load(): Promise<{ lines: ChatLine[]; peers: PeerRecord[] }> {
    const [lines, peers] = await Promise.all([this.#db.getAll('lines'), this.#db.getAll('peers')])
    return { lines, peers }
  }

  /** Stores a line, numbered in the order of the calls. Returns null if it is already stored. */
  async received(line: Unnumbered<ReceivedLine>): Promise<ReceivedLine | null> {
    const { store, done } = this.#db.transaction('lines', 'readwrite', STRICT)
    const isKnown = (await store.index('envelopeId').getKey(line.envelopeId)) !== undefined
    const no = isKnown ? null : await store.add(line as ChatLine)
    await done
    return no === null ? null : { ...line, no }
  }

  async written(line: Unnumbered<WrittenLine>): Promise<WrittenLine> {
    return { ...line, no: await this.#db.add('lines', line as ChatLine) }
  }

  async decided(line: WrittenLine, fate: Fate): Promise<WrittenLine> {
    const next = { ...line, fate }
    await this.#db.put('lines', next)
    return next
  }

  async filed(line: ReceivedLine, file: LineFile): Promise<ReceivedLine> {
    const { store, done } = this.#db.transaction('lines', 'readwrite', STRICT)
    const next = { ...line, file }
    await Promise.all([store.put(next), done])
    return next
  }

  async keepPeers(peers: readonly PeerRecord[]): Promise<void> {
    const { store, done } = this.#db.transaction('peers', 'readwrite')
    await Promise.all([...peers.map((peer) => store.put(peer)), done])
  }

  /** Deletes everything, so that nobody can act as this peer again. */
  async destroy(): Promise<void> {
    this.#db.close()
    await deleteDB(NAME)
  }
}
