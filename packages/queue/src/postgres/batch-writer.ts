/**
 * Writes a batch in Postgres' binary formats: the rows of a `COPY`, and the parameters of `ADMIT` and `STORE_ONE`.
 * Returned steps are valid until their method is called again.
 */
import type { PipelineStep } from '@sealpost/pg'
import type { Append } from '@sealpost/protocol'
import type { MeshId, Millis, ShardId } from '@sealpost/std'
import type { QueueOptions } from '../queue.ts'
import * as statements from '../sql/sql.ts'
import { BinaryWriter } from './binary.ts'
import { bodiesOf, compareParties, fingerprintOf, type Party, secondOf } from './commit-batch.ts'
import type { SenderMarks } from './shard-memory.ts'

export interface DecidedBatch {
  readonly appends: readonly Append[]
  readonly senders: readonly Party[]
  /** Whether the lease on insert of each append is admitted. */
  readonly isLeased: readonly boolean[]
  readonly firstId: number
  /** The estimated database clock. */
  readonly nowMs: Millis
}

interface WriterParts {
  readonly shard: ShardId
  readonly options: QueueOptions
  readonly memory: { readonly marks: Pick<SenderMarks, 'find'> }
}

const ADMIT_PARAMETERS = 21
const STORE_ONE_PARAMETERS = 22

/** Writes one commit at a time, until its outcome is known or its connection is lost. */
export class BatchWriter {
  readonly #parts: WriterParts
  readonly #queue = new BinaryWriter()
  readonly #ledger = new BinaryWriter()
  readonly #bodies = new BinaryWriter()
  readonly #parameters = new BinaryWriter()

  constructor(parts: WriterParts) {
    this.#parts = parts
  }

  /** Fails on an existing body, which the checked commit then keeps. */
  bodyRows(appends: readonly Append[]): PipelineStep {
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

  queueRows({ appends, isLeased, firstId, nowMs }: DecidedBatch): PipelineStep {
    const rows = this.#queue
    const { options } = this.#parts
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

  admission({ appends, senders, nowMs }: DecidedBatch, parties: readonly Party[]): PipelineStep {
    const values = this.#parameters
    const { shard, memory } = this.#parts
    const leased = byMesh(parties.filter(({ leasedFrom }) => leasedFrom.length > 0))
    const ranges = rangesOf(leased.parties.map(({ leasedFrom }) => leasedFrom.length))
    const marks = senders.map(({ meshId, peer }) => memory.marks.find(meshId, peer)!)
    values.begin()
    values.array('uuid', senders, ({ meshId }) => values.uuid(meshId))
    values.array('int4', senders, ({ peer }) => values.int4(peer))
    values.array('uuid', marks, ({ envelopeId }) => values.uuid(envelopeId))
    values.array('uuid', senders, ({ sent }) => values.uuid(appends[sent.at(-1)!]!.envelopeId))
    values.array('tid', marks, ({ ctid }) => values.tid(ctid))
    values.array('uuid', parties, ({ meshId }) => values.uuid(meshId))
    values.array('int4', parties, ({ peer }) => values.int4(peer))
    values.array('uuid', leased.meshes, (meshId) => values.uuid(meshId))
    this.#ranges(leased)
    values.array('uuid', leased.parties, ({ meshId }) => values.uuid(meshId))
    values.array('int4', leased.parties, ({ peer }) => values.int4(peer))
    values.array('int8', leased.parties, ({ insertLeaseEpoch }) => values.int8(insertLeaseEpoch))
    values.array('int8', leased.parties, ({ insertLeaseFloor }) => values.int8(insertLeaseFloor))
    this.#ranges(ranges)
    const leasedSenders = leased.parties.flatMap(({ leasedFrom }) => leasedFrom)
    values.array('int4', leasedSenders, (sender) => values.int4(sender))
    values.uuid(shard)
    this.#limits()
    values.instant(nowMs)
    return { text: statements.ADMIT.text, packed: { count: ADMIT_PARAMETERS, bytes: values.cut() } }
  }

  #ranges({ firsts, lasts }: Ranges): void {
    this.#parameters.array('int4', firsts, (first) => this.#parameters.int4(first))
    this.#parameters.array('int4', lasts, (last) => this.#parameters.int4(last))
  }
  #limits(): void {
    const { failedAttemptsMax, failedAttemptsSpanMs } = this.#parts.options
    this.#parameters.int4(failedAttemptsMax)
    this.#parameters.float8(failedAttemptsSpanMs / 1000)
  }

  /** Returns a `STORE_ONE` step per append, in the order in which all shards lock. */
  singles(batch: DecidedBatch): PipelineStep[] {
    this.#parameters.begin()
    return batch.senders.map((sender) => this.#single(batch, sender))
  }

  #single({ appends, isLeased, firstId, nowMs }: DecidedBatch, { sent, meshId, peer }: Party): PipelineStep {
    const values = this.#parameters
    const { shard, memory, options } = this.#parts
    const place = sent[0]!
    const append = appends[place]!
    const mark = memory.marks.find(meshId, peer)!
    values.uuid(meshId)
    values.int4(peer)
    values.int4(append.recipient)
    values.uuid(append.envelopeId)
    values.uuid(mark.envelopeId)
    values.tid(mark.ctid)
    values.uuid(shard)
    values.int8(append.insertLeaseFloor)
    this.#limits()
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
    return { text: statements.STORE_ONE.text, packed: { count: STORE_ONE_PARAMETERS, bytes: values.cut() } }
  }

  /** Writes a ledger row per sender and time bucket. */
  ledgerRows(batch: DecidedBatch): PipelineStep {
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

  #ledgerRow({ appends, firstId, nowMs }: DecidedBatch, places: readonly number[], second: number): void {
    const rows = this.#ledger
    const { options } = this.#parts
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

function writeLease(row: BinaryWriter, epoch: number, untilMs: Millis): void {
  if (epoch === 0) {
    row.null()
    row.null()
    return
  }
  row.int8(epoch)
  row.instant(untilMs)
}

/** Ranges of a list, counted from 1. */
interface Ranges {
  readonly firsts: readonly number[]
  readonly lasts: readonly number[]
}

interface PartiesByMesh extends Ranges {
  readonly parties: readonly Party[]
  readonly meshes: readonly MeshId[]
}

function byMesh(parties: readonly Party[]): PartiesByMesh {
  const sorted = parties.toSorted(compareParties)
  const meshes: MeshId[] = []
  const counts: number[] = []
  for (const { meshId } of sorted) {
    if (meshes.at(-1) !== meshId) {
      meshes.push(meshId)
      counts.push(0)
    }
    counts[counts.length - 1]! += 1
  }
  return { parties: sorted, meshes, ...rangesOf(counts) }
}

function rangesOf(lengths: readonly number[]): Ranges {
  let last = 0
  const lasts = lengths.map((length) => {
    last += length
    return last
  })
  return { firsts: lengths.map((length, i) => lasts[i]! - length + 1), lasts }
}
