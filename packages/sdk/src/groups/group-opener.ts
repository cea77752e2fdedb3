/**
 * The second half of opening mail of a group, or for every device of a user: the envelope held the ticket to a body that came beside it. Which group it
 * is for stands in the box; whether its sender belongs to that group, the owner's statement says.
 */
import type { Note } from '@sealpost/identity'
import type { PeerKey } from '@sealpost/std'
import type { OpenedEnvelope, OpenedMessage, PushedDelivery } from '../inbox/message.ts'
import type { GroupCrypto } from '../ports.ts'
import { isGroupMember } from './group-message.ts'
import type { GroupStatements } from './statement-cache.ts'

export interface GroupOpenerPorts {
  readonly crypto: Pick<GroupCrypto, 'openBody'>
  readonly statements: GroupStatements
  /** The identity key of now, of one that others may have followed. */
  readonly current: (peer: PeerKey) => PeerKey
  /** What waits of this sender may go on. */
  readonly unlock: (sender: PeerKey) => void
}

export class GroupOpener {
  readonly #ports: GroupOpenerPorts
  /** Read again since they came. */
  readonly #rechecked = new WeakSet<PushedDelivery>()

  constructor(ports: GroupOpenerPorts) {
    this.#ports = ports
  }

  /** `asked`: the group's statement was asked for, then `unlock` follows. `later`: the broker has none that is new enough. */
  open(delivery: PushedDelivery, opened: OpenedEnvelope): OpenedMessage | { flaw: string } | 'asked' | 'later' {
    const { note, header, headerHash } = opened
    if (note?.pool !== undefined) return this.#openForPool(delivery, opened, note)
    if (!note || (note.group === undefined && note.user === undefined))
      return delivery.body ? { flaw: 'no_group' } : opened
    if (!delivery.body) return { flaw: 'no_body' }
    const body = this.#ports.crypto.openBody(delivery.body, opened.body)
    if (!body) return { flaw: 'body_swapped' }
    if (note.group === undefined) return { ok: true, header, headerHash, note, body }
    const group = this.#ports.statements.find(note.group)
    if (!group || group.epoch < note.groupEpoch!) return this.#ask(delivery)
    // Of an older epoch nobody can tell any more who belonged to it.
    const isMember =
      isGroupMember(group, delivery.sender) || group.members.some((key) => this.#ports.current(key) === delivery.sender)
    if (group.epoch === note.groupEpoch && !isMember) return { flaw: 'not_in_group' }
    const among = { id: note.group, name: group.name, epoch: note.groupEpoch! }
    return { ok: true, header, headerHash, note, body, group: among }
  }

  /** Whoever knows a pool may send to it: the sender's box is all there is to believe. */
  #openForPool({ body }: PushedDelivery, opened: OpenedEnvelope, note: Note): OpenedMessage | { flaw: string } {
    if (!body) return { flaw: 'no_body' }
    if (note.group !== undefined || note.user !== undefined) return { flaw: 'two_audiences' }
    const text = this.#ports.crypto.openBody(body, opened.body)
    return text ? { ...opened, body: text, pool: { id: note.pool!, epoch: note.poolEpoch! } } : { flaw: 'body_swapped' }
  }

  #ask(delivery: PushedDelivery): 'asked' | 'later' {
    if (this.#rechecked.has(delivery)) return 'later'
    this.#rechecked.add(delivery)
    this.#ports.statements.refresh((error) => error ?? this.#ports.unlock(delivery.sender))
    return 'asked'
  }
}
