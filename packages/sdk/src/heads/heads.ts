/**
 * Exchanges heads with other peers (`@sealpost/sdk/heads`, docs/adr/0024): what this peer knows of the lanes, groups and
 * pools that it shares with another peer travels in direct messages. The recipient detects a withheld last message and
 * a broker that shows two peers different views.
 */
import type { GroupStatement, Note, PoolStatement, StreamPosition } from '@sealpost/identity'
import {
  encodeHeads,
  type Head,
  type LaneHead,
  readHeads,
  type StatementHead,
  statementHash,
} from '@sealpost/identity/heads'
import { PRIORITIES } from '@sealpost/protocol'
import { type EnvelopeId, type GroupId, type Millis, type PeerKey, type PoolId, toHex } from '@sealpost/std'
import { clockMs } from '../driver.ts'
import type { StatementCache } from '../groups/member-lists.ts'
import type { Message } from '../inbox/message.ts'
import type { OutgoingMessage } from '../outbox/lane.ts'
import { type Peer, portsOf } from '../peer.ts'
import { poolStatementsOf } from '../pools/pools.ts'
import type { PeerEvent, SplitView, StatementView } from '../ports.ts'
import type { SentHooks, StreamMemory } from '../sent/hooks.ts'
import type { LaneHeadRecord } from '../stores/records.ts'
import { type SeenStore, seenStoreOf } from '../stores/store.ts'

/** The log of a mesh. `openMemberProofs` returns it as `log`. */
export interface WitnessedLog {
  /** The newest checkpoint that this peer has verified. */
  readonly checkpoint: { readonly bytes: Uint8Array } | null
  /** Compares a checkpoint of another peer with the log that the broker shows to this one. */
  witness(checkpoint: Uint8Array): Promise<string>
}

export interface HeadsOptions {
  /** The log of the mesh, whose newest checkpoint is exchanged too. Default: none. */
  readonly log?: WitnessedLog
}

/** @internal */
export interface HeadsPorts extends HeadsOptions {
  readonly hooks: Pick<SentHooks, 'noting' | 'acked' | 'noted'>
  readonly seen: SeenStore
  /** Whether the peer has a store, and so knows the streams that earlier processes have received. */
  readonly hasStore: boolean
  readonly groups: StatementCache<GroupId, GroupStatement>
  readonly pools: StatementCache<PoolId, PoolStatement>
  readonly nowMs: () => Millis
}

/** The minimum time between two messages to one peer that contain heads, unless a stream begins. */
const PAUSE_MS = 60_000
/** How long a message of another lane may be missing. It may wait behind others in the queue. */
const OTHER_LANE_MS = 30_000
/** The minimum time between two searches for news, which read each statement. */
const CHECK_MS = 1_000
const HEADS_MAX = 8
/** The size of a body from which a message contains no heads, so that they never make it too large. */
const BODY_MAX = 32 * 1024

/**
 * From now on, direct messages report what this peer has seen, and the reports of other peers are checked. Call it right
 * after `openPeer`. The events `message_withheld` and `view_split` report what the broker hides.
 * @example exchangeHeads(peer, { log: members.log })
 */
export function exchangeHeads(peer: Peer, options: HeadsOptions = {}): void {
  const { tell, records } = portsOf(peer)
  const pools = poolStatementsOf(peer)
  tell(({ hooks, writer, groups: { statements: groups } }) => {
    const seen = seenStoreOf(writer, records)
    new HeadExchange({ ...options, hooks, seen, hasStore: writer !== null, groups, pools, nowMs: clockMs })
  })
}

/** A sealed message that the broker has not acknowledged. */
interface Unacked {
  readonly head: LaneHeadRecord | null
  readonly to: PeerKey
  readonly heads: readonly Head[]
}

/** What the recipient of earlier messages knows. */
interface Knowledge {
  /** When a message with heads was last sealed for it. */
  atMs: Millis
  /** When this peer last looked for news. */
  checkedAtMs: Millis
  /** The heads in acknowledged messages, by what they are about. */
  readonly heads: Map<string, string>
}

/** A message of another lane that a peer has reported, and that has not arrived yet. */
interface Awaited {
  readonly head: LaneHead
  readonly sinceMs: Millis
}

/** @internal */
export class HeadExchange {
  readonly #ports: HeadsPorts
  /** The last acknowledged message of each lane. */
  readonly #lanes = new Map<string, LaneHeadRecord>()
  readonly #unacked = new Map<EnvelopeId, Unacked>()
  readonly #knowledge = new Map<PeerKey, Knowledge>()
  readonly #awaited = new Map<PeerKey, Map<string, Awaited>>()
  readonly #reported = new Set<string>()
  readonly #beginMs: Millis

  constructor(ports: HeadsPorts) {
    this.#ports = ports
    const { seen, hooks, nowMs } = ports
    for (const record of seen.records) if (record.kind === 'laneHead') this.#lanes.set(laneOf(record), record)
    const begin = seen.records.find((record) => record.kind === 'headsBegin')
    this.#beginMs = begin?.atMs ?? nowMs()
    if (!begin) seen.keep('headsBegin', { kind: 'headsBegin', atMs: this.#beginMs })
    hooks.noting = (post, envelopeId, stream) => this.#noting(post, envelopeId, stream)
    hooks.acked = (envelopeId) => this.#acked(envelopeId)
    hooks.noted = (message, inbox, emit) => this.#noted(message, inbox, emit)
  }

  #noting(post: OutgoingMessage, envelopeId: EnvelopeId, stream: StreamPosition | null): Note | undefined {
    const { to, priority, message, body, note } = post
    const sentAtMs = Math.floor(this.#ports.nowMs())
    const head: LaneHeadRecord | null = stream && {
      ...{ kind: 'laneHead', to, priority, sentAtMs, streamId: stream.streamId, seq: stream.seq },
    }
    const heads = message || body.length > BODY_MAX ? [] : this.#headsFor(to, head)
    if (head || heads.length > 0) this.#unacked.set(envelopeId, { head, to, heads })
    return heads.length > 0 ? { ...note, heads: encodeHeads(heads) } : note
  }

  #acked(envelopeId: EnvelopeId): void {
    const unacked = this.#unacked.get(envelopeId)
    if (!unacked) return
    this.#unacked.delete(envelopeId)
    const { head, to, heads } = unacked
    for (const each of heads) this.#knowledgeOf(to).heads.set(subjectOf(each), stateOf(each))
    const known = head && this.#lanes.get(laneOf(head))
    if (!head || (known?.streamId === head.streamId && known.seq >= head.seq)) return
    this.#lanes.set(laneOf(head), head)
    this.#ports.seen.keep(laneOf(head), head)
  }

  /** Returns the heads that a message in this place contains. Most messages contain none. */
  #headsFor(to: PeerKey, place: LaneHeadRecord | null): Head[] {
    const nowMs = this.#ports.nowMs()
    const knowledge = this.#knowledgeOf(to)
    const former = place?.seq === 1 ? this.#lanes.get(laneOf(place)) : undefined
    const isTooEarly = nowMs - knowledge.atMs < PAUSE_MS || nowMs - knowledge.checkedAtMs < CHECK_MS
    if (!former && isTooEarly) return []
    knowledge.checkedAtMs = nowMs
    const isNews = (head: Head) => knowledge.heads.get(subjectOf(head)) !== stateOf(head)
    const heads = [...this.#otherLanesOf(to, place), ...this.#checkpoint(), ...this.#statementsFor(to)].filter(isNews)
    const all = former ? [{ ...headOf(former), isOwnLane: true }, ...heads] : heads
    if (all.length > 0) knowledge.atMs = nowMs
    return all.slice(0, HEADS_MAX)
  }

  /** Within a stream, each message refers to the one before it. */
  #otherLanesOf(to: PeerKey, place: LaneHeadRecord | null): Head[] {
    const lanes = PRIORITIES.flatMap((priority) => this.#lanes.get(laneOf({ to, priority })) ?? [])
    return lanes.filter(({ priority }) => priority !== place?.priority).map(headOf)
  }

  #checkpoint(): Head[] {
    const bytes = this.#ports.log?.checkpoint?.bytes
    return bytes ? [{ kind: 'checkpoint', bytes }] : []
  }

  #statementsFor(to: PeerKey): Head[] {
    const { groups, pools } = this.#ports
    const isFor = ({ owner, members }: GroupStatement | PoolStatement) => owner === to || members.includes(to)
    const ofGroups = groups.all.filter(isFor).map(groupHead)
    return [...ofGroups, ...pools.all.filter(isFor).map(poolHead)]
  }

  #knowledgeOf(peer: PeerKey): Knowledge {
    const known = this.#knowledge.get(peer) ?? { atMs: -Infinity, checkedAtMs: -Infinity, heads: new Map() }
    this.#knowledge.set(peer, known)
    return known
  }

  #noted(message: Message, inbox: StreamMemory, emit: Emit): void {
    this.#reportOverdue(message, inbox, emit)
    for (const head of readHeads(message.note?.heads ?? '') ?? []) {
      if (head.kind === 'lane') this.#checkLane(head, message, { inbox, emit })
      else if (head.kind === 'checkpoint') void this.#checkLog(head.bytes, message, emit)
      else this.#checkStatement(head, message, emit)
    }
  }

  #checkLane(head: LaneHead, message: Message, { inbox, emit }: { inbox: StreamMemory; emit: Emit }): void {
    const missing = inbox.missingUpTo(message.sender, head.streamId, head.seq)
    const { hasStore, nowMs } = this.#ports
    const mayBeForgotten = missing === head.seq && (!hasStore || head.sentAtMs <= this.#beginMs)
    if (missing === 0 || mayBeForgotten) return
    if (head.isOwnLane) return this.#withheld(head, missing, message, emit)
    const awaited = this.#awaited.get(message.sender) ?? new Map<string, Awaited>()
    this.#awaited.set(message.sender, awaited)
    if (!awaited.has(head.streamId)) awaited.set(head.streamId, { head, sinceMs: nowMs() })
  }

  /** Reports the messages of other lanes that have been missing for a while. */
  #reportOverdue(message: Message, inbox: StreamMemory, emit: Emit): void {
    const awaited = this.#awaited.get(message.sender)
    for (const [key, { head, sinceMs }] of awaited ?? []) {
      const missing = inbox.missingUpTo(message.sender, head.streamId, head.seq)
      if (missing > 0 && this.#ports.nowMs() - sinceMs < OTHER_LANE_MS) continue
      awaited!.delete(key)
      if (missing > 0) this.#withheld(head, missing, message, emit)
    }
  }

  #withheld({ streamId, seq, sentAtMs }: LaneHead, missing: number, message: Message, emit: Emit): void {
    const key = `${streamId} ${seq}`
    if (this.#reported.has(key)) return
    this.#reported.add(key)
    const { sender, envelopeId } = message
    emit({ type: 'message_withheld', sender, envelopeId, streamId, missing, sentAtMs })
  }

  async #checkLog(checkpoint: Uint8Array, { sender, envelopeId }: Message, emit: Emit): Promise<void> {
    const reason = await this.#ports.log?.witness(checkpoint).catch(() => undefined) // the next exchange tries again
    if (reason === undefined || !LOG_SPLITS.has(reason)) return
    emit({ type: 'view_split', sender, envelopeId, view: { subject: 'log', checkpoint, reason } })
  }

  #checkStatement(head: StatementHead, message: Message, emit: Emit): void {
    const known = this.#knownOf(head)
    if (known && known.epoch > head.epoch) return this.#sendSoon(head, message.sender)
    if (known?.epoch === head.epoch) return this.#compare(head, message, emit)
    const cache: Pick<StatementCache<never, never>, 'refresh'> = head.kind === 'group'
      ? this.#ports.groups
      : this.#ports.pools
    cache.refresh((error) => {
      if (!error) this.#compare(head, message, emit)
    })
  }

  #compare(head: StatementHead, { sender, envelopeId }: Message, emit: Emit): void {
    const known = this.#knownOf(head)
    if (known && (known.epoch > head.epoch || stateOf(known) === stateOf(head))) return
    const key = `${sender} ${subjectOf(head)} ${stateOf(head)}`
    if (this.#reported.has(key)) return
    this.#reported.add(key)
    const views = { shown: known && viewOf(known), reported: viewOf(head) }
    const view: SplitView =
      head.kind === 'group' ? { subject: 'group', id: head.id, ...views } : { subject: 'pool', id: head.id, ...views }
    emit({ type: 'view_split', sender, envelopeId, view })
  }

  #knownOf({ kind, id }: StatementHead): StatementHead | null {
    if (kind === 'group') {
      const group = this.#ports.groups.find(id)
      return group ? groupHead(group) : null
    }
    const pool = this.#ports.pools.find(id)
    return pool ? poolHead(pool) : null
  }

  /** The sender has an older statement, so the next message to it contains the newer one. */
  #sendSoon(head: StatementHead, sender: PeerKey): void {
    const knowledge = this.#knowledgeOf(sender)
    knowledge.heads.delete(subjectOf(head))
    knowledge.atMs = -Infinity
    knowledge.checkedAtMs = -Infinity
  }
}

type Emit = (event: PeerEvent) => void

/** The verdicts of `WitnessedLog.witness` that contradict the checkpoint of another peer. */
const LOG_SPLITS: ReadonlySet<string> = new Set(['log_forked', 'log_rolled_back', 'log_withheld'])

const laneOf = ({ to, priority }: Pick<LaneHeadRecord, 'to' | 'priority'>): string => `laneHead ${to} ${priority}`

const headOf = ({ streamId, seq, sentAtMs }: LaneHeadRecord): LaneHead => ({
  ...{ kind: 'lane', isOwnLane: false, streamId, seq, sentAtMs },
})

const groupHead = ({ groupId: id, epoch, bytes }: GroupStatement): StatementHead => ({
  ...{ kind: 'group', id, epoch, hash: statementHash(bytes) },
})

const poolHead = ({ poolId: id, epoch, bytes }: PoolStatement): StatementHead => ({
  ...{ kind: 'pool', id, epoch, hash: statementHash(bytes) },
})

const viewOf = ({ epoch, hash }: StatementHead): StatementView => ({ epoch, hash: toHex(hash) })

/** Returns what a head is about. */
function subjectOf(head: Head): string {
  if (head.kind === 'lane') return `lane ${head.streamId}`
  return head.kind === 'checkpoint' ? 'checkpoint' : `${head.kind} ${head.id}`
}

/** Returns what a head says about its subject. */
function stateOf(head: Head): string {
  if (head.kind === 'lane') return `${head.seq}`
  return head.kind === 'checkpoint' ? toHex(head.bytes) : `${head.epoch} ${toHex(head.hash)}`
}
