/**
 * Decides what `sealpost work` does with a message, from the records of earlier turns. A *turn* is one run of the agent
 * for one or more messages. Pure: the journal stores the records, and the worker executes the decisions.
 *
 * A message is `running` from the record `begun`, which is on disk before the agent starts, until `replied` or
 * `failed`. A process that dies in between leaves it `running`, so the next process knows that a turn was cut. A
 * `replied` message has its reply in the journal, and is `done` once its reply and its end are in the peer's store.
 */
import type { Millis, PeerKey } from '@sealpost/std'

/** Identifies a process, also after its number was reused. */
export interface ProcessId {
  readonly pid: number
  /** When the process started, in the platform's notation. */
  readonly startedAt: string
}

export interface TurnBegun {
  readonly kind: 'begun'
  readonly turn: string
  readonly thread: string
  /** The user whose budget pays for the turn. */
  readonly sender: PeerKey
  /** The messages, by sender and envelope. */
  readonly messages: readonly string[]
  /** The number of the attempt, beginning with 1. */
  readonly attempt: number
  readonly process: ProcessId
  /** The worker that runs the turn. Records of earlier versions have none. */
  readonly worker?: string
  readonly atMs: Millis
  /** The cost of the turn until its agent reports another. */
  readonly cost: number
}

export interface TurnCost {
  readonly turn: string
  readonly atMs: Millis
  readonly cost: number
}

export type TurnRecord =
  | TurnBegun
  /** The agent's conversation, which later turns of the thread resume; null: it no longer exists. */
  | { readonly kind: 'conversed'; readonly thread: string; readonly conversation: string | null; readonly atMs: Millis }
  /** The agent has ended well. `reply`: base64. `replyTo`: the messages that it answers; the others are only settled. */
  | (TurnCost & { readonly kind: 'replied'; readonly reply: string; readonly replyTo: readonly string[] })
  /** `isUncounted`: the attempt does not count, because the conversation to resume no longer existed. */
  | (TurnCost & {
      readonly kind: 'failed'
      readonly why: string
      readonly isCut: boolean
      readonly isUncounted?: boolean
    })
  /** The messages have left the queue. `reason`: why they were rejected; null if they were settled. */
  | {
      readonly kind: 'ended'
      readonly messages: readonly string[]
      readonly reason: string | null
      readonly atMs: Millis
    }
  /** The sender was informed that its budget is exhausted. */
  | { readonly kind: 'notified'; readonly sender: PeerKey; readonly untilMs: Millis }
  | TurnSnapshot

export interface TurnSnapshot {
  readonly kind: 'snapshot'
  readonly open: readonly TurnBegun[]
  readonly spent: readonly Spent[]
  readonly messages: readonly (readonly [string, MessageRecord])[]
  readonly conversations: readonly (readonly [string, Conversation])[]
  readonly notified: readonly (readonly [PeerKey, Millis])[]
}

interface Spent {
  readonly turn: string
  readonly sender: PeerKey
  readonly atMs: Millis
  /** Null while the turn runs. */
  readonly endedAtMs: Millis | null
  readonly cost: number
}

interface Conversation {
  readonly id: string
  readonly atMs: Millis
}

type MessageState =
  | { readonly name: 'running' }
  | { readonly name: 'failed'; readonly why: string; readonly isCut: boolean }
  | { readonly name: 'replied'; readonly reply: string }
  | { readonly name: 'done'; readonly reason: string | null }

interface MessageRecord {
  /** The thread of the last turn. Records of earlier versions have none. */
  readonly thread?: string | undefined
  readonly attempts: number
  readonly atMs: Millis
  readonly state: MessageState
}

const HOUR_MS: Millis = 3_600_000
const DAY_MS: Millis = 24 * HOUR_MS
/** How long an ended message is remembered, which matters only if the process dies before the peer's store has it. */
const DONE_FOR_MS = 2 * DAY_MS
/** How long an open message is remembered: longer than a broker stores it by default. */
const OPEN_FOR_MS = 31 * DAY_MS
const CONVERSATION_FOR_MS = 90 * DAY_MS

/** The state that the records add up to. */
export class Turns {
  readonly #open = new Map<string, TurnBegun>()
  #spent: Spent[] = []
  readonly #messages = new Map<string, MessageRecord>()
  readonly #conversations = new Map<string, Conversation>()
  readonly #notified = new Map<PeerKey, Millis>()
  #lastAtMs: Millis = 0

  apply(record: TurnRecord): void {
    if ('atMs' in record) this.#lastAtMs = Math.max(this.#lastAtMs, record.atMs)
    switch (record.kind) {
      case 'begun':
        return this.#begin(record)
      case 'conversed':
        return this.#converse(record)
      case 'replied':
        return this.#end(record, (id) => ({ name: 'replied', reply: record.replyTo.includes(id) ? record.reply : '' }))
      case 'failed':
        return this.#fail(record)
      case 'ended':
        for (const id of record.messages) this.#mark(id, { name: 'done', reason: record.reason }, record.atMs)
        return
      case 'notified':
        return void this.#notified.set(record.sender, record.untilMs)
      case 'snapshot':
        return this.#restore(record)
    }
  }

  /** Turns that have begun and not ended. */
  get open(): readonly TurnBegun[] {
    return [...this.#open.values()]
  }

  /** Returns a turn that has not ended, in this thread or for this message. */
  openTurn(thread: string, message: string): TurnBegun | undefined {
    return this.open.find((begun) => begun.thread === thread || begun.messages.includes(message))
  }

  recordOf(message: string): MessageRecord | undefined {
    return this.#messages.get(message)
  }

  conversationOf(thread: string): string | null {
    return this.#conversations.get(thread)?.id ?? null
  }

  isNotified(sender: PeerKey, nowMs: Millis): boolean {
    return nowMs < (this.#notified.get(sender) ?? 0)
  }

  spentBy(sender: PeerKey, sinceMs: Millis): readonly Spent[] {
    return this.#spent.filter((spent) => spent.sender === sender && spent.atMs > sinceMs)
  }

  /** Returns one record that replaces all earlier ones. Ages count from the last record, not from the clock. */
  snapshot(): TurnSnapshot {
    const isRecent = (atMs: Millis, forMs: Millis) => atMs > this.#lastAtMs - forMs
    const isWanted = ({ state, atMs }: MessageRecord) =>
      isRecent(atMs, state.name === 'done' ? DONE_FOR_MS : OPEN_FOR_MS)
    return {
      kind: 'snapshot',
      open: this.open,
      spent: this.#spent.filter(({ atMs }) => isRecent(atMs, DAY_MS)),
      messages: [...this.#messages].filter(([, record]) => isWanted(record)),
      conversations: [...this.#conversations].filter(([, { atMs }]) => isRecent(atMs, CONVERSATION_FOR_MS)),
      notified: [...this.#notified].filter(([, untilMs]) => untilMs > this.#lastAtMs),
    }
  }

  #begin(record: TurnBegun): void {
    const { turn, sender, atMs, cost, attempt } = record
    this.#open.set(turn, record)
    // A snapshot may already contain a turn whose record follows it.
    this.#spent = this.#spent.filter((spent) => spent.turn !== turn && spent.atMs > atMs - DAY_MS)
    this.#spent.push({ turn, sender, atMs, endedAtMs: null, cost })
    const message: MessageRecord = { thread: record.thread, attempts: attempt, atMs, state: { name: 'running' } }
    for (const id of record.messages) this.#messages.set(id, message)
  }

  #converse({ thread, conversation, atMs }: Extract<TurnRecord, { kind: 'conversed' }>): void {
    if (conversation === null) this.#conversations.delete(thread)
    else this.#conversations.set(thread, { id: conversation, atMs })
  }

  #fail(record: Extract<TurnRecord, { kind: 'failed' }>): void {
    const { turn, why, isCut, isUncounted = false } = record
    const messages = this.#open.get(turn)?.messages ?? []
    this.#end(record, () => ({ name: 'failed', why, isCut }))
    for (const id of isUncounted ? messages : []) {
      const known = this.#messages.get(id)!
      this.#messages.set(id, { ...known, attempts: known.attempts - 1 })
    }
  }

  #end({ turn, atMs, cost }: TurnCost, stateOf: (id: string) => MessageState): void {
    const begun = this.#open.get(turn)
    if (!begun) return
    this.#open.delete(turn)
    this.#spent = this.#spent.map((spent) => (spent.turn === turn ? { ...spent, endedAtMs: atMs, cost } : spent))
    for (const id of begun.messages) this.#mark(id, stateOf(id), atMs)
  }

  #mark(id: string, state: MessageState, atMs: Millis): void {
    const { thread, attempts = 0 } = this.#messages.get(id) ?? {}
    this.#messages.set(id, { thread, attempts, atMs, state })
  }

  /** Forgets everything. */
  clear(): void {
    for (const map of [this.#open, this.#messages, this.#conversations, this.#notified]) map.clear()
    this.#spent = []
  }

  /** Forgets everything that the snapshot does not contain. */
  #restore({ open, spent, messages, conversations, notified }: TurnSnapshot): void {
    this.clear()
    for (const begun of open) this.#open.set(begun.turn, begun)
    this.#spent = [...spent]
    for (const [id, record] of messages) this.#messages.set(id, record)
    for (const [thread, conversation] of conversations) this.#conversations.set(thread, conversation)
    for (const [sender, untilMs] of notified) this.#notified.set(sender, untilMs)
    this.#lastAtMs = Math.max(this.#lastAtMs, ...messages.map(([, { atMs }]) => atMs), ...spent.map(({ atMs }) => atMs))
  }
}

/** The budget of each sender; undefined: unlimited. */
export interface SenderBudget {
  readonly turnsPerHour?: number | undefined
  readonly turnsPerDay?: number | undefined
  readonly minutesPerDay?: number | undefined
  /** In the currency in which the agent reports its cost. */
  readonly moneyPerDay?: number | undefined
}

/**
 * Returns when the sender may have another turn: 0 for now. `waiting`: the number of its messages that already wait for
 * the budget, each of which will use a turn.
 */
export function budgetRenewsAtMs(
  turns: Turns,
  budget: SenderBudget,
  { sender, nowMs, waiting }: { readonly sender: PeerKey; readonly nowMs: Millis; readonly waiting: number },
): Millis {
  const usesOf = (windowMs: Millis) => turns.spentBy(sender, nowMs - windowMs)
  const { turnsPerHour, turnsPerDay, minutesPerDay, moneyPerDay } = budget
  return Math.max(
    countRenewsAtMs(usesOf(HOUR_MS), turnsPerHour, { windowMs: HOUR_MS, nowMs, waiting }),
    countRenewsAtMs(usesOf(DAY_MS), turnsPerDay, { windowMs: DAY_MS, nowMs, waiting }),
    sumRenewsAtMs(
      usesOf(DAY_MS),
      minutesPerDay,
      nowMs,
      ({ atMs, endedAtMs }) => ((endedAtMs ?? nowMs) - atMs) / 60_000,
    ),
    sumRenewsAtMs(usesOf(DAY_MS), moneyPerDay, nowMs, ({ cost }) => cost),
  )
}

interface CountWindow {
  readonly windowMs: Millis
  readonly nowMs: Millis
  readonly waiting: number
}

function countRenewsAtMs(uses: readonly Spent[], max: number | undefined, window: CountWindow): Millis {
  const { windowMs, nowMs, waiting } = window
  if (max === undefined || uses.length < max) return 0
  const over = uses.length - max + waiting // one less than the number of uses that must leave the window first
  const whole = Math.ceil(Math.max(0, over - uses.length + 1) / max) // windows that the waiting messages will fill
  const oldest = uses[over - whole * max]?.atMs ?? nowMs
  return oldest + windowMs * (whole + 1)
}

function sumRenewsAtMs(
  uses: readonly Spent[],
  max: number | undefined,
  nowMs: Millis,
  amountOf: (use: Spent) => number,
): Millis {
  if (max === undefined) return 0
  let sum = uses.reduce((total, use) => total + amountOf(use), 0)
  if (sum < max) return 0
  for (const use of uses) {
    sum -= amountOf(use)
    if (sum < max) return use.atMs + DAY_MS
  }
  return (uses.at(-1)?.atMs ?? nowMs) + DAY_MS
}

export interface TurnLimits {
  readonly attemptsMax: number
  /** Messages that passed from peer to peer this often are rejected. */
  readonly hopsMax: number
  readonly budget: SenderBudget
  readonly isRejectedOverBudget: boolean
  /** Whether a turn that was cut is resumed, and not only reported. */
  readonly canResume: boolean
}

/** The facts about a message on which a decision depends. */
export interface TurnMessage {
  readonly id: string
  readonly thread: string
  readonly sender: PeerKey
  readonly hops: number
  readonly isError: boolean
  readonly isRedriven: boolean
}

export type TurnStep =
  | { readonly do: 'start'; readonly attempt: number; readonly isResumed: boolean }
  /** Start at `atMs`, after a failed attempt. */
  | { readonly do: 'wait'; readonly atMs: Millis }
  /** Send the reply of an earlier turn. */
  | { readonly do: 'deliver'; readonly reply: string }
  /** `why`: for the operator; null: the message was ended before. */
  | { readonly do: 'settle'; readonly why: string | null }
  | TurnRejection
  | { readonly do: 'defer'; readonly untilMs: Millis; readonly text: string }

export interface TurnRejection {
  readonly do: 'reject'
  readonly reason: string
  /** For the sender; null: without a reply. */
  readonly text: string | null
  /** Until then, the sender gets no other explanation; 0 if each message gets one. */
  readonly untilMs: Millis
}

const RETRY_BASE_MS = 1_000
const RETRY_MAX_MS = 60_000

/** Decides what to do with a message next. */
export function nextStep(
  turns: Turns,
  message: TurnMessage,
  limits: TurnLimits,
  { nowMs, waiting }: { readonly nowMs: Millis; readonly waiting: number },
): TurnStep {
  const known = turns.recordOf(message.id)
  const record = known?.state.name === 'done' && message.isRedriven ? undefined : known
  const attempts = record?.attempts ?? 0
  const state = record?.state
  if (state?.name === 'done') return againDone(state.reason)
  if (state?.name === 'replied') return { do: 'deliver', reply: state.reply }
  if (message.isError) return { do: 'settle', why: 'it reports that a request failed' }
  if (message.hops >= limits.hopsMax) return rejection('too_many_hops', null)
  const isElsewhere = record?.thread !== undefined && record.thread !== message.thread // a worker with another name
  if (state?.name === 'failed' && state.isCut && (!limits.canResume || isElsewhere)) return cut(state.why)
  if (state?.name === 'failed' && attempts >= limits.attemptsMax) return failedTooOften(attempts, state.why)
  const renewsAtMs = budgetRenewsAtMs(turns, limits.budget, { sender: message.sender, nowMs, waiting })
  if (renewsAtMs > nowMs) return overBudget(renewsAtMs, limits)
  const retryAtMs = state?.name === 'failed' && !state.isCut ? record!.atMs + backOffMs(attempts) : 0
  if (retryAtMs > nowMs) return { do: 'wait', atMs: retryAtMs }
  return { do: 'start', attempt: attempts + 1, isResumed: state?.name === 'failed' && state.isCut }
}

function rejection(reason: string, text: string | null, untilMs = 0): TurnRejection {
  return { do: 'reject', reason, text, untilMs }
}

function againDone(reason: string | null): TurnStep {
  return reason === null ? { do: 'settle', why: null } : rejection(reason, null)
}

function cut(why: string): TurnStep {
  const text = `The agent was interrupted before it could reply: ${why}. Your message was not handled completely. Send it again if you still need a reply.`
  return rejection('turn_cut', text)
}

function failedTooOften(attempts: number, why: string): TurnStep {
  const times = attempts === 1 ? '1 attempt' : `${attempts} attempts`
  return rejection('agent_failed', `The agent failed after ${times}: ${why}.`)
}

function overBudget(untilMs: Millis, { isRejectedOverBudget }: TurnLimits): TurnStep {
  const at = new Date(untilMs).toISOString().replace(/\.\d+Z$/, 'Z')
  const until = `Your budget for this agent is exhausted until ${at}.`
  if (isRejectedOverBudget) return rejection('over_budget', `${until} Your message was rejected.`, untilMs)
  return { do: 'defer', untilMs, text: `${until} Your message waits until then.` }
}

const backOffMs = (attempts: number): Millis => Math.min(RETRY_MAX_MS, RETRY_BASE_MS * 2 ** Math.min(attempts - 1, 16))
