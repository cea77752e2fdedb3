/** A message as it leaves this program: for people, for programs as JSON, and for the program of `--exec`. */
import type { Message } from '@sealpost/sdk'
import { attachmentOf } from '@sealpost/sdk/attachments'
import type { Paint } from '../output.ts'
import type { Contacts } from '../profile/contacts.ts'
import { senderLabelOf } from '../session/peer-events.ts'
import { escapeName, escapeText } from '../terminal-text.ts'
import type { FileOutcome } from './received-files.ts'

const INDENT = '    '

export interface FileForPrograms {
  readonly name: string | null
  readonly type: string | null
  readonly bytes: number | null
  /** Null: it was not saved. */
  readonly path: string | null
}

/** `14:03 bob  text`, further lines indented, nothing in it that could move the cursor. */
export function messageForPeople(message: Message, contacts: Contacts, paint: Paint, outcome: FileOutcome): string {
  const time = new Date(message.sentAtMs).toTimeString().slice(0, 5)
  const again =
    message.attempt > 1 ? paint.dim(` (attempt ${message.attempt}${message.isRedriven ? ', redriven' : ''})`) : ''
  const urgent = message.priority === 'now' ? paint.red(' !') : ''
  const asks = message.isRequest ? paint.dim(' (asks)') : ''
  const to = message.group
    ? paint.dim(` in ${escapeName(message.group.name)}`)
    : message.pool
      ? paint.dim(' (work of a pool)')
      : ''
  const from = paint.bold(escapeName(senderLabelOf(contacts, message)))
  const text = escapeText(textOf(message) ?? binaryNotice(message), INDENT)
  const file = fileNotice(fileForPrograms(message, outcome), outcome)
  return `${paint.dim(time)} ${from}${to}${urgent}${asks}${again}  ${text}${file && paint.dim(file)}`
}

/** A line of its own, or nothing. */
export function fileNotice(file: FileForPrograms | null, outcome: FileOutcome): string {
  if (!file) return ''
  const isKnown = file.name !== null
  const what = isKnown ? `${escapeName(file.name!)}, ${file.bytes} bytes` : 'a file of a later version of sealpost'
  return `\n${INDENT}[${what}, ${wordsOf(outcome)}]`
}

function wordsOf(outcome: FileOutcome): string {
  switch (outcome.name) {
    case 'none':
      return ''
    case 'saved':
      return `saved as ${escapeName(outcome.path)}`
    case 'left':
      return 'not saved, so the message stays in the queue: --files FOLDER saves it'
    case 'later':
      return `not saved yet (${outcome.code}): the message comes again`
    case 'lost':
      return `lost (${outcome.code})`
  }
}

/** Times are milliseconds since 1970. */
export function messageForPrograms(message: Message, contacts: Contacts, outcome: FileOutcome): object {
  const { envelopeId, sender, priority, attempt, sentAtMs, enqueuedAtMs, thread, inReplyTo, isRequest } = message
  return {
    envelopeId,
    from: sender,
    name: contacts.nameOf(message.user) ?? null,
    person: message.user,
    device: message.deviceLabel,
    priority,
    attempt,
    isRedriven: message.isRedriven,
    sentAtMs,
    enqueuedAtMs,
    thread,
    inReplyTo,
    isRequest,
    group: message.group && { id: message.group.id, name: message.group.name },
    pool: message.pool && { id: message.pool.id },
    file: fileForPrograms(message, outcome),
    ...bodyForPrograms(message),
  }
}

/** Without its name when its reference is of a later version. */
export function fileForPrograms(message: Pick<Message, 'attachment'>, outcome: FileOutcome): FileForPrograms | null {
  if (outcome.name === 'none') return null
  const { name = null, type = null, bytes = null } = attachmentOf(message) ?? {}
  return { name, type, bytes, path: outcome.name === 'saved' ? outcome.path : null }
}

/** `text` when it is UTF-8, else `bodyBase64`. */
export function bodyForPrograms(message: Pick<Message, 'body'>): { text: string } | { bodyBase64: string } {
  const text = textOf(message)
  return text === null ? { bodyBase64: Buffer.from(message.body).toString('base64') } : { text }
}

/** What `--exec` adds to the environment; the body goes to stdin. */
export function messageForExec(message: Message, contacts: Contacts, outcome: FileOutcome): Record<string, string> {
  return {
    SEALPOST_ENVELOPE_ID: message.envelopeId,
    SEALPOST_FROM: message.sender,
    SEALPOST_FROM_NAME: contacts.nameOf(message.user) ?? '',
    SEALPOST_FROM_DEVICE: message.deviceLabel ?? '',
    SEALPOST_PRIORITY: message.priority,
    SEALPOST_ATTEMPT: String(message.attempt),
    SEALPOST_IS_REDRIVEN: message.isRedriven ? '1' : '',
    SEALPOST_SENT_AT_MS: String(message.sentAtMs),
    SEALPOST_ENQUEUED_AT_MS: String(message.enqueuedAtMs),
    SEALPOST_GROUP: message.group?.name ?? '',
    SEALPOST_POOL: message.pool?.id ?? '',
    SEALPOST_IS_REQUEST: message.isRequest ? '1' : '',
    SEALPOST_FILE: outcome.name === 'saved' ? outcome.path : '',
  }
}

const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** The body, or null when it is no UTF-8. */
export function textOf({ body }: Pick<Message, 'body'>): string | null {
  try {
    return decoder.decode(body)
  } catch {
    return null // bytes that are no text
  }
}

export const binaryNotice = ({ body }: Pick<Message, 'body'>): string =>
  `(${body.length} bytes that are no text; --json or --exec has them)`
