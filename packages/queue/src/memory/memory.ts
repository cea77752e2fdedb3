/**
 * Implements the queue without a database, for the simulator and for tests: each statement of `sql/` is plain code. It
 * is synchronous, so that the caller decides when a statement is applied and its reply arrives. `MemoryQueue` wraps
 * them in promises.
 */
import {
  type Append,
  type Claimed,
  type Committed,
  type Death,
  type DeliveryRef,
  type Extension,
  encodeReceipt,
  type KeyBindingEntry,
  type Lost,
  type Member,
  OPEN,
  type ReceiptEvent,
  type Reject,
  type RemoteClaimed,
  type RemoteWant,
  type Retry,
  readMarking,
  type SessionRef,
  type Settle,
  type Want,
} from '@sealpost/protocol'
import {
  type DeliveryId,
  ID_BLOCK,
  type MeshId,
  type Millis,
  type PeerKey,
  type PeerNo,
  type ShardId,
} from '@sealpost/std'
import {
  admitInsertLease,
  bodiesOf,
  type CertainBatch,
  certainOf,
  isFinal,
  isStoredSingly,
  mergeOutcomes,
  outcomesAfter,
  Parties,
  type Party,
  PENDING,
  pendingOf,
  type StatementOutcome,
  type StatementOutcomes,
  secondOf,
} from '../postgres/commit-batch.ts'
import { DeliveryIds, later, SenderMarks } from '../postgres/shard-memory.ts'
import type { Batch, QueueOptions, Released, Swept } from '../queue.ts'
import {
  addFailedAttempt,
  claimFor,
  collectFor,
  hasFailedTooOften,
  isFree,
  isHeldBy,
  isReceipt,
  LEASE_FUTURE_MAX_MS,
  MemoryPools,
  wantsReceipt,
} from './claim.ts'
import {
  bodyKey,
  isBehind,
  keepMessages,
  type LedgerRow,
  ledgerKey,
  type MemoryDatabase,
  markOf,
  moveMark,
  outcomeOfResend,
  type StoredDelivery,
  type StoredMember,
} from './store.ts'

export * from './claim.ts'
export * from './store.ts'

const BODY_YOUNG_MS = 10 * 60_000
const RECEIPT_TTL_MS = 14 * 86_400_000

/** The statements of one shard, each atomic. */
export class MemoryShard {
  readonly store: MemoryDatabase
  readonly shard: ShardId
  readonly options: QueueOptions
  readonly pools: MemoryPools
  private readonly marks = new SenderMarks()
  private readonly ids = new DeliveryIds()
  private place: DeliveryRef = QUEUE_START

  constructor(store: MemoryDatabase, shard: ShardId, options: QueueOptions) {
    this.store = store
    this.shard = shard
    this.options = options
    this.pools = new MemoryPools(store, shard, options)
  }

  commit(batch: Batch): Committed {
    const first = this.commitAtOnce(batch)
    const rest = pendingOf(batch.appends, first)
    const decided = rest.length === 0 ? first : mergeOutcomes(batch.appends, first, this.commitChecked(rest))
    return { outcomes: decided.outcomes.filter(isFinal), enqueuedAtMs: decided.enqueuedAtMs }
  }

  /** Applies the settles and those appends that are certainly new. The other appends stay pending. */
  commitAtOnce({ appends, settles }: Batch): StatementOutcomes {
    const { nowMs } = this.store
    this.settle(settles)
    const certain = certainOf(appends, this.marks)
    const decisions = outcomesAfter(appends, certain.appends, this.storeOptimistically(certain, nowMs))
    this.remember(appends, decisions)
    keepMessages(this.store, certain.appends)
    return { outcomes: decisions, enqueuedAtMs: Math.floor(nowMs) }
  }

  private takeIds(count: number): number {
    const firstId = this.ids.take(count)
    if (firstId !== null) return firstId
    this.ids.drawn(this.store.drawBlock())
    return this.ids.take(count)!
  }

  /** Leaves uncertain appends pending; in a large commit, one of them leaves all pending. */
  private storeOptimistically(certain: CertainBatch, nowMs: Millis): StatementOutcome[] {
    const { appends } = certain
    if (appends.length === 0) return []
    const firstId = this.takeIds(appends.length)
    const parties = new Parties()
    const isLeased = appends.map((append) => admitInsertLease(parties.find(append.meshId, append.recipient), append))
    const isSingly = isStoredSingly(certain)
    const areAllSure =
      isSingly || (this.areBodiesNew(appends) && appends.every((append) => this.isSure(append, parties)))
    if (areAllSure) this.keepBodies(appends)
    // Decide before storing any, because deliveries of the same commit don't count as older ones.
    const isStored = appends.map((append) => areAllSure && (!isSingly || this.isSure(append, parties)))
    return appends.map((append, i): StatementOutcome => {
      if (!isStored[i]!) return PENDING
      const { meshId, sender, envelopeId, remoteLeaseEpoch } = append
      this.marks.note(meshId, sender, moveMark(this.store.find(meshId, sender)!, envelopeId))
      const id = (firstId + i) as DeliveryId
      this.store.add(this.rowOf(append, { id, isLeased: isLeased[i]!, remoteLeaseEpoch, nowMs }))
      return { status: 'stored', id, isLeased: isLeased[i]! || remoteLeaseEpoch !== 0, isExpected: true }
    })
  }

  /**
   * Returns whether the sender's mark is known, both parties are members, and the lease overtakes no older delivery.
   */
  private isSure(append: Append, parties: Parties): boolean {
    const recipient = parties.find(append.meshId, append.recipient)
    const isLeased = recipient.leasedFrom.includes(append.sender)
    return this.isValid(append) && this.isMarkKnown(append) && (!isLeased || this.isCaughtUp(recipient, append.sender))
  }

  /** Implements `COMMIT_CHECKED` for distinct envelope ids. */
  commitChecked(appends: readonly Append[]): StatementOutcomes {
    const { nowMs } = this.store
    const firstId = this.store.drawBlock() * ID_BLOCK + 1
    this.ids.usedUpTo(firstId + appends.length - 1)
    this.keepBodies(appends)
    const decisions = appends.map((append, i): StatementOutcome => {
      const id = (firstId + i) as DeliveryId
      const earlier = this.store.findEarlier(append)
      if (earlier) return outcomeOfResend(earlier, append)
      if (!this.isValid(append)) return { status: 'unknown_recipient' }
      if (append.notBeforeMs > nowMs + append.ttlSeconds * 1000) return { status: 'delay_too_long' }
      const row = this.rowOf(append, { id, isLeased: false, remoteLeaseEpoch: 0, nowMs })
      if (append.notBeforeMs > 0) this.store.delay({ ...row, dueAtMs: append.notBeforeMs })
      else this.store.add(row)
      return { status: 'stored', id, isLeased: false, isExpected: false }
    })
    for (const { meshId, sender, envelopeId } of appends) {
      const member = this.store.find(meshId, sender)
      if (member) moveMark(member, later(member.lastEnvelopeId, envelopeId))
    }
    this.marks.learn(appends, decisions, (meshId, sender) => {
      const member = this.store.find(meshId, sender)
      return member && markOf(member).ctid
    })
    this.remember(appends, decisions)
    keepMessages(this.store, appends)
    return { outcomes: decisions, enqueuedAtMs: Math.floor(nowMs) }
  }

  /** `asOf`: the version of the store when the statement began, which it may have left since. */
  claim(wants: readonly Want[], asOf = this.store.version): Claimed[] {
    return wants.map((want) => {
      const { session } = want
      const member = this.store.find(session.meshId, session.peer)
      if (!member || !this.isCurrent(member, session.epoch)) return { status: 'stale' }
      if (member.session.isLocked) return { status: 'locked' }
      return claimFor(this, member, want, this.store.removedSince(asOf, member))
    })
  }

  collect(wants: readonly RemoteWant[]): RemoteClaimed[] {
    return wants.map((want) => {
      const { session } = want
      const member = this.store.find(session.meshId, session.peer)
      if (!member || !this.isCurrent(member, session.epoch)) return { status: 'stale' }
      return collectFor(this, member, want)
    })
  }

  open({ meshId, peer, epoch }: SessionRef): number | null {
    const member = this.store.find(meshId, peer)
    if (!member || member.isRevoked || member.session.epoch !== epoch) return null
    member.session.shard = this.shard
    member.session.epoch += 2
    member.session.openedEpoch = member.session.epoch
    this.marks.note(meshId, peer, markOf(member))
    this.ids.drawn(this.store.drawBlock())
    return member.session.epoch
  }

  fence({ meshId, peer, epoch }: SessionRef): number | null {
    const member = this.store.find(meshId, peer)
    if (!member || !(this.isCurrent(member, epoch) || this.isCurrent(member, epoch + 1))) return null
    member.session.epoch = epoch + 1
    return member.session.epoch
  }

  retry(retries: readonly Retry[]): void {
    for (const { delivery, epoch, afterMs } of retries) {
      const row = this.store.findDelivery(delivery)
      if (!isHeldBy(row, delivery, epoch)) continue
      row.lease = { epoch: null, untilMs: this.store.nowMs + Math.min(afterMs, LEASE_FUTURE_MAX_MS) }
      row.attempts = Math.max(row.attempts, 1)
      addFailedAttempt(row, this.store.nowMs)
    }
  }

  reject(rejects: readonly Reject[]): void {
    const rejected = rejects.flatMap(({ delivery, epoch, reason }) => {
      const row = this.store.findDelivery(delivery)
      if (!isHeldBy(row, delivery, epoch)) return []
      this.bury(row, 'rejected', reason)
      return [{ row, event: 'rejected' } as const]
    })
    this.sendReceipts(rejected)
  }

  extend(extensions: readonly Extension[]): void {
    for (const { delivery, epoch, forMs } of extensions) {
      const row = this.store.findDelivery(delivery)
      if (!isHeldBy(row, delivery, epoch)) continue
      row.lease = { ...row.lease!, untilMs: this.store.nowMs + Math.min(forMs, LEASE_FUTURE_MAX_MS) }
    }
  }

  notifyPushed(deliveries: readonly DeliveryRef[]): void {
    const rows = deliveries.flatMap((delivery) => this.store.findDelivery(delivery) ?? [])
    this.sendReceipts(rows.map((row) => ({ row, event: 'pushed' })))
  }

  releaseDue(): Released {
    const due = this.store.takeDue()
    for (const { dueAtMs: _, ...row } of due) this.store.add(row)
    const recipients = new Map(due.map(({ meshId, recipient }) => [meshId + recipient, { meshId, peer: recipient }]))
    const next = this.store.delayed[0]
    return { recipients: [...recipients.values()], nextInMs: next ? Math.ceil(next.dueAtMs - this.store.nowMs) : null }
  }

  findLost(meshId: MeshId, peer: PeerNo, max: number): Lost[] {
    const lost = this.store.deadLetters.filter(
      (letter) => letter.meshId === meshId && letter.recipient === peer && !letter.isReported,
    )
    const keyOf = (sender: PeerNo) => this.store.find(meshId, sender)!.binding.peer
    return lost
      .sort((a, b) => a.id - b.id)
      .slice(0, max)
      .map(({ id, envelopeId, sender, reason }) => ({ id, envelopeId, sender: keyOf(sender), reason }))
  }

  lostReported(meshId: MeshId, peer: PeerNo, ids: readonly DeliveryId[]): void {
    for (const letter of this.store.deadLetters)
      if (letter.meshId === meshId && letter.recipient === peer && ids.includes(letter.id)) letter.isReported = true
  }

  countFailedAttempt(delivery: DeliveryRef): void {
    const row = this.store.findDelivery(delivery)
    if (row) addFailedAttempt(row, this.store.nowMs)
  }

  sweep(): Swept {
    const { sweepRows } = this.options
    const seen: StoredDelivery[] = []
    for (const row of this.store.deliveries()) {
      if (!isBehind(row, this.place)) continue
      seen.push(row)
      if (seen.length === sweepRows) break
    }
    const expired = seen.filter((row) => row.expiresAtMs <= this.store.nowMs)
    const dead = seen.filter((row) => !expired.includes(row) && this.isDead(row))
    for (const row of expired) this.bury(row, 'expired')
    for (const row of dead) this.bury(row, 'strikes')
    this.sendReceipts([
      ...expired.map((row) => ({ row, event: 'expired' }) as const),
      ...dead.map((row) => ({ row, event: 'struck_out' }) as const),
    ])
    this.store.sweepBodies(BODY_YOUNG_MS)
    const isRound = seen.length < sweepRows
    this.place = isRound ? QUEUE_START : seen.at(-1)!
    return { expired: expired.length, dead: dead.length, forgotten: this.sweepLedgers(), isRound }
  }

  findMembers(meshId: MeshId, peers: readonly PeerKey[]): Member[] {
    return this.membersOf(meshId, peers).map(({ peer, binding, isRevoked, session }) => ({
      meshId,
      peer,
      peerKey: binding.peer,
      user: peer,
      isRevoked,
      sessionEpoch: session.epoch,
      consent: OPEN,
    }))
  }

  findBindings(meshId: MeshId, peers: readonly PeerKey[]): KeyBindingEntry[] {
    return this.membersOf(meshId, peers)
      .filter((member) => !member.isRevoked)
      .map((member) => member.binding)
  }

  private membersOf(meshId: MeshId, peers: readonly PeerKey[]): StoredMember[] {
    return peers.flatMap((peer) => this.store.findByKey(meshId, peer) ?? []).filter(({ isPool }) => !isPool)
  }

  private isCurrent({ session }: StoredMember, epoch: number): boolean {
    return session.shard === this.shard && session.epoch === epoch
  }

  private areBodiesNew(appends: readonly Append[]): boolean {
    return bodiesOf(appends).every(
      ({ meshId, sender, body: { bodyId } }) => !this.store.bodies.has(bodyKey({ meshId, sender, bodyId })),
    )
  }

  private keepBodies(appends: readonly Append[]): void {
    for (const { meshId, sender, body } of bodiesOf(appends))
      this.store.keepBody({ meshId, sender, ...body, storedAtMs: this.store.nowMs })
  }

  private isMarkKnown({ meshId, sender }: Append): boolean {
    const { envelopeId, ctid: place } = markOf(this.store.find(meshId, sender)!)
    const known = this.marks.find(meshId, sender)
    return known?.envelopeId === envelopeId && known.ctid === place
  }

  /** Writes a ledger row per sender and time bucket. */
  private remember(appends: readonly Append[], decisions: readonly StatementOutcome[]): void {
    const rows = new Map<string, { meshId: MeshId; entries: LedgerRow['entries'][number][]; fromMs: Millis }>()
    appends.forEach(({ meshId, sender, recipient, priority, envelopeId, envelope, notBeforeMs }, i) => {
      const outcome = decisions[i]!
      if (outcome.status !== 'stored') return
      const group = `${meshId} ${sender} ${secondOf(envelopeId)}`
      const row = rows.get(group) ?? { meshId, entries: [], fromMs: this.store.nowMs }
      row.fromMs = Math.max(row.fromMs, notBeforeMs)
      rows.delete(group) // moves the row to the end, because it is as old as its last envelope
      rows.set(group, row)
      const ref = { meshId, recipient, priority, id: outcome.id }
      row.entries.push({ key: ledgerKey(sender, envelopeId), ref, envelope })
    })
    for (const { meshId, entries, fromMs } of rows.values())
      this.store.remember(meshId, entries, fromMs + this.options.dedupeMs)
  }

  private isValid({ meshId, sender, recipient }: Append): boolean {
    return this.isMember(meshId, sender) && this.isMember(meshId, recipient)
  }

  private isMember(meshId: MeshId, peer: PeerNo): boolean {
    return this.store.find(meshId, peer)?.isRevoked === false
  }

  private isCaughtUp({ meshId, peer, insertLeaseEpoch, insertLeaseFloor }: Party, sender: PeerNo): boolean {
    const member = this.store.find(meshId, peer)
    if (!member || !this.isCurrent(member, insertLeaseEpoch)) return false
    const { nowMs } = this.store
    return !member.deliveries.some(
      (row) =>
        row.id >= insertLeaseFloor &&
        !isReceipt(row) &&
        (isFree(row, insertLeaseEpoch, nowMs) || row.attempts === 0) &&
        row.sender === sender &&
        row.expiresAtMs > nowMs &&
        !this.hasFailedTooOften(row),
    )
  }

  private rowOf(append: Append, given: Given): StoredDelivery {
    const { meshId, recipient, priority, sender, envelopeId, envelope } = append
    const epoch = given.isLeased ? append.insertLeaseEpoch : given.remoteLeaseEpoch
    return {
      meshId,
      recipient,
      priority,
      id: given.id,
      sender,
      envelopeId,
      envelope,
      enqueuedAtMs: given.nowMs,
      expiresAtMs: given.nowMs + append.ttlSeconds * 1000,
      terms: append.terms,
      bodyId: append.body?.bodyId ?? null,
      attempts: given.isLeased ? 1 : 0,
      failedAttempts: 0,
      firstFailedAttemptAtMs: null,
      lease: epoch === 0 ? null : { epoch, untilMs: given.nowMs + this.options.leaseMs },
    }
  }

  private isDead(row: StoredDelivery): boolean {
    const { lease } = row
    return this.hasFailedTooOften(row) && (lease === null || lease.epoch === null || lease.untilMs <= this.store.nowMs)
  }

  private hasFailedTooOften(row: StoredDelivery): boolean {
    return hasFailedTooOften(row, this.options, this.store.nowMs)
  }

  private bury(row: StoredDelivery, reason: Death, detail: string | null = null): void {
    const { meshId, recipient, priority, id, envelopeId, sender, attempts, failedAttempts } = row
    const envelope = reason === 'expired' ? null : row.envelope
    this.store.remove(row)
    if (row.terms && readMarking(row.terms)?.kind === 'receipt') return
    this.store.deadLetters.push({
      ...{ meshId, recipient, priority, id, envelopeId, sender, attempts, failedAttempts },
      ...{ reason, detail, envelope, bodyId: envelope && row.bodyId, isReported: reason === 'rejected' },
    })
  }

  private settle(settles: readonly Settle[]): void {
    const withReceipt = settles.flatMap((settle) => {
      const row = this.store.findDelivery(settle)
      if (settle.holder !== undefined && row?.lease?.holder !== settle.holder) return []
      this.store.remove(settle)
      return row && settle.receiptTo ? [{ row, event: 'settled' } as const] : []
    })
    this.sendReceipts(withReceipt)
  }

  /** Queues a receipt for each sender that requested one. */
  private sendReceipts(ended: readonly { row: StoredDelivery; event: ReceiptEvent }[]): void {
    const { nowMs } = this.store
    const wanted = ended.filter(({ row }) => wantsReceipt(row)).sort((a, b) => a.row.id - b.row.id)
    wanted.forEach(({ row, event }) => {
      this.store.add({
        ...{ meshId: row.meshId, recipient: row.sender, sender: row.recipient, envelopeId: row.envelopeId },
        ...{ id: this.store.drawReceiptId(), priority: 1 },
        ...{ envelope: new Uint8Array(), terms: encodeReceipt(event), bodyId: null },
        ...{ enqueuedAtMs: nowMs, expiresAtMs: nowMs + RECEIPT_TTL_MS },
        ...{ attempts: 0, failedAttempts: 0, firstFailedAttemptAtMs: null, lease: null },
      })
    })
  }

  private sweepLedgers(): number {
    const { sweepRows, dedupeMs } = this.options
    const { nowMs } = this.store
    let forgotten = 0
    for (const mesh of this.store.allMeshes()) {
      const due = [...mesh.ledger].filter((row) => row.keepUntilMs <= nowMs)
      due.sort((a, b) => a.keepUntilMs - b.keepUntilMs || a.writtenNo - b.writtenNo)
      for (const row of due.slice(0, sweepRows)) {
        if (row.entries.some(({ ref }) => this.store.findDelivery(ref))) {
          row.keepUntilMs = nowMs + dedupeMs
          row.writtenNo = this.store.nextWrite()
        } else {
          this.store.forget(mesh, row)
          forgotten += row.entries.length
        }
      }
    }
    return forgotten
  }
}

interface Given {
  readonly id: DeliveryId
  readonly isLeased: boolean
  readonly remoteLeaseEpoch: number
  readonly nowMs: Millis
}

const QUEUE_START: DeliveryRef = {
  meshId: '' as MeshId,
  recipient: 0 as PeerNo,
  priority: 0,
  id: 0 as DeliveryId,
}
