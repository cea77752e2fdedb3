/** Defines commands' calls to the log of the profile's sent messages. */
import type { EnvelopeId, Peer, PeerKey } from '@sealpost/sdk'
import {
  type MessageWhereabouts,
  type SentLog,
  type SentMessage,
  sentLogOf,
  type TrackedSendOptions,
  type WaitGoal,
} from '@sealpost/sdk/sent'
import type { Millis } from '@sealpost/std'
import type { PostParams } from './bulk-calls.ts'

export interface SendParams extends PostParams {
  readonly to: PeerKey
  /** When the broker delivers the message. */
  readonly notBefore?: Millis
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

export interface SentQuery {
  readonly to?: PeerKey
  readonly limit?: number
  /** Only this message, which the log need not have. */
  readonly envelopeId?: EnvelopeId
  /** How long to wait for reports that the broker still holds for this peer. */
  readonly waitMs?: Millis
}

/** A message of the log, and where it is if the broker reports it. */
export interface LoggedMessage {
  /** Null if the log does not have it. */
  readonly sent: SentMessage | null
  /** Null if the broker was not asked or does not respond. */
  readonly where: MessageWhereabouts | null
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
  /** Returns messages of the log, and asks the broker about those whose end is not known. */
  sentMessages(query: SentQuery): Promise<SentReply>
}

export function sentCallsOf(peer: Peer): SentCalls {
  const log = sentLogOf(peer)
  return {
    sendAndWait: (params) => sendAndWait(log, params),
    waitForSent: ({ envelopeId, ...goal }) => waitForSent(log, envelopeId, goal),
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
  const { to, bodyBase64, wait, timeoutMs, asksConfirmation, ...options } = params
  const untilMs = performance.now() + timeoutMs
  const wishes: TrackedSendOptions = asksConfirmation
    ? { receipts: wait === 'pushed' ? 'all' : 'end', confirm: 'all' }
    : {}
  const { receipt } = await log.enqueue(to, Buffer.from(bodyBase64, 'base64'), { ...options, wait, ...wishes })
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

async function find(log: SentLog, { envelopeId, ...filter }: Omit<SentQuery, 'waitMs'>): Promise<SentReply> {
  const known = envelopeId === undefined ? log.list(filter) : [log.find(envelopeId)]
  const ids = known.map((sent) => (sent ? sent.envelopeId : envelopeId!))
  const open = ids.filter((id, i): id is EnvelopeId => id !== null && (known[i] === null || isOpen(known[i]!)))
  const { found, failure } = await whereaboutsOf(log, open)
  const items = known.map((sent, i) => ({ sent: sent && again(log, sent), where: found.get(ids[i]!) ?? null }))
  return { items, failure }
}

async function whereaboutsOf(log: SentLog, open: readonly EnvelopeId[]) {
  const found = new Map<EnvelopeId, MessageWhereabouts>()
  try {
    if (open.length > 0) for (const where of await log.askBroker(open)) found.set(where.envelopeId, where)
    return { found, failure: null }
  } catch (error) {
    return { found, failure: failureOf(error as Error) }
  }
}

const OPEN: ReadonlySet<SentMessage['state']> = new Set(['sending', 'stored', 'pushed', 'read'])

const isOpen = ({ state }: SentMessage): boolean => OPEN.has(state)

/** How long a confirmation may follow the broker's report. An old recipient sends none. */
const CONFIRMED_WITHIN_MS = 60_000

/** Whether reports that the sender asked for may still wait at the broker. */
export function isAwaited({ sent, where }: LoggedMessage): boolean {
  if (!sent || sent.envelopeId === null) return false
  const { state, asksReceipts, asksConfirmation, isSigned, atMs } = sent
  if (OPEN.has(state)) return asksReceipts && (where?.status === 'gone' || where?.status === 'dead')
  return state === 'settled' && asksConfirmation && !isSigned && Date.now() - atMs < CONFIRMED_WITHIN_MS
}
