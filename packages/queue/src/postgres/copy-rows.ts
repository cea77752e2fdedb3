/** Writes a batch as rows of Postgres' binary `COPY`. Each function returns one step of a commit. */
import type { PipelineStep } from '@sealpost/pg'
import type { Append } from '@sealpost/protocol'
import type { Millis, ShardId } from '@sealpost/std'
import type { QueueOptions } from '../queue.ts'
import * as statements from '../sql/sql.ts'
import { BinaryWriter } from './binary.ts'
import { bodiesOf, fingerprintOf, type Party, secondOf } from './commit-batch.ts'
import type { SenderMark } from './shard-memory.ts'

/** A batch whose ids and leases are decided. */
export interface DecidedBatch {
  readonly appends: readonly Append[]
  readonly senders: readonly Party[]
  /** For each append, whether its lease on insert was admitted. */
  readonly isLeased: readonly boolean[]
  /** Ids of the appends follow one another. */
  readonly firstId: number
  /** The database clock, as well as it is known here. */
  readonly nowMs: Millis
  readonly options: Pick<QueueOptions, 'leaseMs' | 'dedupeMs'>
}

/** A delivery with this many failed attempts, spread over at least this time, is struck out. */
export interface FailedAttemptLimits {
  readonly max: number
  readonly spanSeconds: number
}

interface SingleParts {
  /** Returns the mark of the sender. */
  readonly markOf: (append: Append) => SenderMark
  readonly shard: ShardId
  readonly limits: FailedAttemptLimits
}

const SINGLE_PARAMETERS = 22

/** Writes the rows of one commit after the other: a commit begins when the one before it has its outcome or lost its connection. */
export class CopyRows {
  readonly #queue = new BinaryWriter()
  readonly #ledger = new BinaryWriter()
  readonly #bodies = new BinaryWriter()
  readonly #singles = new BinaryWriter()

  /** A body that exists already fails the commit; then the checked commit keeps the old one. */
  bodies(appends: readonly Append[]): PipelineStep {
    const rows = this.#bodies
    rows.beginCopy()
    for (const { meshId, sender, body } of bodiesOf(appends)) {
      rows.int16(5)
      rows.uuid(meshId)
      rows.int4(sender)
      rows.hex(body.bodyId)
      if (body.readers) rows.array('int4', body.readers, (reader) => rows.int4(reader))
      else rows.null()
      rows.bytea(body.bytes)
    }
    rows.endCopy()
    return { text: statements.COPY_BODIES, copied: rows.finish() }
  }

  queue({ appends, isLeased, firstId, nowMs, options }: DecidedBatch): PipelineStep {
    const rows = this.#queue
    rows.beginCopy()
    for (const [i, append] of appends.entries()) {
      rows.int16(14)
      rows.uuid(append.meshId)
      rows.int4(append.recipient)
      rows.int2(append.priority)
      rows.int8(firstId + i)
      rows.int4(append.sender)
      rows.int4(isLeased[i] ? 1 : 0)
      rows.uuid(append.envelopeId)
      rows.instant(nowMs + append.ttlSeconds * 1000)
      writeLease(rows, isLeased[i] ? append.insertLeaseEpoch : append.remoteLeaseEpoch, nowMs + options.leaseMs)
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

  /** `STORE_ONE` for each sender's one append, in the order in which all shards lock. */
  singles(batch: DecidedBatch, parts: SingleParts): PipelineStep[] {
    this.#singles.begin()
    return batch.senders.map(({ sent }) => this.#single(batch, sent[0]!, parts))
  }

  #single(
    { appends, isLeased, firstId, nowMs, options }: DecidedBatch,
    place: number,
    parts: SingleParts,
  ): PipelineStep {
    const values = this.#singles
    const append = appends[place]!
    const { shard, limits } = parts
    const mark = parts.markOf(append)
    values.uuid(append.meshId)
    values.int4(append.sender)
    values.int4(append.recipient)
    values.uuid(append.envelopeId)
    values.uuid(mark.envelopeId)
    values.tid(mark.ctid)
    values.uuid(shard)
    values.int8(append.insertLeaseFloor)
    values.int4(limits.max)
    values.float8(limits.spanSeconds)
    values.instant(nowMs)
    values.int8(firstId + place)
    values.int2(append.priority)
    values.int4(isLeased[place] ? 1 : 0)
    writeLease(values, isLeased[place] ? append.insertLeaseEpoch : append.remoteLeaseEpoch, nowMs + options.leaseMs)
    values.instant(nowMs + append.ttlSeconds * 1000)
    if (append.terms) values.bytea(append.terms)
    else values.null()
    values.bytea(append.envelope)
    values.int8(secondOf(append.envelopeId))
    values.instant(nowMs + options.dedupeMs)
    values.bigint(fingerprintOf(append))
    return { text: statements.STORE_ONE.text, packed: { count: SINGLE_PARAMETERS, bytes: values.cut() } }
  }

  /** One row for each sender and second. */
  ledger(batch: DecidedBatch): PipelineStep {
    const rows = this.#ledger
    const secondAt = (place: number) => secondOf(batch.appends[place]!.envelopeId)
    rows.beginCopy()
    for (const { sent } of batch.senders) {
      let from = 0
      let second = secondAt(sent[0]!)
      for (let to = 1; to <= sent.length; to++) {
        const next = to < sent.length ? secondAt(sent[to]!) : -1
        if (next === second) continue
        this.#ledgerRow(batch, from === 0 && to === sent.length ? sent : sent.slice(from, to), second)
        from = to
        second = next
      }
    }
    rows.endCopy()
    return { text: statements.COPY_LEDGER, copied: rows.finish() }
  }

  #ledgerRow({ appends, firstId, nowMs, options }: DecidedBatch, places: readonly number[], second: number): void {
    const rows = this.#ledger
    const { meshId, sender } = appends[places[0]!]!
    rows.int16(10)
    rows.uuid(meshId)
    rows.int4(sender)
    rows.int8(second)
    rows.int8(firstId + places[0]!)
    rows.instant(nowMs + options.dedupeMs)
    rows.array('uuid', places, (place) => rows.uuid(appends[place]!.envelopeId))
    rows.array('int8', places, (place) => rows.bigint(fingerprintOf(appends[place]!)))
    rows.array('int8', places, (place) => rows.int8(firstId + place))
    rows.array('int4', places, (place) => rows.int4(appends[place]!.recipient))
    rows.array('int2', places, (place) => rows.int2(appends[place]!.priority))
  }
}

/** The columns `lease_epoch` and `lease_until`. */
function writeLease(row: BinaryWriter, epoch: number, untilMs: Millis): void {
  if (epoch === 0) {
    row.null()
    row.null()
    return
  }
  row.int8(epoch)
  row.instant(untilMs)
}
