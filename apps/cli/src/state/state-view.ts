/** Entries and events as they leave this program: for people, and for programs as JSON. */
import type { HistoryEvent } from '@sealpost/sdk/state'
import { bodyForPrograms, labelOf, textOf } from '../messages/incoming-message.ts'
import { escapeName, escapeText, type Paint } from '../output.ts'
import type { Contacts } from '../profile/contacts.ts'

const INDENT = '    '

/** `at` in UTC with microseconds, values as `text` or `bodyBase64`. */
export function eventForPrograms(event: HistoryEvent, contacts: Contacts): object {
  const { type, seq, author, sentAtMs } = event
  const common = { type, seq, at: instantText(event.atUs), author, name: contacts.nameOf(author) ?? null, sentAtMs }
  switch (event.type) {
    case 'set':
      return { ...common, key: event.key, revision: event.revision, ...bodyForPrograms({ body: event.value }) }
    case 'deleted':
      return { ...common, key: event.key, revision: event.revision }
    case 'message':
      return { ...common, thread: event.thread, ...bodyForPrograms(event) }
    case 'sealed':
      return { ...common, keyHash: event.keyHash }
  }
}

/** `14:03:07 bob  topic = tea`. */
export function eventForPeople(event: HistoryEvent, contacts: Contacts, paint: Paint): string {
  const time = new Date(event.atUs / 1000).toTimeString().slice(0, 8)
  const who = paint.bold(escapeName(labelOf(contacts, event.author)))
  return `${paint.dim(time)} ${who}  ${whatOf(event, paint)}`
}

function whatOf(event: HistoryEvent, paint: Paint): string {
  switch (event.type) {
    case 'set':
      return `${escapeName(event.key)} ${paint.dim('=')} ${valueText(event.value)}`
    case 'deleted':
      return paint.dim(`${escapeName(event.key)} is deleted`)
    case 'message':
      return valueText(event.body)
    case 'sealed':
      return paint.dim('(sealed before you came)')
  }
}

export function valueText(body: Uint8Array): string {
  const text = textOf({ body })
  return text === null ? `(${body.length} bytes that are no text; --json has them)` : escapeText(text, INDENT)
}

export function instantText(us: number): string {
  const ms = Math.floor(us / 1000)
  return `${new Date(ms).toISOString().slice(0, -1)}${String(us - ms * 1000).padStart(3, '0')}Z`
}
