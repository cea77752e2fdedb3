/**
 * One group in each mesh, with all peers and no changes; and bodies without cryptography, which contain the number of
 * what was sealed, like envelopes. A direct body names one send, a group body one for each of the others.
 */
import type { GroupEntry } from '@sealpost/core'
import type { GroupCrypto } from '@sealpost/sdk'
import type { GroupId, MeshId, PeerKey } from '@sealpost/std'

/** The same id in each mesh: code that does not check the mesh finds the wrong group. */
export const GROUP_ID = '9'.repeat(32) as GroupId

const SEALED_BYTES = 48
const TICKET_BYTES = 64
const encoder = new TextEncoder()
const decoder = new TextDecoder()
const unused = (): never => {
  throw new Error('no peer of a world creates, changes or ends a group')
}

export function groupOf(meshId: MeshId, members: readonly PeerKey[]): GroupEntry {
  const group = { meshId, groupId: GROUP_ID, epoch: 1, owner: members[0], nonce: '', name: 'all', members }
  return { groupId: GROUP_ID, epoch: 1, statement: encoder.encode(JSON.stringify(group)) }
}

/** `bodies`: everything that was sealed for groups in one world. */
export function vaultGroups(bodies: Uint8Array[], meshId: MeshId): GroupCrypto {
  return {
    create: unused,
    change: unused,
    end: unused,
    read: (bytes) => {
      const group = JSON.parse(decoder.decode(bytes))
      return group.meshId === meshId ? { ...group, bytes } : null
    },
    sealBody: (body) => {
      const number = bodies.push(body.slice())
      const numbered = (length: number) => {
        const bytes = new Uint8Array(length)
        new DataView(bytes.buffer).setUint32(0, number)
        return bytes
      }
      const bodyId = number.toString(16).padStart(64, '0')
      return { bodyId, bytes: numbered(SEALED_BYTES), ticket: numbered(TICKET_BYTES) }
    },
    openBody: (bytes, ticket) => (numberOf(bytes) === numberOf(ticket) ? bodyOf(bodies, ticket).slice() : null),
  }
}

export const bodyOf = (bodies: readonly Uint8Array[], ticket: Uint8Array): Uint8Array => bodies[numberOf(ticket) - 1]!

const numberOf = (bytes: Uint8Array): number => new DataView(bytes.buffer, bytes.byteOffset).getUint32(0)

export const textOfSends = (numbers: readonly number[]): Uint8Array => encoder.encode(numbers.join(' '))

/** Returns the send that this body contains for one of `others`, to whom its sender wrote in this order. */
export function sendOf(body: Uint8Array, others: readonly PeerKey[], to: PeerKey): number {
  const numbers = decoder.decode(body).split(' ').map(Number)
  return numbers.length === 1 ? numbers[0]! : numbers[others.indexOf(to)]!
}
