/** Rows as lines of JSON. Made here and not by Postgres, where base64 and the escaping of text cost three times the rest. */
import type { Row } from './copy-rows.ts'
import { momentText } from './space-ref.ts'

export type LineRow = Row

export function lineOf({ seq, at, kind, value, body }: LineRow): string {
  const front = `{"seq":${seq},"at":"${momentText(at)}","kind":${kind},"value":"${value.toString('base64')}"`
  return body === null ? `${front}}\n` : `${front},"body":"${body.toString('base64')}"}\n`
}

export const otherLine = (fields: Readonly<Record<string, unknown>>): string => `${JSON.stringify(fields)}\n`
