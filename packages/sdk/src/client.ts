/**
 * Contains the entry point: `connect` returns a `Peer` that sends, receives and reconnects. Runs in browsers, Node and
 * Bun.
 */
import { ready } from '@sealpost/identity'
import { SealpostError } from './errors.ts'
import { sodiumCrypto } from './keys/sodium-crypto.ts'
import { type ConnectOptions, Peer } from './peer.ts'
import { platformWebSocket } from './ports.ts'
import { loadStore } from './stores/store.ts'

/**
 * Opens a peer that can send while it is offline. Resolves once its store is read, even if the broker is unreachable.
 * `closed` and the events report whether the broker accepts the peer.
 * @throws SealpostError `store_foreign`, `store_corrupt`, `store_failed`
 * @example const peer = await openPeer({ ...place, store: await openFileStore('peer.store') })
 */
export async function openPeer(options: ConnectOptions): Promise<Peer> {
  const peer = await newPeer(options)
  void peer.start().catch(() => undefined) // `closed` reports the error
  return peer
}

async function newPeer(options: ConnectOptions): Promise<Peer> {
  const { store, identity, meshId, formerKeys } = options
  try {
    const webSocket = options.webSocket ?? platformWebSocket()
    await ready()
    const owner = { meshId, peerKey: identity.signing.publicKey }
    const loaded = store ? { store, records: await loadStore(store, owner, formerKeys) } : null
    const peer = new Peer({ ...options, webSocket }, sodiumCrypto(options), loaded)
    options.secrecy?.(peer, options, loaded?.records)
    return peer
  } catch (error) {
    await store?.close().catch(() => undefined) // the first error is the one to report
    throw error
  }
}

/**
 * Opens a peer and resolves when its first session begins. Until then, the peer keeps dialling.
 * @throws SealpostError with a terminal code (`auth_failed`, `revoked`, `wrong_broker`, …), `certificate_untrusted`,
 * `aborted`, and the errors of `openPeer`
 * @example const peer = await connect({ ...membership, identity })
 */
export async function connect(options: ConnectOptions): Promise<Peer> {
  const peer = await newPeer(options)
  const { signal } = options
  const abort = () => void peer.close()
  signal?.addEventListener('abort', abort)
  try {
    if (signal?.aborted) throw aborted(signal.reason)
    await peer.start()
    return peer
  } catch (error) {
    if ((error as SealpostError).code === 'certificate_untrusted') await peer.close() // otherwise the peer would keep dialling
    throw signal?.aborted ? aborted(signal.reason) : error
  } finally {
    signal?.removeEventListener('abort', abort)
  }
}

function aborted(cause: unknown): SealpostError {
  return new SealpostError('aborted', 'Connecting was aborted.', { cause })
}
