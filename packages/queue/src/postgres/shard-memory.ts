/** What a shard remembers from one commit to the next. All of it is a guess that Postgres checks, or harmless. */
import type { Append } from '@sealpost/protocol'
import { assert, type EnvelopeId, ID_BLOCK, type MeshId, type Millis, type PeerNo } from '@sealpost/std'
import type { Outcome } from './outcomes.ts'

export type CtidOf = (meshId: MeshId, sender: PeerNo) => string | undefined

const SENDERS_MAX = 20_000
/** Of one that is revoked or writes to one, or whose mesh is not here. */
const IN_DOUBT_STILL: ReadonlySet<Outcome['status']> = new Set(['unknown_recipient', 'away'])

/** How far a sender's ids have come, and where the row that says so stood then. */
export interface SenderMark {
  readonly envelopeId: EnvelopeId
  readonly ctid: string
}

/** The marks of senders that opened a session here. The ones longest silent are forgotten. */
export class SenderMarks {
  private readonly marks = new Map<string, SenderMark>()

  find(meshId: MeshId, sender: PeerNo): SenderMark | undefined {
    return this.marks.get(meshId + sender)
  }

  note(meshId: MeshId, sender: PeerNo, mark: SenderMark): void {
    const key = meshId + sender
    this.marks.delete(key) // to the end
    this.marks.set(key, mark)
    if (this.marks.size > SENDERS_MAX) this.marks.delete(this.marks.keys().next().value!)
  }

  /** From what a checked statement decided, and where it left the marks. */
  learn(appends: readonly Append[], decisions: readonly Outcome[], placeOf: CtidOf): void {
    appends.forEach(({ meshId, sender, envelopeId }, i) => {
      const mark = this.find(meshId, sender)
      const place = placeOf(meshId, sender)
      // Everything that it says would be in doubt, and with it what others say.
      if (IN_DOUBT_STILL.has(decisions[i]!.status) || place === undefined) this.marks.delete(meshId + sender)
      else this.note(meshId, sender, { envelopeId: later(mark?.envelopeId, envelopeId), ctid: place })
    })
  }
}

/**
 * Delivery ids of this shard's own: it goes through a block and never back. Opening a session and a checked commit bring
 * a newer block, so that whatever a sender had stored through another shard has lower ids (see `delivery_block`).
 */
export class DeliveryIds {
  private next = 0
  private end = 0

  drawn(block: number): void {
    if (block * ID_BLOCK < this.end) return
    this.next = block * ID_BLOCK
    this.end = this.next + ID_BLOCK
  }

  usedUpTo(id: number): void {
    this.drawn(Math.floor(id / ID_BLOCK))
    this.next = Math.max(this.next, id + 1)
  }

  /**
   * A commit whose answer was lost may still come: under ids that others have passed it would look as if it had been
   * collected. So none of its block comes after it.
   */
  abandon(): void {
    this.next = this.end
  }

  /** Whether so many are left in this block. */
  has(count: number): boolean {
    return this.next + count <= this.end
  }

  /** @returns the first of `count` that follow one another */
  take(count: number): number {
    assert(this.has(count), 'a block that was drawn has room')
    this.next += count
    return this.next - count
  }
}

/**
 * The database clock as its last answer told it, going on by ours: for leases and expiry, which are judged by the
 * database's own. It runs late by the time an answer takes; `ADMIT` refuses one that is wrong.
 */
export class DatabaseClock {
  private aheadMs: Millis = 0

  get nowMs(): Millis {
    return performance.now() + this.aheadMs
  }

  set(nowMs: Millis): void {
    this.aheadMs = nowMs - performance.now()
  }
}

export const later = (a: EnvelopeId | undefined, b: EnvelopeId): EnvelopeId => (a !== undefined && a > b ? a : b)
