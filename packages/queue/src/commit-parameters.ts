/** A batch of appends as the parameters of the two commit statements. */
import type { Append } from '@sealpost/protocol'
import { type EnvelopeId, type MeshId, type Millis, type PeerNo, toHex } from '@sealpost/std'
import { arrayOf, type Parameter } from './run.ts'

/** Before every id of an envelope. */
export const NO_ENVELOPE_ID = '0'.repeat(32) as EnvelopeId

/** A distinct peer of the batch. */
interface Party {
  readonly meshId: MeshId
  readonly peer: PeerNo
  /** As a sender: its first and last id here; the first is none when they do not ascend. */
  firstId: EnvelopeId | null
  lastId: EnvelopeId
  /** As a recipient: the epoch of its birth leases; none once something for it goes without. */
  birthEpoch: number
  isPlain: boolean
}

export class CommitParameters {
  private readonly appends: readonly Append[]
  private readonly dedupeMs: Millis
  private readonly parties: Party[] = []
  private readonly byMesh = new Map<MeshId, Map<PeerNo, number>>()
  private readonly senders: number[] = []
  private readonly recipients: number[] = []
  private readonly asksBirth: boolean[] = []

  constructor(appends: readonly Append[], dedupeMs: Millis) {
    this.appends = appends
    this.dedupeMs = dedupeMs
    for (const append of appends) {
      const sender = this.place(append.meshId, append.sender)
      const recipient = this.place(append.meshId, append.recipient)
      this.senders.push(sender)
      this.recipients.push(recipient)
      extendRange(this.parties[sender - 1]!, append.envelopeId)
      this.asksBirth.push(admitBirth(this.parties[recipient - 1]!, append.birthEpoch))
    }
  }

  /** `$1–$13` of both. */
  shared(): Parameter[] {
    const { appends, parties } = this
    const starts: number[] = []
    const envelopes = joinEnvelopes(appends, starts)
    return [
      arrayOf(parties.map((party) => party.meshId)),
      arrayOf(parties.map((party) => party.peer)),
      arrayOf(this.senders),
      arrayOf(this.recipients),
      arrayOf(appends.map((append) => append.envelopeId)),
      arrayOf(appends.map((append) => secondOf(append.envelopeId))),
      arrayOf(appends.map((append) => append.priority)),
      arrayOf(appends.map((append) => append.ttlSeconds)),
      arrayOf(appends.map(fingerprintOf)),
      arrayOf(starts),
      arrayOf(appends.map((append) => append.envelope.length)),
      `\\x${toHex(envelopes)}`,
      this.dedupeMs / 1000,
    ]
  }

  /** `$14–$16` of `COMMIT`. Marks are always taken in this order, so that two statements can't wait for each other. */
  senderRanges(): Parameter[] {
    const places = this.sendingPlaces()
    return [
      arrayOf(places),
      arrayOf(places.map((place) => this.parties[place - 1]!.firstId!)),
      arrayOf(places.map((place) => this.parties[place - 1]!.lastId)),
    ]
  }

  /** `$14 $15` of `COMMIT_CAREFULLY`. */
  senderLasts(): Parameter[] {
    const places = this.sendingPlaces()
    return [arrayOf(places), arrayOf(places.map((place) => this.parties[place - 1]!.lastId))]
  }

  /** `$18 $19` of `COMMIT`. */
  births(): Parameter[] {
    return [arrayOf(this.parties.map((party) => party.birthEpoch)), arrayOf(this.asksBirth)]
  }

  private sendingPlaces(): number[] {
    return [...new Set(this.senders)].sort((a, b) => compare(this.parties[a - 1]!, this.parties[b - 1]!))
  }

  /** Counted from 1, as Postgres counts. */
  private place(meshId: MeshId, peer: PeerNo): number {
    const byPeer = this.byMesh.get(meshId) ?? new Map<PeerNo, number>()
    this.byMesh.set(meshId, byPeer)
    const known = byPeer.get(peer)
    if (known !== undefined) return known
    const party = { meshId, peer, firstId: null, lastId: NO_ENVELOPE_ID, birthEpoch: 0, isPlain: false }
    const place = this.parties.push(party)
    byPeer.set(peer, place)
    return place
  }
}

function compare(a: Party, b: Party): number {
  if (a.meshId !== b.meshId) return a.meshId < b.meshId ? -1 : 1
  return a.peer - b.peer
}

function extendRange(sender: Party, id: EnvelopeId): void {
  if (id <= sender.lastId) {
    sender.firstId = NO_ENVELOPE_ID // not ascending: no mark is before it, so the statement leaves this sender undecided
    return
  }
  sender.firstId ??= id
  sender.lastId = id
}

/** Within a batch a recipient's birth leases must all come before anything stored without one. */
function admitBirth(recipient: Party, epoch: number): boolean {
  if (recipient.birthEpoch === 0 && !recipient.isPlain) recipient.birthEpoch = epoch
  const isAdmitted = epoch !== 0 && !recipient.isPlain && recipient.birthEpoch === epoch
  if (!isAdmitted) recipient.isPlain = true
  return isAdmitted
}

function joinEnvelopes(appends: readonly Append[], starts: number[]): Uint8Array {
  let length = 0
  for (const { envelope } of appends) {
    starts.push(length + 1)
    length += envelope.length
  }
  const joined = new Uint8Array(length)
  appends.forEach(({ envelope }, i) => {
    joined.set(envelope, starts[i]! - 1)
  })
  return joined
}

/** The 48 bits of a UUID v7 that are milliseconds, in steps of 1,024: any id has one, of whatever kind it is. */
export const secondOf = (id: EnvelopeId): number => Math.floor(Number.parseInt(id.slice(0, 12), 16) / 1024)

/**
 * Tells a resend from another envelope under the same id. Not a cryptographic hash: who can make two envelopes of one
 * fingerprint can only cheat itself out of storing the second one. Recipient and priority go in as the seed.
 */
const fingerprintOf = ({ envelope, recipient, priority }: Append): bigint =>
  BigInt.asIntN(64, Bun.hash.xxHash3(envelope, BigInt(recipient * 4 + priority)))
