/** What groups need of cryptography, with the real one behind it. */
import {
  changeGroup,
  endGroup,
  foundGroup,
  type Group,
  type GroupStatement,
  openBody,
  readGroup,
  type SealedBody,
  type SigningKeys,
  sealBody,
} from '@sealpost/identity'
import type { MeshId } from '@sealpost/std'

/** Of one identity in one mesh. */
export interface GroupCrypto {
  /** A group of one's own, at its first epoch. */
  found(draft: Pick<Group, 'name' | 'members'>): GroupStatement
  /** The next epoch of a group of one's own. */
  change(group: GroupStatement, change: Partial<Pick<Group, 'name' | 'members'>>): GroupStatement
  /** The statement that ends a group of one's own. */
  end(group: GroupStatement): GroupStatement
  /** Null for what is no statement, not signed by its owner, or of another mesh. */
  read(statement: Uint8Array): GroupStatement | null
  sealBody(body: Uint8Array): SealedBody
  /** Null unless these are the very bytes that the ticket was made for. */
  openBody(bytes: Uint8Array, ticket: Uint8Array): Uint8Array | null
}

export function sodiumGroups(signing: SigningKeys, meshId: MeshId): GroupCrypto {
  return {
    found: (draft) => foundGroup(signing, { ...draft, meshId }),
    change: (group, change) => changeGroup(signing, group, change),
    end: (group) => endGroup(signing, group),
    read: (statement) => {
      const group = readGroup(statement)
      return group?.meshId === meshId ? group : null
    },
    sealBody,
    openBody,
  }
}
