/**
 * Questions to other peers that wait for their answer. An answer names the envelope it answers inside its box, so nobody
 * but the asked peer can have written it. Pure and synchronous.
 */
import type { EnvelopeId, Millis, PeerKey } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { Message } from '../inbox/message.ts'
import type { OutgoingMessage, OutgoingTerms } from '../outbox/lane.ts'

/** One of its two answers is called. */
export interface PeerRequest extends OutgoingTerms {
  readonly body: Uint8Array
  readonly timeoutMs: Millis
  readonly replied: (answer: Message) => void
  readonly refused: (error: SealpostError) => void
}

interface Open extends Pick<PeerRequest, 'to' | 'replied' | 'refused'> {
  readonly deadlineMs: Millis
  /** Null until it is sealed. */
  envelopeId: EnvelopeId | null
}

export class PeerRequests {
  readonly #open = new Set<Open>()
  readonly #sealed = new Map<EnvelopeId, Open>()
  /** Not after the next deadline. Looking at all of them takes time, and this is asked for with every frame. */
  wakeAtMs: Millis = Infinity

  readonly #current: (peer: PeerKey) => PeerKey

  /** `current`: the identity key of now, of one that others may have followed. */
  constructor(current: (peer: PeerKey) => PeerKey = (peer) => peer) {
    this.#current = current
  }

  /** Returns what is to be posted for it. */
  begin({ timeoutMs, replied: answered, ...post }: PeerRequest, nowMs: Millis): OutgoingMessage {
    const { to, refused } = post
    const open: Open = { to, replied: answered, refused, deadlineMs: nowMs + timeoutMs, envelopeId: null }
    this.#open.add(open)
    this.wakeAtMs = Math.min(this.wakeAtMs, open.deadlineMs)
    return {
      ...post,
      sealed: (envelopeId) => {
        if (!this.#open.has(open)) return
        open.envelopeId = envelopeId
        this.#sealed.set(envelopeId, open)
      },
      accepted: () => undefined,
      refused: (error) => {
        // It may be stored, and then an answer comes.
        if (error.code !== 'maybe_sent' && this.#end(open)) refused(error)
      },
    }
  }

  /** Whether this answers one of them; it is that one's then. */
  take(message: Message): boolean {
    const { inReplyTo, sender } = message
    const open = inReplyTo && this.#sealed.get(inReplyTo)
    if (!open || this.#current(open.to) !== sender) return false
    this.#end(open)
    open.replied(message)
    return true
  }

  expire(nowMs: Millis): void {
    if (nowMs < this.wakeAtMs) return
    for (const open of [...this.#open]) if (nowMs >= open.deadlineMs && this.#end(open)) open.refused(timedOut())
    this.wakeAtMs = Infinity
    for (const { deadlineMs } of this.#open) this.wakeAtMs = Math.min(this.wakeAtMs, deadlineMs)
  }

  close(error: SealpostError): void {
    for (const open of [...this.#open]) if (this.#end(open)) open.refused(error)
    this.wakeAtMs = Infinity
  }

  #end(open: Open): boolean {
    if (open.envelopeId) this.#sealed.delete(open.envelopeId)
    return this.#open.delete(open)
  }
}

function timedOut(): SealpostError {
  return new SealpostError('timeout', 'No answer came in time. The request may still arrive, and be answered later.', {
    isRetryable: true,
  })
}
