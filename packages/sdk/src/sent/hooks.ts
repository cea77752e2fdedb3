/** Connects the engine with confirmations, whose code is in other entries so that it costs a plain peer nothing. */
import type { Message } from '../inbox/message.ts'
import type { PeerEvent } from '../ports.ts'

export class ConfirmationHooks {
  /** Called in the same turn in which the message is settled (null) or rejected with a reason. */
  ended: ((message: Message, reason: string | null) => void) | undefined
  /** Called with each confirmation. Returns why it is not valid; null if it is. */
  arrived: ((message: Message) => string | null) | undefined

  /** Takes a confirmation, so that the application never sees one. Without a sent log, it has no effect. */
  take(message: Message, emit: (event: PeerEvent) => void): boolean {
    const { sender, envelopeId } = message
    const reason = this.arrived?.(message)
    if (reason) emit({ type: 'tamper', sender, envelopeId, reason })
    return true
  }
}
