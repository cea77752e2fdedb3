/** Provides tests with an outbox on fake cryptography that records every reply. */
import type { NackCode, Priority } from '@sealpost/protocol'
import { assert, type MeshId, type Millis, type PeerKey, seededRandom } from '@sealpost/std'
import type { SealpostError } from '../errors.ts'
import type { Lane, Receipt, SendItem } from '../outbox/lane.ts'
import { Outbox, type OutboxOptions } from '../outbox/outbox.ts'
import { PersistentOutbox } from '../outbox/persistent-outbox.ts'
import { newCounters } from '../ports.ts'
import type { StoreWriter } from '../stores/store.ts'
import { fakeCrypto } from './fake-crypto.ts'

const peerKey = (digit: string) => digit.repeat(64) as PeerKey
export const BOB = peerKey('b')
export const CAROL = peerKey('c')
export const LIMITS = { envelopeBytesMax: 70_000, ttlSecondsMax: 1000, inFlightMax: 1024, dedupeSeconds: 86_400 }

export class World {
  readonly random: () => number
  readonly outbox: Outbox
  readonly results: (Receipt | SealpostError | undefined)[] = []
  readonly keyless = new Set<PeerKey>()
  readonly leavers = new Set<PeerKey>()
  readonly counters = newCounters()

  constructor(options: Partial<OutboxOptions> = {}, seed = 1, writer: StoreWriter | null = null) {
    this.random = seededRandom(seed).next
    const self = { peerKey: peerKey('a'), meshId: '1'.repeat(32) as MeshId, boxKey: new Uint8Array(32) }
    const crypto = fakeCrypto({ ...self, random: this.random })
    const keyOf = ({ recipient }: Pick<Lane, 'recipient'>) =>
      this.keyless.has(recipient) ? null : { peerKey: recipient, boxKey: new Uint8Array(32), boxEpoch: 1 }
    const keptPosts = writer && new PersistentOutbox(writer, 0)
    this.outbox = new Outbox(
      {
        crypto,
        random: this.random,
        keyOf,
        counters: this.counters,
        hasLeft: (_, peer) => this.leavers.has(peer),
        keptPosts,
        hooks: {},
      },
      { window: 64, windowBytes: 1_000_000, waitingMax: 1000, ...options },
    )
  }

  post(
    to: PeerKey,
    options: { priority?: Priority; ttlSeconds?: number; body?: Uint8Array; nowMs?: Millis } = {},
  ): number {
    const place = this.results.push(undefined) - 1
    const settle = (result: Receipt | SealpostError) => {
      assert(this.results[place] === undefined, 'one answer for each post')
      this.results[place] = result
    }
    const body = options.body ?? Uint8Array.of(place >>> 8, place)
    const { priority = 'next', ttlSeconds = 0, nowMs = 0 } = options
    this.outbox.post({ to, priority, ttlSeconds, body, accepted: settle, refused: settle }, nowMs)
    return place
  }

  take(nowMs = 0): SendItem[] {
    return this.outbox
      .takeFrames(nowMs)
      .flatMap((frame) => (frame.type === 'sendWith' ? frame.envelopes.map(({ send }) => send) : frame.envelopes))
  }

  ack(items: SendItem[], nowMs = 0): void {
    this.outbox.acked(
      items.map(({ envelopeId }) => ({ envelopeId, isDuplicate: false })),
      nowMs,
    )
  }

  nack(items: SendItem[], code: NackCode, retryAfterMs = 0): void {
    this.outbox.nacked(
      items.map(({ envelopeId }) => ({ envelopeId, code, retryAfterMs })),
      0,
    )
  }

  codeOf(place: number): string | undefined {
    return (this.results[place] as SealpostError | undefined)?.code
  }
}
