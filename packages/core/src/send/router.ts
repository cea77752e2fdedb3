/**
 * Handles envelopes from `send` to `ack`: checks the sender's limits, finds the recipient, passes an append to the
 * queue, and acks or nacks the envelope according to the outcome.
 *
 * The broker sets the sender; a frame can't name another one. Envelopes of one session go to the queue in the order in
 * which they arrived. A refusal that the sender may retry bars the later envelopes of its lane, so that a resend keeps
 * the order.
 */
import {
  type Append,
  type AppendOutcome,
  type Committed,
  encodeTerms,
  type FrameOf,
  type Member,
  type MessageRecord,
  type NackCode,
  NO_THREAD,
  type PoolEntry,
  readBoxes,
  readRecordPlace,
  refusal,
  type SendTerms,
  type SharedBody,
} from '@sealpost/protocol'
import type { Millis, PeerKey } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { Deliveries } from '../deliver/deliveries.ts'
import { type FoundGroups, type GroupDirectory, membershipOf } from '../directory/groups.ts'
import type { SpaceFacts } from '../directory/permissions.ts'
import { type LiveSession, type PendingAppend, PoolState, type RecipientState } from '../model.ts'
import type { PoolDispatcher } from '../pools/pools.ts'
import type { Presence } from '../presence/presence.ts'
import { BroadcastPolicy, PoolPolicy, poolOf, type SendPolicy, type Unknowns } from './policies.ts'
import { FULL_RETRY_MS } from './quotas.ts'
import { type Broadcast, type PoolBody, PRIORITY_NUMBERS, type SendRequest, type SentItem } from './send-request.ts'

const BUSY_RETRY_MS = 200
const UNAVAILABLE_RETRY_MS = 1000
/** The retry-after of sends in a moving mesh, whose peers are soon redirected. */
const MOVING_RETRY_MS = 500

export interface Resolved {
  readonly groups: FoundGroups
  readonly pools: readonly PoolEntry[]
  readonly spaces: readonly SpaceFacts[]
  /** The current keys of rotated ones in the lookup. */
  readonly successors: ReadonlyMap<PeerKey, PeerKey>
}

interface Refusal {
  readonly code: NackCode
  readonly retryAfterMs: Millis
}

const NOTHING: Resolved = { groups: new Map(), pools: [], spaces: [], successors: new Map() }
const BUSY: Refusal = { code: 'busy', retryAfterMs: BUSY_RETRY_MS }

interface RouterParts {
  readonly deliveries: Deliveries
  readonly groups: GroupDirectory
  readonly pools: PoolDispatcher
  readonly presence: Presence
}

export class Router {
  isClosing = false
  isOverloaded = false
  private readonly context: Context
  private readonly deliveries: Deliveries
  private readonly groups: GroupDirectory
  private readonly pools: PoolDispatcher
  private readonly presence: Presence
  private readonly policies: { readonly broadcast: BroadcastPolicy; readonly pool: PoolPolicy }
  private waiting = 0
  private waitingBytes = 0

  constructor(context: Context, { deliveries, groups, pools, presence }: RouterParts) {
    this.context = context
    this.deliveries = deliveries
    this.groups = groups
    this.pools = pools
    this.presence = presence
    this.policies = { broadcast: new BroadcastPolicy(context, groups), pool: new PoolPolicy(context) }
  }

  get waitingCount(): number {
    return this.waiting
  }

  send(from: LiveSession, items: readonly SentItem[]): void {
    for (const item of items)
      this.take(from, {
        kind: 'direct',
        no: from.arrived(item),
        item,
        terms: null,
        body: null,
        inFlightBytes: item.envelope.length,
      })
    this.taken(from)
  }

  sendWith(from: LiveSession, items: FrameOf<'sendWith'>['envelopes']): void {
    for (const { send: item, terms } of items)
      this.take(from, {
        kind: 'direct',
        no: from.arrived(item),
        item,
        terms,
        body: null,
        inFlightBytes: item.envelope.length,
      })
    this.taken(from)
  }

  /** Routes a broadcast: a shared body, and an envelope with its key for each recipient. */
  broadcast(from: LiveSession, frame: FrameOf<'broadcast'> | FrameOf<'broadcastKept'>): void {
    const { bodyId, body: bytes, envelopes } = frame
    const record = 'record' in frame ? recordOf(from, frame) : undefined
    if (record === null) return this.context.end(from, 'frame_malformed')
    const terms: SendTerms = { ...frame.terms, notBeforeMs: 0, ifOnline: false }
    const shared = { bodyId, bytes, ...(record && { record }) }
    const body: Broadcast = { shared, membership: membershipOf(frame), countedBy: null, hasPaidThread: false }
    for (const item of envelopes)
      this.takeWithBody(from, { kind: 'broadcast', no: from.arrived(item), item, terms, body, inFlightBytes: 0 })
    this.taken(from)
  }

  /** Routes a message to a pool, which is stored once for any member. */
  sendPool(from: LiveSession, { rosterEpoch, bodyId, body: bytes, terms, send: item }: FrameOf<'sendPool'>): void {
    const readers = readBoxes(item.envelope)?.map(({ peer }) => peer)
    if (!readers) return this.context.end(from, 'frame_malformed')
    from.mesh.pools.expect(poolOf(item), rosterEpoch)
    const toPool = { epoch: rosterEpoch, readers }
    const body: PoolBody = { shared: { bodyId, bytes }, toPool, countedBy: null, hasPaidThread: false }
    this.takeWithBody(from, { kind: 'pool', no: from.arrived(item), item, terms, body, inFlightBytes: 0 })
    this.taken(from)
  }

  private takeWithBody(from: LiveSession, request: Exclude<SendRequest, { kind: 'direct' }>): void {
    const { body, item } = request
    body.countedBy ??= request
    request.inFlightBytes = item.envelope.length + (body.countedBy === request ? body.shared.bytes.length : 0)
    this.take(from, request)
  }

  private take(from: LiveSession, request: SendRequest): void {
    from.inFlight += 1
    from.inFlightBytes += request.inFlightBytes
    const refused = this.refusalOf(from, request)
    if (!refused) return this.route(from, request)
    if (refused.code === 'rate_limited' && from.breachBucket.take(this.context.nowMs) > 0)
      this.context.end(from, 'rate_exceeded')
    else this.refuse(from, request, refused.code, refused.retryAfterMs)
  }

  private taken(from: LiveSession): void {
    if (from.held.length > 0) this.resolveHeld(from)
    const { inFlightMax, inFlightBytesMax } = this.context.limits
    if (from.isPaused || (from.inFlight <= inFlightMax && from.inFlightBytes <= inFlightBytesMax)) return
    from.isPaused = true
    this.context.effects.pause(from.socket)
  }

  /**
   * Call once a lookup has completed. `members`: null if the database did not reply. Keys in `asked` without a member
   * are unknown.
   */
  resolved(
    from: LiveSession,
    asked: readonly string[],
    members: readonly Member[] | null,
    { groups, pools, spaces, successors }: Resolved,
  ): void {
    from.isResolving = false
    const { held } = from
    from.held = []
    const unknown = new Set<string>(asked)
    for (const member of members ?? []) {
      if (member.isRevoked) continue
      from.mesh.add(member, this.context.nowMs)
      unknown.delete(member.peerKey)
    }
    for (const [former, successor] of successors) {
      from.mesh.alias(former, successor)
      if (!unknown.has(successor)) unknown.delete(former)
    }
    this.groups.found(from.mesh, groups)
    for (const facts of spaces) from.spaces.learn(facts, this.context.nowMs)
    for (const pool of pools) unknown.delete(this.pools.learn(from, pool).poolId)
    for (const request of held) {
      if (!from.isInSequence(request)) this.refuse(from, request, 'out_of_sequence', 0)
      else if (members === null) this.refuse(from, request, 'unavailable', UNAVAILABLE_RETRY_MS)
      else if (unknown.has(request.item.recipient)) this.refuse(from, request, 'unknown_recipient', 0)
      else this.route(from, request)
    }
    if (from.held.length > 0) this.resolveHeld(from)
  }

  committed(appends: readonly Append[], { outcomes, enqueuedAtMs }: Committed): void {
    for (const [i, append] of (appends as readonly PendingAppend[]).entries()) {
      const outcome = outcomes[i]!
      this.landed(append)
      // After an unexpected outcome, the queue contains mail from the sender that this shard does not know of.
      const isExpected = outcome.status === 'stored' ? outcome.isExpected : outcome.status !== 'duplicate'
      if (!isExpected) append.from.peer.knownSinceTick = this.context.nextTick()
      this.deliveries.stored(append, outcome, enqueuedAtMs)
      this.answer(append, outcome)
    }
  }

  /** Call when the commit's outcome is unknown. The senders resend the envelopes under the same ids. */
  commitFailed(appends: readonly Append[]): void {
    for (const append of appends as readonly PendingAppend[]) {
      this.landed(append)
      this.refuse(append.from, append.request, 'unavailable', UNAVAILABLE_RETRY_MS)
      this.deliveries.lost(append)
    }
  }

  /** Routes an envelope. Later ones of the session wait behind one that needs a lookup, to keep the order. */
  private route(from: LiveSession, request: SendRequest): void {
    const { nowMs, quotas } = this.context
    const policy = request.kind === 'direct' ? null : this.policyOf(request)
    const to = policy ? policy.recipientOf(from, request) : from.mesh.find(request.item.recipient, nowMs)
    const isKnown = policy === null || policy.isKnown(from, request)
    if (!to || !isKnown || from.held.length > 0 || (request.terms?.ifOnline && this.isInDoubt(from, to))) {
      from.held.push(request)
      return
    }
    const isRestricted = to.rule !== null || request.terms?.ifOnline
    const code = policy?.refusalOf(from, request) ?? (isRestricted ? this.refusalByRecipient(to, from, request) : null)
    if (code) return this.refuse(from, request, code, 0)
    const exceeded = quotas.exceeded(from.mesh, to, from.peer.user, nowMs)
    if (exceeded) {
      this.context.counters[exceeded] += 1
      return this.refuse(from, request, 'mailbox_full', FULL_RETRY_MS)
    }
    const append = this.appendOf(from, to, request)
    this.deliveries.admit(append)
    // Quotas skip appends leased on insert; the session's credit already limits those.
    if (append.insertLeaseEpoch === 0) quotas.add(append, nowMs)
    this.waiting += 1
    this.waitingBytes += request.inFlightBytes
    from.peer.share.inFlightBytes += request.inFlightBytes
    this.context.effects.append(append)
  }

  private policyOf({ kind }: Exclude<SendRequest, { kind: 'direct' }>): SendPolicy<SendRequest> {
    return this.policies[kind] as SendPolicy<SendRequest>
  }

  private refusalByRecipient(to: RecipientState, from: LiveSession, { kind, terms }: SendRequest): NackCode | null {
    if (to.rule !== null && !to.rule.admits(from.peer.user)) return 'not_allowed'
    if (!terms?.ifOnline || kind === 'pool') return null
    return this.presence.isOnline(from.mesh, (to as Exclude<RecipientState, PoolState>).peerKey) ? null : 'no_responder'
  }

  /** Returns whether another shard may have a session of the recipient. */
  private isInDoubt({ mesh }: LiveSession, to: RecipientState): boolean {
    return !to.live && !this.presence.isKnown(mesh)
  }

  private appendOf(from: LiveSession, to: RecipientState, request: SendRequest): PendingAppend {
    const { nowMs, limits } = this.context
    const { item, terms } = request
    const notBeforeMs = terms?.notBeforeMs ?? 0
    const body = request.body && bodyOf(request, to)
    return {
      meshId: from.mesh.meshId,
      sender: from.peer.peer,
      recipient: to.peer,
      envelopeId: item.envelopeId,
      priority: PRIORITY_NUMBERS[item.priority],
      ttlSeconds: item.ttlSeconds === 0 ? limits.ttlSecondsDefault : item.ttlSeconds,
      envelope: item.envelope,
      insertLeaseEpoch: 0,
      remoteLeaseEpoch: 0,
      insertLeaseFloor: 0,
      terms: terms && encodeTerms(terms),
      notBeforeMs,
      body,
      from,
      to,
      request,
      toLive: notBeforeMs > 0 ? null : to.live,
      byteCount: item.envelope.length + (body?.bytes.length ?? 0),
      routedAtMs: nowMs,
    }
  }

  private refusalOf(from: LiveSession, request: SendRequest): Refusal | null {
    const { limits, nowMs } = this.context
    const { item, body, terms, inFlightBytes } = request
    const { share } = from.peer
    if (!from.isInSequence(request)) return { code: 'out_of_sequence', retryAfterMs: 0 }
    if (item.envelope.length > limits.envelopeBytesMax || (body && body.shared.bytes.length > limits.envelopeBytesMax))
      return { code: 'envelope_too_large', retryAfterMs: 0 }
    if (item.ttlSeconds > limits.ttlSecondsMax) return { code: 'ttl_too_long', retryAfterMs: 0 }
    if (this.isClosing || this.isOverloaded || from.isLeaving) return BUSY
    const retryAfterMs = share.sends?.take(nowMs) || share.sentBytes?.take(nowMs, inFlightBytes) || 0
    if (retryAfterMs > 0) return { code: 'rate_limited', retryAfterMs }
    if (this.waiting >= limits.waitingMax || this.waitingBytes >= limits.waitingBytesMax) return BUSY
    if (share.inFlightBytes >= limits.inFlightBytesPerUserMax) return BUSY
    const code = terms && this.refusalByTerms(from, terms, body)
    return code && { code, retryAfterMs: 0 }
  }

  /** Checks the terms that stop two agents from replying to each other endlessly. */
  private refusalByTerms(
    from: LiveSession,
    { hops, thread }: SendTerms,
    body: Broadcast | PoolBody | null,
  ): NackCode | null {
    const { limits, threads, nowMs } = this.context
    if (hops > limits.hopsMax) return 'too_many_hops'
    if (thread === NO_THREAD || !threads || body?.hasPaidThread) return null
    if (body) body.hasPaidThread = true
    return threads.take(`${from.mesh.meshId}/${thread}`, nowMs) > 0 ? 'thread_exhausted' : null
  }

  private refuse(from: LiveSession, request: SendRequest, code: NackCode, retryAfterMs: Millis): void {
    if (refusal(code).isRetryable) from.bar(request)
    from.outgoing.nack(request.item.envelopeId, code, retryAfterMs)
    this.context.counters.nacked += 1
    this.answered(from, request)
  }

  private answer({ from, to, request, routedAtMs }: PendingAppend, outcome: AppendOutcome): void {
    switch (outcome.status) {
      case 'stored':
      case 'duplicate': {
        const isDuplicate = outcome.status === 'duplicate'
        this.context.counters[isDuplicate ? 'duplicates' : 'accepted'] += 1
        from.outgoing.ack(request.item.envelopeId, isDuplicate)
        this.context.timed('ack', this.context.nowMs - routedAtMs)
        return this.answered(from, request)
      }
      case 'unknown_recipient':
        if (to instanceof PoolState) from.mesh.pools.expect(to.poolId, Number.POSITIVE_INFINITY)
        else from.mesh.forget(to)
        return this.refuse(from, request, 'unknown_recipient', 0)
      case 'away':
        this.refuse(from, request, 'busy', MOVING_RETRY_MS)
        return this.context.meshMoving(from)
      case 'id_reused':
      case 'delay_too_long':
        return this.refuse(from, request, outcome.status, 0)
    }
  }

  private landed(append: PendingAppend): void {
    const { inFlightBytes } = append.request
    this.waiting -= 1
    this.waitingBytes -= inFlightBytes
    append.from.peer.share.inFlightBytes -= inFlightBytes
    if (append.insertLeaseEpoch === 0) this.context.quotas.landed(append)
  }

  private answered(from: LiveSession, request: SendRequest): void {
    from.inFlight -= 1
    from.inFlightBytes -= request.inFlightBytes
    if (request.body?.countedBy === request) request.body.countedBy = null
    this.context.touch(from)
    if (!from.isPaused) return
    const { inFlightMax, inFlightBytesMax } = this.context.limits
    if (from.inFlight > inFlightMax / 2 || from.inFlightBytes > inFlightBytesMax / 2) return
    from.isPaused = false
    this.context.effects.resume(from.socket)
  }

  /** Looks up what the held envelopes need, then presence. A session has one lookup in flight. */
  private resolveHeld(from: LiveSession): void {
    if (from.isResolving) return
    const unknown: Unknowns = { peers: new Set(), groups: new Set(), pools: new Set(), spaces: new Set() }
    for (const request of from.held) {
      if (request.kind !== 'direct') this.policyOf(request).seek(from, request, unknown)
      else if (!from.mesh.find(request.item.recipient, this.context.nowMs)) unknown.peers.add(request.item.recipient)
    }
    from.isResolving = true
    const { peer } = from.peer
    const spaces = [...unknown.spaces].map((spaceId) => ({ peer, spaceId }))
    const sought = { peers: [...unknown.peers], groups: [...unknown.groups], pools: [...unknown.pools], spaces }
    if (Object.values(sought).some((sought) => sought.length > 0))
      this.context.effects.resolve(from.socket, from.mesh.meshId, sought)
    else this.presence.whenKnown(from.mesh, () => from.isOver || this.resolved(from, [], [], NOTHING))
  }
}

/** Returns the stored body. A pool message is limited to members that have a box. */
function bodyOf({ kind, body }: Exclude<SendRequest, { kind: 'direct' }>, to: RecipientState): SharedBody {
  if (kind !== 'pool') return body.shared
  const { members } = to as PoolState
  return { ...body.shared, readers: body.toPool.readers.flatMap((key) => members.get(key) ?? []) }
}

function recordOf({ mesh, peer }: LiveSession, { record, bodyId }: FrameOf<'broadcastKept'>): MessageRecord | null {
  const place = readRecordPlace(record)
  const isOwn = place.meshId === mesh.meshId && place.author === peer.peerKey && place.bodyId === bodyId
  return isOwn ? { spaceId: place.spaceId, record } : null
}
