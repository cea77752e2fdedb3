/**
 * Remembers the highest epoch that was seen of each peer's box key. A directory that hands out an older key has rolled
 * back, possibly to a stolen key, so nothing is sealed to it. Mail and spaces in one process can share this memory;
 * with a store, it outlives the process.
 *
 * Keys of the first epoch are not recorded, because no earlier epoch exists. The memory is unlimited, since a broker
 * could otherwise evict entries by inventing peers. A peer that has rotated takes about 120 bytes.
 */

import type { BoxKeys, Identity, KeyBinding } from '@sealpost/identity'
import { BINDING_MS } from '@sealpost/protocol'
import type { MeshId, Millis, PeerKey } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { RequestBroker } from '../requests/requests.ts'
import type { StoreRecord } from '../stores/records.ts'
import { loadStore, type PeerStore, type SeenStore, WriteBehindStore } from '../stores/store.ts'

const FIRST_EPOCH = 1

/** @internal */
export interface KeyEpochsPorts extends Partial<SeenStore> {
  /** This peer. Its key file, not a directory, has its newest key. */
  readonly self: PeerKey
}

export class KeyEpochs {
  readonly #self: PeerKey
  readonly #keep: SeenStore['keep']
  readonly #seen = new Map<PeerKey, number>()

  /** @internal */
  constructor({ self, records = [], keep = () => undefined }: KeyEpochsPorts) {
    this.#self = self
    this.#keep = keep
    for (const record of records)
      if (record.kind === 'keyEpoch' && record.peer !== self) this.#seen.set(record.peer, record.boxEpoch)
  }

  /**
   * Returns the highest epoch seen; 0 for a peer without a record.
   * @example const epoch = keyEpochs.of(ben)
   */
  of(peer: PeerKey): number {
    return this.#seen.get(peer) ?? 0
  }

  /**
   * Records an epoch that the peer's own signature proved. A lower epoch has no effect.
   * @example keyEpochs.raise(ben, 2)
   */
  raise(peer: PeerKey, boxEpoch: number): void {
    if (boxEpoch <= FIRST_EPOCH || peer === this.#self || boxEpoch <= this.of(peer)) return
    this.#seen.set(peer, boxEpoch)
    this.#keep(`key ${peer}`, { kind: 'keyEpoch', peer, boxEpoch })
  }
}

/** Key epochs in a separate store (`@sealpost/sdk/key-epochs`), for peers and spaces that don't share a process. */
export class StoredKeyEpochs extends KeyEpochs implements AsyncDisposable {
  readonly #store: WriteBehindStore

  /** Use `openKeyEpochs` instead. @internal */
  constructor(self: PeerKey, store: PeerStore, records: readonly StoreRecord[]) {
    const keeping = new WriteBehindStore(store)
    super({ self, records, keep: (key, record) => keeping.put(key, record) })
    this.#store = keeping
  }

  /**
   * Resolves when all epochs are stored and the store is closed. @throws SealpostError `store_failed`
   * @example await keyEpochs.close()
   */
  close(): Promise<void> {
    return this.#store.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }
}

/**
 * Opens the key epochs in a store. Pass the result to `connect`, `openPeer` or `openState` as `keyEpochs`, and close it
 * after it.
 * @throws SealpostError `store_foreign`, `store_corrupt`, `store_failed`
 * @example const keyEpochs = await openKeyEpochs(store, { meshId: place.meshId, peerKey: peer.key })
 */
export async function openKeyEpochs(
  store: PeerStore,
  owner: { readonly meshId: MeshId; readonly peerKey: PeerKey },
  formerKeys: readonly PeerKey[] = [],
): Promise<StoredKeyEpochs> {
  try {
    return new StoredKeyEpochs(owner.peerKey, store, await loadStore(store, owner, formerKeys))
  } catch (error) {
    await store.close().catch(() => undefined) // the first error is the one to report
    throw error
  }
}

/** Rotates a peer's own keys. @internal */
export interface OwnKeys {
  /**
   * Signs the next key, and opens mail with it from now on, because others may seal to it before we learn that it is
   * published.
   */
  bindNext(next: BoxKeys, notAfterMs: Millis): KeyBinding
  activate(next: BoxKeys): void
  readonly current: BoxKeys
  /** Returns a binding of another identity's box key, signed by that identity. */
  bindIdentity(next: Identity, notAfterMs: Millis): KeyBinding
  /** Returns the statement that `next` succeeds this identity. */
  rotateIdentity(next: Identity): Uint8Array
}

/** Publishes a key, or extends its binding. Repeatable if the reply is lost. @throws SealpostError `stale_epoch`, `key_refused` @internal */
export async function rotateBoxKey(ask: RequestBroker, own: OwnKeys, next: BoxKeys): Promise<void> {
  const { boxKey, boxEpoch, notAfterMs, signature } = own.bindNext(next, Date.now() + BINDING_MS)
  const { outcome } = await ask({ type: 'bind', boxKey, boxEpoch, notAfterMs, signature })
  if (outcome === 'stale_epoch')
    throw new SealpostError('stale_epoch', `The broker has a box key of this peer with epoch ${boxEpoch} or later.`)
  if (outcome !== 'done') throw new SealpostError('key_refused', 'The broker does not accept this key binding.')
  own.activate(next)
}

/** Publishes a new identity key. @throws SealpostError `key_taken`, `key_refused` @internal */
export async function rotateIdentity(ask: RequestBroker, keys: OwnKeys, next: Identity): Promise<void> {
  const { boxKey, boxEpoch, notAfterMs, signature } = keys.bindIdentity(next, Date.now() + BINDING_MS)
  const binding = { boxKey, boxEpoch, bindingNotAfterMs: notAfterMs, bindingSignature: signature }
  const { outcome } = await ask({ type: 'succeed', statement: keys.rotateIdentity(next), ...binding })
  if (outcome === 'key_taken') throw new SealpostError('key_taken', 'The new key belongs or belonged to a member.')
  if (outcome !== 'done')
    throw new SealpostError('key_refused', `The broker does not accept this identity (${outcome}).`)
}
