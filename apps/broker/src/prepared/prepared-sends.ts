/**
 * Sends what applications store with `sealpost.send` in their own transactions (docs/adr/0014-transactional-send.md). A
 * notification of the commit starts a round, which takes due rows, verifies their signatures, sends the envelopes as
 * sessions that only send, and stores the decisions. An envelope whose outcome is unknown is sent again under the same
 * id, and the ledger recognizes it.
 */
import type { WatchedChannel } from '@sealpost/bus/postgres'
import type { Driver } from '@sealpost/driver'
import { type PreparedSend, readPreparedSend } from '@sealpost/identity'
import { NativeSignatures } from '@sealpost/identity/native-signatures'
import { type Database, DatabaseError } from '@sealpost/pg'
import { type FrameOf, PRIORITIES, readMarking, refusal, type SendTerms } from '@sealpost/protocol'
import type { Queue } from '@sealpost/queue'
import { type Millis, OperatingError } from '@sealpost/std'
import {
  announcePreparedPolling,
  decidePreparedSends,
  endPreparedPolling,
  forgetPreparedSends,
  PREPARED_CHANNEL,
  type PreparedBacklog,
  type PreparedDecision,
  readPreparedBacklog,
  type TakenSend,
  takePreparedSends,
} from '@sealpost/store'
import type { Config } from '../config/config.ts'
import { type EnvelopeOutcome, sendOnce, TERMS_DEFAULTS, withHeads } from '../http/mailbox/send.ts'
import { errorFields, type Log } from '../telemetry/log.ts'
import type { Metrics } from '../telemetry/metrics.ts'

interface Parts {
  readonly driver: Driver
  readonly queue: Pick<Queue, 'findMembers'>
  readonly db: Database
  readonly log: Log
  readonly metrics: Metrics
}

/** The number of rows of a round, which limits its memory to a few megabytes of envelopes. */
const ROUND_ROWS_MAX = 64
/** The lease of a row. After a broker has died, another one sends its rows again after this time. */
const LEASE_MS: Millis = 5_000
/** The time after which a broker looks for rows without a notification, such as those of a broker that died. */
const LOOK_EVERY_MS: Millis = 30_000
const LOOK_SOONEST_MS: Millis = 10
/** While many transactions send, a broker looks this often, because notifications serialize their commits. */
const POLL_EVERY_MS: Millis = 20
/** How long an announcement to poll is valid, and when it is renewed. */
const POLL_FOR_MS: Millis = 5_000
const RENEW_BEFORE_MS: Millis = 3_000
/** The number of rows within a second that makes polling worthwhile. */
const BUSY_ROWS = 50
const BUSY_WITHIN_MS: Millis = 1_000
const FORGET_EVERY_MS: Millis = 60_000
/** The pause after a statement that failed. */
const FAILED_MS: Millis = 1_000
const PAUSE_BASE_MS: Millis = 100
/** The pause of a sender that exceeds its rate. A round's rows in this time are more than the default rate. */
const PACED_MS: Millis = 250
const PAUSE_MAX_MS: Millis = 30_000
/** The number of signatures to verify before other work gets a turn. */
const BREATH_EVERY = 16

const FORBIDDEN = '42501'

const EMPTY: PreparedBacklog = { waiting: 0, oldestMs: 0, dueInMs: null }

/** Reports that a transaction with prepared sends has committed. The bus listens for it before the engine exists. */
export class PreparedSignal {
  heard: () => void = () => undefined

  /** Returns the channel to watch; null if the setting is off. */
  channelFor({ PREPARED_SENDS }: Config): WatchedChannel | null {
    return PREPARED_SENDS === 'on' ? { channel: PREPARED_CHANNEL, onNotification: () => this.heard() } : null
  }
}

/** Starts to look for prepared sends if the setting is on. */
export function openPreparedSends(config: Config, signal: PreparedSignal, parts: Parts): { stop(): Promise<void> } {
  if (config.PREPARED_SENDS === 'off') return { stop: () => Promise.resolve() }
  return new PreparedSends(config, signal, parts)
}

class PreparedSends {
  readonly #parts: Parts
  readonly #dedupeMs: Millis
  readonly #signatures = new NativeSignatures()
  readonly #counts = { stored: 0, refused: 0, in_doubt: 0, queued: 0 }
  #backlog: PreparedBacklog = EMPTY
  #timer: ReturnType<typeof setTimeout> | undefined
  #running: Promise<void> | null = null
  /** Whether a notification arrived after the current round took its rows. */
  #isWanted = false
  #isStopped = false
  #forgotAtMs = Number.NEGATIVE_INFINITY
  #polling = new Polling()
  /** Whether the last round failed. */
  #hasFailed = false

  constructor({ DEDUPE_MS }: Config, signal: PreparedSignal, parts: Parts) {
    this.#parts = parts
    this.#dedupeMs = DEDUPE_MS
    this.#observe()
    signal.heard = () => this.#look()
    this.#look()
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    clearTimeout(this.#timer)
    await this.#running
    if (this.#polling.isOn) await endPreparedPolling(this.#parts.db).catch(() => undefined) // it soon ends by itself
  }

  #look(): void {
    this.#isWanted = true
    if (this.#isStopped || this.#running !== null) return
    clearTimeout(this.#timer)
    this.#running = this.#run().then((pauseMs) => {
      this.#running = null
      if (this.#isStopped) return
      if (this.#isWanted && !this.#hasFailed) return this.#look()
      this.#timer = setTimeout(() => this.#look(), pauseMs)
      this.#timer.unref()
    })
  }

  /** Runs rounds until no row is due. Returns when to look again. */
  async #run(): Promise<Millis> {
    const { db, log } = this.#parts
    try {
      while (this.#isWanted && !this.#isStopped) {
        this.#isWanted = false
        const taken = await takePreparedSends(db, { rowsMax: ROUND_ROWS_MAX, leaseMs: LEASE_MS })
        this.#polling.took(taken.length)
        if (taken.length > 0) await decidePreparedSends(db, await this.#decide(taken))
        if (taken.length === ROUND_ROWS_MAX) this.#isWanted = true
      }
      if (this.#polling.isDue) await this.#announce()
      this.#backlog = await readPreparedBacklog(db)
      await this.#forget()
      this.#hasFailed = false
      if (this.#polling.isOn) return POLL_EVERY_MS
      const { dueInMs } = this.#backlog
      return dueInMs === null ? LOOK_EVERY_MS : Math.min(LOOK_EVERY_MS, Math.max(LOOK_SOONEST_MS, dueInMs))
    } catch (error) {
      if (!(error instanceof OperatingError)) throw error
      if (!this.#hasFailed) log.warn('prepared.failed', errorFields(error))
      this.#hasFailed = true
      return error.retryable ? FAILED_MS : LOOK_EVERY_MS
    }
  }

  /** Without the privilege, which an operator grants after an upgrade, the transactions keep notifying. */
  async #announce(): Promise<void> {
    const isAllowed = await announcePreparedPolling(this.#parts.db, POLL_FOR_MS).then(
      () => true,
      (error) => {
        if (error instanceof DatabaseError && error.sqlstate === FORBIDDEN) return false
        throw error
      },
    )
    if (isAllowed) this.#polling.announced()
    else this.#polling.disable()
  }

  async #forget(): Promise<void> {
    const nowMs = performance.now()
    if (nowMs - this.#forgotAtMs < FORGET_EVERY_MS) return
    this.#forgotAtMs = nowMs
    await forgetPreparedSends(this.#parts.db)
  }

  async #decide(taken: readonly TakenSend[]): Promise<PreparedDecision[]> {
    const decisions: PreparedDecision[] = []
    const bySender = new Map<string, VerifiedSend[]>()
    for (const [i, row] of taken.entries()) {
      if (i > 0 && i % BREATH_EVERY === 0) await new Promise(setImmediate)
      const send = readPreparedSend(row.request, this.#signatures)
      const code = this.#refusalOf(row)
      if (!send) decisions.push(refused(row, 'signature_invalid'))
      else if (code) decisions.push(refused(row, code))
      else {
        const name = `${send.meshId}/${send.sender}`
        bySender.set(name, [...(bySender.get(name) ?? []), { row, send }])
      }
    }
    const sent = await Promise.all([...bySender.values()].map((verified) => this.#send(verified)))
    decisions.push(...sent.flat())
    this.#count(decisions)
    return decisions
  }

  #refusalOf({ isExpired, doubtMs }: TakenSend): string | null {
    if (isExpired) return 'expired'
    // The ledger may no longer know an envelope that an earlier attempt has stored.
    return doubtMs !== null && doubtMs > this.#dedupeMs / 2 ? 'maybe_sent' : null
  }

  /** Sends the envelopes of one sender in order, and returns what became of them. */
  async #send(verified: readonly VerifiedSend[]): Promise<PreparedDecision[]> {
    const { driver, queue } = this.#parts
    const [{ send }] = verified as [VerifiedSend]
    const [member] = await queue.findMembers(send.meshId, [send.sender])
    if (!member || member.isRevoked)
      return verified.map(({ row }) => refused(row, member ? 'revoked' : 'unknown_sender'))
    const outcomes = await sendOnce(driver, { ...member, sessionEpoch: 0, consent: null }, frameOf(verified))
    return inLanes(verified, outcomes)
  }

  #count(decisions: readonly PreparedDecision[]): void {
    for (const { status } of decisions) this.#counts[status] += 1
  }

  #observe(): void {
    const counts = this.#counts
    this.#parts.metrics.count({
      prepared_stored: ['prepared sends whose envelope is stored', () => counts.stored],
      prepared_refused: ['prepared sends that were refused', () => counts.refused],
      prepared_in_doubt: ['prepared sends given up although their envelope may be stored', () => counts.in_doubt],
      prepared_retried: ['attempts at prepared sends that are repeated later', () => counts.queued],
    })
    this.#parts.metrics.show({
      prepared_waiting: ['prepared sends that waited when this broker last looked', () => this.#backlog.waiting],
      prepared_oldest_seconds: [
        'age of the oldest waiting prepared send when this broker last looked',
        () => this.#backlog.oldestMs / 1000,
      ],
    })
  }
}

/** Decides when a broker polls: after a second with many rows, and as long as its announcement is valid. */
class Polling {
  #rows = 0
  #windowAtMs = performance.now()
  #untilMs = Number.NEGATIVE_INFINITY
  #isDisabled = false

  took(rows: number): void {
    const nowMs = performance.now()
    if (nowMs - this.#windowAtMs > BUSY_WITHIN_MS) {
      this.#windowAtMs = nowMs
      this.#rows = 0
    }
    this.#rows += rows
  }

  get isOn(): boolean {
    return performance.now() < this.#untilMs
  }

  /** Whether to announce polling, for the first time or again. */
  get isDue(): boolean {
    return !this.#isDisabled && this.#rows >= BUSY_ROWS && performance.now() > this.#untilMs - RENEW_BEFORE_MS
  }

  /** Call after the announcement, so that the broker polls for longer than transactions rely on. */
  announced(): void {
    this.#untilMs = performance.now() + POLL_FOR_MS
  }

  disable(): void {
    this.#isDisabled = true
  }
}

interface VerifiedSend {
  readonly row: TakenSend
  readonly send: PreparedSend
}

/** A final refusal. If an earlier attempt may have stored the envelope, the refusal is inconclusive. */
function refused({ id, doubtMs }: TakenSend, code: string): PreparedDecision {
  return doubtMs === null ? { id, status: 'refused', code } : { id, status: 'in_doubt', code: 'maybe_sent' }
}

function frameOf(verified: readonly VerifiedSend[]): FrameOf<'sendWith'> {
  const sends = verified.map(({ send: { recipient, priority, envelopeId, ttlSeconds, envelope } }) => {
    return { recipient, priority: PRIORITIES[priority]!, envelopeId, isHead: false, ttlSeconds, envelope }
  })
  const envelopes = withHeads(sends).map((send, i) => ({ send, terms: termsOf(verified[i]!.send) }))
  return { type: 'sendWith', envelopes }
}

function termsOf({ terms, notBeforeMs }: PreparedSend): SendTerms {
  const marking = readMarking(terms)
  return { ...TERMS_DEFAULTS, ...(marking?.kind === 'terms' ? marking.terms : {}), notBeforeMs }
}

const laneOf = ({ recipient, priority }: PreparedSend): string => `${recipient}/${priority}`

/** Envelopes of a lane that are sent again wait until the same time, so that they stay in order. */
function inLanes(verified: readonly VerifiedSend[], outcomes: readonly EnvelopeOutcome[]): PreparedDecision[] {
  const pauses = new Map<string, Millis>()
  return verified.map(({ row, send }, i) => {
    const decision = decisionOf(row, outcomes[i]!)
    if (decision.status !== 'queued') return decision
    const pauseMs = Math.max(decision.retryAfterMs, pauses.get(laneOf(send)) ?? 0)
    pauses.set(laneOf(send), pauseMs)
    return { ...decision, retryAfterMs: pauseMs }
  })
}

function decisionOf(row: TakenSend, outcome: EnvelopeOutcome): PreparedDecision {
  const { id, attempts, doubtMs } = row
  if (outcome.status !== 'refused') return { id, status: 'stored' }
  const { code } = outcome
  if (!refusal(code).isRetryable) return refused(row, code)
  const isInDoubt = doubtMs !== null || code === 'unavailable'
  const backOffMs = PACED.has(code) ? PACED_MS : Math.min(PAUSE_MAX_MS, PAUSE_BASE_MS * 2 ** Math.min(attempts, 10))
  return { id, status: 'queued', code, retryAfterMs: Math.max(outcome.retryAfterMs, backOffMs), isInDoubt }
}

/** Refusals that end soon: of the rate, or because of another envelope's refusal. */
const PACED: ReadonlySet<string> = new Set(['rate_limited', 'out_of_sequence'])
