/** A message to a group: its body sealed once, and what all of its envelopes have in common. */
import type { GroupStatement, Note } from '@sealpost/identity'
import type { Priority, SendTerms } from '@sealpost/protocol'
import type { GroupId, PeerKey } from '@sealpost/std'

export interface GroupMessageTerms {
  readonly priority: Priority
  readonly ttlSeconds: number
  readonly terms?: SendTerms | undefined
  /** Sealed with the body, beside which group it is for. */
  readonly note?: Note | undefined
}

/** Has messages to a group kept in its history, and can read them: an open `State` of the group is one. */
export interface MessageRecorder {
  /** @throws SealpostError `key_missing` while it has no key to seal them under; `value_too_large` when no record holds the note */
  checkNote(note: Note | undefined): void
  /** What the history is to keep beside the sealed body, which the ticket opens. */
  sealRecord(said: { readonly ticket: Uint8Array; readonly note: Note }): Uint8Array
  /** It is in the history, which is told for each member that its message is stored for. */
  recorded(record: Uint8Array): void
}

/** Each envelope of it refers to this object. */
export interface GroupMessage {
  readonly groupId: GroupId
  readonly epoch: number
  readonly bodyId: string
  /** The sealed body. */
  readonly bytes: Uint8Array
  /** The body of each envelope: content key and hash. */
  readonly ticket: Uint8Array
  readonly terms: GroupMessageTerms
  /** What the history is to keep of it; undefined: nothing. */
  readonly record?: Uint8Array | undefined
  /** To whom it was addressed; empty for one of a former life. */
  readonly members: readonly PeerKey[]
  /** It was sealed again for the current members; a second time it is not. */
  readonly isSecond: boolean
  /** Their envelopes were refused since the group has changed: they are to get it sealed again. */
  readonly owed: Set<PeerKey>
}

/** As a recipient sees it: proven by the sender's box and the owner's signature. */
export interface MessageGroup {
  readonly id: GroupId
  readonly name: string
  /** By whose members the sender addressed it. */
  readonly epoch: number
}

export function isGroupMember(group: GroupStatement, peer: PeerKey): boolean {
  const members = memberSets.get(group) ?? new Set(group.members)
  memberSets.set(group, members)
  return members.has(peer)
}

/** It is asked for each message that comes. */
const memberSets = new WeakMap<GroupStatement, ReadonlySet<PeerKey>>()
