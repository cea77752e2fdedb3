/** The tools. A new one is a row here; `docs/MCP.md` is checked against this table. */

import { giveBackMessage, readInbox, rejectMessage, saveFileOf, settleMessage } from './inbox-tools.ts'
import { listGroups, replyToMessage, requestAnswer, sendMessage, sendToGroup } from './message-tools.ts'
import { listPeers, setStatus } from './peer-tools.ts'
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
