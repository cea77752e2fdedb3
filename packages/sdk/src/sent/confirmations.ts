/**
 * Confirms received messages (`@sealpost/sdk/confirmations`). When the application settles or rejects a message whose
 * sender asks for it, this peer signs what it did and sends that to the sender as a sealed message. With a store, one
 * write stores the end of the message and its confirmation, so a crash loses neither.
 *
 * Confirmations never loop: a confirmation asks for none, and none is sent for a message that is a confirmation.
 */
import { type ConfirmedOutcome, contentHash, type Note, signConfirmation } from '@sealpost/identity'
import type { PeerEngine } from '../engine.ts'
import type { Message } from '../inbox/message.ts'
import { oncePerPeer, type Peer, type PeerPorts } from '../peer.ts'

const confirmationsFor = oncePerPeer((ports) => new Confirmations(ports))

/**
 * Makes this peer confirm messages from now on. Call it as soon as the peer is open.
 * @example const confirmations = confirmationsOf(peer)
 */
export function confirmationsOf(peer: Peer): Confirmations {
  return confirmationsFor(peer)
}

export class Confirmations {
  readonly #ports: PeerPorts
  readonly #pending = new Set<object>()
  #waiting: (() => void)[] = []

  /** Use `confirmationsOf` instead. @internal */
  constructor(ports: PeerPorts) {
    this.#ports = ports
    ports.tell((engine) => {
      engine.hooks.ended = (message, reason) =>
        this.#send(engine, message, reason === null ? { outcome: 'settled' } : { outcome: 'rejected', reason })
    })
  }

  /**
   * Confirms that a user or model has read a message that is not settled yet. Has no effect unless the sender asks for
   * all confirmations.
   * @example confirmations.read(message)
   */
  read(message: Message): void {
    if (message.note?.confirm === 'all') this.#ports.tell((engine) => this.#send(engine, message, { outcome: 'read' }))
  }

  /**
   * Resolves when the broker has stored or refused each confirmation so far. Await it before you close a peer.
   * @example await confirmations.stored()
   */
  stored(): Promise<void> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve)
      this.#wake()
    })
  }

  #send(engine: PeerEngine, message: Message, end: { outcome: ConfirmedOutcome; reason?: string }): void {
    const { meshId, self, signing } = this.#ports
    const { sender, envelopeId, body, attachment, priority, note } = message
    if (note?.isConfirmation) return
    const hash = contentHash(body, attachment)
    const route = { meshId, sender, recipient: self, envelopeId, contentHash: hash }
    const statement = signConfirmation(signing, { ...route, ...end, reason: end.reason ?? '', atMs: Date.now() })
    const pending = {}
    const done = () => {
      this.#pending.delete(pending)
      this.#wake()
    }
    this.#pending.add(pending)
    const its: Note = { inReplyTo: envelopeId, isConfirmation: true }
    engine.enqueue({ to: sender, priority, ttlSeconds: 0, note: its, body: statement, accepted: done, refused: done })
  }

  #wake(): void {
    if (this.#pending.size > 0) return
    for (const resolve of this.#waiting) resolve()
    this.#waiting = []
  }
}
