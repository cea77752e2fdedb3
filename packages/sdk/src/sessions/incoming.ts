/** Passes the messages for one session to the application: those to its own key, and those of the member that it is given. */
import { Dispatcher, type MessageHandler } from '../inbox/dispatcher.ts'
import type { Message } from '../inbox/message.ts'
import type { Peer } from '../peer.ts'
import type { PeerEvent } from '../ports.ts'
import type { MemberMailbox } from './member-mailbox.ts'

interface IncomingOptions {
  readonly readWhen?: 'handed_out' | 'marked'
  readonly onEvent?: (event: PeerEvent) => void
}

/** The number of bodies for all sessions that are remembered. The copies of one arrive within seconds. */
const BODIES_MAX = 256

/** The messages for one session: those to its own key, and those of the member that it is given. */
export class Incoming {
  readonly #dispatcher: Dispatcher
  /** The first copy of each body that was sent to all sessions of the member. */
  readonly #bodies = new Map<string, Message>()
  /** The session's own copies, by the copy of the member that the session was given first. */
  readonly #ownCopies = new Map<Message, Message>()
  #mailbox: MemberMailbox | null = null

  constructor(options: IncomingOptions) {
    this.#dispatcher = new Dispatcher({
      emit: (event) => options.onEvent?.(event),
      hold: (message) => options.readWhen !== 'marked' && this.markRead(message),
    })
  }

  begin(peer: Peer, mailbox: MemberMailbox): void {
    this.#mailbox = mailbox
    peer.onMessage((message) => {
      message.isUnread = true
      this.deliver(message)
      return new Promise(() => undefined) // the lease is extended until the application has settled the message
    })
    void peer.closed.then((error) => this.#dispatcher.end(error))
    mailbox.start()
  }

  get mailbox(): MemberMailbox {
    return this.#mailbox!
  }

  /** Passes a message to the application, unless the application has another copy of its body. */
  deliver(message: Message): void {
    const { bodyId } = message
    const first = bodyId === null ? undefined : this.#bodies.get(bodyId)
    if (first && first.envelopeId !== message.envelopeId) return this.#copyArrived(message, first)
    if (bodyId !== null) this.#noteBody(bodyId, message)
    this.#dispatcher.deliver(message)
  }

  markRead(message: Message): void {
    message.isUnread = false
    this.mailbox.markRead(message)
  }

  use(handler: MessageHandler): () => void {
    return this.#dispatcher.use(handler)
  }

  iterate(): AsyncIterator<Message, undefined> {
    return this.#dispatcher.iterate()
  }

  /** Call when a message of the member has its outcome. The session's own copy shares it, unless it is withdrawn. */
  finished(message: Message): void {
    const copy = this.#ownCopies.get(message)
    if (!copy) return
    this.#ownCopies.delete(message)
    if (message.state !== 'put off') return copy.settle()
    this.#bodies.delete(copy.bodyId!)
    this.deliver(copy)
  }

  /**
   * Drops a copy of a body that the application has. The session's own copy stays in the queue until the copy of the
   * member has its outcome, because that one may go to another session.
   */
  #copyArrived(copy: Message, first: Message): void {
    const isFirstOpen = first.state === 'open' && this.mailbox.has(first)
    if (isFirstOpen && !this.mailbox.has(copy)) this.#ownCopies.set(first, copy)
    else copy.settle()
  }

  #noteBody(bodyId: string, message: Message): void {
    this.#bodies.set(bodyId, message)
    if (this.#bodies.size > BODIES_MAX) this.#bodies.delete(this.#bodies.keys().next().value!)
  }
}
