/** Defines commands' calls to the log of the profile's sent messages. */
import type { EnvelopeId, GroupId, Peer, PeerKey } from '@sealpost/sdk'
import { type MessageWhereabouts, type SentLog, type SentMessage, sentLogOf, type WaitGoal } from '@sealpost/sdk/sent'
import type { Millis } from '@sealpost/std'
import type { PostParams } from './bulk-calls.ts'

export interface SendParams extends PostParams {
  readonly to: PeerKey
  /** When the broker delivers the message. */
  readonly notBefore?: Millis
}

/** Returns the receipts and confirmations to ask for. `asks`: ask for a confirmation for every goal of the wait. */
export function wishesOf(wait: WaitGoal, asks: boolean): Pick<PostParams, 'receipts' | 'confirm'> {
  const confirm = asks ? 'all' : wait === 'confirmed' ? 'end' : undefined
  if (wait === 'stored' && !confirm) return {}
  return { receipts: wait === 'pushed' ? 'all' : 'end', ...(confirm && { confirm }) }
}

interface TrackedSendParams extends SendParams {
  readonly wait: WaitGoal
  /** The time limit of the whole call, once the broker has stored the message. */
  readonly timeoutMs: Millis
  /** Whether to ask for a confirmation, whatever the call waits for. */
  readonly asksConfirmation?: boolean
}

interface Failure {
  readonly code: string
  readonly message: string
}

export interface WaitResult {
  readonly sent: SentMessage
  /** Why the message has not reached the awaited state; null if it has. `closed`: the session ended before. */
  readonly failure: Failure | null
}

export interface TrackedSendResult extends WaitResult {
  readonly envelopeId: EnvelopeId
  readonly isDuplicate: boolean
}

export interface WaitForEachParams {
  readonly envelopeIds: readonly EnvelopeId[]
  readonly wait: WaitGoal
  readonly timeoutMs: Millis
}

export interface SentQuery {
  /** Only messages to this peer. */
  readonly to?: PeerKey
  /** Only messages to this group. */
  readonly group?: GroupId
  /** The maximum number of sends, each with all of its recipients. */
  readonly limit?: number
  /** Only the send of this message, which the log need not have. The message is the first item. */
  readonly envelopeId?: EnvelopeId
  /** How long to wait for reports that the broker still holds for this peer. */
  readonly waitMs?: Millis
}

/** A message of a log, and where it is if the broker reports it. */
export interface LoggedMessage {
  /** The session that sent it; null for the profile's own key. */
  readonly session?: SessionOfLog | null
  /** Null if the log does not have it. */
  readonly sent: SentMessage | null
  /** Null if the broker was not asked or does not respond. */
  readonly where: MessageWhereabouts | null
}

/** The session that has a log. */
export interface SessionOfLog {
  readonly label: string
  readonly isNamed: boolean
  readonly isRunning: boolean
}

export interface SentReply {
  /** Newest first. */
  readonly items: readonly LoggedMessage[]
  /** Why the broker was not asked; null if it was, or if no message is open. */
  readonly failure: Failure | null
}

export interface SentCalls {
  sendAndWait(params: TrackedSendParams): Promise<TrackedSendResult>
  /** Continues the wait of a `sendAndWait` whose session ended. */
  waitForSent(params: Pick<TrackedSendParams, 'wait' | 'timeoutMs'> & { envelopeId: EnvelopeId }): Promise<WaitResult>
  /** Waits for messages to several recipients. Resolves with one result for each id, in order. */
  waitForEach(params: WaitForEachParams): Promise<readonly WaitResult[]>
  /** Returns messages of the log, and asks the broker about those whose end is not known. */
  sentMessages(query: SentQuery): Promise<SentReply>
}

export function sentCallsOf(peer: Peer): SentCalls {
  const log = sentLogOf(peer)
  return {
    sendAndWait: (params) => sendAndWait(log, params),
    waitForSent: ({ envelopeId, ...goal }) => waitForSent(log, envelopeId, goal),
    waitForEach: ({ envelopeIds, ...goal }) => Promise.all(envelopeIds.map((id) => waitForSent(log, id, goal))),
    sentMessages: async ({ waitMs = 0, ...query }) => {
      const reply = await find(log, query)
      const awaited = reply.items.filter(isAwaited)
      if (waitMs === 0 || awaited.length === 0) return reply
      await Promise.all(awaited.map(({ sent }) => log.wait(sent!.envelopeId!, goalOf(sent!), { timeoutMs: waitMs }).catch(() => null))) // biome-ignore format: one thing
      return { ...reply, items: reply.items.map(({ sent, where }) => ({ sent: sent && again(log, sent), where })) }
    },
  }
}

const goalOf = ({ asksConfirmation }: SentMessage): WaitGoal => (asksConfirmation ? 'confirmed' : 'settled')
const again = (log: SentLog, sent: SentMessage) => (sent.envelopeId && log.find(sent.envelopeId)) ?? sent

async function sendAndWait(log: SentLog, params: TrackedSendParams): Promise<TrackedSendResult> {
  const { to, bodyBase64, wait, timeoutMs, asksConfirmation = false, ...options } = params
  const untilMs = performance.now() + timeoutMs
  const { receipt } = await log.enqueue(to, Buffer.from(bodyBase64, 'base64'), {
    ...options,
    ...wishesOf(wait, asksConfirmation),
  })
  const { envelopeId, isDuplicate } = await receipt
  const leftMs = Math.max(0, untilMs - performance.now())
  return { envelopeId, isDuplicate, ...(await waitForSent(log, envelopeId, { wait, timeoutMs: leftMs })) }
}

async function waitForSent(
  log: SentLog,
  envelopeId: EnvelopeId,
  { wait, timeoutMs }: Pick<TrackedSendParams, 'wait' | 'timeoutMs'>,
): Promise<WaitResult> {
  const failure = await log.wait(envelopeId, wait, { timeoutMs }).then(() => null, failureOf)
  return { failure, sent: log.find(envelopeId)! }
}

const failureOf = ({ code = 'internal', message }: Error & { code?: string }): Failure => ({ code, message })

/** The number of messages of one reply whose place the broker is asked for. */
export const ASKED_MAX = 512

async function find(log: SentLog, { envelopeId, ...filter }: Omit<SentQuery, 'waitMs'>): Promise<SentReply> {
  const known = envelopeId === undefined ? firstSends(log.list(), filter) : sendOf(log, envelopeId)
  const ids = known.map((sent) => (sent ? sent.envelopeId : envelopeId!))
  const open = ids.filter((id, i): id is EnvelopeId => id !== null && (known[i] === null || isOpen(known[i]!)))
  const { found, failure } = await whereaboutsOf(log, open.slice(0, ASKED_MAX))
  const items = known.map((sent, i) => ({ sent: sent && again(log, sent), where: found.get(ids[i]!) ?? null }))
  return { items, failure }
}

/** Returns the messages of the first sends, without those to others than the recipient or group of the query. */
export function firstSends(sent: readonly SentMessage[], { to, group, limit = Infinity }: SentQuery): SentMessage[] {
  const sends = new Set<number>()
  const isTo = ({ to: key, user, audience }: SentMessage) =>
    (to === undefined || key === to || user === to) && (group === undefined || audience?.id === group)
  const isFirst = ({ sendNo }: SentMessage) => sends.has(sendNo) || (sends.size < limit && sends.add(sendNo))
  return sent.filter((message) => isTo(message) && isFirst(message))
}

/** Returns the messages of one send, this one first; null if the log does not have it. */
function sendOf(log: SentLog, envelopeId: EnvelopeId): (SentMessage | null)[] {
  const send = log.findSend(envelopeId)
  if (send.length === 0) return [null]
  return [log.find(envelopeId), ...send.filter((sent) => sent.envelopeId !== envelopeId)]
}

export async function whereaboutsOf(log: Pick<SentLog, 'askBroker'>, open: readonly EnvelopeId[]) {
  const found = new Map<EnvelopeId, MessageWhereabouts>()
  try {
    if (open.length > 0) for (const where of await log.askBroker(open)) found.set(where.envelopeId, where)
    return { found, failure: null }
  } catch (error) {
    return { found, failure: failureOf(error as Error) }
  }
}

const OPEN: ReadonlySet<SentMessage['state']> = new Set(['sending', 'stored', 'pushed', 'read'])

export const isOpen = ({ state }: SentMessage): boolean => OPEN.has(state)

/** How long a confirmation may follow the broker's report. An old recipient sends none. */
const CONFIRMED_WITHIN_MS = 60_000

/** Whether reports that the sender asked for may still wait at the broker. */
export function isAwaited({ sent, where }: LoggedMessage): boolean {
  if (!sent || sent.envelopeId === null) return false
  const { state, asksReceipts, asksConfirmation, isSigned, atMs } = sent
  if (OPEN.has(state)) return asksReceipts && (where?.status === 'gone' || where?.status === 'dead')
  return state === 'settled' && asksConfirmation && !isSigned && Date.now() - atMs < CONFIRMED_WITHIN_MS
}
