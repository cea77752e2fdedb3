/**
 * Splits a batch by sender: appends that are certainly new go to the optimistic commit, all others to the checked one.
 * One sender's appends go to the same one, to keep their order.
 */
import type { Append, AppendOutcome, MessageRecord, SharedBody } from '@sealpost/protocol'
import type { EnvelopeId, MeshId, Millis, PeerNo } from '@sealpost/std'

export interface Party {
  readonly meshId: MeshId
  readonly peer: PeerNo
  /** The positions of its appends in the batch, as a sender. */
  sent: readonly number[]
  /** Whether the party's envelope ids ascend from its high-water mark. */
  isCertainlyNew: boolean
  lastId: EnvelopeId
  /**
   * The epoch of its leases on insert, as a recipient. `leasedFrom` and `plainFrom` list the senders of its appends
   * with and without a lease, possibly several times.
   */
  insertLeaseEpoch: number
  /** The lowest floor of its leased appends. */
  insertLeaseFloor: number
  leasedFrom: readonly PeerNo[]
  plainFrom: readonly PeerNo[]
}

const NONE: readonly never[] = []

/** Returns the list with one more item. Empty lists share one array, because most parties use one of three lists. */
function added<T>(items: readonly T[], item: T): readonly T[] {
  if (items.length === 0) return [item]
  ;(items as T[]).push(item)
  return items
}

export class Parties {
  readonly all: Party[] = []
  private readonly senders: Party[] = []
  private readonly byMesh = new Map<MeshId, Map<PeerNo, Party>>()
  private meshId: MeshId | undefined
  private byPeer = new Map<PeerNo, Party>()

  find(meshId: MeshId, peer: PeerNo): Party {
    if (meshId !== this.meshId) this.select(meshId)
    const known = this.byPeer.get(peer)
    if (known) return known
    const party: Party = {
      meshId,
      peer,
      sent: NONE,
      isCertainlyNew: true,
      lastId: NO_ENVELOPE_ID,
      insertLeaseEpoch: 0,
      insertLeaseFloor: Infinity,
      leasedFrom: NONE,
      plainFrom: NONE,
    }
    this.all.push(party)
    this.byPeer.set(peer, party)
    return party
  }

  sent(meshId: MeshId, sender: PeerNo, place: number): Party {
    const party = this.find(meshId, sender)
    if (party.sent.length === 0) this.senders.push(party)
    party.sent = party.sent.length === 0 ? [place] : added(party.sent, place)
    return party
  }

  /** Returns the senders in an order that all shards share, to prevent deadlocks. */
  sortedSenders(): readonly Party[] {
    return this.senders.length > 1 ? this.senders.sort(compareParties) : this.senders
  }

  private select(meshId: MeshId): void {
    if (this.meshId !== undefined) {
      this.byMesh.set(this.meshId, this.byPeer)
      this.byPeer = this.byMesh.get(meshId) ?? new Map()
    }
    this.meshId = meshId
  }
}

/** An id that sorts before every envelope id. */
export const NO_ENVELOPE_ID = '0'.repeat(32) as EnvelopeId

/** The last envelope id of each sender. */
export interface Marks {
  find(meshId: MeshId, sender: PeerNo): { readonly envelopeId: EnvelopeId } | undefined
}

export interface CertainBatch {
  readonly appends: readonly Append[]
  readonly parties: Parties
  readonly hasBodies: boolean
}

export function certainOf(appends: readonly Append[], marks: Marks): CertainBatch {
  const parties = new Parties()
  let bodies: Alikes | null = null
  let areAllNew = true
  for (let i = 0; i < appends.length; i++) {
    const append = appends[i]!
    const sender = parties.sent(append.meshId, append.sender, i)
    if (sender.sent.length === 1) {
      const mark = marks.find(append.meshId, append.sender)
      if (mark) sender.lastId = mark.envelopeId
      else sender.isCertainlyNew = false
    }
    // Delayed appends are rare, so the checked commit handles them.
    if (append.envelopeId <= sender.lastId || append.notBeforeMs > 0) sender.isCertainlyNew = false
    if (append.body) {
      bodies ??= new Alikes()
      if (!bodies.isAlike(append, append.body)) sender.isCertainlyNew = false
    }
    sender.lastId = append.envelopeId
    areAllNew &&= sender.isCertainlyNew
  }
  const hasBodies = bodies !== null
  if (areAllNew) return { appends, parties, hasBodies }
  const certain = appends.filter(({ meshId, sender }) => parties.find(meshId, sender).isCertainlyNew)
  const senders = new Parties()
  for (const [i, { meshId, sender }] of certain.entries()) senders.sent(meshId, sender, i)
  return { appends: certain, parties: senders, hasBodies }
}

/** The number of appends from different senders up to which a statement each is cheaper (docs/adr/0003-copy.md). */
const SINGLY_MAX = 6

/** Returns whether each append has its own statement, in which case an uncertain one does not affect the others. */
export const isStoredSingly = ({ appends, parties, hasBodies }: CertainBatch): boolean =>
  appends.length <= SINGLY_MAX && !hasBodies && parties.sortedSenders().length === appends.length

/** Detects different bodies with the same id, of which the first is stored. */
class Alikes {
  private readonly lengths = new Map<string, number>()
  /** Envelopes of a broadcast share this object and are consecutive. */
  private last: SharedBody | null = null
  private isLastAlike = true

  isAlike({ meshId, sender }: Append, body: SharedBody): boolean {
    if (body === this.last) return this.isLastAlike
    const key = bodyKeyOf(meshId, sender, body)
    const length = this.lengths.get(key) ?? body.bytes.length
    this.lengths.set(key, length)
    this.last = body
    this.isLastAlike = length === body.bytes.length
    return this.isLastAlike
  }
}

/** Returns whether the append's lease on insert is admitted: not after an append without one from the same sender. */
export function admitInsertLease(recipient: Party, { insertLeaseEpoch, insertLeaseFloor, sender }: Append): boolean {
  if (recipient.insertLeaseEpoch === 0) recipient.insertLeaseEpoch = insertLeaseEpoch
  const isAdmitted =
    insertLeaseEpoch !== 0 && recipient.insertLeaseEpoch === insertLeaseEpoch && !recipient.plainFrom.includes(sender)
  if (isAdmitted) {
    recipient.leasedFrom = added(recipient.leasedFrom, sender)
    recipient.insertLeaseFloor = Math.min(recipient.insertLeaseFloor, insertLeaseFloor)
  } else recipient.plainFrom = added(recipient.plainFrom, sender)
  return isAdmitted
}

interface OwnedBody {
  readonly meshId: MeshId
  readonly sender: PeerNo
  readonly body: SharedBody
}

/** Returns the distinct shared bodies, in an order that all shards share. */
export function bodiesOf(appends: readonly Append[]): OwnedBody[] {
  if (appends.every(({ body }) => !body)) return []
  const bodies = new Map<string, OwnedBody>()
  let last: SharedBody | null = null
  for (const { meshId, sender, body } of appends) {
    if (!body || body === last) continue
    const key = bodyKeyOf(meshId, sender, body)
    if (!bodies.has(key)) bodies.set(key, { meshId, sender, body })
    last = body
  }
  return [...bodies].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, body]) => body)
}

export interface RecordedMessage extends MessageRecord {
  readonly meshId: MeshId
  readonly sender: PeerNo
  readonly bodyId: string
}

/** Returns the distinct recorded messages, in order. */
export function recordedMessagesOf(appends: readonly Append[]): RecordedMessage[] {
  if (appends.every(({ body }) => !body?.record)) return []
  const recorded = new Map<string, RecordedMessage>()
  for (const { meshId, sender, body } of appends) {
    if (!body?.record) continue
    const key = `${meshId} ${body.record.spaceId} ${sender} ${body.bodyId}`
    if (!recorded.has(key)) recorded.set(key, { meshId, sender, bodyId: body.bodyId, ...body.record })
  }
  return [...recorded.values()]
}

const bodyKeyOf = (meshId: MeshId, sender: PeerNo, { bodyId }: SharedBody): string => `${meshId} ${sender} ${bodyId}`

/** Returns a UUID v7's time in steps of 1,024 ms. */
export const secondOf = (id: EnvelopeId): number => Math.floor(Number.parseInt(id.slice(0, 12), 16) / 1024)

/**
 * Distinguishes a resend from another envelope under the same id. The hash need not be cryptographic: a sender whose
 * two envelopes collide loses only its own second envelope. The seed is recipient and priority.
 */
export const fingerprintOf = ({ envelope, recipient, priority }: Append): bigint =>
  BigInt.asIntN(64, Bun.hash.xxHash3(envelope, BigInt(recipient * 4 + priority)))

export function compareParties(a: Party, b: Party): number {
  if (a.meshId !== b.meshId) return a.meshId < b.meshId ? -1 : 1
  return a.peer - b.peer
}

/**
 * Explains the outcomes of a commit, which takes up to two statements. The optimistic statement leaves possible resends
 * pending; the checked statement compares them with the ledger. One that stays pending fails the whole commit, because
 * later envelopes must not overtake it.
 */
export type StatementOutcome = AppendOutcome | { readonly status: 'pending' }

/** The outcomes of one statement, in the order of its appends. */
export interface StatementOutcomes {
  readonly outcomes: readonly StatementOutcome[]
  readonly enqueuedAtMs: Millis
}

export const PENDING: StatementOutcome = { status: 'pending' }

/**
 * Returns the optimistic statement's outcomes for the whole batch. `stored`: those of the stored appends; null if it
 * changed nothing.
 */
export function outcomesAfter(
  appends: readonly Append[],
  optimistic: readonly Append[],
  stored: readonly StatementOutcome[] | null,
): readonly StatementOutcome[] {
  const outcomes = new Map(stored && optimistic.map((append, i) => [append, stored[i]!]))
  return appends.map((append) => outcomes.get(append) ?? PENDING)
}

/**
 * Returns the appends for the checked statement. Of several with the same id, the first one's outcome applies to all.
 */
export function pendingOf(appends: readonly Append[], { outcomes }: StatementOutcomes): Append[] {
  const seen = new Set<string>()
  return appends.filter((append, i) => {
    if (outcomes[i]!.status !== 'pending' || seen.has(keyOf(append))) return false
    return seen.add(keyOf(append))
  })
}

/** Completes the outcomes of the first statement with those of the checked one. */
export function mergeOutcomes(
  appends: readonly Append[],
  first: StatementOutcomes,
  checked: StatementOutcomes,
): StatementOutcomes {
  const asked = pendingOf(appends, first)
  const byKey = new Map(asked.map((append, i) => [keyOf(append), { append, outcome: checked.outcomes[i]! }]))
  const outcomes = first.outcomes.map((outcome, i) => {
    if (outcome.status !== 'pending') return outcome
    const { append, outcome: checkedOutcome } = byKey.get(keyOf(appends[i]!))!
    return append === appends[i] ? checkedOutcome : outcomeOfTwin(appends[i]!, append, checkedOutcome)
  })
  return { outcomes, enqueuedAtMs: first.enqueuedAtMs || checked.enqueuedAtMs }
}

export const isFinal = (outcome: StatementOutcome): outcome is AppendOutcome => outcome.status !== 'pending'

function outcomeOfTwin(twin: Append, append: Append, outcome: StatementOutcome): StatementOutcome {
  if (outcome.status !== 'stored' && outcome.status !== 'duplicate') return outcome
  const isSame = twin.recipient === append.recipient && twin.priority === append.priority
  return { status: isSame && isSameBytes(twin.envelope, append.envelope) ? 'duplicate' : 'id_reused' }
}

const keyOf = ({ meshId, sender, envelopeId }: Append): string => `${meshId}${sender}/${envelopeId}`

export function isSameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i])
}
