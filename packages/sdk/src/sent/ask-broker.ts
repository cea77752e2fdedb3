/** Asks the broker where sent messages are. The reply is the broker's word. */
import type { Availability } from '@sealpost/protocol'
import type { EnvelopeId, Millis, PeerKey } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import { HttpAccess, type HttpSigner } from '../http/access.ts'
import { chunksOf } from '../outbox/lane.ts'
import { changeBy, type SentMessage, type SentReport } from './sent-states.ts'

/** Where a message is, according to the broker. Times are according to the database clock; null if not known. */
export interface MessageWhereabouts {
  readonly envelopeId: EnvelopeId
  /**
   * `delayed`: until `dueAtMs`. `waiting`: for the recipient; after a failed attempt, not before `dueAtMs`. `pushed`: the
   * recipient's session holds it. `dead`: a dead letter. `gone`: settled, or removed or redriven by an operator. `unknown`: the
   * broker never accepted it or has forgotten it, which it does a day after the message has ended.
   */
  readonly status: 'delayed' | 'waiting' | 'pushed' | 'dead' | 'gone' | 'unknown'
  readonly recipient: PeerKey | null
  readonly enqueuedAtMs: Millis | null
  readonly expiresAtMs: Millis | null
  readonly dueAtMs: Millis | null
  readonly failedAttempts: number
  /** The number of failed attempts after which the message is a dead letter. */
  readonly failedAttemptsMax: number
  /** Why it is a dead letter. */
  readonly death: 'expired' | 'strikes' | 'rejected' | null
  readonly diedAtMs: Millis | null
  readonly presence: RecipientPresence | null
}

/** The recipient's presence, as every member can watch it. */
export interface RecipientPresence {
  readonly isOnline: boolean
  readonly availability: Availability
  /** When the last session ended. */
  readonly offlineSinceMs: Millis | null
  /** When the last session began. */
  readonly connectedAtMs: Millis | null
}

/** The number of ids that a broker accepts at a time. */
const ASKED_MAX = 64
const PATIENCE_MS = 10_000

export async function askBroker(sender: HttpSigner, ids: readonly EnvelopeId[]): Promise<MessageWhereabouts[]> {
  const access = new HttpAccess(sender, { patienceMs: PATIENCE_MS })
  const found: MessageWhereabouts[] = []
  try {
    for (const envelopeIds of chunksOf([...ids], ASKED_MAX)) {
      const reply = await access.ask({ method: 'POST', path: '/v1/sent', json: { envelopeIds } })
      found.push(...reply.json<{ messages: MessageWhereabouts[] }>().messages)
    }
    return found
  } catch (error) {
    throw (error as SealpostError).code === 'not_found' ? tooOld() : error
  } finally {
    await access.close()
  }
}

const tooOld = () =>
  new SealpostError('not_found', "The broker is of an earlier version, which can't report where a message is.")

/** Returns what the reply reports about a message. */
export function reportsIn({ status, enqueuedAtMs, death, diedAtMs }: MessageWhereabouts): SentReport[] {
  if (status === 'unknown') return []
  const nowMs = Date.now()
  return [
    { state: 'stored', atMs: enqueuedAtMs ?? nowMs },
    ...(status === 'pushed' ? [{ state: 'pushed', atMs: nowMs } as const] : []),
    ...(death === null
      ? []
      : [{ state: death === 'strikes' ? 'struck_out' : death, atMs: diedAtMs ?? nowMs } as const]),
  ]
}

/**
 * Returns a message of a log, changed by what the broker reports about it. `SentLog.askBroker` does this for its own
 * messages.
 * @example const [where] = await sentLogOf(peer).askBroker([envelopeId])
 * const shown = withWhereabouts(sentLogOf(peer).find(envelopeId)!, where!)
 */
export function withWhereabouts(sent: SentMessage, where: MessageWhereabouts): SentMessage {
  let changed = sent
  for (const report of reportsIn(where)) changed = { ...changed, ...changeBy(changed, report) }
  return changed
}
