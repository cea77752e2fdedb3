/** Finds what a profile has sent: with its own key, and by its sessions, whose logs are in their folders. */
import { type SentMessage, withWhereabouts } from '@sealpost/sdk/sent'
import { type SessionLog, sessionLogs } from '@sealpost/sdk/sessions'
import type { Millis } from '@sealpost/std'
import type { Shell } from '../shell.ts'
import { callPeer, sessionPlaceOf, WAITING_CREDIT } from './peer-session.ts'
import {
  ASKED_MAX,
  firstSends,
  isAwaited,
  isOpen,
  type LoggedMessage,
  type SentQuery,
  type SentReply,
  whereaboutsOf,
} from './sent-calls.ts'

/** How long a command waits for reports that the broker holds for this profile. */
export const REPORTS_WITHIN_MS = 3_000
/** Covers a broker that does not respond over HTTP. */
const CALL_WITHIN_MS = 20_000

type ProfileQuery = Omit<SentQuery, 'waitMs'>

/**
 * Returns messages that the profile has sent, the newest send first, and asks the broker about those whose end is not
 * known.
 */
export async function findSent(shell: Shell, query: ProfileQuery): Promise<SentReply> {
  const { envelopeId } = query
  const logs = await sessionLogs(await sessionPlaceOf(shell))
  const log = envelopeId && logs.find(({ sent }) => sent.some((one) => one.envelopeId === envelopeId))
  if (log) return explained(sendIn(log, envelopeId), [log])
  const own = await ownSent(shell, query)
  if (envelopeId !== undefined) return own
  const items = newestSends([own.items, ...logs.map((each) => itemsOf(each, query))], query.limit)
  return own.failure ? { items, failure: own.failure } : explained(items, logs)
}

/** Returns what was sent with the profile's own key, and waits briefly for reports that the broker has for it. */
export async function ownSent(shell: Shell, query: ProfileQuery): Promise<SentReply> {
  const reply = await callPeer(shell, { method: 'sentMessages', params: query, withinMs: CALL_WITHIN_MS })
  if (!reply.items.some(isAwaited)) return reply
  const params = { ...query, waitMs: REPORTS_WITHIN_MS }
  return callPeer(shell, { method: 'sentMessages', params, withinMs: CALL_WITHIN_MS, credit: WAITING_CREDIT })
}

/** Merges lists of several logs, newest first. Returns the newest sends, each with its recipients in order. */
export function newestSends(lists: readonly (readonly LoggedMessage[])[], limit = Infinity): LoggedMessage[] {
  const sends = lists.flatMap(sendsOf).map((send) => send.toReversed())
  sends.sort((a, b) => sentAt(b) - sentAt(a))
  return sends.slice(0, limit).flat()
}

/** Divides a list of one log into sends. */
export function sendsOf(items: readonly LoggedMessage[]): LoggedMessage[][] {
  const sends: LoggedMessage[][] = []
  for (const item of items) {
    const last = sends.at(-1)
    if (last && isSameSend(last[0]!, item)) last.push(item)
    else sends.push([item])
  }
  return sends
}

/** An earlier version of this program, which may have the connection, reports no numbers. */
const isSameSend = (a: LoggedMessage, b: LoggedMessage): boolean =>
  a.sent?.sendNo !== undefined && a.sent.sendNo === b.sent?.sendNo && a.session?.label === b.session?.label

const sentAt = (send: readonly LoggedMessage[]): Millis => Math.max(...send.map(({ sent }) => sent?.sentAtMs ?? 0))

const itemOf = ({ label, isNamed, isRunning }: SessionLog, sent: SentMessage): LoggedMessage => ({
  ...{ session: { label, isNamed, isRunning }, sent, where: null },
})

const itemsOf = (log: SessionLog, query: ProfileQuery): LoggedMessage[] =>
  firstSends(log.sent, query).map((sent) => itemOf(log, sent))

/** Returns the messages of one send, this one first. */
function sendIn(log: SessionLog, envelopeId: string): LoggedMessage[] {
  const own = log.sent.find((sent) => sent.envelopeId === envelopeId)!
  const others = log.sent.filter((sent) => sent.sendNo === own.sendNo && sent !== own)
  return [own, ...others.reverse()].map((sent) => itemOf(log, sent))
}

/** Asks the broker, in the name of the sessions, about their messages whose end is not known. */
async function explained(items: readonly LoggedMessage[], logs: readonly SessionLog[]): Promise<SentReply> {
  const asked = await Promise.all(logs.map((log) => whereaboutsOf(log, openIdsOf(items, log))))
  const found = new Map(asked.flatMap((reply) => [...reply.found]))
  const failure = asked.find((reply) => reply.failure)?.failure ?? null
  return { failure, items: items.map((item) => withReport(item, found)) }
}

function openIdsOf(items: readonly LoggedMessage[], { label }: SessionLog) {
  const own = items.filter(({ session }) => session?.label === label)
  return own.flatMap(({ sent }) => (sent?.envelopeId && isOpen(sent) ? [sent.envelopeId] : [])).slice(0, ASKED_MAX)
}

function withReport(item: LoggedMessage, found: Awaited<ReturnType<typeof whereaboutsOf>>['found']): LoggedMessage {
  const { sent } = item
  const where = sent?.envelopeId ? found.get(sent.envelopeId) : undefined
  return where ? { ...item, sent: withWhereabouts(sent!, where), where } : item
}
