/** Formats messages for people, for programs (`--json`, `--exec`), and reports the peer's events. */
import { createHash } from 'node:crypto'
import { fingerprint } from '@sealpost/identity'
import type { LostMessage, Message, PeerEvent, RatchetNews } from '@sealpost/sdk'
import { attachmentOf } from '@sealpost/sdk/attachments'
import type { PeerKey } from '@sealpost/std'
import { readableName } from '../members/names.ts'
import { escapeName, escapeText, type Output, type Paint, remedyOf } from '../output.ts'
import type { Contacts } from '../profile/contacts.ts'
import type { FileOutcome } from './files.ts'

const INDENT = '    '

export interface FileForPrograms {
  readonly name: string | null
  readonly type: string | null
  readonly bytes: number | null
  /** The saved file's path, if any. */
  readonly path: string | null
}

/** Formats a message as `14:03 bob text`, with later lines indented and unsafe characters escaped. */
export function messageForPeople(message: Message, contacts: Contacts, paint: Paint, outcome: FileOutcome): string {
  const time = new Date(message.sentAtMs).toTimeString().slice(0, 5)
  const again =
    message.attempt > 1 ? paint.dim(` (attempt ${message.attempt}${message.isRedriven ? ', redriven' : ''})`) : ''
  const urgent = message.priority === 'now' ? paint.red(' !') : ''
  const asks = message.isRequest ? paint.dim(' (asks)') : ''
  const to = message.group
    ? paint.dim(` in ${escapeName(message.group.name)}`)
    : message.pool
      ? paint.dim(' (from a pool)')
      : ''
  const from = paint.bold(escapeName(labelOf(contacts, message.user, message.deviceLabel)))
  const text = escapeText(textOf(message) ?? binaryNotice(message), INDENT)
  const file = fileNotice(fileForPrograms(message, outcome), outcome)
  return `${paint.dim(time)} ${from}${to}${urgent}${asks}${again}  ${text}${file && paint.dim(file)}`
}

/** Returns a line about the file, if there is one. */
export function fileNotice(file: FileForPrograms | null, outcome: FileOutcome): string {
  if (!file) return ''
  const isKnown = file.name !== null
  const what = isKnown ? `${escapeName(file.name!)}, ${file.bytes} bytes` : 'a file from a later version of sealpost'
  return `\n${INDENT}[${what}, ${wordsOf(outcome)}]`
}

function wordsOf(outcome: FileOutcome): string {
  switch (outcome.name) {
    case 'none':
      return ''
    case 'saved':
      return `saved as ${escapeName(outcome.path)}`
    case 'left':
      return 'not saved, so the message stays in the queue; save it with --files FOLDER'
    case 'later':
      return `not saved (${outcome.code}); the message will be delivered again`
    case 'lost':
      return `lost (${outcome.code})`
  }
}

/** Formats a message as JSON, with times in ms since 1970. */
export function messageForPrograms(message: Message, contacts: Contacts, outcome: FileOutcome): object {
  const { envelopeId, sender, priority, attempt, sentAtMs, enqueuedAtMs, thread, inReplyTo, isRequest } = message
  return {
    envelopeId,
    from: sender,
    name: contacts.nameOf(message.user) ?? null,
    verified: contacts.isVerified(message.user),
    fingerprint: fingerprint(message.user),
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

/** Formats a file as JSON, without a name if the reference has a later version. */
export function fileForPrograms(message: Pick<Message, 'attachment'>, outcome: FileOutcome): FileForPrograms | null {
  if (outcome.name === 'none') return null
  const { name = null, type = null, bytes = null } = attachmentOf(message) ?? {}
  return { name, type, bytes, path: outcome.name === 'saved' ? outcome.path : null }
}

/** Returns the body as `text` if it is UTF-8, otherwise as `bodyBase64`. */
export function bodyForPrograms(message: Pick<Message, 'body'>): { text: string } | { bodyBase64: string } {
  const text = textOf(message)
  return text === null ? { bodyBase64: Buffer.from(message.body).toString('base64') } : { text }
}

/**
 * Returns a message's id in `digits` hex digits. It depends on the sender, because senders choose envelope ids, and stays
 * the same after a redelivery or a restart.
 */
export const messageIdOf = ({ sender, envelopeId }: Pick<Message, 'sender' | 'envelopeId'>, digits: number): string =>
  createHash('sha256').update(`${sender} ${envelopeId}`).digest('hex').slice(0, digits)

/** Returns the variables that `--exec` sets; the body comes on stdin. */
export function messageForExec(message: Message, contacts: Contacts, outcome: FileOutcome): Record<string, string> {
  return {
    SEALPOST_ENVELOPE_ID: message.envelopeId,
    SEALPOST_FROM: message.sender,
    SEALPOST_FROM_NAME: contacts.nameOf(message.user) ?? '',
    SEALPOST_FROM_FINGERPRINT: fingerprint(message.user),
    SEALPOST_FROM_VERIFIED: contacts.isVerified(message.user) ? '1' : '',
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

/** Returns the body, or null if it is not UTF-8. */
export function textOf({ body }: Pick<Message, 'body'>): string | null {
  try {
    return decoder.decode(body)
  } catch {
    return null // the body is not UTF-8
  }
}

export const binaryNotice = ({ body }: Pick<Message, 'body'>): string =>
  `(${body.length} bytes of binary data; read them with --json or --exec)`

/** Returns a peer's pinned name, with the beginning of its fingerprint unless the user has verified it; or its fingerprint. */
export function labelOf(contacts: Contacts, key: PeerKey, deviceLabel: string | null = null): string {
  const name = contacts.nameOf(key)
  const device = deviceLabel === null ? '' : `/${readableName(deviceLabel)}`
  if (name === undefined) return fingerprint(key) + device
  return name + device + (contacts.isVerified(key) ? '' : ` (${shortFingerprint(key)})`)
}

/** Returns the first eight characters of a fingerprint. It helps people to notice a key, and proves nothing. */
const shortFingerprint = (key: PeerKey): string => fingerprint(key).slice(0, 9)

/** Returns a listener that reports a peer's events, and each disconnection and reconnection once. */
export function peerEventReporter(output: Output, contacts: Contacts): (event: PeerEvent) => void {
  let isAway = false
  return (event) => {
    if (event.type === 'disconnected') {
      if (!isAway) output.info(`lost the connection to the broker (${event.code}); reconnecting`)
      isAway = true
    } else if (event.type === 'connected') {
      if (isAway) output.info('reconnected')
      isAway = false
      if (event.durability === 'degraded')
        output.warn('The broker reports that its database may lose acknowledged messages.')
    } else report(event, output, contacts)
  }
}

function report(event: PeerEvent, output: Output, contacts: Contacts): void {
  const label = (key: PeerKey) => labelOf(contacts, key)
  const remedy = (code: string, key: PeerKey) => remedyOf(code, contacts.nameOf(key))
  switch (event.type) {
    case 'gap':
      return output.warn(
        `${event.missing} earlier messages from ${label(event.sender)} are missing: they expired, became dead letters, or the broker dropped or withheld them.`,
      )
    case 'recovered':
      if (!event.isRecovered) output.warn(lostNotice(event.lost, label))
      return
    case 'forked':
      return output.warn(
        `Two messages from ${label(event.sender)} have the same number. Someone else may have its box key, or yours.`,
      )
    case 'tamper':
      return output.warn(
        `Rejected an envelope that claims to be from ${label(event.sender)}: ${escapeName(event.reason)}. If it was a stored message, it is now a dead letter.${remedy(event.reason, event.sender)}`,
      )
    case 'too_old':
      return output.warn(
        `Rejected a message from ${label(event.sender)}, sent at ${new Date(event.sentAtMs).toISOString()}, because it is older than --max-age.`,
      )
    case 'group_tamper':
      return output.warn(
        `The broker returned a group that its owner did not sign, or an outdated version of it (${event.reason}).`,
      )
    case 'message_withheld':
      return output.warn(
        `${label(event.sender)} sent messages that have not arrived, the last one at ${new Date(event.sentAtMs).toISOString()} (missing: ${event.missing}): they expired, became dead letters, or the broker dropped or withheld them.`,
      )
    case 'view_split':
      return output.warn(splitNotice(event, label))
    case 'identity_changed':
      return void renameContactKey(event, output, contacts)
    case 'user_tamper':
      return output.warn(`The broker returned a device or a new key that its user did not sign (${event.reason}).`)
    case 'ratchet':
      return reportRatchet(event.news, label(event.peer), output)
    case 'prekeys_failed':
      return output.warn(`Can't publish keys for forward secrecy: ${event.error.message}`)
    case 'key_changed':
      return output.info(`${label(event.peer)} has a new box key, signed by the pinned key`)
    case 'key_refused':
      return output.warn(`The broker returned no valid key for ${label(event.peer)} (${event.reason}).`)
    case 'sent':
      return output.info(`the broker stored an earlier message for ${label(event.to)}`)
    case 'send_failed':
      return output.warn(
        `An earlier message to ${label(event.to)} was not sent (${event.error.code}).${remedy(event.error.code, event.to)}`,
      )
    default:
      return
  }
}

function reportRatchet(news: RatchetNews, peer: string, output: Output): void {
  switch (news) {
    case 'ratchet_agreed':
      return
    case 'ratchet_last_resort':
      return output.info(`began forward secrecy with ${peer} without a one-time key, because the broker had none left`)
    case 'ratchet_reset':
      return output.warn(
        `The keys of this profile and of ${peer} differ: one of both was restored from an older copy. Both agree on new keys.`,
      )
    case 'ratchet_peer_reset':
      return output.warn(`${peer} has agreed on new keys, because one of both was restored from an older copy.`)
  }
}

/** Moves a name to the new key, which both keys have signed. After a write error, the next session retries. */
async function renameContactKey(
  { former, successor }: Extract<PeerEvent, { type: 'identity_changed' }>,
  output: Output,
  contacts: Contacts,
): Promise<void> {
  const name = contacts.nameOf(former)
  if (name === undefined) return
  const which = contacts.isVerified(former) ? ', whom you verified,' : ''
  const todo = which && ' Compare the new fingerprint with them.'
  output.info(`${escapeName(name)}${which} has a new key, signed by the pinned key: ${fingerprint(successor)}.${todo}`)
  await contacts.accept(name, successor).catch(() => undefined)
}

function splitNotice(
  { sender, view }: Extract<PeerEvent, { type: 'view_split' }>,
  label: (key: PeerKey) => string,
): string {
  const todo = 'Compare the list of members with them.'
  if (view.subject === 'log')
    return `The log that the broker shows contradicts the one that it showed to ${label(sender)} (${view.reason}).`
  const { subject, id, shown, reported } = view
  return `The broker shows an older or different version of the ${subject} ${id} than ${label(sender)} has seen: ${shown?.epoch ?? 'none'} instead of ${reported.epoch}. ${todo}`
}

function lostNotice(lost: readonly LostMessage[], label: (key: PeerKey) => string): string {
  const senders = [...new Set(lost.map(({ sender }) => label(sender)))].join(', ')
  return `${lost.length} messages to you from ${senders} will not arrive: they expired or became dead letters.`
}
