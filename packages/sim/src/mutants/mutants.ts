/**
 * Planted bugs, one each, outside of the real code. A simulator that does not find them would not find real ones;
 * `mutants.test.ts` shows that it does.
 */
import type { ClaimWant, DeliveryUpdate, SendOutcome, SocketId } from '@sealpost/core'
import type {
  Append,
  Claimed,
  ClientFrame,
  Committed,
  PoolWant,
  RemoteClaimed,
  RemoteWant,
  ServerFrame,
  SessionRef,
  Settle,
  Want,
} from '@sealpost/protocol'
import type { Batch, QueueOptions, Released, StatementOutcomes } from '@sealpost/queue'
import type { DeliveryId } from '@sealpost/std'
import { ShardLife } from '../shard/shard-life.ts'
import type { SimulatedConnection } from '../shard/simulated-connection.ts'
import { SimulatedQueue } from '../shard/simulated-queue.ts'
import { WatchedDriver } from '../shard/watched-driver.ts'
import { WatchedPools } from '../shard/watched-pools.ts'
import { WatchedStatements } from '../shard/watched-statements.ts'
import { realParts, type WorldParts } from '../world.ts'
import { mutantsOfEnds } from './mutants-of-ends.ts'
import { mutantsOfLeavers } from './mutants-of-leavers.ts'
import { mutantsOfOwners } from './mutants-of-owners.ts'

export interface Mutant {
  readonly name: string
  readonly breaks: RegExp
  readonly parts: WorldParts
  readonly firstSeed?: number
}

class AckBeforeCommit extends SimulatedQueue {
  private lastId = 1_000_000

  override async commit(batch: Batch): Promise<Committed> {
    super.commit(batch).catch(() => undefined)
    const outcomes = batch.appends.map(() => {
      this.lastId += 1
      return { status: 'stored' as const, id: this.lastId as DeliveryId, isLeased: false, isExpected: true }
    })
    return { outcomes, enqueuedAtMs: 0 }
  }
}

class UnknownCommitAcked extends SimulatedQueue {
  override async commit(batch: Batch): Promise<Committed> {
    const stored = { status: 'stored' as const, id: 1 as DeliveryId, isLeased: false, isExpected: true }
    return super.commit(batch).catch(() => ({ outcomes: batch.appends.map(() => stored), enqueuedAtMs: 0 }))
  }
}

class SettleOnPush extends WatchedDriver {
  override send(no: SocketId, frames: readonly ServerFrame[]): SendOutcome {
    const outcome = super.send(no, frames)
    for (const frame of frames) {
      if (frame.type !== 'push') continue
      const ids = frame.deliveries.map((delivery) => delivery.id)
      this.life.after(0, () => this.step(() => this.engine.received(no, { type: 'settle', ids })))
    }
    return outcome
  }
}

class DroppedSendIgnored extends WatchedDriver {
  override send(no: SocketId, frames: readonly ServerFrame[]): SendOutcome {
    const outcome = super.send(no, frames)
    return outcome === 'dropped' ? 'sent' : outcome
  }
}

class FenceSkipped extends WatchedDriver {
  override fence(no: SocketId, session: SessionRef): void {
    this.life.after(0, () => this.step(() => this.engine.fenced(no, session.epoch)))
  }
}

class ClaimBeginsTooLate extends WatchedDriver {
  override claim(want: ClaimWant): void {
    if (want.kind !== 'mailbox') return super.claim(want)
    const { from, to } = want.ids
    super.claim(from === 0 ? want : Object.create(want, { ids: { value: { from: from + 1, to } } }))
  }
}

class SettleSendsNoReceipt extends WatchedDriver {
  override settle(settle: Settle): void {
    super.settle({ ...settle, receiptTo: null })
  }
}

class LeaverKeepsLeases extends WatchedDriver {
  override updateDeliveries(update: DeliveryUpdate): void {
    if (update.type !== 'release') super.updateDeliveries(update)
  }
}

class CreditIgnored extends ShardLife {
  override received(connection: SimulatedConnection, frame: ClientFrame): void {
    super.received(connection, frame)
    if (frame.type === 'send') super.received(connection, { type: 'credit', credit: 1_000 })
  }
}

class SequenceIgnored extends ShardLife {
  override received(connection: SimulatedConnection, frame: ClientFrame): void {
    if (frame.type !== 'send') return super.received(connection, frame)
    super.received(connection, { ...frame, envelopes: frame.envelopes.map((item) => ({ ...item, isHead: true })) })
  }
}

class BroadcastComesLate extends ShardLife {
  override received(connection: SimulatedConnection, frame: ClientFrame): void {
    if (frame.type === 'broadcast') this.after(200, () => super.received(connection, frame))
    else super.received(connection, frame)
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

class NoDedupe extends WatchedStatements {
  override commitAtOnce(batch: Batch): StatementOutcomes {
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

class OpeningIgnoresEpoch extends WatchedStatements {
  override open(read: SessionRef): number | null {
    const { epoch } = this.store.find(read.meshId, read.peer)!.session
    return super.open({ ...read, epoch })
  }
}

class InsertLeaseUnchecked extends WatchedStatements {
  override commitAtOnce(batch: Batch): StatementOutcomes {
    const waiting = batch.appends.flatMap((append) => (append.insertLeaseEpoch === 0 ? [] : this.hideWaiting(append)))
    const committed = super.commitAtOnce(batch)
    for (const restore of waiting) restore()
    return committed
  }

  /** Makes every delivery of the recipient appear leased to its session while the commit checks. */
  private hideWaiting({ meshId, recipient, insertLeaseEpoch }: Append): (() => void)[] {
    return this.store.find(meshId, recipient)!.deliveries.map((row) => {
      const { lease, attempts } = row
      row.lease = { epoch: insertLeaseEpoch, untilMs: this.store.nowMs + 1_000 }
      row.attempts = Math.max(attempts, 1)
      return () => {
        row.lease = lease
        row.attempts = attempts
      }
    })
  }
}

class CollectBeginsTooLate extends WatchedStatements {
  override collect(wants: readonly RemoteWant[]): RemoteClaimed[] {
    return super.collect(wants.map((want) => ({ ...want, ids: { ...want.ids, from: want.ids.from + 1 } })))
  }
}

class DelayedForever extends WatchedStatements {
  override releaseDue(): Released {
    return { recipients: [], nextInMs: null }
  }
}

class RejectForgotten extends WatchedStatements {
  override reject(): void {
    return
  }
}

/** Treats a claim that returns less than its limit as one that emptied the queue. */
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

const mutant = (name: string, parts: Partial<WorldParts>, breaks: RegExp): Mutant => ({
  name,
  breaks,
  parts: { ...realParts, ...parts },
})

export const mutants: readonly Mutant[] = [
  ...mutantsOfEnds,
  ...mutantsOfLeavers,
  ...mutantsOfOwners,
  mutant('ack before commit', { Queue: AckBeforeCommit }, /^P1|^P5/),
  mutant('ack of an unknown commit', { Queue: UnknownCommitAcked }, /^P1|^P5/),
  mutant('settle on push', { Driver: SettleOnPush }, /^P2|^credit/),
  mutant('a dropped send is ignored', { Driver: DroppedSendIgnored }, /^P[1-8]/),
  mutant('no fence after a lost reply', { Driver: FenceSkipped }, /^P6/),
  mutant('credit is ignored', { Life: CreditIgnored }, /^credit/),
  mutant('a claim begins after known deliveries', { Driver: ClaimBeginsTooLate }, /^P6/),
  mutant('the sequence after a refusal is ignored', { Life: SequenceIgnored }, /^P6/),
  mutant('a broadcast is overtaken by later messages', { Life: BroadcastComesLate }, /^P6/),
  mutant('a settle sends no receipt', { Driver: SettleSendsNoReceipt }, /^P3/),
  { ...mutant('a leaving member keeps its pool leases', { Driver: LeaverKeepsLeases }, /^leavers/), firstSeed: 310 },
  mutant('a pool deals held deliveries', { Statements: DealsWhatIsHeld }, /^one holder/),
  mutant('delayed deliveries stay delayed', { Statements: DelayedForever }, /^P3/),
  mutant('a reject is lost', { Statements: RejectForgotten }, /^P[38]/),
  mutant('no dedupe', { Statements: NoDedupe }, /^P5/),
  mutant('claims ignore leases', { Statements: LeaseIgnored }, /^P7/),
  mutant('an opening ignores the epoch', { Statements: OpeningIgnoresEpoch }, /^P3.*superseded/),
  mutant('a takeover keeps the epoch', { Statements: TakeoverKeepsEpoch }, /^P[367]/),
  mutant('a lease on insert ignores waiting deliveries', { Statements: InsertLeaseUnchecked }, /^P6/),
  mutant('a collect begins too late', { Statements: CollectBeginsTooLate }, /^P[36]/),
  { ...mutant('a short claim means an empty queue', { Statements: ShortClaimMeansEmpty }, /^P6/), firstSeed: 470 },
  mutant('a claim forgets the mesh', { Statements: MeshForgotten }, /^P[49]/),
  mutant('hints only, no poll', { limits: { pollMs: Number.POSITIVE_INFINITY } }, /^P3/),
]
