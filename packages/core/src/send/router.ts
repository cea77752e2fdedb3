/**
 * The way of an envelope from `send` to `ack`: may it go on, who is it for, how is it stored, what is answered.
 *
 * The broker stamps the sender; nothing in a frame can name another one. Envelopes of one session go to the queue in
 * the order in which they came, and a refusal that may be retried bars what follows it to the same recipient, so that
 * order survives it.
 */
import {
  type Append,
  type AppendOutcome,
  type Committed,
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
} from '@sealpost/protocol'
import type { GroupId, Millis, PeerKey, PoolId, SpaceId } from '@sealpost/std'
import type { Context } from '../context.ts'
import type { Deliveries } from '../deliver/deliveries.ts'
import { type FoundGroups, type Groups, membershipOf } from '../directory/groups.ts'
import type { Peer } from '../directory/meshes.ts'
import type { SpaceFacts } from '../directory/space-cache.ts'
import { Pool } from '../pools/pool-table.ts'
import type { Pools } from '../pools/pools.ts'
import type { Presence } from '../presence/presence.ts'
import { type Broadcast, bytesOf, type LiveSession, type SendRequest } from '../session/session.ts'
import { FULL_RETRY_MS } from './mailboxes.ts'
import { type Recipient, RoutedAppend } from './routed-append.ts'

const BUSY_RETRY_MS = 200
const UNAVAILABLE_RETRY_MS = 1000
/** A mesh that is moved: its peers are sent to where it will be. */
const MOVING_RETRY_MS = 500

/** What else was looked up with the members. */
export interface Resolved {
  readonly groups: FoundGroups
  readonly pools: readonly PoolEntry[]
  readonly spaces: readonly SpaceFacts[]
  /** Of those asked for the ones that other keys have followed; these are among the members. */
  readonly successors: ReadonlyMap<PeerKey, PeerKey>
}

const NOTHING: Resolved = { groups: new Map(), pools: [], spaces: [], successors: new Map() }

export class Router {
  private readonly context: Context
  readonly deliveries: Deliveries
  readonly groups: Groups
  readonly pools: Pools
  readonly presence: Presence
  private waiting = 0
  private waitingBytes = 0
  isClosing = false
  isOverloaded = false

  get waitingCount(): number {
    return this.waiting
  }

  constructor(context: Context, parts: Pick<Router, 'deliveries' | 'groups' | 'pools' | 'presence'>) {
    this.context = context
    this.deliveries = parts.deliveries
    this.groups = parts.groups
    this.pools = parts.pools
    this.presence = parts.presence
  }

  send(from: LiveSession, items: readonly SendRequest['item'][]): void {
    for (const item of items) this.take(from, from.arrive(item, null))
    this.taken(from)
  }

  sendWith(from: LiveSession, items: FrameOf<'sendWith'>['envelopes']): void {
    for (const { send, terms } of items) this.take(from, from.arrive(send, terms))
    this.taken(from)
  }

  /** One body for many, each with an envelope of its own that holds the key to it. */
  broadcast(from: LiveSession, frame: FrameOf<'broadcast'> | FrameOf<'broadcastKept'>): void {
    const { bodyId, body, envelopes } = frame
    const record = 'record' in frame ? recordOf(from, frame) : undefined
    if (record === null) return this.context.end(from, 'frame_malformed')
    const terms: SendTerms = { ...frame.terms, notBeforeMs: 0, ifOnline: false }
    const shared = { bodyId, bytes: body, ...(record && { record }) }
    const broadcast = { shared, membership: membershipOf(frame), countedBy: null, hasPaidThread: false }
    for (const item of envelopes) this.take(from, from.arrive(item, terms, broadcast))
    this.taken(from)
  }

  /** Stored once, for whichever member is free. */
  sendPool(from: LiveSession, { rosterEpoch, bodyId, body, terms, send }: FrameOf<'sendPool'>): void {
    const readers = readBoxes(send.envelope)?.map(({ peer }) => peer)
    if (!readers) return this.context.end(from, 'frame_malformed')
    from.mesh.pools.expect(poolOf(send), rosterEpoch)
    const toPool = { epoch: rosterEpoch, readers }
    const broadcast = {
      shared: { bodyId, bytes: body },
      membership: null,
      toPool,
      countedBy: null,
      hasPaidThread: false,
    }
    this.take(from, from.arrive(send, terms, broadcast))
    this.taken(from)
  }

  private take(from: LiveSession, arrival: SendRequest): void {
    if (arrival.body) arrival.body.countedBy ??= arrival
    from.inFlight += 1
    from.inFlightBytes += bytesOf(arrival)
    const refused = this.refusalOf(from, arrival)
    if (refused?.code === 'rate_limited' && from.breachBucket.take(this.context.nowMs) > 0)
      this.context.end(from, 'rate_exceeded')
    else if (refused) this.refuse(from, arrival, refused.code, refused.retryAfterMs)
    else this.route(from, arrival)
  }

  /** All of a frame has been. */
  private taken(from: LiveSession): void {
    this.resolveHeld(from)
    this.pauseIfAhead(from)
  }

  /** Those `asked` for that are no members are unknown in this mesh; `null`: the database did not answer. */
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
    for (const arrival of held) {
      if (!from.isInSequence(arrival)) this.refuse(from, arrival, 'out_of_sequence', 0)
      else if (members === null) this.refuse(from, arrival, 'unavailable', UNAVAILABLE_RETRY_MS)
      else if (unknown.has(arrival.item.recipient)) this.refuse(from, arrival, 'unknown_recipient', 0)
      else this.route(from, arrival)
    }
    this.resolveHeld(from)
  }

  committed(appends: readonly Append[], committed: Committed): void {
    appends.forEach((append, i) => {
      const routed = append as RoutedAppend
      const outcome = committed.outcomes[i]!
      this.landed(routed)
      if (!isExpected(outcome)) routed.from.peer.knownSinceTick = this.context.nextTick()
      this.deliveries.stored(routed, outcome, committed.enqueuedAtMs)
      this.answer(routed, outcome)
    })
  }

  /** Nobody knows whether these were stored: the senders will say them again, under the same ids. */
  commitFailed(appends: readonly Append[]): void {
    for (const append of appends) {
      const routed = append as RoutedAppend
      this.landed(routed)
      this.refuse(routed.from, routed.arrival, 'unavailable', UNAVAILABLE_RETRY_MS)
      this.deliveries.lost(routed)
    }
  }

  /** An envelope whose recipient or group is not known yet holds up those behind it, so that their order stays. */
  private route(from: LiveSession, arrival: SendRequest): void {
    const { item } = arrival
    const { limits, nowMs } = this.context
    const to = this.recipientOf(from, arrival)
    if (!to || from.held.length > 0 || !this.isPlaceKnown(from, arrival) || this.isInDoubt(from, arrival, to)) {
      from.held.push(arrival)
      return
    }
    const code = to instanceof Pool ? refusalByPool(to, arrival.body!) : this.refusalByPeer(to, from, arrival)
    if (code) return this.refuse(from, arrival, code, 0)
    const exceeded = this.context.quotas.exceeded(from.mesh, to, from.peer.user, nowMs)
    if (exceeded) {
      this.context.counters[exceeded] += 1
      return this.refuse(from, arrival, 'mailbox_full', FULL_RETRY_MS)
    }
    const ttlSeconds = item.ttlSeconds === 0 ? limits.ttlSecondsDefault : item.ttlSeconds
    const birth = this.deliveries.admit(to, from, arrival)
    const append = new RoutedAppend(from, to, arrival, { ttlSeconds, context: this.context }, birth)
    // What is leased at birth is bounded by its session's credit.
    if (birth.insertLeaseEpoch === 0) this.context.quotas.add(append, nowMs)
    this.waiting += 1
    this.waitingBytes += bytesOf(arrival)
    from.peer.share.inFlightBytes += bytesOf(arrival)
    this.context.effects.append(append)
  }

  private recipientOf({ mesh }: LiveSession, { item, body }: SendRequest): Recipient | undefined {
    const { nowMs } = this.context
    return body?.toPool ? mesh.pools.find(poolOf(item), nowMs) : mesh.find(item.recipient, nowMs)
  }

  /** Its group, and the space that is to keep it. */
  private isPlaceKnown(from: LiveSession, arrival: SendRequest): boolean {
    const spaceId = arrival.body?.shared.record?.spaceId
    const isKept = spaceId === undefined || from.spaces.find(spaceId, this.context.nowMs) !== undefined
    return isKept && this.groups.isKnown(from, arrival)
  }

  private refusalBySpace(from: LiveSession, { body }: SendRequest): NackCode | null {
    const facts = body?.shared.record && from.spaces.find(body.shared.record.spaceId, this.context.nowMs)
    if (!facts) return null
    if (!facts.keepsMessages) return 'not_kept'
    return facts.isFull ? 'history_full' : null
  }

  private refusalByPeer(to: Peer, from: LiveSession, arrival: SendRequest): NackCode | null {
    const code = this.groups.refusalOf(from, arrival) ?? this.refusalBySpace(from, arrival)
    if (code) return code
    if (to.rule?.admits(from.peer.user) === false) return 'not_allowed'
    return arrival.terms?.ifOnline && !this.presence.isOnline(from.mesh, to.peerKey) ? 'no_responder' : null
  }

  /** It is for one who is online, and another shard may know of that. */
  private isInDoubt({ mesh }: LiveSession, { terms }: SendRequest, to: Recipient): boolean {
    return terms?.ifOnline === true && !to.live && !this.presence.isKnown(mesh)
  }

  private refusalOf(from: LiveSession, arrival: SendRequest): { code: NackCode; retryAfterMs: Millis } | null {
    const { limits, nowMs } = this.context
    const { item } = arrival
    if (!from.isInSequence(arrival)) return { code: 'out_of_sequence', retryAfterMs: 0 }
    if (Math.max(item.envelope.length, arrival.body?.shared.bytes.length ?? 0) > limits.envelopeBytesMax)
      return { code: 'envelope_too_large', retryAfterMs: 0 }
    if (item.ttlSeconds > limits.ttlSecondsMax) return { code: 'ttl_too_long', retryAfterMs: 0 }
    if (this.isClosing || this.isOverloaded || from.isLeaving) return { code: 'busy', retryAfterMs: BUSY_RETRY_MS }
    const retryAfterMs = from.bucket?.take(nowMs) ?? 0
    if (retryAfterMs > 0) return { code: 'rate_limited', retryAfterMs }
    const bytesAfterMs = this.context.byteRates?.take(from.name, nowMs, bytesOf(arrival)) ?? 0
    if (bytesAfterMs > 0) return { code: 'rate_limited', retryAfterMs: bytesAfterMs }
    if (this.waiting >= limits.waitingMax || this.waitingBytes >= limits.waitingBytesMax)
      return { code: 'busy', retryAfterMs: BUSY_RETRY_MS }
    if (from.peer.share.inFlightBytes >= limits.inFlightBytesPerUserMax)
      return { code: 'busy', retryAfterMs: BUSY_RETRY_MS }
    const code = arrival.terms && this.refusalOfTerms(from, arrival.terms, arrival.body)
    return code && { code, retryAfterMs: 0 }
  }

  /** Two agents that thank each other for ever are stopped here. */
  private refusalOfTerms(from: LiveSession, { hops, thread }: SendTerms, broadcast: Broadcast | null): NackCode | null {
    const { limits, threads, nowMs } = this.context
    if (hops > limits.hopsMax) return 'too_many_hops'
    if (thread === NO_THREAD || !threads || broadcast?.hasPaidThread) return null
    if (broadcast) broadcast.hasPaidThread = true
    return threads.take(`${from.mesh.meshId}/${thread}`, nowMs) > 0 ? 'thread_exhausted' : null
  }

  private refuse(from: LiveSession, arrival: SendRequest, code: NackCode, retryAfterMs: Millis): void {
    if (refusal(code).isRetryable) from.bar(arrival)
    from.outgoing.nack(arrival.item.envelopeId, code, retryAfterMs)
    this.context.counters.nacked += 1
    this.answered(from, arrival)
  }

  private answer(append: RoutedAppend, outcome: Committed['outcomes'][number]): void {
    const { from, arrival } = append
    switch (outcome.status) {
      case 'stored':
      case 'duplicate': {
        const isDuplicate = outcome.status === 'duplicate'
        this.context.counters[isDuplicate ? 'duplicates' : 'accepted'] += 1
        from.outgoing.ack(append.envelopeId, isDuplicate)
        this.context.timed('ack', this.context.nowMs - append.routedAtMs)
        return this.answered(from, arrival)
      }
      case 'unknown_recipient':
        if (append.to instanceof Pool) from.mesh.pools.expect(append.to.poolId, Number.POSITIVE_INFINITY)
        else from.mesh.forget(append.to)
        return this.refuse(from, arrival, 'unknown_recipient', 0)
      case 'away':
        this.refuse(from, arrival, 'busy', MOVING_RETRY_MS)
        return this.context.meshMoving(from)
      case 'id_reused':
      case 'delay_too_long':
        return this.refuse(from, arrival, outcome.status, 0)
    }
  }

  private landed(append: RoutedAppend): void {
    this.waiting -= 1
    this.waitingBytes -= bytesOf(append.arrival)
    append.from.peer.share.inFlightBytes -= bytesOf(append.arrival)
    if (append.insertLeaseEpoch === 0) this.context.quotas.landed(append)
  }

  private answered(from: LiveSession, arrival: SendRequest): void {
    from.inFlight -= 1
    from.inFlightBytes -= bytesOf(arrival)
    if (arrival.body?.countedBy === arrival) arrival.body.countedBy = null
    this.context.touch(from)
    const { inFlightMax, inFlightBytesMax } = this.context.limits
    if (from.isPaused && from.inFlight <= inFlightMax / 2 && from.inFlightBytes <= inFlightBytesMax / 2) {
      from.isPaused = false
      this.context.effects.resume(from.socket)
    }
  }

  private pauseIfAhead(from: LiveSession): void {
    const { inFlightMax, inFlightBytesMax } = this.context.limits
    if (from.isPaused || (from.inFlight <= inFlightMax && from.inFlightBytes <= inFlightBytesMax)) return
    from.isPaused = true
    this.context.effects.pause(from.socket)
  }

  /** Asks for the recipients and groups of held sends, then who is online; one question at a time for each session. */
  private resolveHeld(from: LiveSession): void {
    if (from.held.length === 0 || from.isResolving) return
    const unknown = new Set<PeerKey>()
    const groups = new Set<GroupId>()
    const pools = new Set<PoolId>()
    const spaces = new Set<SpaceId>()
    for (const arrival of from.held) {
      if (!this.recipientOf(from, arrival)) {
        if (arrival.body?.toPool) pools.add(poolOf(arrival.item))
        else unknown.add(arrival.item.recipient)
      }
      if (!this.groups.isKnown(from, arrival)) groups.add(arrival.body!.membership!.group)
      else if (!this.isPlaceKnown(from, arrival)) spaces.add(arrival.body!.shared.record!.spaceId)
    }
    from.isResolving = true
    const { peer } = from.peer
    const asked = [...spaces].map((spaceId) => ({ peer, spaceId }))
    const sought = { peers: [...unknown], groups: [...groups], pools: [...pools], spaces: asked }
    if (unknown.size + groups.size + pools.size + spaces.size > 0)
      this.context.effects.resolve(from.socket, from.mesh.meshId, sought)
    else this.presence.whenKnown(from.mesh, () => this.context.meshes.has(from) && this.resolved(from, [], [], NOTHING))
  }
}

/** Otherwise something of the sender is in the queue that came there another way. */
function isExpected(outcome: AppendOutcome): boolean {
  return outcome.status === 'stored' ? outcome.isExpected : outcome.status !== 'duplicate'
}

/** What becomes of it in the history. `null`: the record is another one's, or of another body. */
function recordOf({ mesh, peer }: LiveSession, { record, bodyId }: FrameOf<'broadcastKept'>): MessageRecord | null {
  const place = readRecordPlace(record)
  const isOwn = place.meshId === mesh.meshId && place.author === peer.peerKey && place.bodyId === bodyId
  return isOwn ? { spaceId: place.spaceId, record } : null
}

/** A pool is addressed by its id, as a peer by its key. */
const poolOf = ({ recipient }: SendRequest['item']): PoolId => recipient as string as PoolId

function refusalByPool({ epoch, members }: Pool, { toPool }: Broadcast): NackCode | null {
  const isOld = toPool!.epoch !== 0 && toPool!.epoch < epoch
  return isOld || !toPool!.readers.some((reader) => members.has(reader)) ? 'stale_roster' : null
}
