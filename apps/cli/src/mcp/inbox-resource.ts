/** The resource that clients subscribe to: what waits, and from whom, without a word of a peer. */
import type { McpServer, ServerCapabilities } from '@modelcontextprotocol/server'
import type { InboxCounts } from './mail.ts'
import type { ToolContext } from './tool-context.ts'

export const INBOX_URI = 'sealpost://inbox'

export function registerInbox(server: McpServer, { mail }: ToolContext): void {
  server.registerResource(
    'inbox',
    INBOX_URI,
    {
      title: 'Inbox',
      description: 'How much mail waits, and whose keys wrote it. The tool read_inbox reads it.',
      mimeType: 'application/json',
    },
    () => ({
      contents: [
        {
          uri: INBOX_URI,
          mimeType: 'application/json',
          text: JSON.stringify({
            ...mail.counts,
            messages: mail.all.map(({ messageId, isUnread, message: { sender, priority } }) => ({
              ...{ messageId, isUnread, priority },
              fromKey: sender,
            })),
          }),
        },
      ],
    }),
  )
}

/** A burst rings once. */
const BATCH_MS = 50

export const NOTIFIER_CAPABILITIES: ServerCapabilities = {
  resources: { subscribe: true, listChanged: false },
  logging: {},
  experimental: { 'claude/channel': {} },
}

type Notify = (unread: number) => Promise<unknown>

export class MailNotifier {
  #tell: Notify | null = null
  #timer: ReturnType<typeof setTimeout> | null = null
  /** Set once there is mail to count. */
  counts: () => InboxCounts = () => ({ unread: 0, open: 0 })

  schedule(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = null
      const { unread } = this.counts()
      if (unread > 0) this.#tell?.(unread).catch(() => undefined) // the client has gone, which ends us anyway
    }, BATCH_MS)
    this.#timer.unref()
  }

  /** Rings at a client of 2026-07-28; who of it subscribed is known to the SDK. */
  attachModern({ server }: McpServer): void {
    this.#tell = () => server.sendResourceUpdated({ uri: INBOX_URI })
  }

  /** Rings at a client of the revisions before, once its handshake is over. */
  attachLegacy({ server }: McpServer): void {
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
      this.#tell = async (unread) => {
        if (subscribed.has(INBOX_URI)) await server.sendResourceUpdated({ uri: INBOX_URI })
        await server.sendLoggingMessage({ level: 'info', logger: 'sealpost', data: { event: 'mail.waiting', unread } })
        await server.notification({
          method: 'notifications/claude/channel',
          params: { content: `${unread} unread from peers: call read_inbox.`, meta: { unread: String(unread) } },
        })
      }
      this.schedule() // for what came before
    }
  }
}
