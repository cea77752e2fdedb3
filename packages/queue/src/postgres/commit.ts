/**
 * Commits a batch. In an optimistic commit, the shard assumes that all appends are new, chooses ids and leases, and
 * sends the rows by `COPY` (a few by `STORE_ONE`); Postgres only checks them. The checked statement decides about
 * appends that fail a check.
 */
import { arrayLiteral, byteaText, DatabaseError, type Pipeline, type PipelineStep, type TextRow } from '@sealpost/pg'
import type { Append, AppendOutcome, Committed, DeliveryRef, Settle } from '@sealpost/protocol'
import { assert, type DeliveryId, type Millis, OperatingError, type ShardId } from '@sealpost/std'
import type { Batch, QueueOptions } from '../queue.ts'
import * as statements from '../sql/sql.ts'
import { BatchWriter, type DecidedBatch } from './batch-writer.ts'
import { arrayOf, int2s, int4s, int8s, uuids } from './binary.ts'
import {
  admitInsertLease,
  bodiesOf,
  type CertainBatch,
  certainOf,
  fingerprintOf,
  isFinal,
  isStoredSingly,
  mergeOutcomes,
  outcomesAfter,
  Parties,
  type Party,
  PENDING,
  pendingOf,
  type RecordedMessage,
  recordedMessagesOf,
  type StatementOutcome,
  type StatementOutcomes,
  secondOf,
} from './commit-batch.ts'
import type { CtidOf, ShardMemory } from './shard-memory.ts'

/** The column of `STORE_ONE`'s row with the mark's `ctid`. */
const SINGLE_MARK = 2
const NO_TIMES: TextRow = ['0', '0']
/** The maximum number of checked commits. A peer sends through one session, so its statements rarely race. */
const CHECKED_TRIES = 3

export interface CommitParts {
  readonly writing: Pipeline
  readonly shard: ShardId
  readonly options: QueueOptions
  readonly memory: ShardMemory
  drawBlock(): Promise<number>
}

export class Commits {
  private readonly parts: CommitParts
  private readonly writer: BatchWriter

  constructor(parts: CommitParts) {
    this.parts = parts
    this.writer = new BatchWriter(parts)
  }

  async commit({ appends, settles }: Batch): Promise<Committed> {
    const settling = settles.length > 0 ? settleSteps(settles) : NO_STEPS
    if (appends.length === 0) {
      if (settling.length > 0) await this.write(settling)
      return { outcomes: [], enqueuedAtMs: 0 }
    }
    const certain = certainOf(appends, this.parts.memory.marks)
    const isAll = certain.appends.length === appends.length
    const done = certain.appends.length > 0 ? await this.commitOptimistically(certain, settling) : null
    if (done && isAll && areAllFinal(done)) return done
    const outcomes = outcomesAfter(appends, certain.appends, done?.outcomes ?? null)
    return this.commitRest(appends, { outcomes, enqueuedAtMs: done?.enqueuedAtMs ?? 0 }, done ? NO_STEPS : settling)
  }

  /** Runs the optimistic commit. Uncertain appends stay pending. Returns null if that applies to all. */
  private async commitOptimistically(
    certain: CertainBatch,
    settling: readonly PipelineStep[],
  ): Promise<StatementOutcomes | null> {
    const { memory } = this.parts
    const { appends, parties } = certain
    const firstId = memory.ids.take(appends.length) ?? (await this.takeFromNewBlock(appends.length))
    const isLeased: boolean[] = []
    for (const append of appends) isLeased.push(admitInsertLease(parties.find(append.meshId, append.recipient), append))
    const nowMs = memory.clock.nowMs
    const batch: DecidedBatch = { appends, senders: parties.sortedSenders(), isLeased, firstId, nowMs }
    return isStoredSingly(certain) ? this.storeSingly(batch, settling) : this.storeTogether(batch, certain, settling)
  }

  /** Stores each append, unless it is uncertain, with its own statement, and commits the settles. */
  private async storeSingly(batch: DecidedBatch, settling: readonly PipelineStep[]): Promise<StatementOutcomes> {
    const { memory } = this.parts
    const { appends, senders } = batch
    const rows = await this.writeNew([...settling, ...this.writer.singles(batch)])
    const outcomes: StatementOutcome[] = appends.map(() => PENDING)
    const stored: Party[] = []
    const ctids: string[] = []
    let times: TextRow = NO_TIMES
    for (let i = 0; i < senders.length; i++) {
      const row = rows[settling.length + i]![0]
      if (!row) continue
      times = row
      stored.push(senders[i]!)
      ctids.push(row[SINGLE_MARK]!)
      const place = senders[i]!.sent[0]!
      outcomes[place] = storedOutcome(batch, place)
    }
    if (stored.length > 0) memory.committed({ appends, senders: stored }, ctids, Number(times[1]))
    return { outcomes, enqueuedAtMs: Math.floor(Number(times[0])) }
  }

  /** Stores all appends together. If any is uncertain, returns null and changes nothing. */
  private async storeTogether(
    batch: DecidedBatch,
    { parties, hasBodies }: CertainBatch,
    settling: readonly PipelineStep[],
  ): Promise<StatementOutcomes | null> {
    const { appends } = batch
    const bodies = hasBodies ? [this.writer.bodyRows(appends)] : NO_STEPS
    const steps = [
      ...settling,
      ...bodies, // before `ADMIT`, as in the checked commit, to lock in the same order
      this.writer.admission(batch, parties.all),
      this.writer.queueRows(batch),
      this.writer.ledgerRows(batch),
      ...(hasBodies ? historySteps(appends) : NO_STEPS),
    ]
    const rows = await this.writeNew(steps).catch((error) => {
      if (hasFailedCheck(error)) return null
      throw error
    })
    if (!rows) return null
    const [, enqueuedAt, clock, marks] = rows[settling.length + bodies.length]![0]!
    this.parts.memory.committed(batch, marks!.split(' '), Number(clock))
    const outcomes = appends.map((_, place) => storedOutcome(batch, place))
    return { outcomes, enqueuedAtMs: Math.floor(Number(enqueuedAt)) }
  }

  private async takeFromNewBlock(count: number): Promise<number> {
    const { ids } = this.parts.memory
    ids.drawn(await this.parts.drawBlock())
    const firstId = ids.take(count)
    assert(firstId !== null, 'a new block has room for a batch')
    return firstId
  }

  /**
   * Runs the checked commit. @throws OperatingError `commit_raced` if statements for the same senders won the race at
   * each attempt
   */
  private async commitRest(
    appends: readonly Append[],
    first: StatementOutcomes,
    settling: readonly PipelineStep[],
  ): Promise<Committed> {
    let decided = first
    let steps = settling
    for (let tries = 0; tries < CHECKED_TRIES; tries++) {
      const rest = pendingOf(appends, decided)
      if (rest.length > 0) decided = mergeOutcomes(appends, decided, await this.commitChecked(rest, steps))
      else if (steps.length > 0) await this.write(steps)
      steps = NO_STEPS
      if (areAllFinal(decided)) break
    }
    if (areAllFinal(decided)) return decided
    throw new OperatingError('commit_raced', 'Other shards stored envelopes of the same senders.', { retryable: true })
  }

  private async commitChecked(appends: readonly Append[], first: readonly PipelineStep[]): Promise<StatementOutcomes> {
    const { memory, options } = this.parts
    const { step, readMarks } = checkedStep(appends, options.dedupeMs)
    const before = [...first, ...bodySteps(appends)]
    const answers = await this.write([...before, step, ...historySteps(appends)])
    const [statuses, ids, atMs, lastId, marks] = answers[before.length]![0] as string[]
    assert(statuses?.length === appends.length, 'one status for each append')
    memory.ids.usedUpTo(Number(lastId))
    memory.clock.set(Number(atMs))
    const given = ids!.split(',')
    const outcomes = given.map((id, i) => outcomeOf(statuses[i]!, Number(id) as DeliveryId))
    memory.marks.learn(appends, outcomes, readMarks(marks ?? ''))
    memory.lastAcknowledged.decided(appends, outcomes)
    return { outcomes, enqueuedAtMs: Math.floor(Number(atMs)) }
  }

  /** Runs a commit's steps, with ids from the block. */
  private async writeNew(steps: readonly PipelineStep[]): Promise<TextRow[][]> {
    try {
      return await this.write(steps)
    } catch (error) {
      if (!hasFailedCheck(error)) this.parts.memory.ids.abandon()
      throw error
    }
  }

  private write(steps: readonly PipelineStep[]): Promise<TextRow[][]> {
    return this.parts.writing.run((pipe) => pipe.run(steps))
  }
}

const NO_STEPS: readonly PipelineStep[] = []

const hasFailedCheck = (error: unknown): boolean =>
  error instanceof DatabaseError && statements.CHECK_FAILED.includes(error.sqlstate ?? '')

function storedOutcome({ appends, isLeased, firstId }: DecidedBatch, place: number): AppendOutcome {
  const isOnInsert = isLeased[place]! || appends[place]!.remoteLeaseEpoch !== 0
  return { status: 'stored', id: (firstId + place) as DeliveryId, isLeased: isOnInsert, isExpected: true }
}

const areAllFinal = (done: StatementOutcomes): done is Committed => done.outcomes.every(isFinal)

function outcomeOf(status: string, id: DeliveryId): StatementOutcome {
  switch (status) {
    case '+':
      return { status: 'stored', id, isLeased: false, isExpected: false }
    case '=':
      return { status: 'duplicate' }
    case '!':
      return { status: 'id_reused' }
    case '>':
      return { status: 'delay_too_long' }
    case '<':
      return { status: 'away' }
    case '?':
      return { status: 'unknown_recipient' }
    default:
      return PENDING
  }
}

interface Run {
  readonly of: DeliveryRef
  readonly first: number
  last: number
}

function settleSteps(settles: readonly Settle[]): PipelineStep[] {
  const byKind = Map.groupBy(settles, ({ holder, receiptTo }) =>
    holder !== undefined ? 'pool' : receiptTo ? 'receipt' : 'plain',
  )
  const [plain, withReceipt, ofPools] = [byKind.get('plain'), byKind.get('receipt'), byKind.get('pool')]
  return [
    ...(plain ? [settleStep(statements.SETTLE, plain)] : []),
    ...(withReceipt ? [settleStep(statements.SETTLE_WITH_RECEIPT, withReceipt)] : []),
    ...(ofPools ? [poolStep(ofPools)] : []),
  ]
}

function poolStep(settles: readonly Settle[]): PipelineStep {
  return statements.SETTLE_IN_POOL.bind({
    meshes: uuids(settles.map(({ meshId }) => meshId)),
    recipients: int4s(settles.map(({ recipient }) => recipient)),
    priorities: int2s(settles.map(({ priority }) => priority)),
    ids: int8s(settles.map(({ id }) => id)),
    holders: int4s(settles.map(({ holder }) => holder!)),
  })
}

/** Groups settles by recipient, each group for one index walk. */
function settleStep(statement: typeof statements.SETTLE, settles: readonly DeliveryRef[]): PipelineStep {
  const runs: Run[] = []
  settles.forEach((settle, i) => {
    const run = runs.at(-1)
    if (run && isSameLane(run.of, settle)) run.last = i + 1
    else runs.push({ of: settle, first: i + 1, last: i + 1 })
  })
  return statement.bind({
    meshes: uuids(runs.map(({ of }) => of.meshId)),
    recipients: int4s(runs.map(({ of }) => of.recipient)),
    priorities: int2s(runs.map(({ of }) => of.priority)),
    firsts: int4s(runs.map(({ first }) => first)),
    lasts: int4s(runs.map(({ last }) => last)),
    ids: int8s(settles.map(({ id }) => id)),
  })
}

const isSameLane = (a: DeliveryRef, b: DeliveryRef): boolean =>
  a.recipient === b.recipient && a.priority === b.priority && a.meshId === b.meshId

/** A `COMMIT_CHECKED` step, and a function that reads the marks from its row. */
interface CheckedStep {
  readonly step: PipelineStep
  readMarks(text: string): CtidOf
}

function checkedStep(appends: readonly Append[], dedupeMs: Millis): CheckedStep {
  const parties = new Parties()
  for (const [i, { meshId, sender }] of appends.entries()) parties.sent(meshId, sender, i)
  for (const { meshId, recipient } of appends) parties.find(meshId, recipient)
  const { all } = parties
  const places = new Map(all.map((party, i) => [party, i + 1]))
  const placeOf = (meshId: Append['meshId'], peer: Append['sender']) => places.get(parties.find(meshId, peer))!
  const senders = parties.sortedSenders()
  const idsOf = ({ sent }: Party) => sent.map((i) => appends[i]!.envelopeId)
  const step = statements.COMMIT_CHECKED.bind({
    partyMeshes: arrayOf(all.map((party) => party.meshId)),
    parties: arrayOf(all.map((party) => party.peer)),
    senders: arrayOf(appends.map((append) => placeOf(append.meshId, append.sender))),
    recipients: arrayOf(appends.map((append) => placeOf(append.meshId, append.recipient))),
    envelopeIds: arrayOf(appends.map((append) => append.envelopeId)),
    seconds: arrayOf(appends.map((append) => secondOf(append.envelopeId))),
    priorities: arrayOf(appends.map((append) => append.priority)),
    ttls: arrayOf(appends.map((append) => append.ttlSeconds)),
    fingerprints: arrayOf(appends.map(fingerprintOf)),
    starts: arrayOf(startsOf(appends)),
    sizes: arrayOf(appends.map((append) => append.envelope.length)),
    envelopes: byteaText(Buffer.concat(appends.map((append) => append.envelope))),
    terms: arrayLiteral(appends.map((append) => append.terms)),
    notBeforeMs: arrayOf(appends.map((append) => append.notBeforeMs)),
    bodyIds: arrayLiteral(appends.map(({ body }) => body && byteaText(body.bodyId))),
    markedSenders: arrayOf(senders.map((sender) => places.get(sender)!)),
    lastIds: arrayOf(senders.map((sender) => idsOf(sender).sort().at(-1)!)),
    dedupeSeconds: String(dedupeMs / 1000),
  })
  const readMarks = (text: string): CtidOf => {
    const words = text.split(' ')
    const byPlace = new Map(words.map((word, i) => [Number(word), words[i + 1]]))
    return (meshId, sender) => byPlace.get(placeOf(meshId, sender))
  }
  return { step, readMarks }
}

/** Returns where each envelope begins in their concatenation, from 1. */
function startsOf(appends: readonly Append[]): number[] {
  let next = 1
  return appends.map(({ envelope }) => {
    next += envelope.length
    return next - envelope.length
  })
}

function bodySteps(appends: readonly Append[]): PipelineStep[] {
  const bodies = bodiesOf(appends)
  if (bodies.length === 0) return []
  const step = statements.STORE_BODIES.bind({
    meshes: arrayOf(bodies.map(({ meshId }) => meshId)),
    senders: arrayOf(bodies.map(({ sender }) => sender)),
    bodyIds: arrayLiteral(bodies.map(({ body }) => byteaText(body.bodyId))),
    bytes: arrayLiteral(bodies.map(({ body }) => body.bytes)),
    readers: arrayLiteral(bodies.map(({ body }) => (body.readers ? `{${body.readers.join()}}` : null))),
  })
  return [step]
}

/** Returns the steps that record messages: last in a commit, so that they lock after all others. */
function historySteps(appends: readonly Append[]): PipelineStep[] {
  const messages = recordedMessagesOf(appends)
  if (messages.length === 0) return []
  const keyOf = ({ meshId, spaceId }: RecordedMessage) => `${meshId} ${spaceId}`
  const keyed = [...new Map(messages.map((message) => [keyOf(message), message]))].sort(([a], [b]) => (a < b ? -1 : 1))
  const places = new Map(keyed.map(([key], i) => [key, i + 1]))
  const meshes = arrayOf(keyed.map(([, { meshId }]) => meshId))
  const spaces = arrayOf(keyed.map(([, { spaceId }]) => spaceId))
  return [
    statements.LOCK_SPACES.bind({ meshes, spaces }),
    statements.RECORD_MESSAGES.bind({
      meshes,
      spaces,
      places: arrayOf(messages.map((message) => places.get(keyOf(message))!)),
      senders: arrayOf(messages.map(({ sender }) => sender)),
      bodyIds: arrayLiteral(messages.map(({ bodyId }) => byteaText(bodyId))),
      records: arrayLiteral(messages.map(({ record }) => record)),
    }),
  ]
}
