/** Rows as lines of JSON. Made here and not by Postgres, where base64 and the escaping of text cost three times the rest. */
import type { Row } from './copy-rows.ts'
import { type Micros, momentText } from './space-ref.ts'

export type LineRow = Row

export function lineOf({ seq, at, kind, value, body }: LineRow): string {
  const front = `{"seq":${seq},"at":"${textOf(at)}","kind":${kind},"value":"${value.toString('base64')}"`
  return body === null ? `${front}}\n` : `${front},"body":"${body.toString('base64')}"}\n`
}

export const otherLine = (fields: Readonly<Record<string, unknown>>): string => `${JSON.stringify(fields)}\n`

/** Rows of one second follow each other. */
let lastSecond = Number.NaN
let lastText = ''

function textOf(at: Micros): string {
  const micros = at % 1e6
  if (at < 0) return momentText(at)
  if (at - micros !== lastSecond) {
    lastSecond = at - micros
    lastText = momentText(lastSecond).slice(0, 20)
  }
  return `${lastText}${String(micros).padStart(6, '0')}Z`
}
