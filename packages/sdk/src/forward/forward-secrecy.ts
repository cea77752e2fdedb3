/**
 * Seals the messages of a peer with ratchets (`@sealpost/sdk/forward`): a key is deleted when its message is settled, so a
 * later theft of all keys opens nothing old. docs/adr/0018-ratchets.md explains the ratchets.
 */
import type { PeerKey } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import { HttpAccess } from '../http/access.ts'
import { type Peer, portsOf, type Secrecy } from '../peer.ts'
import { PeerSecrecy, type RatchetedPeer, type SecrecyPlatform } from './peer-secrecy.ts'

export type { RatchetedPeer } from './peer-secrecy.ts'

/** How long a claim of prekeys is repeated while the broker does not reply. */
const PATIENCE_MS = 10_000
const PLATFORM: SecrecyPlatform = {
  now: Date.now,
  accessTo: (place) => new HttpAccess(place, { patienceMs: PATIENCE_MS }),
}

/**
 * Returns the option `secrecy` of `connect`, `openPeer` and `openSession`. Conversations with peers that use it too have
 * forward secrecy, and never fall back. Others are sealed as without it.
 * @throws from `connect`: SealpostError `store_missing`
 * @example const peer = await connect({ ...place, store: await openFileStore('peer.store'), secrecy: forwardSecrecy() })
 */
export function forwardSecrecy(): Secrecy {
  return (peer, options, records) => {
    if (!records) throw new SealpostError('store_missing', 'Forward secrecy needs a store, which keeps the ratchets.')
    const secrecy = new PeerSecrecy(portsOf(peer), { options, records, platform: PLATFORM })
    secrecy.begin()
    all.set(peer, secrecy)
  }
}

const all = new WeakMap<Peer, PeerSecrecy>()

/**
 * Returns the peers with whom conversations have forward secrecy: none without the option `secrecy`.
 * @example const isSecret = ratchetedPeers(peer).some((known) => known.peer === ben)
 */
export const ratchetedPeers = (peer: Peer): readonly RatchetedPeer[] => all.get(peer)?.ratchetedPeers ?? []

/**
 * Deletes the ratchets with a peer, who has stopped using them. Messages to it are then sealed with its box key, unless
 * the broker has prekeys of it. Messages from it that are sealed so are accepted. Resolves when this is stored.
 * @example await forgetRatchets(peer, ben)
 */
export const forgetRatchets = async (peer: Peer, other: PeerKey): Promise<void> => all.get(peer)?.forgetPeer(other)
