/**
 * Receives the mail of the unnamed sessions whose process is gone, for the host (docs/adr/0013-sessions.md, rule 12). A
 * new process that takes over such a session asks the host for its folder.
 */
import { setTimeout as delay } from 'node:timers/promises'
import type { Millis } from '@sealpost/std'
import type { SealpostError } from '../errors.ts'
import type { Peer } from '../peer.ts'
import { openFileStore } from '../stores/file/file-store.ts'
import type { PeerStore } from '../stores/store.ts'
import { storeOf } from './session-keys.ts'
import { borrowSlot, idleSlots, type KeyedSlot, releaseSlot, returnSlot } from './session-slots.ts'

export interface IdleSlotsPorts {
  readonly folder: string
  readonly passphrase?: string | undefined
  readonly openPeer: (slot: KeyedSlot, store: PeerStore) => Promise<Peer>
  /** Cleans the folder of a session that the broker has ended with `revoked`. */
  readonly revoked: (slot: KeyedSlot, error: SealpostError) => Promise<unknown>
  /** Returns the store for the peer of the mailbox. */
  readonly storeFor: (name: string, store: PeerStore) => PeerStore
  readonly opened: (name: string, peer: Peer) => void
  /** Forgets the waiting messages of a mailbox. */
  readonly closed: (name: string) => void
  /** Gives no messages of these mailboxes until `resume`. */
  readonly pause: (names: readonly string[]) => void
  readonly resume: (names: readonly string[]) => void
  /** Returns whether sessions hold messages of the mailbox. */
  readonly isInUse: (name: string) => boolean
}

const VACATE_TURNS = 50
const VACATE_EVERY_MS: Millis = 20

interface OpenSlot {
  readonly slot: KeyedSlot
  readonly peer: Peer
}

export class IdleSlots {
  readonly #ports: IdleSlotsPorts
  readonly #open = new Map<string, OpenSlot>()
  #scanning: Promise<void> | null = null
  #isClosed = false

  constructor(ports: IdleSlotsPorts) {
    this.#ports = ports
  }

  /** Opens the mailboxes of the sessions that have become idle. */
  scan(): Promise<void> {
    this.#scanning ??= this.#scan().finally(() => {
      this.#scanning = null
    })
    return this.#scanning
  }

  /**
   * Waits for a moment until no session holds messages of one of these slots. Closes its mailbox and returns its name,
   * or null.
   */
  async vacate(names: readonly string[]): Promise<string | null> {
    const { pause, resume, isInUse } = this.#ports
    pause(names)
    try {
      for (let turn = 0; turn < VACATE_TURNS; turn++) {
        const name = names.find((each) => !isInUse(each))
        if (name !== undefined && this.#open.has(name)) await this.#close(name)
        if (name !== undefined) return name
        await delay(VACATE_EVERY_MS)
      }
      return null
    } finally {
      resume(names)
    }
  }

  async close(): Promise<void> {
    this.#isClosed = true
    await this.#scanning?.catch(() => undefined)
    await Promise.all([...this.#open.keys()].map((name) => this.#close(name)))
  }

  async #scan(): Promise<void> {
    for (const name of await idleSlots(this.#ports.folder)) {
      const slot = this.#isClosed ? null : await borrowSlot(this.#ports, name)
      if (slot) await this.#begin(slot)
    }
  }

  async #begin(slot: KeyedSlot): Promise<void> {
    const { openPeer, storeFor, opened } = this.#ports
    const { name } = slot
    try {
      const peer = await openPeer(slot, storeFor(name, await openFileStore(storeOf(slot))))
      this.#open.set(name, { slot, peer })
      opened(name, peer)
      void peer.closed.then((error) => error && this.#ended(slot, error))
    } catch {
      await releaseSlot(slot) // a session that takes over the slot reports the error
    }
  }

  /** The broker has ended the peer, for example because the member has ended the session. */
  async #ended(slot: KeyedSlot, error: SealpostError): Promise<void> {
    if (error.code === 'revoked') await this.#ports.revoked(slot, error)
    if (this.#open.has(slot.name)) await this.#close(slot.name)
  }

  async #close(name: string): Promise<void> {
    const { slot, peer } = this.#open.get(name)!
    this.#open.delete(name)
    this.#ports.closed(name)
    await peer.close()
    await (this.#ports.isInUse(name) ? releaseSlot(slot) : returnSlot(slot))
  }
}
