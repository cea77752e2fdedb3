/** The tools. A new one is a row here; `docs/MCP.md` is checked against this table. */

import { saveFileOf } from './file-tools.ts'
import { listGroups, sendToGroup } from './group-tools.ts'
import { giveBackMessage, readInbox, rejectMessage, settleMessage } from './inbox-tools.ts'
import { listPeers } from './list-peers.ts'
import { replyToMessage } from './reply-to-message.ts'
import { requestAnswer } from './request-answer.ts'
import { sendMessage } from './send-message.ts'
import { setStatus } from './set-status.ts'
import type { Tool } from './tool.ts'

export const tools: readonly Tool[] = [
  listPeers,
  sendMessage,
  listGroups,
  sendToGroup,
  requestAnswer,
  readInbox,
  saveFileOf,
  replyToMessage,
  settleMessage,
  giveBackMessage,
  rejectMessage,
  setStatus,
]

/** For `docs/MCP.md`. */
export function toolsTable(): string {
  return [
    '| Tool | Effect | Input | What it does |',
    '|---|---|---|---|',
    ...tools.map(
      ({ name, effect, inputNames, description }) =>
        `| \`${name}\` | ${effect} | ${inputNames.map((input) => `\`${input}\``).join(', ')} | ${description} |`,
    ),
  ].join('\n')
}
