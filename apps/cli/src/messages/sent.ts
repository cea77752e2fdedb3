/** `sealpost sent` lists sent messages with their states, and `sealpost why` explains where one message is. */
import type { EnvelopeId } from '@sealpost/sdk'
import type { MessageWhereabouts, SentMessage } from '@sealpost/sdk/sent'
import { isHex, type Millis, OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { resolveRecipient } from '../members/member-list.ts'
import { escapeName } from '../output.ts'
import { Contacts } from '../profile/contacts.ts'
import { callPeer, WAITING_CREDIT } from '../session/peer-session.ts'
import { isAwaited, type LoggedMessage, type SentReply } from '../session/sent-calls.ts'
import { parseInteger } from '../settings.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { labelOf } from './incoming-message.ts'

interface SentOptions {
  readonly to?: string
  readonly limit: number
}

const LIMIT = 20
const LIMIT_MAX = 500
/** How long a command waits for reports that the broker holds for this profile. */
export const REPORTS_WITHIN_MS = 3_000
/** Covers a broker that does not respond over HTTP. */
const CALL_WITHIN_MS = 20_000

export function sentCommand(run: RunAction): Command {
  return new Command('sent')
    .description('List the messages that this profile sent to single peers, newest first, with what became of them')
    .option('--to <PEER>', 'list only messages to this peer (name, fingerprint or key)')
    .option('-n, --limit <N>', 'the maximum number of messages', parseInteger(1, LIMIT_MAX), LIMIT)
    .addHelpText('after', examples('sealpost sent', 'sealpost sent --to bob --limit 5', 'sealpost sent --json'))
    .action(run(listSent))
}

export function whyCommand(run: RunAction): Command {
  return new Command('why')
    .description('Explain in one line where a sent message is, and what it waits for')
    .argument('<ENVELOPE>', 'the envelope id (32 hex digits), from "sent" or "send --json"')
    .addHelpText('after', examples('sealpost why 019b76da80007000800000000000000a'))
    .action(run(explain))
}

async function listSent(shell: Shell, { to, limit }: SentOptions): Promise<void> {
  const key = to === undefined ? undefined : await resolveRecipient(shell, to)
  const { items, failure } = await collect(shell, { limit, ...(key && { to: key }) })
  const contacts = await Contacts.read(shell.profile.contactsFile)
  if (failure) shell.output.warn(`The broker was not asked about open messages (${failure.code}).`)
  const rows = items.map((item) => [
    timeOf(item.sent!.sentAtMs),
    nameOf(item, contacts),
    stateOf(item, contacts),
    item.sent!.envelopeId ?? '',
  ])
  await shell.output.results(items.map(jsonOf), () => shell.output.table(['SENT', 'TO', 'STATE', 'ENVELOPE'], rows))
}

async function explain(shell: Shell, _: object, word: string): Promise<void> {
  if (!isHex(word, 16)) throw new OperatingError('usage', 'An envelope id has 32 hex digits in lower case.')
  const envelopeId = word as EnvelopeId
  const { items, failure } = await collect(shell, { envelopeId })
  const [item] = items as [LoggedMessage]
  if (!item.sent && (!item.where || item.where.status === 'unknown')) throw unknown(envelopeId, failure)
  const contacts = await Contacts.read(shell.profile.contactsFile)
  if (failure) shell.output.warn(`The broker does not report where the message is (${failure.code}).`)
  await shell.output.result(jsonOf(item), () => lineOf(item, contacts))
}

export function unknown(envelopeId: string, failure: SentReply['failure']): OperatingError {
  const asked = failure
    ? `the broker was not asked (${failure.code})`
    : 'the broker has none of yours, or has forgotten it'
  return new OperatingError('message_unknown', `This profile's log has no message ${envelopeId}, and ${asked}.`)
}

type Query = Parameters<typeof callPeer<'sentMessages'>>[1]['params']

/** Asks the session's holder, and then waits briefly for reports that the broker has for this profile. */
export async function collect(shell: Shell, query: Query): Promise<SentReply> {
  const reply = await callPeer(shell, { method: 'sentMessages', params: query, withinMs: CALL_WITHIN_MS })
  if (!reply.items.some(isAwaited)) return reply
  const params = { ...query, waitMs: REPORTS_WITHIN_MS }
  return await callPeer(shell, { method: 'sentMessages', params, withinMs: CALL_WITHIN_MS, credit: WAITING_CREDIT })
}

/** Returns the log's fields and the broker's in one object. */
export function jsonOf({ sent, where }: LoggedMessage): object {
  if (sent) return { ...sent, broker: where }
  return { envelopeId: where!.envelopeId, to: where!.recipient, broker: where }
}

/** Describes a state in a few words. */
export function stateOf({ sent, where }: LoggedMessage, contacts: Contacts): string {
  if (where?.status === 'gone') return 'gone: settled, or removed or redriven by an operator'
  if (where?.status === 'delayed') return `delayed until ${timeOf(where.dueAtMs!)}`
  if (!sent) return where?.status === 'dead' ? `dead: ${where.death}` : (where?.status ?? '')
  return wordsOf(sent, contacts)
}

/** Returns the recipient's name, such as `bob` or `bob/laptop`. */
function nameOf({ sent, where }: LoggedMessage, contacts: Contacts): string {
  return escapeName(sent ? labelOf(contacts, sent.user, sent.deviceLabel) : labelOf(contacts, where!.recipient!))
}

function wordsOf(sent: SentMessage, contacts: Contacts): string {
  const { state, isSigned, signer, reason, atMs, to } = sent
  const because = reason === '' ? '' : `: ${escapeName(reason)}`
  const label = signer === to ? labelOf(contacts, sent.user, sent.deviceLabel) : signer && labelOf(contacts, signer)
  const by = label === null ? '' : ` by ${escapeName(label)}`
  const at = timeOf(atMs)
  switch (state) {
    case 'sending':
      return `not stored yet${because}`
    case 'settled':
      return `settled ${at}, not confirmed`
    case 'rejected':
      return `rejected ${at}${by}${because}${isSigned ? '' : ', not confirmed'}`
    case 'struck_out':
      return `failed too often ${at}`
    default:
      return `${state} ${at}${by}${because}`
  }
}

/** Returns the line of `why`, such as `stored 10:02 · bob offline since 09:40 · attempt 2 of 20`. */
export function lineOf(item: LoggedMessage, contacts: Contacts): string {
  const { where } = item
  const isOpen = where?.status === 'delayed' || where?.status === 'waiting' || where?.status === 'pushed'
  return [stateOf(item, contacts), ...(isOpen ? openParts(where, nameOf(item, contacts)) : [])].join(' · ')
}

function openParts(where: MessageWhereabouts, name: string): string[] {
  const { status, presence, failedAttempts, failedAttemptsMax, dueAtMs } = where
  const isWaiting = status === 'waiting' || status === 'pushed'
  return [
    ...(presence ? [`${name} ${presenceOf(presence)}`] : []),
    ...(presence?.isOnline && presence.availability !== 'idle' ? [presence.availability] : []),
    ...(isWaiting ? [`attempt ${failedAttempts + 1} of ${failedAttemptsMax}`] : []),
    ...(status === 'waiting' && dueAtMs !== null ? [`next attempt ${timeOf(dueAtMs)}`] : []),
  ]
}

function presenceOf({ isOnline, offlineSinceMs, connectedAtMs }: NonNullable<MessageWhereabouts['presence']>): string {
  if (isOnline) return 'online'
  if (offlineSinceMs !== null) return `offline since ${timeOf(offlineSinceMs)}`
  return connectedAtMs === null ? 'never connected' : `offline, last connected ${timeOf(connectedAtMs)}`
}

/** Formats a time as `10:02`, with the date unless it is today. */
function timeOf(atMs: Millis): string {
  const at = new Date(atMs)
  const time = at.toTimeString().slice(0, 5)
  if (at.toDateString() === new Date().toDateString()) return time
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${time}`
}

const two = (number: number): string => String(number).padStart(2, '0')
