/** The form in which outbox, store and application share a message to a group. */
import type { Note } from '@sealpost/identity'
import type { Priority, SendTerms } from '@sealpost/protocol'
import type { GroupId, PeerKey } from '@sealpost/std'

export interface GroupMessageTerms {
  readonly priority: Priority
  readonly ttlSeconds: number
  readonly terms?: SendTerms | undefined
  /** Sealed with the body, together with the group's id. */
  readonly note?: Note | undefined
}

/** Records messages to a group in its history: an open `State` of the group is one. */
export interface MessageRecorder {
  /**
   * @throws SealpostError `key_missing` while it has no key to seal them under; `value_too_large` if no record can
   *   hold the note
   */
  checkNote(note: Note | undefined): void
  /** Returns the history record to store with the sealed body; the ticket opens the body. */
  sealRecord(message: { readonly ticket: Uint8Array; readonly note: Note }): Uint8Array
  /** The record is stored; called once for each member that the message is stored for. */
  recorded(record: Uint8Array): void
}

/** A message to a group: its body sealed once, and the common part of its envelopes, which all refer to this object. */
export interface GroupMessage {
  readonly groupId: GroupId
  readonly epoch: number
  readonly bodyId: string
  /** The sealed body. */
  readonly bytes: Uint8Array
  /** The body of each envelope: content key and hash. */
  readonly ticket: Uint8Array
  readonly terms: GroupMessageTerms
  /** The history record, or undefined for none. */
  readonly record?: Uint8Array | undefined
  /** The addressed members; empty if an earlier process sent it. */
  readonly members: readonly PeerKey[]
  /** It was already sealed again for the current members, which happens once. */
  readonly isSecond: boolean
  /** Members whose envelopes were refused because the group changed; it is sealed again for them. */
  readonly owed: Set<PeerKey>
}

/** The group of a received message, proven by the sender's box and the owner's signature. */
export interface MessageGroup {
  readonly id: GroupId
  readonly name: string
  /** The epoch of the statement that the sender used. */
  readonly epoch: number
}
