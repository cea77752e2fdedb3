/**
 * Tracks the reported peers of one mesh on other shards, and whether those shards want reports about the peers here.
 */
import type { HintOf } from '@sealpost/protocol/hints'
import type { Millis, PeerKey, ShardId } from '@sealpost/std'
import type { PresenceItem } from '../deliver/outgoing.ts'

interface RemotePeer extends PresenceItem {
  readonly shard: ShardId
  readonly epoch: number
  readonly moment: number
  readonly untilMs: Millis
}

/** The time between two requests while a session here needs presence. */
const ASK_EVERY_MS = 10_000
/** How long a report or request is valid, which allows for the loss of two requests. */
const GOOD_FOR_MS = 30_000
/** The maximum number of waiting callers. Further ones use the presence known so far. */
const WAITING_MAX = 1000

export class RemotePresence {
  private readonly peers = new Map<PeerKey, RemotePeer>()
  private waiting: (() => void)[] = []
  private askedAtMs: Millis = -Infinity
  private isAnswered = false
  private requestedUntilMs: Millis = -Infinity

  find(peerKey: PeerKey, nowMs: Millis): PresenceItem | undefined {
    const peer = this.peers.get(peerKey)
    return peer?.isOnline && nowMs < peer.untilMs ? peer : undefined
  }

  online(nowMs: Millis): PresenceItem[] {
    return [...this.peers.values()].filter((peer) => peer.isOnline && nowMs < peer.untilMs)
  }

  /** Whether other shards want reports about the peers here. */
  get isRequested(): boolean {
    return this.requestedUntilMs > -Infinity
  }

  requested(nowMs: Millis): void {
    this.requestedUntilMs = nowMs + GOOD_FOR_MS
  }

  /** Call when a session here needs presence. Returns whether to publish a request. */
  request(nowMs: Millis): boolean {
    if (nowMs - this.askedAtMs < ASK_EVERY_MS) return false
    if (!this.isWatching(nowMs)) this.isAnswered = false
    this.askedAtMs = nowMs
    return true
  }

  /** Returns whether the other shards have had time to report their peers, and have reported all changes since. */
  isKnown(nowMs: Millis): boolean {
    return this.isAnswered && this.isWatching(nowMs)
  }

  /** Queues `act`, or calls it immediately if too many wait. Returns whether it is the only one. */
  wait(act: () => void): boolean {
    if (this.waiting.length >= WAITING_MAX) act()
    else this.waiting.push(act)
    return this.waiting.length === 1
  }

  answered(): void {
    this.isAnswered = true
    const { waiting } = this
    this.waiting = []
    for (const act of waiting) act()
  }

  /** Applies a report. Ignores outdated ones. Returns whether presence has changed. */
  learn(
    shard: ShardId,
    { peer, epoch, moment, isOnline, availability, summary }: HintOf<'presence'>,
    nowMs: Millis,
  ): boolean {
    if (!this.isWatching(nowMs)) return false
    const former = this.peers.get(peer)
    if (former && (former.epoch > epoch || (former.epoch === epoch && former.moment >= moment))) return false
    const untilMs = nowMs + GOOD_FOR_MS
    this.peers.set(peer, { peer, isOnline, availability, summary, shard, epoch, moment, untilMs })
    if (!former) return isOnline
    return former.isOnline !== isOnline || former.availability !== availability || former.summary !== summary
  }

  /** Forgets expired reports and dead shards. Returns the peers that went offline as a result. */
  forgetOld(nowMs: Millis, others: ReadonlySet<ShardId>): PeerKey[] {
    if (this.requestedUntilMs <= nowMs) this.requestedUntilMs = -Infinity
    const gone: PeerKey[] = []
    for (const { peer, shard, untilMs, isOnline } of this.peers.values()) {
      if (nowMs < untilMs && others.has(shard)) continue
      this.peers.delete(peer)
      if (isOnline) gone.push(peer)
    }
    return gone
  }

  private isWatching(nowMs: Millis): boolean {
    return nowMs - this.askedAtMs < GOOD_FOR_MS
  }
}
