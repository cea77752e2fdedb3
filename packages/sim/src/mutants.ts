/**
 * Bugs on purpose, one each, planted around the real code and never in it. A simulator that does not find these would
 * not find real ones; `mutants.test.ts` shows that it does.
 */
import type { SendOutcome, SocketId } from '@sealpost/core'
import type {
  Append,
  Claimed,
  ClientFrame,
  Collected,
  CollectWant,
  PoolWant,
  ServerFrame,
  SessionRef,
  Settle,
  Want,
} from '@sealpost/protocol'
import type { Batch, Decided, QueueOptions, Released } from '@sealpost/queue'
import type { DeliveryId } from '@sealpost/std'
import { mutantsOfEnds } from './mutants-of-ends.ts'
import { mutantsOfLeavers } from './mutants-of-leavers.ts'
import { mutantsOfOwners } from './mutants-of-owners.ts'
import { ShardLife } from './shard-life.ts'
import { WatchedPools } from './watched-pools.ts'
import { WatchedStatements } from './watched-statements.ts'
import { realParts, type WorldParts } from './world.ts'

export interface Mutant {
  readonly name: string
  /** Promises one of which it breaks. */
  readonly breaks: RegExp
  readonly parts: WorldParts
  /** Of one that few seeds find: shortly before one that does. */
  readonly firstSeed?: number
}

class AckBeforeCommit extends ShardLife {
  private lastId = 1_000_000

  protected override commit(batch: Batch): void {
    const outcomes = batch.appends.map(() => {
      this.lastId += 1
      return { status: 'stored' as const, id: this.lastId as DeliveryId, isLeased: false, isExpected: true }
    })
    this.ask('commit', () => this.statements.commit(batch))
    this.after(0, () => this.step(() => this.commitAnswered(batch, { outcomes, enqueuedAtMs: 0 })))
  }
}

class SettleOnPush extends ShardLife {
  override send(no: SocketId, frames: readonly ServerFrame[]): SendOutcome {
    const outcome = super.send(no, frames)
    for (const frame of frames) {
      if (frame.type !== 'push') continue
      const ids = frame.deliveries.map((delivery) => delivery.id)
      this.after(0, () => this.step(() => this.engine.received(no, { type: 'settle', ids })))
    }
    return outcome
  }
}

class DroppedSendIgnored extends ShardLife {
  protected override sendDropped(): SendOutcome {
    return 'sent'
  }
}

class FenceSkipped extends ShardLife {
  override fence(no: SocketId, session: SessionRef): void {
    this.after(0, () => this.step(() => this.engine.fenced(no, session.epoch)))
  }
}

class CreditIgnored extends ShardLife {
  protected override received(no: SocketId, frame: ClientFrame): void {
    super.received(no, frame)
    if (frame.type === 'send') this.step(() => this.engine.received(no, { type: 'credit', credit: 1_000 }))
  }
}

class ClaimBeginsTooLate extends ShardLife {
  override claim(want: Want): void {
    const { from, to } = want.ids
    super.claim(from === 0 ? want : Object.create(want, { ids: { value: { from: from + 1, to } } }))
  }
}

class SettleTellsNobody extends ShardLife {
  override settle(settle: Settle): void {
    super.settle({ ...settle, toldTo: null })
  }
}

class LeaverKeepsLeases extends ShardLife {
  override giveBack(): void {
    return
  }
}

class DealsWhatIsHeld extends WatchedStatements {
  protected override watchPools(options: QueueOptions): WatchedPools {
    return new (class extends WatchedPools {
      protected override prepareClaim({ meshId, pool }: PoolWant): void {
        for (const row of this.world.store.find(meshId, pool)!.deliveries) row.lease = null
      }
    })(this.world, this.shard, options)
  }
}

class SequenceIgnored extends ShardLife {
  protected override received(no: SocketId, frame: ClientFrame): void {
    if (frame.type !== 'send') return super.received(no, frame)
    super.received(no, { ...frame, envelopes: frame.envelopes.map((item) => ({ ...item, isHead: true })) })
  }
}

class BroadcastComesLate extends ShardLife {
  protected override received(no: SocketId, frame: ClientFrame): void {
    if (frame.type === 'broadcast') this.after(200, () => super.received(no, frame))
    else super.received(no, frame)
  }
}

class UnknownCommitAcked extends ShardLife {
  protected override commitFailed(): void {
    const appends = this.writer.failed()
    const outcomes = appends.map(() => ({
      status: 'stored' as const,
      id: 1 as DeliveryId,
      isLeased: false,
      isExpected: true,
    }))
    this.engine.committed(appends, { outcomes, enqueuedAtMs: 0 })
  }
}

class NoDedupe extends WatchedStatements {
  override commitAtOnce(batch: Batch): Decided {
    this.store.forgetLedger()
    return super.commitAtOnce(batch)
  }
}

class LeaseIgnored extends WatchedStatements {
  protected override prepareClaim({ session: { meshId, peer } }: Want): void {
    for (const row of this.store.find(meshId, peer)!.deliveries) row.lease = null
  }
}

class TakeoverKeepsEpoch extends WatchedStatements {
  override open(read: SessionRef): number | null {
    const { session } = this.store.find(read.meshId, read.peer)!
    const epoch = super.open(read)
    if (epoch === null || read.epoch === 0) return epoch
    session.epoch = read.epoch
    return session.epoch
  }
}

class OpensWhateverWasRead extends WatchedStatements {
  override open(read: SessionRef): number | null {
    const { epoch } = this.store.find(read.meshId, read.peer)!.session
    return super.open({ ...read, epoch })
  }
}

class BirthUnchecked extends WatchedStatements {
  override commitAtOnce(batch: Batch): Decided {
    const waiting = batch.appends.flatMap((append) => (append.birthEpoch === 0 ? [] : this.hideWaiting(append)))
    const committed = super.commitAtOnce(batch)
    for (const restore of waiting) restore()
    return committed
  }

  /** For as long as the commit looks, everything of the recipient seems to be leased to its session. */
  private hideWaiting({ meshId, recipient, birthEpoch }: Append): (() => void)[] {
    return this.store.find(meshId, recipient)!.deliveries.map((row) => {
      const { lease, attempts } = row
      row.lease = { epoch: birthEpoch, untilMs: this.store.nowMs + 1_000 }
      row.attempts = Math.max(attempts, 1)
      return () => {
        row.lease = lease
        row.attempts = attempts
      }
    })
  }
}

class CollectBeginsTooLate extends WatchedStatements {
  override collect(wants: readonly CollectWant[]): Collected[] {
    return super.collect(wants.map((want) => ({ ...want, ids: { ...want.ids, from: want.ids.from + 1 } })))
  }
}

class DelayedForEver extends WatchedStatements {
  override releaseDue(): Released {
    return { recipients: [], nextInMs: null }
  }
}

class RejectForgotten extends WatchedStatements {
  override reject(): void {
    return
  }
}

/** It takes a claim that brings less than it may for one that has emptied the queue. */
class ShortClaimMeansEmpty extends WatchedStatements {
  override claim(wants: readonly Want[], asOf: number): Claimed[] {
    return super.claim(wants, asOf).map((claimed, i) => {
      if (claimed.status !== 'claimed') return claimed
      const { limit, limitBytes } = wants[i]!
      const byteCount = claimed.deliveries.reduce(
        (sum, { envelope, body }) => sum + envelope.length + (body?.length ?? 0),
        0,
      )
      return { ...claimed, hasMore: claimed.deliveries.length >= limit || byteCount >= limitBytes }
    })
  }
}

class MeshForgotten extends WatchedStatements {
  override claim(wants: readonly Want[], asOf: number): Claimed[] {
    return super.claim(wants, asOf).map((claimed, i) => {
      const { meshId, peer } = wants[i]!.session
      const foreign = [...this.store.deliveries()].find((row) => row.meshId !== meshId && row.recipient === peer)
      if (claimed.status !== 'claimed' || claimed.deliveries.length > 0 || !foreign) return claimed
      const sender = this.store.find(foreign.meshId, foreign.sender)!.binding.peer
      const { id, envelopeId, priority, envelope } = foreign
      return {
        status: 'claimed',
        deliveries: [
          { id, envelopeId, sender, priority, attempt: 1, enqueuedAtMs: 0, envelope, terms: null, body: null },
        ],
        hasMore: false,
      }
    })
  }
}

const life = (name: string, Life: typeof ShardLife, breaks: RegExp): Mutant => ({
  name,
  breaks,
  parts: { ...realParts, Life },
})
const statements = (name: string, Statements: typeof WatchedStatements, breaks: RegExp): Mutant => ({
  name,
  breaks,
  parts: { ...realParts, Statements },
})

export const mutants: readonly Mutant[] = [
  ...mutantsOfEnds,
  ...mutantsOfLeavers,
  ...mutantsOfOwners,
  life('ack before commit', AckBeforeCommit, /^P1|^P5/),
  life('ack of an unknown commit', UnknownCommitAcked, /^P1|^P5/),
  life('settle on push', SettleOnPush, /^P2|^credit/),
  life('a dropped send is ignored', DroppedSendIgnored, /^P[1-8]/),
  life('no fence after a lost answer', FenceSkipped, /^P6/),
  life('credit is ignored', CreditIgnored, /^credit/),
  life('a claim begins behind what is known to wait', ClaimBeginsTooLate, /^P6/),
  life('the sequence after a refusal is ignored', SequenceIgnored, /^P6/),
  life('a broadcast is overtaken by what comes after it', BroadcastComesLate, /^P6/),
  life('a settle tells nobody', SettleTellsNobody, /^P3/),
  { ...life('a leaver keeps the leases of its pool', LeaverKeepsLeases, /^leavers/), firstSeed: 310 },
  statements('a pool deals what is held', DealsWhatIsHeld, /^one holder/),
  statements('what is delayed stays so', DelayedForEver, /^P3/),
  statements('a reject is forgotten', RejectForgotten, /^P[38]/),
  statements('no dedupe', NoDedupe, /^P5/),
  statements('claims ignore leases', LeaseIgnored, /^P7/),
  statements('an opening looks at no epoch', OpensWhateverWasRead, /^P3.*superseded/),
  statements('a takeover keeps the epoch', TakeoverKeepsEpoch, /^P[367]/),
  statements('a birth lease looks at nothing that waits', BirthUnchecked, /^P6/),
  statements('a collect begins too late', CollectBeginsTooLate, /^P[36]/),
  { ...statements('a short claim means an empty queue', ShortClaimMeansEmpty, /^P6/), firstSeed: 470 },
  statements('a claim forgets the mesh', MeshForgotten, /^P[49]/),
  {
    name: 'hints only, no poll',
    breaks: /^P3/,
    parts: { ...realParts, limits: { pollMs: Number.POSITIVE_INFINITY } },
  },
]
