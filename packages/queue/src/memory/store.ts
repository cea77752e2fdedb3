/**
 * Contains the tables of the memory queue: members with their sessions and deliveries, the ledger and the dead letters.
 * `memory.ts` contains the statements.
 */
import {
  type Append,
  type AppendOutcome,
  type Death,
  type Delivery,
  type DeliveryRef,
  type KeyBindingEntry,
  RECEIPT_IDS_FROM,
  type SessionRef,
  type SessionStatus,
} from '@sealpost/protocol'
import {
  assert,
  type DeliveryId,
  type EnvelopeId,
  type MeshId,
  type Millis,
  type PeerKey,
  type PeerNo,
  type PoolId,
  type ShardId,
  type SpaceId,
} from '@sealpost/std'
import { isSameBytes, NO_ENVELOPE_ID, recordedMessagesOf } from '../postgres/commit-batch.ts'
import type { SenderMark } from '../postgres/shard-memory.ts'

export interface StoredDelivery extends DeliveryRef {
  readonly sender: PeerNo
  readonly envelopeId: EnvelopeId
  readonly envelope: Uint8Array
  readonly enqueuedAtMs: Millis
  readonly expiresAtMs: Millis
  readonly terms: Uint8Array | null
  readonly bodyId: string | null
  attempts: number
  failedAttempts: number
  firstFailedAttemptAtMs: Millis | null
  /** Without an epoch, the lease is the pause before the next attempt. Only in a pool does it have a holder. */
  lease: { readonly epoch: number | null; readonly untilMs: Millis; readonly holder?: PeerNo } | null
}

export interface StoredDeadLetter extends DeliveryRef {
  readonly envelopeId: EnvelopeId
  readonly sender: PeerNo
  readonly attempts: number
  readonly failedAttempts: number
  readonly reason: Death
  readonly detail: string | null
  readonly bodyId: string | null
  readonly envelope: Uint8Array | null
  isReported: boolean
}

interface StoredBody {
  readonly meshId: MeshId
  readonly sender: PeerNo
  readonly bodyId: string
  readonly bytes: Uint8Array
  readonly readers?: readonly PeerNo[]
  readonly storedAtMs: Millis
}

interface DelayedDelivery extends StoredDelivery {
  readonly dueAtMs: Millis
}

interface StoredSession {
  shard: ShardId | null
  epoch: number
  openedEpoch: number
  /** Whether claims skip the row, because another statement has locked it. */
  isLocked: boolean
}

export interface StoredMember {
  readonly meshId: MeshId
  readonly peer: PeerNo
  binding: KeyBindingEntry
  readonly session: StoredSession
  readonly deliveries: StoredDelivery[]
  lastEnvelopeId: EnvelopeId
  /** The number of changes to the sender's mark, in place of its `ctid`. */
  markMoves: number
  isRevoked: boolean
  isPool: boolean
}

export interface StoredPool {
  readonly epoch: number
  readonly members: readonly PeerNo[]
}

/** The envelopes that one commit stored for one sender and time bucket. */
export interface LedgerRow {
  readonly entries: readonly { readonly key: string; readonly ref: DeliveryRef; readonly envelope: Uint8Array }[]
  keepUntilMs: Millis
  /** Orders rows with the same time. */
  writtenNo: number
}

export interface StoredMesh {
  readonly members: Map<PeerNo, StoredMember>
  readonly byKey: Map<PeerKey, StoredMember>
  readonly pools: Map<PeerNo, StoredPool>
  readonly ledger: Set<LedgerRow>
  readonly ledgerByKey: Map<string, LedgerRow['entries'][number]>
}

interface StoredSpace {
  readonly events: StoredMessage[]
  readonly members: ReadonlySet<PeerNo> | undefined
}

export const ledgerKey = (sender: PeerNo, envelopeId: EnvelopeId): string => `${sender} ${envelopeId}`

/** The number of removed rows that are remembered, because few statements overlap. */
const REMOVED_MAX = 256

/** The database that several shards share. `clock` returns its time. */
export class MemoryDatabase {
  readonly deadLetters: StoredDeadLetter[] = []
  readonly bodies = new Map<string, StoredBody>()
  delayed: readonly DelayedDelivery[] = []
  version = 0
  /** Spaces that keep messages, by mesh and space. */
  private readonly spaces = new Map<string, StoredSpace>()
  private readonly clock: () => Millis
  private readonly meshes = new Map<MeshId, StoredMesh>()
  private lastBlock = 0
  private lastReceipt = 0
  private lastPeer = 0
  private lastWrite = 0
  private readonly removed: { readonly row: StoredDelivery; readonly version: number }[] = []

  constructor(clock: () => Millis) {
    this.clock = clock
  }

  get nowMs(): Millis {
    return this.clock()
  }

  addMesh(meshId: MeshId): void {
    assert(!this.meshes.has(meshId), 'a mesh is added once')
    const tables = { members: new Map(), byKey: new Map(), pools: new Map() }
    this.meshes.set(meshId, { ...tables, ledger: new Set(), ledgerByKey: new Map() })
  }

  addMember(meshId: MeshId, binding: KeyBindingEntry, peer = (this.lastPeer + 1) as PeerNo): PeerNo {
    const mesh = this.meshes.get(meshId)
    assert(mesh && !mesh.byKey.has(binding.peer) && !mesh.members.has(peer), 'a member is added once, to a mesh')
    this.lastPeer = Math.max(this.lastPeer, peer)
    const session = { shard: null, epoch: 0, openedEpoch: 0, isLocked: false }
    const member: StoredMember = {
      meshId,
      peer,
      binding,
      session,
      deliveries: [],
      lastEnvelopeId: NO_ENVELOPE_ID,
      markMoves: 0,
      isRevoked: false,
      isPool: false,
    }
    mesh.members.set(peer, member)
    mesh.byKey.set(binding.peer, member)
    return peer
  }

  setPool(meshId: MeshId, poolId: PoolId, { epoch, members }: StoredPool): PeerNo {
    const peer = poolId as string as PeerKey
    const pool = this.findByKey(meshId, peer)?.peer ?? this.addMember(meshId, { ...NO_BINDING, peer })
    this.find(meshId, pool)!.isPool = true
    this.meshes.get(meshId)!.pools.set(pool, { epoch, members })
    return pool
  }

  /** Creates or changes a space. Without `members`, it records messages from all members of the mesh. */
  setSpace(meshId: MeshId, spaceId: SpaceId, space: Omit<StoredSpace, 'events'> & { keepsMessages: boolean }): void {
    const { keepsMessages, members } = space
    const events = this.eventsOf(meshId, spaceId) ?? []
    if (keepsMessages) this.spaces.set(meshId + spaceId, { events, members })
    else this.spaces.delete(meshId + spaceId)
  }

  /** Returns undefined for a space that records no messages. */
  eventsOf(meshId: MeshId, spaceId: SpaceId): StoredMessage[] | undefined {
    return this.spaces.get(meshId + spaceId)?.events
  }

  belongsTo(meshId: MeshId, spaceId: SpaceId, peer: PeerNo): boolean {
    return this.spaces.get(meshId + spaceId)?.members?.has(peer) ?? true
  }

  findPool(meshId: MeshId, pool: PeerNo): StoredPool | undefined {
    return this.meshes.get(meshId)?.pools.get(pool)
  }

  revokeMember(meshId: MeshId, peer: PeerNo): void {
    this.find(meshId, peer)!.isRevoked = true
  }

  /** Locks the peer's session row, as a concurrent statement would, until `unlock`. */
  lock(meshId: MeshId, peer: PeerNo): void {
    this.find(meshId, peer)!.session.isLocked = true
  }

  unlock(meshId: MeshId, peer: PeerNo): void {
    this.find(meshId, peer)!.session.isLocked = false
  }

  find(meshId: MeshId, peer: PeerNo): StoredMember | undefined {
    return this.meshes.get(meshId)?.members.get(peer)
  }

  findByKey(meshId: MeshId, peerKey: PeerKey): StoredMember | undefined {
    return this.meshes.get(meshId)?.byKey.get(peerKey)
  }

  keysAfter(meshId: MeshId, after: PeerKey, limit: number): PeerKey[] {
    const members = [...(this.meshes.get(meshId)?.byKey.values() ?? [])].filter(
      (member) => !(member.isRevoked || member.isPool),
    )
    const keys = members.map((member) => member.binding.peer).sort()
    return keys.filter((key) => key > after).slice(0, limit)
  }

  findDelivery({ meshId, recipient, priority, id }: DeliveryRef): StoredDelivery | undefined {
    return this.find(meshId, recipient)?.deliveries.find((row) => row.id === id && row.priority === priority)
  }

  /** Returns whether the envelope is queued, delayed or a dead letter. */
  isStored(meshId: MeshId, sender: PeerNo, envelopeId: EnvelopeId): boolean {
    const isIt = (row: StoredDelivery | StoredDeadLetter) =>
      row.envelopeId === envelopeId && row.sender === sender && row.meshId === meshId
    for (const member of this.meshes.get(meshId)?.members.values() ?? []) if (member.deliveries.some(isIt)) return true
    return this.deadLetters.some(isIt) || this.delayed.some(isIt)
  }

  /** Returns all queued deliveries in primary-key order. */
  *deliveries(): Iterable<StoredDelivery> {
    for (const [, mesh] of sorted(this.meshes)) for (const [, member] of sorted(mesh.members)) yield* member.deliveries
  }

  allMeshes(): Iterable<StoredMesh> {
    return this.meshes.values()
  }

  findEarlier({ meshId, sender, envelopeId }: Append): LedgerRow['entries'][number] | undefined {
    return this.meshes.get(meshId)?.ledgerByKey.get(ledgerKey(sender, envelopeId))
  }

  remember(meshId: MeshId, entries: LedgerRow['entries'], keepUntilMs: Millis): void {
    const { ledger, ledgerByKey } = this.meshes.get(meshId)!
    ledger.add({ entries, keepUntilMs, writtenNo: this.nextWrite() })
    for (const entry of entries) ledgerByKey.set(entry.key, entry)
  }

  forget({ ledger, ledgerByKey }: StoredMesh, row: LedgerRow): void {
    ledger.delete(row)
    for (const entry of row.entries) if (ledgerByKey.get(entry.key) === entry) ledgerByKey.delete(entry.key)
  }

  nextWrite(): number {
    this.lastWrite += 1
    return this.lastWrite
  }

  drawReceiptId(): DeliveryId {
    this.lastReceipt += 1
    return (RECEIPT_IDS_FROM + this.lastReceipt) as DeliveryId
  }

  drawBlock(): number {
    this.lastBlock += 1
    return this.lastBlock
  }

  add(row: StoredDelivery): void {
    const { deliveries } = this.find(row.meshId, row.recipient)!
    let place = deliveries.length
    while (place > 0 && isBehind(deliveries[place - 1]!, row)) place -= 1
    deliveries.splice(place, 0, row)
  }

  keepBody(body: StoredBody): void {
    const key = bodyKey(body)
    this.bodies.set(key, { ...body, ...this.bodies.get(key), storedAtMs: body.storedAtMs })
  }

  deliveryOf(row: StoredDelivery): Delivery {
    return {
      id: row.id,
      envelopeId: row.envelopeId,
      sender: this.find(row.meshId, row.sender)!.binding.peer,
      priority: row.priority,
      attempt: row.attempts,
      enqueuedAtMs: Math.floor(row.enqueuedAtMs),
      envelope: row.envelope,
      terms: row.terms,
      body: row.bodyId === null ? null : this.bodies.get(bodyKey(row))!.bytes,
    }
  }

  /** Deletes bodies without references. */
  sweepBodies(youngerMs: Millis): void {
    const named = new Set<string>()
    for (const row of [...this.deliveries(), ...this.deadLetters, ...this.delayed])
      if (row.bodyId !== null) named.add(bodyKey(row))
    for (const [key, { storedAtMs }] of this.bodies)
      if (!named.has(key) && storedAtMs < this.nowMs - youngerMs) this.bodies.delete(key)
  }

  delay(row: DelayedDelivery): void {
    this.delayed = [...this.delayed, row].sort((a, b) => a.dueAtMs - b.dueAtMs || a.id - b.id)
  }

  takeDue(): DelayedDelivery[] {
    const isDue = (row: DelayedDelivery) => row.dueAtMs <= this.nowMs
    const due = this.delayed.filter(isDue)
    this.delayed = this.delayed.filter((row) => !isDue(row))
    return due
  }

  remove(ref: DeliveryRef): void {
    const member = this.find(ref.meshId, ref.recipient)
    const row = this.findDelivery(ref)
    if (!member || !row) return
    member.deliveries.splice(member.deliveries.indexOf(row), 1)
    this.version += 1
    this.removed.push({ row, version: this.version })
    if (this.removed.length > REMOVED_MAX) this.removed.shift()
  }

  /** Returns the removed rows that a statement with a snapshot of this version still sees. */
  removedSince(version: number, { meshId, peer }: StoredMember): StoredDelivery[] {
    const isOfPeer = ({ row }: { row: StoredDelivery }) => row.meshId === meshId && row.recipient === peer
    return this.removed.filter((one) => one.version > version && isOfPeer(one)).map(({ row }) => row)
  }
}

/** The binding of a pool, which has no key to authenticate. */
const NO_BINDING = { boxKey: new Uint8Array(32), boxEpoch: 0, notAfterMs: 0, signature: new Uint8Array(64) }

/** Returns whether `a` follows `b` in the queue's primary-key order. */
export function isBehind(a: DeliveryRef, b: DeliveryRef): boolean {
  if (a.meshId !== b.meshId) return a.meshId > b.meshId
  if (a.recipient !== b.recipient) return a.recipient > b.recipient
  return a.priority === b.priority ? a.id > b.id : a.priority > b.priority
}

function sorted<K extends string | number, V>(map: ReadonlyMap<K, V>): [K, V][] {
  return [...map].sort(([a], [b]) => (a < b ? -1 : 1))
}

export const bodyKey = (of: { meshId: MeshId; sender: PeerNo; bodyId: string | null }): string =>
  `${of.meshId} ${of.sender} ${of.bodyId}`

/** A message in the history of a space. */
export interface StoredMessage {
  readonly meshId: MeshId
  readonly spaceId: SpaceId
  /** The position among the messages of the space, from 1. */
  readonly seq: number
  readonly sender: PeerNo
  readonly bodyId: string
  readonly record: Uint8Array
  readonly body: Uint8Array
}

export function keepMessages(store: MemoryDatabase, appends: readonly Append[]): void {
  const messages = recordedMessagesOf(appends)
  if (messages.length === 0) return
  const queued = new Set([...store.deliveries()].map(bodyKey))
  for (const { meshId, spaceId, sender, bodyId, record } of messages) {
    const key = bodyKey({ meshId, sender, bodyId })
    const events = store.eventsOf(meshId, spaceId)
    if (
      !events ||
      !queued.has(key) ||
      !store.belongsTo(meshId, spaceId, sender) ||
      events.some((event) => bodyKey(event) === key)
    )
      continue
    const { bytes: body } = store.bodies.get(key)!
    events.push({ meshId, spaceId, seq: events.length + 1, sender, bodyId, record, body })
  }
}

/** Implements the statement `CHECK_SESSIONS` for one session. */
export function sessionStatusIn(
  store: MemoryDatabase,
  shard: ShardId,
  { meshId, peer, epoch }: SessionRef,
): SessionStatus {
  const member = store.find(meshId, peer)
  if (!member) return { peerKey: null, isRevoked: false, isElsewhere: false }
  const { binding, isRevoked, session } = member
  return { peerKey: binding.peer, isRevoked, isElsewhere: session.epoch > epoch && session.shard !== shard }
}

export function outcomeOfResend({ ref, envelope }: LedgerRow['entries'][number], append: Append): AppendOutcome {
  const isSame =
    ref.recipient === append.recipient && ref.priority === append.priority && isSameBytes(envelope, append.envelope)
  return { status: isSame ? 'duplicate' : 'id_reused' }
}

/** Returns a substitute for the mark's `ctid`, which changes with the mark. */
const placeOf = ({ markMoves }: StoredMember): string => String(markMoves)
export const markOf = (member: StoredMember): SenderMark => ({
  envelopeId: member.lastEnvelopeId,
  ctid: placeOf(member),
})

export function moveMark(member: StoredMember, envelopeId: EnvelopeId): SenderMark {
  member.lastEnvelopeId = envelopeId
  member.markMoves += 1
  return markOf(member)
}
