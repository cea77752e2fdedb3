/**
 * Tells the client that mail is there, in each way that some client honours. None carries a word of a peer: it is the
 * agent's own call of `read_inbox` that brings those in, labelled.
 *
 * - `notifications/resources/updated`, to who subscribed to the inbox: what the specification has for it, the only one
 *   that its revision of 2026-07-28 left, and what programs act on.
 * - `notifications/message`, to clients of the revisions before: chats show it to the person, hardly any to the model.
 * - `notifications/claude/channel`: begins a turn in Claude Code where its channels are on. Other clients drop it.
 *
 * No notification wakes every agent. A `read_inbox` that waits does: each client hands a tool's answer to its model.
 */
import type { McpServer, ServerCapabilities } from '@modelcontextprotocol/server'
import { INBOX_URI } from './inbox-resource.ts'
import type { MailCounts } from './mail.ts'

/** A burst rings once. */
const GATHER_MS = 50

export const BELL_CAPABILITIES: ServerCapabilities = {
  resources: { subscribe: true, listChanged: false },
  logging: {},
  experimental: { 'claude/channel': {} },
}

type Tell = (unread: number) => Promise<unknown>

export class Bell {
  private tell: Tell | null = null
  private timer: ReturnType<typeof setTimeout> | null = null
  /** Set once there is mail to count. */
  counts: () => MailCounts = () => ({ unread: 0, open: 0 })

  ring(): void {
    this.timer ??= setTimeout(() => {
      this.timer = null
      const { unread } = this.counts()
      if (unread > 0) this.tell?.(unread).catch(() => undefined) // the client has gone, which ends us anyway
    }, GATHER_MS)
    this.timer.unref()
  }

  /** Rings at a client of 2026-07-28; who of it subscribed is known to the SDK. */
  hangModern({ server }: McpServer): void {
    this.tell = () => server.sendResourceUpdated({ uri: INBOX_URI })
  }

  /** Rings at a client of the revisions before, once its handshake is over. */
  hangLegacy({ server }: McpServer): void {
    const subscribed = new Set<string>()
    server.setRequestHandler('resources/subscribe', ({ params }) => {
      subscribed.add(params.uri)
      return {}
    })
    server.setRequestHandler('resources/unsubscribe', ({ params }) => {
      subscribed.delete(params.uri)
      return {}
    })
    server.oninitialized = () => {
      this.tell = async (unread) => {
        if (subscribed.has(INBOX_URI)) await server.sendResourceUpdated({ uri: INBOX_URI })
        await server.sendLoggingMessage({ level: 'info', logger: 'sealpost', data: { event: 'mail.waiting', unread } })
        await server.notification({
          method: 'notifications/claude/channel',
          params: { content: `${unread} unread from peers: call read_inbox.`, meta: { unread: String(unread) } },
        })
      }
      this.ring() // for what came before
    }
  }
}
