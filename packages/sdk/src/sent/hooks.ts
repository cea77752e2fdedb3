/** Connects the engine with confirmations, whose code is in other entries so that it costs a plain peer nothing. */
import type { Message } from '../inbox/message.ts'
import type { PeerEvent } from '../ports.ts'

export interface ConfirmationHooks {
  /** Called in the same turn in which the message is settled (null) or rejected with a reason. */
  ended?: (message: Message, reason: string | null) => void
  /** Called with each confirmation, which is then settled. The application never sees one. */
  arrived?: (message: Message, emit: (event: PeerEvent) => void) => void
}
