/**
 * A batch of appends, sorted out: what is certainly new goes the fast way, the rest the careful one. A sender goes one
 * way as a whole, so that its order stays.
 */
import type { Append, MessageRecord, SharedBody } from '@sealpost/protocol'
import type { EnvelopeId, MeshId, PeerNo } from '@sealpost/std'

/** A distinct peer of a batch. */
export interface Party {
  readonly meshId: MeshId
  readonly peer: PeerNo
  /** As a sender: the places of its appends in the batch. */
  sent: readonly number[]
  /** Each id of `sent` lies past the one before, and the first past the sender's mark. */
  isCertainlyNew: boolean
  lastId: EnvelopeId
  /** As a recipient: the epoch of its birth leases, and who sent what goes with and without one, with repetitions. */
  insertLeaseEpoch: number
  /** The lowest of theirs. */
  insertLeaseFloor: number
  bornFrom: readonly PeerNo[]
  plainFrom: readonly PeerNo[]
}

const NONE: readonly never[] = []

/** A list is made at its first item: most parties of a batch have one of three. */
function added<T>(items: readonly T[], item: T): readonly T[] {
  if (items.length === 0) return [item]
  ;(items as T[]).push(item)
  return items
}

export class Parties {
  readonly all: Party[] = []
  private readonly byMesh = new Map<MeshId, Map<PeerNo, Party>>()
  private meshId: MeshId | undefined
  private byPeer = new Map<PeerNo, Party>()

  find(meshId: MeshId, peer: PeerNo): Party {
    if (meshId !== this.meshId) this.turnTo(meshId)
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
      bornFrom: NONE,
      plainFrom: NONE,
    }
    this.all.push(party)
    this.byPeer.set(peer, party)
    return party
  }

  /** The party that sent what stands at this place of the batch. */
  sent(meshId: MeshId, sender: PeerNo, place: number): Party {
    const party = this.find(meshId, sender)
    party.sent = added(party.sent, place)
    return party
  }

  /** In an order that all shards share: two transactions that take locks in it can't wait for each other. */
  senders(): Party[] {
    return this.all.filter((party) => party.sent.length > 0).sort(compare)
  }

  private turnTo(meshId: MeshId): void {
    if (this.meshId !== undefined) {
      this.byMesh.set(this.meshId, this.byPeer)
      this.byPeer = this.byMesh.get(meshId) ?? new Map()
    }
    this.meshId = meshId
  }
}

/** Before every id of an envelope. */
export const NO_ENVELOPE_ID = '0'.repeat(32) as EnvelopeId

/** What is known of how far a sender's ids have come; undefined: nothing. */
export type MarkOf = (meshId: MeshId, sender: PeerNo) => EnvelopeId | undefined

/** What is certainly new. */
export function optimisticOf(appends: readonly Append[], markOf: MarkOf): readonly Append[] {
  const parties = new Parties()
  const bodies = new Alikes()
  const senders = appends.map((append, i) => {
    const sender = parties.sent(append.meshId, append.sender, i)
    if (sender.sent.length === 1) begin(sender, markOf)
    // What is delayed is rare enough for the checked commit to be the only one that knows how.
    if (append.envelopeId <= sender.lastId || append.notBeforeMs > 0) sender.isCertainlyNew = false
    if (append.body && !bodies.isAlike(append, append.body)) sender.isCertainlyNew = false
    sender.lastId = append.envelopeId
    return sender
  })
  if (parties.all.every((party) => party.isCertainlyNew)) return appends
  return appends.filter((_, i) => senders[i]!.isCertainlyNew)
}

/** Two bodies under one id: the first counts, and it is the checked commit that knows how long that is. */
class Alikes {
  private readonly lengths = new Map<string, number>()
  /** The envelopes of a broadcast come in a row, with one object for their body. */
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

/** Within a batch the birth leases from one sender to one recipient must all come before what goes without. */
export function admitBirth(recipient: Party, { insertLeaseEpoch, insertLeaseFloor, sender }: Append): boolean {
  if (recipient.insertLeaseEpoch === 0) recipient.insertLeaseEpoch = insertLeaseEpoch
  const isAdmitted =
    insertLeaseEpoch !== 0 && recipient.insertLeaseEpoch === insertLeaseEpoch && !recipient.plainFrom.includes(sender)
  if (isAdmitted) {
    recipient.bornFrom = added(recipient.bornFrom, sender)
    recipient.insertLeaseFloor = Math.min(recipient.insertLeaseFloor, insertLeaseFloor)
  } else recipient.plainFrom = added(recipient.plainFrom, sender)
  return isAdmitted
}

interface Kept {
  readonly meshId: MeshId
  readonly sender: PeerNo
  readonly body: SharedBody
}

/** The bodies that these share, each once, in an order that all shards share. */
export function bodiesOf(appends: readonly Append[]): Kept[] {
  if (appends.every(({ body }) => !body)) return []
  const bodies = new Map<string, Kept>()
  let last: SharedBody | null = null
  for (const { meshId, sender, body } of appends) {
    if (!body || body === last) continue
    const key = bodyKeyOf(meshId, sender, body)
    if (!bodies.has(key)) bodies.set(key, { meshId, sender, body })
    last = body
  }
  return [...bodies].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, kept]) => kept)
}

/** A message of a commit that becomes an event. */
export interface RecordedMessage extends MessageRecord {
  readonly meshId: MeshId
  readonly sender: PeerNo
  readonly bodyId: string
}

/** Messages of these that are to be kept, each once, in their order. */
export function recordedMessagesOf(appends: readonly Append[]): RecordedMessage[] {
  if (appends.every(({ body }) => !body?.record)) return []
  const said = new Map<string, RecordedMessage>()
  for (const { meshId, sender, body } of appends) {
    if (!body?.record) continue
    const key = `${meshId} ${body.record.spaceId} ${sender} ${body.bodyId}`
    if (!said.has(key)) said.set(key, { meshId, sender, bodyId: body.bodyId, ...body.record })
  }
  return [...said.values()]
}

const bodyKeyOf = (meshId: MeshId, sender: PeerNo, { bodyId }: SharedBody): string => `${meshId} ${sender} ${bodyId}`

/** The 48 bits of a UUID v7 that are milliseconds, in steps of 1,024: any id has one, of whatever kind it is. */
export const secondOf = (id: EnvelopeId): number => Math.floor(Number.parseInt(id.slice(0, 12), 16) / 1024)

/**
 * Tells a resend from another envelope under the same id. Not a cryptographic hash: who can make two envelopes of one
 * fingerprint can only cheat itself out of storing the second one. Recipient and priority go in as the seed.
 */
export const fingerprintOf = ({ envelope, recipient, priority }: Append): bigint =>
  BigInt.asIntN(64, Bun.hash.xxHash3(envelope, BigInt(recipient * 4 + priority)))

function begin(sender: Party, markOf: MarkOf): void {
  const mark = markOf(sender.meshId, sender.peer)
  if (mark === undefined) sender.isCertainlyNew = false
  else sender.lastId = mark
}

function compare(a: Party, b: Party): number {
  if (a.meshId !== b.meshId) return a.meshId < b.meshId ? -1 : 1
  return a.peer - b.peer
}
