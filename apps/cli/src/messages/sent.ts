/** `sealpost sent` lists sent messages with their states, and `sealpost why` explains where one message is. */
import type { EnvelopeId } from '@sealpost/sdk'
import { isHex, OperatingError } from '@sealpost/std'
import { Command } from 'commander'
import { resolveRecipient } from '../members/member-list.ts'
import { escapeName } from '../output.ts'
import { Contacts } from '../profile/contacts.ts'
import { findGroup } from '../session/peer-calls.ts'
import { callPeer } from '../session/peer-session.ts'
import { findSent, sendsOf } from '../session/profile-log.ts'
import type { LoggedMessage, SentQuery, SentReply } from '../session/sent-calls.ts'
import { parseInteger } from '../settings.ts'
import { examples, type RunAction, type Shell } from '../shell.ts'
import { isOnePeer } from './delivery.ts'
import { confirmersOf, countsOf, lineOf, nameOf, stateOf, targetOf, timeOf } from './sent-words.ts'

interface SentOptions {
  readonly to?: string
  readonly limit: number
}

const LIMIT = 20
const LIMIT_MAX = 500
/** The number of recipients of a message that `sent` lists. */
const LISTED_MAX = 10

export function sentCommand(run: RunAction): Command {
  return new Command('sent')
    .description(
      'List the messages that this profile and its sessions sent, newest first, with what became of them. A message to several recipients has a line for each of them.',
    )
    .option('--to <TO>', 'list only messages to this peer (name, fingerprint or key) or @GROUP')
    .option('-n, --limit <N>', 'the maximum number of messages', parseInteger(1, LIMIT_MAX), LIMIT)
    .addHelpText(
      'after',
      examples('sealpost sent', 'sealpost sent --to bob --limit 5', 'sealpost sent --to @crew', 'sealpost sent --json'),
    )
    .action(run(listSent))
}

export function whyCommand(run: RunAction): Command {
  return new Command('why')
    .description(
      'Explain where a sent message is, and what it waits for. For a message to several recipients, it has a line for each of them, and names who has confirmed the message.',
    )
    .argument('<ENVELOPE>', 'the envelope id (32 hex digits), from "sent" or "send --json"')
    .addHelpText('after', examples('sealpost why 019b76da80007000800000000000000a'))
    .action(run(explain))
}

async function listSent(shell: Shell, { to, limit }: SentOptions): Promise<void> {
  const { items, failure } = await findSent(shell, { limit, ...(to !== undefined && (await filterFor(shell, to))) })
  const contacts = await Contacts.read(shell.profile.contactsFile)
  if (failure) shell.output.warn(`The broker was not asked about open messages (${failure.code}).`)
  const hasSessions = items.some(({ session }) => session)
  const rows = sendsOf(items).flatMap((send) => rowsOf(send, contacts))
  const shown = rows.map(({ session, envelope, ...row }) => [
    ...[row.sent, row.to, row.state, ...(hasSessions ? [session] : []), envelope],
  ])
  const head = ['SENT', 'TO', 'STATE', ...(hasSessions ? ['SESSION'] : []), 'ENVELOPE']
  await shell.output.results(items.map(jsonOf), () => shell.output.table(head, shown))
}

/** @throws OperatingError `unknown_group`, `group_ambiguous`, and the errors of `resolveRecipient` */
async function filterFor(shell: Shell, to: string): Promise<Pick<SentQuery, 'to' | 'group'>> {
  if (isOnePeer(to)) return { to: await resolveRecipient(shell, to) }
  return { group: findGroup(await callPeer(shell, { method: 'groups', params: null }), to.slice(1)).id }
}

type Row = Record<'sent' | 'to' | 'state' | 'session' | 'envelope', string>

/** Returns one row, or for several recipients a row for the message and one for each recipient. */
function rowsOf(send: readonly LoggedMessage[], contacts: Contacts): Row[] {
  const [first] = send as [LoggedMessage]
  const { sentAtMs, audience } = first.sent!
  const common = { sent: timeOf(sentAtMs), session: escapeName(first.session?.label ?? '') }
  const rowOf = (item: LoggedMessage) => ({ state: stateOf(item, contacts), envelope: item.sent!.envelopeId ?? '' })
  if (send.length === 1 && (!audience || audience.kind === 'pool'))
    return [{ ...common, to: nameOf(first, contacts) + kindOf(first), ...rowOf(first) }]
  const head = { ...common, to: targetOf(send, contacts) + kindOf(first), state: countsOf(send), envelope: '' }
  const rows = send.slice(0, LISTED_MAX).map((item) => ({
    ...{ sent: '', session: '', to: `  ${nameOf(item, contacts)}`, ...rowOf(item) },
  }))
  const more = send.length - rows.length
  const rest = { ...{ sent: '', session: '', envelope: '' }, to: `  ${more} more`, state: '"why" lists them' }
  return [head, ...rows, ...(more > 0 ? [rest] : [])]
}

const kindOf = ({ sent }: LoggedMessage): string => (sent!.isRequest ? ' (request)' : sent!.inReplyTo ? ' (reply)' : '')

async function explain(shell: Shell, _: object, word: string): Promise<void> {
  const id = word.replaceAll('-', '').toLowerCase() // `sealpost.send` returns it as a UUID
  if (!isHex(id, 16)) throw new OperatingError('usage', 'An envelope id has 32 hex digits.')
  const envelopeId = id as EnvelopeId
  const { items, failure } = await findSent(shell, { envelopeId })
  const [item] = items as [LoggedMessage]
  if (!item.sent && (!item.where || item.where.status === 'unknown')) throw unknown(envelopeId, failure)
  const contacts = await Contacts.read(shell.profile.contactsFile)
  if (failure) shell.output.warn(`The broker does not report where the message is (${failure.code}).`)
  const recipients = items.length === 1 ? {} : { recipients: items.map(jsonOf) }
  await shell.output.result({ ...jsonOf(item), ...recipients }, () =>
    items.length === 1 ? lineOf(item, contacts) : linesOf(shell, items, contacts),
  )
}

/** Returns a line about the message, one for each recipient, and one that names who has confirmed the message. */
function linesOf({ output }: Shell, items: readonly LoggedMessage[], contacts: Contacts): string {
  const [{ sent, session }] = items as [LoggedMessage]
  const by = session ? ` by the session ${escapeName(session.label)}` : ''
  const head = `sent ${timeOf(sent!.sentAtMs)}${by} to ${targetOf(items, contacts)} · ${countsOf(items)}`
  const confirmers = confirmersOf(items, contacts)
  const rows = items.map((item) => [`  ${nameOf(item, contacts)}`, lineOf(item, contacts)])
  return [head, output.columns(rows), ...(confirmers === undefined ? [] : [confirmers])].join('\n')
}

export function unknown(envelopeId: string, failure: SentReply['failure']): OperatingError {
  const asked = failure
    ? `the broker was not asked (${failure.code})`
    : 'the broker has none of yours, or has forgotten it'
  return new OperatingError('message_unknown', `This profile's log has no message ${envelopeId}, and ${asked}.`)
}

/** Returns the log's fields and the broker's in one object. `session`: null for the profile's own key. */
export function jsonOf({ sent, where, session }: LoggedMessage): object {
  const facts = { session: session?.label ?? null, broker: where }
  return sent ? { ...sent, ...facts } : { envelopeId: where!.envelopeId, to: where!.recipient, ...facts }
}
