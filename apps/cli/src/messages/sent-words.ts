/** Describes in words where sent messages are, for people and agents. */
import type { MessageWhereabouts, SentAudience, SentMessage } from '@sealpost/sdk/sent'
import type { Millis, PeerKey } from '@sealpost/std'
import { escapeName } from '../output.ts'
import type { Contacts } from '../profile/contacts.ts'
import type { LoggedMessage } from '../session/sent-calls.ts'
import { labelOf } from './incoming-message.ts'

/** Describes the state of a message in a few words. */
export function stateOf({ sent, where }: LoggedMessage, contacts: Contacts): string {
  if (sent?.isRequest && sent.reply) return answerOf(sent, contacts)
  if (where?.status === 'gone') return 'gone: settled, or removed or redriven by an operator'
  if (where?.status === 'delayed') return `delayed until ${timeOf(where.dueAtMs!)}`
  if (!sent) return where?.status === 'dead' ? `dead: ${where.death}` : (where?.status ?? '')
  return wordsOf(sent, contacts)
}

function answerOf({ reply }: SentMessage, contacts: Contacts): string {
  const { user, deviceLabel, isError, atMs } = reply!
  const by = escapeName(labelOf(contacts, user, deviceLabel))
  return `answered${isError ? ' with an error' : ''} ${timeOf(atMs)} by ${by}`
}

function wordsOf(sent: SentMessage, contacts: Contacts): string {
  const { state, isSigned, signer, reason, atMs, to, asksConfirmation } = sent
  const because = reason === '' ? '' : `: ${escapeName(reason)}`
  const label = signer === to ? labelOf(contacts, sent.user, sent.deviceLabel) : signer && labelOf(contacts, signer)
  const by = label === null ? '' : ` by ${escapeName(label)}`
  const at = timeOf(atMs)
  const unsigned = asksConfirmation ? ', not confirmed' : ', no confirmation was asked for'
  switch (state) {
    case 'sending':
      return `not stored yet${because}`
    case 'pushed':
      return sent.audience?.kind === 'pool' ? `taken by a worker ${at}` : `pushed ${at}`
    case 'settled':
      return `settled ${at}${unsigned}`
    case 'rejected':
      return `rejected ${at}${by}${because}${isSigned ? '' : unsigned}`
    case 'struck_out':
      return `failed too often ${at}`
    default:
      return `${state} ${at}${by}${because}`
  }
}

/** Returns the line of `why`, such as `stored 10:02 · bob offline since 09:40 · attempt 2 of 20`. */
export function lineOf(item: LoggedMessage, contacts: Contacts): string {
  const { sent, where } = item
  const isOpen = where?.status === 'delayed' || where?.status === 'waiting' || where?.status === 'pushed'
  const state = sent?.isRequest && sent.reply && sent.state !== 'stored' ? [wordsOf(sent, contacts)] : []
  return [
    ...state,
    stateOf(item, contacts),
    ...(isOpen ? openParts(where, item, contacts) : []),
    ...laterParts(item),
  ].join(' · ')
}

function openParts(where: MessageWhereabouts, item: LoggedMessage, contacts: Contacts): string[] {
  const { status, failedAttempts, failedAttemptsMax, dueAtMs } = where
  const isWaiting = status === 'waiting' || status === 'pushed'
  return [
    ...(item.sent?.audience?.kind === 'pool' ? poolParts(where) : recipientParts(where, nameOf(item, contacts))),
    ...(isWaiting ? [`attempt ${failedAttempts + 1} of ${failedAttemptsMax}`] : []),
    ...(status === 'waiting' && dueAtMs !== null ? [`next attempt ${timeOf(dueAtMs)}`] : []),
  ]
}

/** A pool has no presence, and its message has no recipient before a worker takes it. */
const poolParts = ({ status }: MessageWhereabouts): string[] =>
  status === 'pushed' ? [] : ['no worker has taken it, so none can read, settle or confirm it yet']

function recipientParts({ presence }: MessageWhereabouts, name: string): string[] {
  return [
    ...(presence ? [`${name} ${presenceOf(presence)}`] : []),
    ...(presence?.isOnline && presence.availability !== 'idle' ? [presence.availability] : []),
  ]
}

function presenceOf({ isOnline, offlineSinceMs, connectedAtMs }: NonNullable<MessageWhereabouts['presence']>): string {
  if (isOnline) return 'online'
  if (offlineSinceMs !== null) return `offline since ${timeOf(offlineSinceMs)}`
  return connectedAtMs === null ? 'never connected' : `offline, last connected ${timeOf(connectedAtMs)}`
}

/** A peer whose keys were restored can't report a reason in a signed confirmation. */
const REJECTED_UNSIGNED =
  'the recipient rejected it, or lacks its key: "sealpost listen" receives the new keys, then send it again'

/** Returns why a later state is not known, or can't follow. */
function laterParts({ sent, where, session }: LoggedMessage): string[] {
  if (!sent) return []
  const { state, isSigned, reply, isRequest, asksConfirmation, asksReceipts } = sent
  const isOpen = state === 'stored' || state === 'pushed' || state === 'read'
  const isForgotten = isOpen && where?.status === 'unknown'
  const isAway = session?.isNamed && !session.isRunning && (isOpen || state === 'settled') && (asksConfirmation || asksReceipts) // biome-ignore format: one thing
  return [
    ...(isRequest && !reply && state !== 'refused' ? ['no reply has arrived'] : []),
    ...(!isRequest && reply ? [`replied ${timeOf(reply.atMs)}`] : []),
    ...(isOpen && asksConfirmation ? ['not confirmed'] : []),
    ...(state === 'rejected' && !isSigned ? [REJECTED_UNSIGNED] : []),
    ...(isOpen && !asksConfirmation && !reply && where?.status === 'gone' ? ['no confirmation was asked for'] : []),
    ...(isForgotten ? ['the broker no longer knows it, which happens a day after a message has ended'] : []),
    ...(isAway ? [`reports wait for the session ${session.label}, which does not run`] : []),
  ]
}

/** Returns the recipient's name, such as `bob` or `bob/laptop`. */
export function nameOf({ sent, where }: LoggedMessage, contacts: Contacts): string {
  if (sent?.audience?.kind === 'pool') return audienceName(sent.audience, contacts)
  return escapeName(sent ? labelOf(contacts, sent.user, sent.deviceLabel) : labelOf(contacts, where!.recipient!))
}

/** The number of recipients that the name of a send lists. */
const NAMED_MAX = 3

/** Returns what a message was sent to, such as `@crew` or `bob, carol and 4 more`. */
export function targetOf(send: readonly LoggedMessage[], contacts: Contacts): string {
  const names = new Set(
    send.map((item) => (item.sent?.audience ? audienceName(item.sent.audience, contacts) : nameOf(item, contacts))),
  )
  const listed = [...names].slice(0, NAMED_MAX).join(', ')
  return names.size > NAMED_MAX ? `${listed} and ${names.size - NAMED_MAX} more` : listed
}

function audienceName({ kind, id, name }: SentAudience, contacts: Contacts): string {
  switch (kind) {
    case 'group':
      return `@${escapeName(name)}`
    case 'pool':
      return `pool ${escapeName(name)}`
    case 'user':
      return `${escapeName(labelOf(contacts, id as PeerKey))}, every session`
    case 'everybody':
      return '@everybody'
  }
}

/** Counts the states of a send, such as `1 confirmed, 2 stored`. */
export function countsOf(send: readonly LoggedMessage[]): string {
  const counts = new Map<string, number>()
  for (const item of send) counts.set(wordOf(item), (counts.get(wordOf(item)) ?? 0) + 1)
  return [...counts].map(([word, count]) => `${count} ${word}`).join(', ')
}

function wordOf({ sent, where }: LoggedMessage): string {
  if (sent?.isRequest && sent.reply) return 'answered'
  if (where?.status === 'gone' || where?.status === 'delayed') return where.status
  const { state } = sent!
  return state === 'sending' ? 'not stored yet' : state === 'struck_out' ? 'failed too often' : state
}

/** Returns who has confirmed a message to several recipients and who has not; undefined if nobody was asked. */
export function confirmersOf(send: readonly LoggedMessage[], contacts: Contacts): string | undefined {
  const asked = send.filter(({ sent }) => sent?.asksConfirmation)
  if (asked.length === 0) return undefined
  const namesOf = (isConfirmed: boolean) =>
    asked.filter(({ sent }) => (sent!.state === 'confirmed') === isConfirmed).map((item) => nameOf(item, contacts))
  const [by, not] = [namesOf(true), namesOf(false)]
  const missing = not.length === 0 ? '' : `${by.length === 0 ? '' : '; '}not confirmed by ${not.join(', ')}`
  return `${by.length === 0 ? '' : `confirmed by ${by.join(', ')}`}${missing}`
}

/** Formats a time as `10:02`, with the date unless it is today. */
export function timeOf(atMs: Millis): string {
  const at = new Date(atMs)
  const time = at.toTimeString().slice(0, 5)
  if (at.toDateString() === new Date().toDateString()) return time
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`
}

const two = (number: number): string => String(number).padStart(2, '0')
