/** The peers of one mesh that other shards serve, as far as these have said so lately, and who wants to know of ours. */
import type { HintOf } from '@sealpost/protocol/hints'
import type { Millis, PeerKey, ShardId } from '@sealpost/std'
import type { PresenceItem } from '../deliver/outgoing.ts'

interface RemotePeer extends PresenceItem {
  readonly shard: ShardId
  readonly epoch: number
  readonly moment: number
  readonly untilMs: Millis
}

/** Asked once in so long while someone here wants to know. */
const ASK_EVERY_MS = 10_000
/** What was said or asked counts for so long: two questions may be lost. */
const GOOD_FOR_MS = 30_000
/** More that wait for an answer are answered by what is known. */
const WAITING_MAX = 1000

export class RemotePresence {
  private readonly peers = new Map<PeerKey, RemotePeer>()
  private waiting: (() => void)[] = []
  private askedAtMs: Millis = -Infinity
  private isAnswered = false
  private requestedUntilMs: Millis = -Infinity

  /** It has a session elsewhere. */
  find(peerKey: PeerKey, nowMs: Millis): PresenceItem | undefined {
    const peer = this.peers.get(peerKey)
    return peer?.isOnline && nowMs < peer.untilMs ? peer : undefined
  }

  online(nowMs: Millis): PresenceItem[] {
    return [...this.peers.values()].filter((peer) => peer.isOnline && nowMs < peer.untilMs)
  }

  /** Other shards want to hear of the peers that are here. */
  get isRequested(): boolean {
    return this.requestedUntilMs > -Infinity
  }

  requested(nowMs: Millis): void {
    this.requestedUntilMs = nowMs + GOOD_FOR_MS
  }

  /** Notes that someone here wants to know. Answers whether others are to be asked, once more. */
  request(nowMs: Millis): boolean {
    if (nowMs - this.askedAtMs < ASK_EVERY_MS) return false
    if (!this.isWatching(nowMs)) this.isAnswered = false
    this.askedAtMs = nowMs
    return true
  }

  /** Others had time to say who is there, and have told every change since. */
  isKnown(nowMs: Millis): boolean {
    return this.isAnswered && this.isWatching(nowMs)
  }

  /** Returns whether it is the first that waits. */
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

  /** Returns whether it is news. What a former session, or the same one before, is said to be counts no more. */
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

  /** Forgets what is old or was said by nobody of these; answers who is not online any more because of it. */
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
