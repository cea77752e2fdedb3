/**
 * Holds the ratchets of a peer, what it knows of others, and its prekeys. Changes join the batch of the message that
 * causes them: a sealed message, or a settlement.
 */
import type { BoxKeys, Correspondent, Identity, Sealer } from '@sealpost/identity'
import {
  openRatcheted,
  Prekeys,
  Ratchet,
  type RatchetedOpening,
  type RatchetOpening,
  type RatchetParties,
} from '@sealpost/identity/ratchet'
import { PRIORITIES, type Priority } from '@sealpost/protocol'
import type { MeshId, Millis, PeerKey } from '@sealpost/std'
import type { SealpostError } from '../errors.ts'
import type { IncomingEnvelope } from '../ports.ts'
import type { PrekeysRecord, RatchetPeerRecord, StoreRecord } from '../stores/records.ts'
import { SECRET_PREFIX, type StoreChange, type StoreWriter } from '../stores/store.ts'

export interface RatchetLane {
  readonly peer: PeerKey
  /** The number of the priority, or `EPHEMERAL_LANE`. */
  readonly no: number
  readonly ratchet: Ratchet
  /** Whether the ratchet has a session of the peer that is not stored, and so uses a prekey that still exists. */
  hasUnstoredSession: boolean
  /** Why the lane can't begin a session, until when; without an error, it seals with box keys. */
  refusal: { readonly untilMs: Millis; readonly error: SealpostError | null } | null
  /** Messages since this side last sealed one, and when the first of them ended. */
  unanswered: { count: number; readonly sinceMs: Millis } | null
  /** Whether this process has reported the reset that the lane owes. */
  isResetReported: boolean
}

export type KnownPeer = Omit<RatchetPeerRecord, 'kind'>
export type OwnStatement = Omit<PrekeysRecord, 'kind' | 'bytes'>

export class RatchetLanes {
  readonly prekeys: Prekeys
  /** Null before the first one. */
  statement: OwnStatement | null
  readonly #meshId: MeshId
  readonly #writer: StoreWriter
  readonly #peers = new Map<PeerKey, KnownPeer>()
  readonly #lanes = new Map<string, RatchetLane>()
  /** The ratchets that this process has not used. */
  readonly #stored = new Map<string, Uint8Array>()

  constructor(meshId: MeshId, writer: StoreWriter, records: readonly StoreRecord[]) {
    this.#meshId = meshId
    this.#writer = writer
    const own = records.find((record) => record.kind === 'prekeys')
    this.prekeys = own ? Prekeys.restore(own.bytes) : new Prekeys()
    this.statement = own ?? null
    for (const record of records)
      if (record.kind === 'ratchet') this.#stored.set(keyOf(record.peer, record.lane), record.bytes)
      else if (record.kind === 'ratchetPeer') this.#peers.set(record.peer, record)
  }

  get peers(): readonly KnownPeer[] {
    return [...this.#peers.values()]
  }

  peer(peer: PeerKey): KnownPeer {
    return this.#peers.get(peer) ?? { peer, isPinned: false, sinceMs: null, issuedAtMs: 0, missingAtMs: 0 }
  }

  /** Returns the lane, with an empty ratchet if there was none. */
  lane(peer: PeerKey, no: number): RatchetLane {
    const key = keyOf(peer, no)
    const known = this.#lanes.get(key)
    if (known) return known
    const scope = { meshId: this.#meshId, priority: no }
    const bytes = this.#stored.get(key)
    const ratchet = bytes ? Ratchet.restore(bytes, scope) : new Ratchet(scope)
    const state = { hasUnstoredSession: false, refusal: null, unanswered: null, isResetReported: false }
    const lane: RatchetLane = { peer, no, ratchet, ...state }
    this.#stored.delete(key)
    this.#lanes.set(key, lane)
    return lane
  }

  /** Restores all lanes. */
  all(): RatchetLane[] {
    for (const key of [...this.#stored.keys()]) {
      const [, peer, no] = key.split(' ') as [string, PeerKey, string]
      this.lane(peer, Number(no))
    }
    return [...this.#lanes.values()]
  }

  /** Adds the ratchet to the current batch, and the prekeys without those that its new session has used. */
  put(lane: RatchetLane): void {
    const { peer, no, ratchet } = lane
    if (lane.hasUnstoredSession) {
      lane.hasUnstoredSession = false
      this.prekeys.spend(ratchet.export().spent)
      this.putPrekeys()
    }
    this.#writer.put(keyOf(peer, no), () => ({ kind: 'ratchet', peer, lane: no, bytes: ratchet.export().bytes }))
  }

  putPeer(known: KnownPeer): void {
    this.#peers.set(known.peer, known)
    this.#writer.put(peerKeyOf(known.peer), () => ({ ...this.#peers.get(known.peer)!, kind: 'ratchetPeer' }))
  }

  putPrekeys(): void {
    this.#writer.put(`${SECRET_PREFIX}prekeys`, () => ({
      ...this.statement!,
      kind: 'prekeys',
      bytes: this.prekeys.export(),
    }))
  }

  /** Deletes and returns the lanes of the peer, so that this side may seal for it with box keys again. */
  forget(peer: PeerKey): readonly RatchetLane[] {
    const lanes = this.all().filter((lane) => lane.peer === peer)
    this.#peers.delete(peer)
    this.#writer.remove(peerKeyOf(peer))
    for (const { no } of lanes) {
      this.#lanes.delete(keyOf(peer, no))
      this.#writer.remove(keyOf(peer, no))
    }
    return lanes
  }
}

/** The lane of a priority, with an empty ratchet if there was none. */
export const laneOf = (lanes: RatchetLanes, peer: PeerKey, priority: Priority): RatchetLane =>
  lanes.lane(peer, PRIORITIES.indexOf(priority))

export interface RatchetOpener {
  readonly now: () => Millis
  readonly sealer: Sealer
  readonly own: Identity
  readonly ownBoxes: readonly BoxKeys[]
  readonly lanes: RatchetLanes
}

/** Opens a message with the ratchet of its lane, which retains the key. */
export function openInLane(
  by: RatchetOpener,
  from: Correspondent,
  { priority, envelope, envelopeId }: IncomingEnvelope,
): { readonly lane: RatchetLane; readonly opened: RatchetedOpening } {
  const lane = laneOf(by.lanes, from.peerKey, priority!)
  const { sealer } = by
  const message = { sealer, ratchet: lane.ratchet, parties: partiesOf(by, from) }
  return { lane, opened: openRatcheted(message, envelope, { from, envelopeId }, by.now()) }
}

/** Opens a ratcheted message that is not an envelope. */
export function openBytesInLane(
  by: RatchetOpener,
  { ratchet }: RatchetLane,
  from: Correspondent,
  bytes: Uint8Array,
): RatchetOpening {
  return ratchet.open(bytes, partiesOf(by, from), by.now())
}

function partiesOf({ own, ownBoxes, lanes }: RatchetOpener, peer: Correspondent): RatchetParties {
  return { own, ownBoxes, peers: [peer], prekeys: lanes.prekeys }
}

const keyOf = (peer: PeerKey, no: number): string => `${SECRET_PREFIX}ratchet ${peer} ${no}`
const peerKeyOf = (peer: PeerKey): string => `ratchetPeer ${peer}`

/** Returns the changes that delete the ratchets with a peer from a store that no peer has open. */
export function changesToForget(peer: PeerKey, records: readonly StoreRecord[]): StoreChange[] {
  return records.flatMap((record): StoreChange[] => {
    if (record.kind === 'ratchet' && record.peer === peer) return [{ key: keyOf(peer, record.lane), record: null }]
    return record.kind === 'ratchetPeer' && record.peer === peer ? [{ key: peerKeyOf(peer), record: null }] : []
  })
}
