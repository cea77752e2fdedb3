/**
 * The groups of the mesh. Nothing is asked before they are used for the first time; from then on all of them are, in each
 * session anew.
 */
import { type GroupStatement, isGroupOver } from '@sealpost/identity'
import type { GroupId } from '@sealpost/std'
import type { SealpostError } from './errors.ts'
import type { PeerEvent } from './events.ts'
import type { GroupCrypto } from './group-crypto.ts'
import { RosterBook } from './roster-book.ts'

export interface GroupBookPorts {
  readonly crypto: Pick<GroupCrypto, 'read'>
  readonly announce: (event: PeerEvent) => void
  /** Asks for the statements behind one. Answer: `listed`, or `close`. */
  readonly ask: (after: GroupId) => void
  /** A group is another one now or has ended, or is known for the first time and goes on. */
  readonly changed: (group: GroupStatement) => void
}

export class GroupBook extends RosterBook<GroupId, GroupStatement> {
  #isUsed = false

  constructor({ crypto, announce, ask, changed }: GroupBookPorts) {
    super({
      read: (bytes) => crypto.read(bytes),
      idOf: ({ groupId }) => groupId,
      beforeAll: '0'.repeat(32) as GroupId,
      ask,
      tampered: (group, reason) => announce({ type: 'group_tamper', group, reason }),
      changed: (group, isNew) => {
        if (!isNew || !isGroupOver(group)) changed(group)
      },
    })
  }

  override refresh(done: (error: SealpostError | null) => void): void {
    this.#isUsed = true
    super.refresh(done)
  }

  /** What other sessions changed meanwhile went past this one. */
  connected(): void {
    if (this.#isUsed && !this.isReading) this.begin()
  }
}
