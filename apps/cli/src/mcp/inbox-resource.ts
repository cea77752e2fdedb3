/** The resource that clients subscribe to: what waits, and from whom, without a word of a peer. */
import type { McpServer } from '@modelcontextprotocol/server'
import type { ToolContext } from './tool-context.ts'

export const INBOX_URI = 'sealpost://inbox'

export function offerInbox(server: McpServer, { mail }: ToolContext): void {
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
