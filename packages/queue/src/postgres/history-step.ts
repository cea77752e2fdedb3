/** What a commit adds to the history: nothing for most. */
import { arrayLiteral, byteaText, type PipelineStep } from '@sealpost/pg'
import type { Append } from '@sealpost/protocol'
import { KEEP_MESSAGES, LOCK_SPACES } from '../sql/cold.ts'
import { type RecordedMessage, recordedMessagesOf } from './commit-batch.ts'
import { arrayOf } from './run.ts'

/** They come last in a commit: what they lock is locked behind everything else. */
export function historySteps(appends: readonly Append[]): PipelineStep[] {
  const messages = recordedMessagesOf(appends)
  if (messages.length === 0) return []
  const keyOf = ({ meshId, spaceId }: RecordedMessage) => `${meshId} ${spaceId}`
  const spaces = [...new Map(messages.map((message) => [keyOf(message), message]))].sort(([a], [b]) => (a < b ? -1 : 1))
  const places = new Map(spaces.map(([key], i) => [key, i + 1])) // as Postgres counts
  const locked = [arrayOf(spaces.map(([, { meshId }]) => meshId)), arrayOf(spaces.map(([, { spaceId }]) => spaceId))]
  return [
    { text: LOCK_SPACES, parameters: locked },
    {
      text: KEEP_MESSAGES,
      parameters: [
        ...locked,
        arrayOf(messages.map((message) => places.get(keyOf(message))!)),
        arrayOf(messages.map(({ sender }) => sender)),
        arrayLiteral(messages.map(({ bodyId }) => byteaText(bodyId))),
        arrayLiteral(messages.map(({ record }) => record)),
      ],
    },
  ]
}
