/** Finds the users of peers that have no name of their own, because they may be sessions or devices. */
import type { PeerKey } from '@sealpost/sdk'
import type { SenderUser } from '@sealpost/sdk/users'
import type { Contacts } from '../profile/contacts.ts'
import { callPeer } from '../session/peer-session.ts'
import type { Shell } from '../shell.ts'

export type OwnerOf = (key: PeerKey) => SenderUser

/** Asks the directory about each peer without a name. Without a reply, each peer is its own user. */
export async function findOwners(shell: Shell, contacts: Contacts, peers: readonly PeerKey[]): Promise<OwnerOf> {
  const nameless = [...new Set(peers)].filter((key) => contacts.nameOf(key) === undefined)
  const owners = new Map<PeerKey, SenderUser>()
  if (nameless.length > 0) {
    const found = await callPeer(shell, { method: 'owners', params: nameless }).catch(() => [])
    for (const [i, owner] of found.entries()) owners.set(nameless[i]!, owner)
  }
  return (key) => owners.get(key) ?? { user: key, deviceLabel: null }
}
