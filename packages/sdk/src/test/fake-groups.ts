/**
 * Implements groups without secrets, for tests and the simulator. A statement is JSON that contains a key, which is
 * trusted.
 */
import type { GroupStatement } from '@sealpost/identity'
import { GROUP_EPOCH_LAST, type GroupId, type MeshId, type PeerKey, toHex } from '@sealpost/std'
import type { GroupCrypto } from '../ports.ts'

const TICKET_BYTES = 64
const OVERHEAD_BYTES = 40
const encoder = new TextEncoder()
const decoder = new TextDecoder()

interface FakeOwner {
  create(draft: Pick<GroupStatement, 'name' | 'members'>): GroupStatement
  change(group: GroupStatement, change: Partial<GroupStatement>): GroupStatement
  end(group: GroupStatement): GroupStatement
}

/** Returns the operations. `random` returns the requested number of bytes, and `hash` returns 32 bytes. */
export function fakeGroups(
  { meshId, peerKey }: { meshId: MeshId; peerKey: PeerKey },
  random: (length: number) => Uint8Array,
  hash: (bytes: Uint8Array) => Uint8Array,
): GroupCrypto & FakeOwner {
  const written = ({ bytes: _, ...group }: GroupStatement): GroupStatement => {
    const whole = { ...group, members: [...new Set(group.members)].sort() }
    return { ...whole, bytes: encoder.encode(JSON.stringify(whole)) }
  }
  const NONE = new Uint8Array()
  return {
    create: ({ name, members }) => {
      const [nonce, groupId] = [toHex(random(16)), toHex(random(16)) as GroupId]
      return written({ meshId, groupId, epoch: 1, owner: peerKey, nonce, name, members, bytes: NONE })
    },
    change: (group, change) => written({ ...group, ...change, epoch: group.epoch + 1 }),
    end: (group) => written({ ...group, members: [], epoch: GROUP_EPOCH_LAST }),
    read: (bytes) => {
      const group = parsed(bytes)
      return group?.meshId === meshId ? { ...group, bytes } : null
    },
    sealBody: (body) => {
      const bytes = new Uint8Array(OVERHEAD_BYTES + body.length)
      bytes.set(random(OVERHEAD_BYTES))
      bytes.set(body, OVERHEAD_BYTES)
      const ticket = new Uint8Array(TICKET_BYTES)
      ticket.set(hash(bytes), TICKET_BYTES / 2)
      return { bytes, bodyId: toHex(hash(bytes)), ticket }
    },
    openBody: (bytes, ticket) =>
      toHex(hash(bytes)) === toHex(ticket.subarray(TICKET_BYTES / 2)) ? bytes.slice(OVERHEAD_BYTES) : null,
  }
}

function parsed(bytes: Uint8Array): Omit<GroupStatement, 'bytes'> | null {
  try {
    return JSON.parse(decoder.decode(bytes))
  } catch {
    return null
  }
}
