/** Contains a shard's memory between commits. Postgres verifies every assumption that could do harm. */
import type { Append } from '@sealpost/protocol'
import { type EnvelopeId, ID_BLOCK, type MeshId, type Millis, type PeerNo } from '@sealpost/std'
import type { AckedEnvelope } from '@sealpost/store'
import { type Party, type StatementOutcome, secondOf } from './commit-batch.ts'

export class ShardMemory {
  readonly marks = new SenderMarks()
  readonly ids = new DeliveryIds()
  readonly clock = new DatabaseClock()
  readonly lastAcknowledged = new LastAcknowledged()

  /** Call after an optimistic commit. `ctids`: those of the senders' new marks. */
  committed(batch: CommittedBatch, ctids: readonly string[], clockMs: Millis): void {
    const { appends, senders } = batch
    for (let i = 0; i < senders.length; i++) {
      const { meshId, peer, sent } = senders[i]!
      this.marks.note(meshId, peer, { envelopeId: appends[sent.at(-1)!]!.envelopeId, ctid: ctids[i]! })
    }
    this.clock.set(clockMs)
    this.lastAcknowledged.stored(appends[senders.at(-1)!.sent.at(-1)!]!)
  }
}

interface CommittedBatch {
  readonly appends: readonly Append[]
  readonly senders: readonly Party[]
}

export type CtidOf = (meshId: MeshId, sender: PeerNo) => string | undefined

const SENDERS_MAX = 20_000
/** Outcomes after which the sender's mark is unknown. */
const MARK_UNKNOWN: ReadonlySet<StatementOutcome['status']> = new Set(['unknown_recipient', 'away'])

/** A sender's last envelope id, and the `ctid` of its row. */
export interface SenderMark {
  readonly envelopeId: EnvelopeId
  readonly ctid: string
}

/** Remembers the marks of senders that opened a session here. Drops the least recently used ones. */
export class SenderMarks {
  private readonly marks = new Map<string, SenderMark>()

  find(meshId: MeshId, sender: PeerNo): SenderMark | undefined {
    return this.marks.get(meshId + sender)
  }

  note(meshId: MeshId, sender: PeerNo, mark: SenderMark): void {
    const key = meshId + sender
    this.marks.delete(key)
    this.marks.set(key, mark)
    if (this.marks.size > SENDERS_MAX) this.marks.delete(this.marks.keys().next().value!)
  }

  /** Remembers the marks that a checked statement returned. */
  learn(appends: readonly Append[], outcomes: readonly StatementOutcome[], ctidOf: CtidOf): void {
    appends.forEach(({ meshId, sender, envelopeId }, i) => {
      const mark = this.find(meshId, sender)
      const ctid = ctidOf(meshId, sender)
      // Forget a doubtful mark: it would make the next optimistic commit uncertain for all senders.
      if (MARK_UNKNOWN.has(outcomes[i]!.status) || ctid === undefined) this.marks.delete(meshId + sender)
      else this.note(meshId, sender, { envelopeId: later(mark?.envelopeId, envelopeId), ctid })
    })
  }
}

/**
 * Assigns delivery ids from a block, in ascending order. Each session and checked commit draws a newer block, so that
 * deliveries that a sender stored through another shard have lower ids (see `delivery_block`).
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
   * Abandons the block, because a commit whose outcome was lost may be applied later. If higher ids of the block were
   * used by then, its deliveries would count as collected.
   */
  abandon(): void {
    this.next = this.end
  }

  /** Takes `count` consecutive ids. Returns the first one; null if too few are left. */
  take(count: number): number | null {
    if (this.next + count > this.end) return null
    this.next += count
    return this.next - count
  }
}

/**
 * Estimates the database clock from its last reply and the local clock. The estimate is late by that reply's latency;
 * `ADMIT` refuses one that is off by a second.
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

/** The number of consecutive duplicates that are remembered. After more, only a newly stored envelope is a proof. */
const RESENDS_MAX = 1_000

type Envelope = Pick<Append, 'meshId' | 'sender' | 'envelopeId'>

/**
 * Remembers the last acknowledged envelopes. A server that has them has every earlier commit, because standbys replay
 * in order (docs/adr/0010-failover.md).
 */
export class LastAcknowledged {
  #envelopes: Envelope[] = []
  #isTooMany = false
  #version = 0

  /** The envelopes; null if there were too many duplicates. */
  get envelopes(): readonly AckedEnvelope[] | null {
    return this.#isTooMany ? null : this.#envelopes.map(acknowledgedOf)
  }

  get version(): number {
    return this.#version
  }

  /** Records an envelope of the newest commit. */
  stored(envelope: Envelope): void {
    this.#envelopes = [envelope]
    this.#isTooMany = false
    this.#version += 1
  }

  /**
   * Records a checked statement's outcomes. Envelopes that it stored are newer than its duplicates. If it stored none,
   * a duplicate may be newer than all envelopes here.
   */
  decided(appends: readonly Append[], outcomes: readonly StatementOutcome[]): void {
    const stored = outcomes.findIndex(({ status }) => status === 'stored')
    if (stored >= 0) return this.stored(withoutBytes(appends[stored]!))
    const resent = appends.filter((_, i) => outcomes[i]!.status === 'duplicate')
    if (resent.length === 0) return
    this.#envelopes.push(...resent.map(withoutBytes))
    this.#isTooMany ||= this.#envelopes.length > RESENDS_MAX
    if (this.#isTooMany) this.#envelopes = []
    this.#version += 1
  }

  /**
   * Forgets the envelopes unless one was recorded since `version`, because a later commit of another kind is the proof.
   */
  forget(version: number): void {
    if (version !== this.#version) return
    this.#envelopes = []
    this.#isTooMany = false
  }
}

const withoutBytes = ({ meshId, sender, envelopeId }: Append): Envelope => ({ meshId, sender, envelopeId })

const acknowledgedOf = ({ meshId, sender, envelopeId }: Envelope): AckedEnvelope => ({
  ...{ meshId, sender, envelopeId },
  second: secondOf(envelopeId),
})
