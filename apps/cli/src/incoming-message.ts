/** A message as it leaves this program: for people, for programs as JSON, and for the program of `--exec`. */
import type { Message } from '@sealpost/sdk'
import { attachmentOf } from '@sealpost/sdk/attachments'
import type { Contacts } from './contacts.ts'
import type { Paint } from './output.ts'
import { senderLabelOf } from './peer-news.ts'
import type { FileFate } from './received-files.ts'
import { escapeName, escapeText } from './terminal-text.ts'

const INDENT = '    '

export interface FileForPrograms {
  readonly name: string | null
  readonly type: string | null
  readonly bytes: number | null
  /** Null: it was not saved. */
  readonly path: string | null
}

/** `14:03 bob  text`, further lines indented, nothing in it that could move the cursor. */
export function messageForPeople(message: Message, contacts: Contacts, paint: Paint, fate: FileFate): string {
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
  const file = fileNotice(fileForPrograms(message, fate), fate)
  return `${paint.dim(time)} ${from}${to}${urgent}${asks}${again}  ${text}${file && paint.dim(file)}`
}

/** A line of its own, or nothing. */
export function fileNotice(file: FileForPrograms | null, fate: FileFate): string {
  if (!file) return ''
  const isKnown = file.name !== null
  const what = isKnown ? `${escapeName(file.name!)}, ${file.bytes} bytes` : 'a file of a later version of sealpost'
  return `\n${INDENT}[${what}, ${wordsOf(fate)}]`
}

function wordsOf(fate: FileFate): string {
  switch (fate.name) {
    case 'none':
      return ''
    case 'saved':
      return `saved as ${escapeName(fate.path)}`
    case 'left':
      return 'not saved, so the message stays in the queue: --files FOLDER saves it'
    case 'later':
      return `not saved yet (${fate.code}): the message comes again`
    case 'lost':
      return `lost (${fate.code})`
  }
}

/** Times are milliseconds since 1970. */
export function messageForPrograms(message: Message, contacts: Contacts, fate: FileFate): object {
  const { envelopeId, sender, priority, attempt, sentAtMs, enqueuedAtMs, thread, inReplyTo, isRequest } = message
  return {
    envelopeId,
    from: sender,
    name: contacts.nameOf(message.person) ?? null,
    person: message.person,
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
    file: fileForPrograms(message, fate),
    ...bodyForPrograms(message),
  }
}

/** Without its name when its reference is of a later version. */
export function fileForPrograms(message: Pick<Message, 'attachment'>, fate: FileFate): FileForPrograms | null {
  if (fate.name === 'none') return null
  const { name = null, type = null, bytes = null } = attachmentOf(message) ?? {}
  return { name, type, bytes, path: fate.name === 'saved' ? fate.path : null }
}

/** `text` when it is UTF-8, else `bodyBase64`. */
export function bodyForPrograms(message: Pick<Message, 'body'>): { text: string } | { bodyBase64: string } {
  const text = textOf(message)
  return text === null ? { bodyBase64: Buffer.from(message.body).toString('base64') } : { text }
}

/** What `--exec` adds to the environment; the body goes to stdin. */
export function messageForExec(message: Message, contacts: Contacts, fate: FileFate): Record<string, string> {
  return {
    SEALPOST_ENVELOPE_ID: message.envelopeId,
    SEALPOST_FROM: message.sender,
    SEALPOST_FROM_NAME: contacts.nameOf(message.person) ?? '',
    SEALPOST_FROM_DEVICE: message.deviceLabel ?? '',
    SEALPOST_PRIORITY: message.priority,
    SEALPOST_ATTEMPT: String(message.attempt),
    SEALPOST_IS_REDRIVEN: message.isRedriven ? '1' : '',
    SEALPOST_SENT_AT_MS: String(message.sentAtMs),
    SEALPOST_ENQUEUED_AT_MS: String(message.enqueuedAtMs),
    SEALPOST_GROUP: message.group?.name ?? '',
    SEALPOST_POOL: message.pool?.id ?? '',
    SEALPOST_IS_REQUEST: message.isRequest ? '1' : '',
    SEALPOST_FILE: fate.name === 'saved' ? fate.path : '',
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
