/**
 * Publishes the prekeys of this peer: when it connects, weekly, after its box key has changed, and when the broker has few
 * one-time prekeys left or prekeys that this store lacks.
 */
import type { Identity } from '@sealpost/identity'
import { type OneTimePrekey, sodiumRatchetCrypto } from '@sealpost/identity/ratchet'
import { fromBase64url, type MeshId, type Millis, toBase64url } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { HttpAccess } from '../http/access.ts'
import type { PeerEvent } from '../ports.ts'
import { type PublishedPrekeys, publishPrekeys } from '../prekeys/prekeys.ts'
import type { OwnStatement, RatchetLanes } from './ratchet-lanes.ts'

export interface PublisherPorts {
  readonly now: () => Millis
  readonly lanes: RatchetLanes
  readonly meshId: MeshId
  readonly access: () => Pick<HttpAccess, 'ask' | 'meshId'>
  readonly own: () => Identity
  /** Resolves when everything that was put so far is stored. */
  readonly stored: () => Promise<void>
  readonly emit: (event: PeerEvent) => void
}

const DAY_MS: Millis = 86_400_000
/** How often the signed prekey changes. */
const SIGNED_MS: Millis = 7 * DAY_MS
const KEEP_FORMER_MS: Millis = 60 * DAY_MS
const VALID_MS: Millis = 365 * DAY_MS
/**
 * The age at which the next signed prekey also replaces the one-time prekeys, so that the secrets of claimed ones that
 * nobody used can be deleted. An attempt that fails adds secrets, so there is at most one for each signed prekey.
 */
const ONE_TIME_MS: Millis = 30 * DAY_MS
/** How often a peer that connects compares its prekeys with the broker's. */
const CHECK_EVERY_MS: Millis = 3_600_000
const ONE_TIME_COUNT = 100
const ONE_TIME_MIN = 50

export class PrekeyPublisher {
  readonly #ports: PublisherPorts
  #running: Promise<void> | null = null
  /** Whether the next publication replaces the one-time prekeys that nobody has claimed. */
  #isReplacing = false

  constructor(ports: PublisherPorts) {
    this.#ports = ports
  }

  /** Call when the peer has connected, then daily, and when its box key has changed. */
  check(): void {
    this.#running ??= this.#run()
  }

  /** Call when a peer has used a prekey that this store lacks, at most once per `CHECK_EVERY_MS` with an effect. */
  lost(): void {
    const { statement } = this.#ports.lanes
    if (statement && this.#ports.now() - statement.issuedAtMs < CHECK_EVERY_MS) return
    this.#isReplacing = true
    this.check()
  }

  async #run(): Promise<void> {
    try {
      await this.#publish()
    } catch (error) {
      const isTooOld = error instanceof SealpostError && error.code === 'not_found'
      if (error instanceof SealpostError && !isTooOld) this.#ports.emit({ type: 'prekeys_failed', error })
    } finally {
      this.#running = null
    }
  }

  async #publish(): Promise<void> {
    const { statement } = this.#ports.lanes
    const nowMs = this.#ports.now()
    const isDue = this.#isReplacing || this.#isRotationDue()
    if (!isDue && nowMs - statement!.checkedAtMs < CHECK_EVERY_MS) return
    this.#ports.lanes.prekeys.expire(nowMs)
    // The first statement and its one-time prekeys are one request, so that no agreement in between is of last resort.
    const replacedAtMs = statement?.replacedAtMs
    this.#isReplacing ||= replacedAtMs === undefined || (isDue && nowMs - replacedAtMs > ONE_TIME_MS)
    if (isDue) this.#rotate()
    const published = await this.#offer().catch((error: SealpostError) => {
      if (error.code !== 'prekey_rolled_back') throw error
      return this.#replace()
    })
    this.#isReplacing = false
    const isEnough = published.oneTimeLeft >= ONE_TIME_MIN
    const { oneTimeLeft } = isEnough ? published : await this.#offer(ONE_TIME_COUNT - published.oneTimeLeft)
    this.#note({ checkedAtMs: nowMs })
    await this.#ports.stored()
    this.#ports.emit({ type: 'prekeys_published', oneTimeLeft })
  }

  /** The directory has a later statement, so this store was restored from an older one. */
  #replace(): Promise<PublishedPrekeys> {
    this.#isReplacing = true
    this.#rotate()
    return this.#offer()
  }

  #isRotationDue(): boolean {
    const { statement } = this.#ports.lanes
    const { signing, box } = this.#ports.own()
    const isOwn = statement?.peerKey === signing.publicKey && statement.boxEpoch === box.epoch
    return !isOwn || this.#ports.now() - statement.issuedAtMs > SIGNED_MS
  }

  #rotate(): void {
    const { lanes, own, meshId } = this.#ports
    const identity = own()
    const nowMs = Math.max(this.#ports.now(), (lanes.statement?.issuedAtMs ?? 0) + 1)
    const terms = { identity, meshId, nowMs, notAfterMs: nowMs + VALID_MS, keepFormerMs: KEEP_FORMER_MS, hasKem: true }
    const { bytes, peerKey, boxEpoch, issuedAtMs } = lanes.prekeys.rotate(sodiumRatchetCrypto, terms)
    this.#note({ statement: toBase64url(bytes), peerKey, boxEpoch, issuedAtMs, checkedAtMs: 0 })
  }

  /** Stores the secrets, then publishes. */
  async #offer(count = this.#isReplacing ? ONE_TIME_COUNT : 0): Promise<PublishedPrekeys> {
    const { now, lanes, access, stored } = this.#ports
    const oneTime: readonly OneTimePrekey[] = lanes.prekeys.addOneTime(sodiumRatchetCrypto, count)
    this.#note({})
    await stored()
    const bytes = fromBase64url(lanes.statement!.statement)
    const replaces = this.#isReplacing
    const published = await publishPrekeys(access(), { statement: { bytes }, oneTime, replaces })
    if (replaces) {
      lanes.prekeys.retireOneTime(oneTime, now() + KEEP_FORMER_MS)
      this.#note({ replacedAtMs: now() })
    }
    return published
  }

  #note(change: Partial<OwnStatement>): void {
    const { lanes } = this.#ports
    lanes.statement = { expiredAtMs: this.#ports.now(), ...lanes.statement, ...change } as OwnStatement
    lanes.putPrekeys()
  }
}
