/** Writes rows as lines of JSON. In Postgres, base64 and the escaping of text cost three times the rest. */
import type { ReplayRow } from './copy-rows.ts'
import { formatTimestamp } from './space-ref.ts'

export type LineRow = ReplayRow

export function rowLine({ seq, at, kind, value, body }: LineRow): string {
  const front = `{"seq":${seq},"at":"${formatTimestamp(at)}","kind":${kind},"value":"${value.toString('base64')}"`
  return body === null ? `${front}}\n` : `${front},"body":"${body.toString('base64')}"}\n`
}

export const jsonLine = (fields: Readonly<Record<string, unknown>>): string => `${JSON.stringify(fields)}\n`
