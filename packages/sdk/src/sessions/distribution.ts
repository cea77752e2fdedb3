/**
 * Decides which session gets which message of the member (docs/adr/0013-sessions.md, rules 8 and 9). Pure and
 * synchronous: the host passes events and the time, and executes the orders.
 *
 * A message is *waiting* (no session has it), *held* by a session, or *recalled* from a session that has not replied
 * yet. A session that changes to a new host reports the messages that it holds, and the outcomes that its former host
 * did not confirm. The new host thus knows both before these messages are pushed again.
 */
import type { StreamId } from '@sealpost/identity'
import type { Priority } from '@sealpost/protocol'
import type { Millis, PoolId } from '@sealpost/std'
import type { ReplyOptions } from '../inbox/message.ts'
import type { Status } from '../presence/presence-client.ts'

/**
 * Identifies a message across hosts: its mailbox, a slash, its sender and its envelope. The mailbox is that of the
 * member, or of an unnamed session whose process is gone.
 */
export type MailId = string

export const mailboxOf = (id: MailId): string => id.slice(0, id.indexOf('/'))

export interface MailFacts {
  readonly id: MailId
  readonly thread: string | null
  readonly priority: Priority
  /** The pool to which the message was sent. Only a session that takes the pool's messages gets it. */
  readonly pool?: PoolId | null
}

/**
 * What a session did with a message. A settled or rejected message must not be handed out again. `reply`: the host sends
 * it, in the same store write.
 */
export type MailOutcome = FinalOutcome | { readonly kind: 'returned'; readonly afterMs: Millis }

export type FinalOutcome =
  | { readonly kind: 'settled'; readonly reply?: MailReply }
  | { readonly kind: 'rejected'; readonly reason: string; readonly reply?: MailReply }

/** The last reply to a message. */
export interface MailReply {
  /** Base64. */
  readonly body: string
  readonly options: ReplyOptions
}

/** The place of a message in its sender's stream, under which the store of the host records its outcome. */
export interface MailPlace {
  readonly streamId: StreamId
  readonly seq: number
}

export interface MailClaim {
  readonly id: MailId
  /** Null for a message without a stream. */
  readonly place: MailPlace | null
  readonly isRead: boolean
  /** Absent while the session works on the message. */
  readonly outcome?: MailOutcome
}

export interface SessionReport {
  readonly label: string
  /** The maximum number of messages that the session holds. */
  readonly credit: number
  readonly status: Status
  readonly claims: readonly MailClaim[]
  /** The threads of the messages that the session was given, least recent first. */
  readonly threads: readonly string[]
  /** The pools whose messages the session takes. Default: none. */
  readonly pools?: readonly PoolId[]
  /** Whether the session takes only messages of pools. */
  readonly isForPools?: boolean
  /** Whether an unread message goes to a session that holds none, if this one holds others. */
  readonly sharesUnread?: boolean
}

export interface DistributionPorts {
  give(label: string, id: MailId): void
  /** Asks for a message that the session has not read. `released` or `read` is the reply. */
  recall(label: string, id: MailId): void
  /** The session claims a message that another session has. */
  refuseClaim(label: string, id: MailId): void
  /** The message has its outcome. `label`: the session that reported it. */
  finish(id: MailId, outcome: MailOutcome, label: string): void
}

interface MailEntry {
  readonly id: MailId
  /** Ascends in the order of the arrivals. */
  readonly no: number
  /** Known for a message from a former host. */
  position: MailPlace | null
  /** Null for a message that a session holds from a former host until the broker has pushed it again. */
  facts: MailFacts | null
  place: 'waiting' | 'held' | 'recalled'
  /** The session that holds the message; while it waits, the session that has returned it unread. */
  label: string | null
  isRead: boolean
  /** When the place changed. */
  sinceMs: Millis
}

/** The outcome of a message that the broker has not pushed to this host. */
interface EarlyOutcome {
  readonly claim: MailClaim
  readonly outcome: MailOutcome
  readonly label: string
}

interface ConnectedSession {
  credit: number
  status: Status
  pools: ReadonlySet<PoolId>
  readonly isForPools: boolean
  readonly sharesUnread: boolean
  readonly held: Set<MailId>
  recalls: number
  /** Ascends with each message that a session is given. */
  lastGiven: number
}

/** The time after which an unread message, or one that waits for the session of its thread, goes to another session. */
export const UNREAD_MS: Millis = 30_000
/** How long the host waits for sessions that have not reported. */
export const REPORTS_WITHIN_MS: Millis = 10_000
/** How long a message of a pool waits for a session that takes it, which may still be connecting. */
const UNWANTED_MS: Millis = 5_000
const THREADS_MAX = 4_096
const OUTCOMES_MAX = 4_096
const AVAILABLE_FIRST = ['idle', 'working', 'dnd'] as const
const URGENCY: Readonly<Record<Priority, number>> = { now: 0, next: 1, low: 2 }

export class MailDistribution {
  readonly #ports: DistributionPorts
  readonly #sessions = new Map<string, ConnectedSession>()
  readonly #mail = new Map<MailId, MailEntry>()
  /** The session that handled the last message of each thread. */
  readonly #threads = new Map<string, string>()
  /** Outcomes of messages that the broker has not pushed to this host yet. */
  readonly #outcomes = new Map<MailId, EarlyOutcome>()
  /** The sessions that have not reported yet. Until they have, no message is given to anyone. */
  readonly #awaited: Set<string>
  readonly #reportsUntilMs: Millis
  readonly #paused = new Set<string>()
  #lastNo = 0

  /** `awaited`: the labels of the sessions that may hold messages from a former host. */
  constructor(ports: DistributionPorts, awaited: Iterable<string>, nowMs: Millis) {
    this.#ports = ports
    this.#awaited = new Set(awaited)
    this.#reportsUntilMs = nowMs + REPORTS_WITHIN_MS
  }

  /** The sessions that have not reported yet. */
  get awaited(): readonly string[] {
    return [...this.#awaited]
  }

  /** Call when a session has connected, also when it connects again. */
  joined(report: SessionReport, nowMs: Millis): void {
    const { label, credit, status, claims, threads, pools = [], isForPools = false, sharesUnread = false } = report
    this.#remove(label, nowMs)
    const given = { held: new Set<MailId>(), recalls: 0, lastGiven: ++this.#lastNo }
    this.#sessions.set(label, { credit, status, pools: new Set(pools), isForPools, sharesUnread, ...given })
    this.#awaited.delete(label)
    for (const thread of threads) this.#noteThread(thread, label)
    for (const claim of claims) this.#claimed(label, claim, nowMs)
    this.assign(nowMs)
  }

  /** Call when the session has ended. Its messages go to others. */
  left(label: string, nowMs: Millis): void {
    this.#remove(label, nowMs)
    this.#returnUnwanted(nowMs)
    this.assign(nowMs)
  }

  statusChanged(label: string, status: Status, nowMs: Millis): void {
    const session = this.#sessions.get(label)
    if (session) session.status = status
    this.assign(nowMs)
  }

  /** Call when the session expects messages of the thread. */
  threadTaken(label: string, thread: string): void {
    this.#noteThread(thread, label)
  }

  poolsChanged(label: string, pools: readonly PoolId[], nowMs: Millis): void {
    const session = this.#sessions.get(label)
    if (session) session.pools = new Set(pools)
    this.#returnUnwanted(nowMs)
    this.assign(nowMs)
  }

  arrived(facts: MailFacts, nowMs: Millis): void {
    const { id } = facts
    const early = this.#outcomes.get(id)
    if (early) {
      this.#outcomes.delete(id)
      return this.#ports.finish(id, early.outcome, early.label)
    }
    const known = this.#mail.get(id)
    if (known) known.facts = facts
    else this.#mail.set(id, { ...this.#newEntry(id, nowMs), facts })
    this.assign(nowMs)
  }

  /** Call when the session has read the message, also in reply to a recall. */
  read(label: string, id: MailId): void {
    const entry = this.#heldBy(label, id)
    if (!entry) return
    entry.isRead = true
    if (entry.place === 'recalled') this.#answered(entry, 'held')
  }

  /** Returns whether the session that holds the message has read it. */
  isRead(id: MailId): boolean {
    return this.#mail.get(id)?.isRead ?? false
  }

  /** Call when the session has returned a recalled message. */
  released(label: string, id: MailId, nowMs: Millis): void {
    const entry = this.#heldBy(label, id)
    if (entry?.place !== 'recalled') return
    this.#answered(entry, 'waiting')
    this.#sessions.get(label)!.held.delete(id)
    // Without facts, the message is in the queue of the broker only.
    if (!entry.facts) this.#mail.delete(id)
    this.assign(nowMs)
  }

  /** Call when the session reports an outcome. Only the session that holds the message may. */
  ended(label: string, id: MailId, outcome: MailOutcome, nowMs: Millis): void {
    const entry = this.#heldBy(label, id)
    if (!entry) return this.#ports.refuseClaim(label, id)
    if (entry.place === 'recalled') this.#answered(entry, 'held')
    this.#sessions.get(label)!.held.delete(id)
    this.#mail.delete(id)
    if (entry.facts) this.#ports.finish(id, outcome, label)
    else this.#noteOutcome({ claim: { id, place: entry.position, isRead: true }, outcome, label })
    this.assign(nowMs)
  }

  /** Removes and returns the early outcomes that a former host has stored, because their messages will not arrive. */
  takeStored(isStored: (claim: MailClaim) => boolean): { readonly label: string; readonly id: MailId }[] {
    const stored = [...this.#outcomes.values()].filter(({ claim }) => isStored(claim))
    for (const { claim } of stored) this.#outcomes.delete(claim.id)
    return stored.map(({ label, claim: { id } }) => ({ label, id }))
  }

  /** Returns whether a session holds a message of the mailbox, or its outcome is not stored yet. */
  isInUse(mailbox: string): boolean {
    const isHeld = [...this.#mail.values()].some(({ id, place }) => place !== 'waiting' && mailboxOf(id) === mailbox)
    return isHeld || [...this.#outcomes.keys()].some((id) => mailboxOf(id) === mailbox)
  }

  /** Whether a session takes messages that were not sent to a pool. */
  get isMailWanted(): boolean {
    return [...this.#sessions.values()].some(({ isForPools }) => !isForPools)
  }

  /** Whether a session holds a message that this host was pushed. */
  get isAnyHeld(): boolean {
    return [...this.#mail.values()].some(({ place, facts }) => place !== 'waiting' && facts !== null)
  }

  /** Gives no messages of these mailboxes until `resume`. */
  pause(mailboxes: readonly string[]): void {
    for (const mailbox of mailboxes) this.#paused.add(mailbox)
  }

  resume(mailboxes: readonly string[], nowMs: Millis): void {
    for (const mailbox of mailboxes) this.#paused.delete(mailbox)
    this.assign(nowMs)
  }

  /** Forgets the waiting messages of a mailbox, which is closed. Returns them. */
  remove(mailbox: string): readonly MailId[] {
    const waiting = [...this.#mail.values()].filter(({ place }) => place === 'waiting')
    const ids = waiting.map(({ id }) => id).filter((id) => mailboxOf(id) === mailbox)
    for (const id of ids) this.#mail.delete(id)
    return ids
  }

  /** Call about once a second. */
  tick(nowMs: Millis): void {
    this.#returnUnwanted(nowMs - UNWANTED_MS)
    this.assign(nowMs)
    for (const entry of this.#mail.values())
      if (isUnread(entry) && nowMs >= entry.sinceMs + UNREAD_MS && this.#hasOther(entry)) this.#recall(entry)
    this.#share()
  }

  /** Asks for as many unread messages of busy sessions as there are sessions without any. */
  #share(): void {
    let spare = [...this.#sessions.values()].filter(({ held }) => held.size === 0).length
    for (const entry of this.#mail.values()) {
      const session = this.#sessions.get(entry.label ?? '')
      const isShared = isUnread(entry) && session?.sharesUnread && session.held.size > 1
      if (spare <= 0 || !isShared || !this.#hasIdle(entry)) continue
      this.#recall(entry)
      spare -= 1
    }
  }

  /** The status of the member: that of its most available session. Null without a session. */
  get status(): Status | null {
    const all = [...this.#sessions.values()].map(({ status }) => status)
    const best = AVAILABLE_FIRST.find((each) => all.some(({ availability }) => availability === each))
    return all.find(({ availability }) => availability === best) ?? null
  }

  /** Gives the waiting messages to sessions, the most urgent first, then the oldest. */
  assign(nowMs: Millis): void {
    if (this.#awaited.size > 0 && nowMs < this.#reportsUntilMs) return
    const waiting = [...this.#mail.values()].filter(({ place }) => place === 'waiting')
    for (const entry of waiting.sort(byUrgency)) {
      if (this.#paused.has(mailboxOf(entry.id))) continue
      const label = this.#choose(entry, nowMs)
      if (label !== null) this.#give(entry, label, nowMs)
    }
  }

  /**
   * Returns the session for a waiting message. The session of the thread comes first, even if it is busy for a while;
   * then the free session that holds the fewest messages; of several, the one that was given none for the longest time.
   */
  #choose(entry: MailEntry, nowMs: Millis): string | null {
    const facts = entry.facts!
    const { thread, priority } = facts
    const ofThread = thread === null ? undefined : this.#threads.get(thread)
    const session = ofThread === undefined ? undefined : this.#sessions.get(ofThread)
    if (session && ofThread !== entry.label && isAvailable(session, priority) && takes(session, facts)) {
      if (hasRoom(session)) return ofThread!
      if (nowMs < entry.sinceMs + UNREAD_MS) return null
    }
    const free = [...this.#sessions].filter(([, each]) => isFree(each, facts))
    const others = free.filter(([label]) => label !== entry.label)
    const [best] = (others.length > 0 ? others : free).sort(([, a], [, b]) => byLoad(a, b))
    return best?.[0] ?? null
  }

  /** Returns the messages, which have waited since this time, of pools that no session takes. Other members get them. */
  #returnUnwanted(sinceMs: Millis): void {
    const sessions = [...this.#sessions.values()]
    for (const { id, place, facts, sinceMs: waitsSinceMs } of [...this.#mail.values()]) {
      if (place !== 'waiting' || waitsSinceMs > sinceMs || !isOfPool(facts!)) continue
      if (sessions.some((session) => takes(session, facts!))) continue
      this.#mail.delete(id)
      this.#ports.finish(id, { kind: 'returned', afterMs: 0 }, '')
    }
  }

  #give(entry: MailEntry, label: string, nowMs: Millis): void {
    const session = this.#sessions.get(label)!
    Object.assign(entry, { place: 'held', label, isRead: false, sinceMs: nowMs })
    session.held.add(entry.id)
    session.lastGiven = ++this.#lastNo
    const { thread } = entry.facts!
    if (thread !== null) this.#noteThread(thread, label)
    this.#ports.give(label, entry.id)
  }

  #recall(entry: MailEntry): void {
    entry.place = 'recalled'
    this.#sessions.get(entry.label!)!.recalls += 1
    this.#ports.recall(entry.label!, entry.id)
  }

  #answered(entry: MailEntry, place: 'held' | 'waiting'): void {
    entry.place = place
    this.#sessions.get(entry.label!)!.recalls -= 1
  }

  #claimed(label: string, { id, place: position, isRead, outcome }: MailClaim, nowMs: Millis): void {
    const known = this.#mail.get(id)
    if (known && known.place !== 'waiting') return this.#ports.refuseClaim(label, id)
    const entry = known ?? this.#newEntry(id, nowMs)
    Object.assign(entry, { place: 'held', position, label, isRead, sinceMs: nowMs })
    this.#mail.set(id, entry)
    this.#sessions.get(label)!.held.add(id)
    if (outcome) this.ended(label, id, outcome, nowMs)
  }

  #remove(label: string, nowMs: Millis): void {
    const session = this.#sessions.get(label)
    this.#sessions.delete(label)
    this.#awaited.delete(label)
    for (const id of session?.held ?? []) this.#orphaned(this.#mail.get(id)!, nowMs)
  }

  #orphaned(entry: MailEntry, nowMs: Millis): void {
    if (entry.facts) Object.assign(entry, { place: 'waiting', label: null, isRead: false, sinceMs: nowMs })
    else this.#mail.delete(entry.id) // the broker will push it
  }

  #heldBy(label: string, id: MailId): MailEntry | undefined {
    return this.#sessions.get(label)?.held.has(id) ? this.#mail.get(id) : undefined
  }

  /** Returns whether another session is free for a message that its session has not read. */
  #hasOther({ label, facts }: MailEntry): boolean {
    return [...this.#sessions].some(([other, session]) => other !== label && isFree(session, facts!))
  }

  #hasIdle({ label, facts }: MailEntry): boolean {
    const isIdle = (session: ConnectedSession) => session.held.size === 0 && isFree(session, facts!)
    return [...this.#sessions].some(([other, session]) => other !== label && isIdle(session))
  }

  #noteThread(thread: string, label: string): void {
    noteBounded(this.#threads, thread, label, THREADS_MAX)
  }

  #noteOutcome(early: EarlyOutcome): void {
    if (early.outcome.kind !== 'returned') noteBounded(this.#outcomes, early.claim.id, early, OUTCOMES_MAX)
  }

  #newEntry(id: MailId, sinceMs: Millis): MailEntry {
    this.#lastNo += 1
    return { id, no: this.#lastNo, position: null, facts: null, place: 'waiting', label: null, isRead: false, sinceMs }
  }
}

const hasRoom = ({ held, credit, recalls }: ConnectedSession): boolean => held.size < credit && recalls === 0

/** Returns whether the session's status allows a message of this priority. */
const isAvailable = ({ status }: ConnectedSession, priority: Priority): boolean =>
  status.availability !== 'dnd' || priority === 'now'

const isOfPool = ({ pool }: MailFacts): boolean => pool !== null && pool !== undefined

const takes = ({ pools, isForPools }: ConnectedSession, facts: MailFacts): boolean =>
  isOfPool(facts) ? pools.has(facts.pool!) : !isForPools

const isFree = (session: ConnectedSession, facts: MailFacts): boolean =>
  hasRoom(session) && isAvailable(session, facts.priority) && takes(session, facts)

const isUnread = ({ place, isRead, facts }: MailEntry): boolean => place === 'held' && !isRead && facts !== null

const byLoad = (a: ConnectedSession, b: ConnectedSession): number =>
  a.held.size - b.held.size || a.lastGiven - b.lastGiven

const byUrgency = (a: MailEntry, b: MailEntry): number =>
  URGENCY[a.facts!.priority] - URGENCY[b.facts!.priority] || a.no - b.no

function noteBounded<Key, Value>(map: Map<Key, Value>, key: Key, value: Value, max: number): void {
  map.delete(key)
  map.set(key, value)
  if (map.size > max) map.delete(map.keys().next().value!)
}
