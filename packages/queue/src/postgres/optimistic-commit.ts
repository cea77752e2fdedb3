/**
 * The fast way of a commit: everything in it is new as far as this shard knows, so ids and leases are given here, the
 * rows travel by `COPY`, and Postgres only checks. When it objects nothing was done.
 */
import { arrayLiteral, type PipelineStep, type TextRow } from '@sealpost/pg'
import type { Append, AppendOutcome } from '@sealpost/protocol'
import type { DeliveryId, Millis, ShardId } from '@sealpost/std'
import type { QueueOptions } from '../queue.ts'
import * as statements from '../sql/sql.ts'
import { BinaryWriter, int4s, int8s, uuids } from './binary.ts'
import { admitBirth, bodiesOf, fingerprintOf, Parties, type Party, secondOf } from './commit-batch.ts'
import { historySteps } from './history-step.ts'
import type { SenderMark, SenderMarks } from './shard-memory.ts'

/** Where the answers of both ways to admit have them. */
const PLACES = 3

export interface SureTerms {
  readonly shard: ShardId
  readonly firstId: number
  /** By the database clock, as well as it is known here. */
  readonly nowMs: Millis
  readonly options: Pick<QueueOptions, 'leaseMs' | 'dedupeMs' | 'strikesMax' | 'strikeSpanMs'>
  readonly marks: Pick<SenderMarks, 'find'>
}

/** Where the rows are written, one commit after the other: none begins before the last one was answered or its connection cut. */
export class RowWriters {
  readonly queue = new BinaryWriter()
  readonly ledger = new BinaryWriter()
  readonly bodies = new BinaryWriter()
}

/** Up to so many envelopes, each of another sender, are admitted one by one, which is the faster then. */
const SINGLY_MAX = 3

export class OptimisticCommit {
  private readonly appends: readonly Append[]
  private readonly terms: SureTerms
  private readonly writers: RowWriters
  private readonly parties = new Parties()
  private readonly senders: readonly Party[]
  private readonly isLeased: boolean[] = []
  /** First, as in the checked commit, so that both lock in one order. */
  private readonly bodySteps: PipelineStep[]

  constructor(appends: readonly Append[], terms: SureTerms, writers: RowWriters) {
    this.appends = appends
    this.terms = terms
    this.writers = writers
    for (const append of appends) {
      const recipient = this.parties.find(append.meshId, append.recipient)
      this.parties.sent(append.meshId, append.sender, this.isLeased.length)
      this.isLeased.push(admitBirth(recipient, append))
    }
    this.senders = this.parties.senders()
    this.bodySteps = this.copyBodies()
  }

  steps(): PipelineStep[] {
    const admit = this.isSingly ? this.senders.map(({ sent }) => this.admitOne(sent[0]!)) : [this.admit()]
    return [...this.bodySteps, ...admit, this.copyQueue(), this.copyLedger(), ...historySteps(this.appends)]
  }

  private get isSingly(): boolean {
    return this.appends.length <= SINGLY_MAX && this.senders.length === this.appends.length
  }

  outcomes(): AppendOutcome[] {
    const { firstId } = this.terms
    return this.isLeased.map((isLeased, i) => ({
      status: 'stored',
      id: (firstId + i) as DeliveryId,
      isLeased: isLeased || this.appends[i]!.remoteLeaseEpoch !== 0,
      isExpected: true,
    }))
  }

  /** What the answers of the steps tell: where the marks are now, and the time. */
  learn(marks: SenderMarks, all: readonly TextRow[][]): { enqueuedAtMs: Millis; clockMs: Millis } {
    const answers = all.slice(this.bodySteps.length)
    const places = this.isSingly
      ? this.senders.map((_, i) => answers[i]![0]![PLACES] as string)
      : (answers[0]![0]![PLACES] as string).split(' ')
    this.senders.forEach(({ meshId, peer, sent }, i) => {
      marks.note(meshId, peer, { envelopeId: this.appends[sent.at(-1)!]!.envelopeId, ctid: places[i]! })
    })
    const [, enqueuedAt, clock] = answers[0]![0]!
    return { enqueuedAtMs: Math.floor(Number(enqueuedAt)), clockMs: Number(clock) }
  }

  private admit(): PipelineStep {
    const { senders } = this
    const marks = senders.map((sender) => this.markOf(sender))
    const { all } = this.parties
    const births = all.filter((party) => party.bornFrom.length > 0)
    const { firsts, lasts } = rangesOf(births)
    const idAt = (place: number) => this.appends[place]!.envelopeId
    return {
      text: statements.ADMIT,
      parameters: [
        uuids(senders.map((sender) => sender.meshId)),
        int4s(senders.map((sender) => sender.peer)),
        uuids(marks.map(({ envelopeId }) => envelopeId)),
        uuids(senders.map((sender) => idAt(sender.sent.at(-1)!))),
        uuids(all.map((party) => party.meshId)),
        int4s(all.map((party) => party.peer)),
        uuids(births.map((party) => party.meshId)),
        int4s(births.map((party) => party.peer)),
        int8s(births.map((party) => party.insertLeaseEpoch)),
        int4s(firsts),
        int4s(lasts),
        int4s(births.flatMap((party) => party.bornFrom)),
        this.terms.shard,
        ...this.judging(),
        int8s(births.map((party) => party.insertLeaseFloor)),
        arrayLiteral(marks.map(({ ctid: place }) => place)),
      ],
    }
  }

  private admitOne(place: number): PipelineStep {
    const { meshId, sender, recipient, envelopeId, insertLeaseEpoch, insertLeaseFloor } = this.appends[place]!
    const epoch = this.isLeased[place] ? insertLeaseEpoch : 0
    const mark = this.markOf({ meshId, peer: sender })
    return {
      text: statements.ADMIT_ONE,
      parameters: [
        ...[meshId, String(sender), String(recipient), envelopeId, String(epoch), this.terms.shard],
        ...this.judging(),
        ...[String(insertLeaseFloor), mark.envelopeId, mark.ctid],
      ],
    }
  }

  /** Whatever is sure has one. */
  private markOf({ meshId, peer }: Pick<Party, 'meshId' | 'peer'>): SenderMark {
    return this.terms.marks.find(meshId, peer)!
  }

  /** What both ways to admit judge by. */
  private judging(): string[] {
    const { options, nowMs } = this.terms
    return [String(options.strikesMax), String(options.strikeSpanMs / 1000), String(nowMs)]
  }

  /** A body that is there already fails the whole: then the checked commit keeps it. */
  private copyBodies(): PipelineStep[] {
    const bodies = bodiesOf(this.appends)
    if (bodies.length === 0) return []
    const rows = this.writers.bodies
    rows.beginCopy()
    for (const { meshId, sender, body } of bodies) {
      rows.int16(5)
      rows.uuid(meshId)
      rows.int4(sender)
      rows.hex(body.bodyId)
      if (body.readers) rows.array('int4', body.readers, (reader) => rows.int4(reader))
      else rows.null()
      rows.bytea(body.bytes)
    }
    rows.endCopy()
    return [{ text: statements.COPY_BODIES, copied: rows.finish() }]
  }

  private copyQueue(): PipelineStep {
    const { firstId, nowMs, options } = this.terms
    const rows = this.writers.queue
    rows.beginCopy()
    for (let i = 0; i < this.appends.length; i++) {
      const append = this.appends[i]!
      rows.int16(14)
      rows.uuid(append.meshId)
      rows.int4(append.recipient)
      rows.int2(append.priority)
      rows.int8(firstId + i)
      rows.int4(append.sender)
      rows.int4(this.isLeased[i] ? 1 : 0)
      rows.uuid(append.envelopeId)
      rows.instant(nowMs + append.ttlSeconds * 1000)
      const epoch = this.isLeased[i] ? append.insertLeaseEpoch : append.remoteLeaseEpoch
      if (epoch !== 0) {
        rows.int8(epoch)
        rows.instant(nowMs + options.leaseMs)
      } else {
        rows.null()
        rows.null()
      }
      if (append.terms) rows.bytea(append.terms)
      else rows.null()
      if (append.body) {
        rows.hex(append.body.bodyId)
        rows.int4(append.body.bytes.length)
      } else {
        rows.null()
        rows.null()
      }
      rows.bytea(append.envelope)
    }
    rows.endCopy()
    return { text: statements.COPY_QUEUE, copied: rows.finish() }
  }

  /** One row for each sender and second. */
  private copyLedger(): PipelineStep {
    const { ledger } = this.writers
    const { firstId } = this.terms
    const columns: LedgerColumns = {
      envelopeId: (place) => ledger.uuid(this.appends[place]!.envelopeId),
      fingerprint: (place) => ledger.bigint(fingerprintOf(this.appends[place]!)),
      id: (place) => ledger.int8(firstId + place),
      recipient: (place) => ledger.int4(this.appends[place]!.recipient),
      priority: (place) => ledger.int2(this.appends[place]!.priority),
    }
    ledger.beginCopy()
    for (const { sent } of this.senders) {
      let from = 0
      let second = this.secondAt(sent[0]!)
      for (let to = 1; to <= sent.length; to++) {
        const next = to < sent.length ? this.secondAt(sent[to]!) : -1
        if (next === second) continue
        this.writeLedgerRow(from === 0 && to === sent.length ? sent : sent.slice(from, to), second, columns)
        from = to
        second = next
      }
    }
    ledger.endCopy()
    return { text: statements.COPY_LEDGER, copied: ledger.finish() }
  }

  private writeLedgerRow(places: readonly number[], second: number, columns: LedgerColumns): void {
    const rows = this.writers.ledger
    const { nowMs, options, firstId } = this.terms
    const { meshId, sender } = this.appends[places[0]!]!
    rows.int16(10)
    rows.uuid(meshId)
    rows.int4(sender)
    rows.int8(second)
    rows.int8(firstId + places[0]!)
    rows.instant(nowMs + options.dedupeMs)
    rows.array('uuid', places, columns.envelopeId)
    rows.array('int8', places, columns.fingerprint)
    rows.array('int8', places, columns.id)
    rows.array('int4', places, columns.recipient)
    rows.array('int2', places, columns.priority)
  }

  private secondAt(place: number): number {
    return secondOf(this.appends[place]!.envelopeId)
  }
}

/** Those with an element for each envelope: what writes it, by its place in the batch. */
type LedgerColumns = Readonly<
  Record<'envelopeId' | 'fingerprint' | 'id' | 'recipient' | 'priority', (place: number) => void>
>

/** Where each one's senders stand in the list of all, counted from 1. */
function rangesOf(births: readonly Party[]): { firsts: number[]; lasts: number[] } {
  let last = 0
  const lasts = births.map(({ bornFrom }) => {
    last += bornFrom.length
    return last
  })
  return { firsts: births.map(({ bornFrom }, i) => lasts[i]! - bornFrom.length + 1), lasts }
}
