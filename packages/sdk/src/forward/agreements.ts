/** Begins the ratchets of lanes: claims prekeys of their peers at the broker, for several lanes in one request. */
import type { Correspondent, Identity } from '@sealpost/identity'
import type { RatchetNews } from '@sealpost/identity/ratchet'
import { type Millis, OperatingError, type PeerKey } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { HttpAccess } from '../http/access.ts'
import { claimPrekeys, type PrekeyResult } from '../prekeys/prekeys.ts'
import type { RatchetLane, RatchetLanes } from './ratchet-lanes.ts'

export interface AgreementPorts {
  readonly now: () => Millis
  readonly lanes: RatchetLanes
  readonly access: () => Pick<HttpAccess, 'ask' | 'meshId'>
  readonly own: () => Identity
  readonly reportNews: (lane: RatchetLane, news: readonly RatchetNews[]) => void
  /** Called when a lane of the peer has a ratchet or a verdict. */
  readonly unlock: (peer: PeerKey) => void
}

/** How long a peer without prekeys is not asked for again. */
const MISSING_MS: Millis = 600_000
/** The pause after a claim that failed or was refused. */
const RETRY_MS: Millis = 10_000

export class Agreements {
  readonly #ports: AgreementPorts
  readonly #waiting = new Map<RatchetLane, Correspondent>()
  #isAsking = false
  #retryAtMs: Millis = Infinity

  constructor(ports: AgreementPorts) {
    this.#ports = ports
  }

  /** When `resume` must be called. */
  get wakeAtMs(): Millis {
    return this.#retryAtMs
  }

  /** Returns whether the lane waits for an agreement. `unlock` follows. */
  awaits(lane: RatchetLane, to: Correspondent, nowMs: Millis): boolean {
    const { missingAtMs, isPinned } = this.#ports.lanes.peer(lane.peer)
    if (lane.refusal && nowMs < lane.refusal.untilMs) return false
    if (!isPinned && nowMs - missingAtMs < MISSING_MS) return false
    this.#waiting.set(lane, to)
    if (this.#retryAtMs === Infinity) queueMicrotask(() => void this.#ask())
    return true
  }

  resume(): void {
    this.#retryAtMs = Infinity
    void this.#ask()
  }

  async #ask(): Promise<void> {
    if (this.#isAsking || this.#waiting.size === 0) return
    this.#isAsking = true
    const asked = [...this.#waiting]
    try {
      const { access, lanes } = this.#ports
      const peers = asked.map(([{ peer }]) => peer)
      const results = await claimPrekeys(access(), peers, (peer) => lanes.peer(peer).issuedAtMs)
      for (const [i, [lane, to]] of asked.entries()) this.#answered(lane, to, results[i]!)
    } catch (error) {
      this.#failed(asked, error)
    } finally {
      this.#isAsking = false
    }
    if (this.#retryAtMs === Infinity) void this.#ask()
  }

  #answered(lane: RatchetLane, to: Correspondent, result: PrekeyResult): void {
    const { lanes } = this.#ports
    const known = lanes.peer(lane.peer)
    this.#waiting.delete(lane)
    lane.refusal = null
    if (!result.ok) this.#refused(lane, result.code)
    else {
      const { issuedAtMs } = result.statement
      lanes.putPeer({ ...known, issuedAtMs, missingAtMs: 0 })
      this.#agree(lane, to, result)
    }
    this.#ports.unlock(lane.peer)
  }

  #agree(lane: RatchetLane, peer: Correspondent, result: Extract<PrekeyResult, { ok: true }>): void {
    try {
      const news = lane.ratchet.agree({ own: this.#ports.own(), peer }, result, this.#ports.now())
      this.#ports.reportNews(lane, news)
    } catch (cause) {
      if (!(cause instanceof OperatingError)) throw cause
      const isOutdated = cause.code === 'box_key_unknown'
      this.#refuse(lane, isOutdated ? prekeyOutdated(cause) : keyUnusable(cause))
    }
  }

  /** Only a peer that has never used a ratchet may have lost its prekeys. */
  #refused(lane: RatchetLane, code: Extract<PrekeyResult, { ok: false }>['code']): void {
    const { lanes } = this.#ports
    const known = lanes.peer(lane.peer)
    const isMissing = code === 'no_prekeys' || code === 'recipient_unknown' || code === 'prekey_expired'
    if (isMissing && !known.isPinned) lanes.putPeer({ ...known, missingAtMs: this.#ports.now() })
    else if (code === 'no_prekeys' || code === 'prekey_expired') this.#refuse(lane, ratchetRequired())
    else if (code === 'recipient_unknown' || code === 'not_allowed') this.#refuse(lane, null)
    else this.#refuse(lane, prekeyRefused(code))
  }

  #refuse(lane: RatchetLane, error: SealpostError | null): void {
    lane.refusal = { untilMs: this.#ports.now() + RETRY_MS, error }
  }

  /** Without an answer, a lane that has used a ratchet waits. The others seal with box keys for a moment. */
  #failed(asked: readonly (readonly [RatchetLane, Correspondent])[], error: unknown): void {
    const isTooOld = error instanceof SealpostError && error.code === 'not_found'
    for (const [lane] of asked) {
      const known = this.#ports.lanes.peer(lane.peer)
      if (known.isPinned && !isTooOld) continue
      this.#waiting.delete(lane)
      this.#refuse(lane, known.isPinned ? ratchetRequired() : null)
      this.#ports.unlock(lane.peer)
    }
    if (this.#waiting.size > 0) this.#retryAtMs = this.#ports.now() + RETRY_MS
  }
}

export const ratchetRequired = (): SealpostError =>
  new SealpostError(
    'ratchet_required',
    'This conversation uses ratchets, and the broker has no prekeys of the peer to continue it. The message was not sealed without.',
  )

const prekeyOutdated = (cause: unknown): SealpostError =>
  new SealpostError('prekey_outdated', 'The prekeys of this peer belong to another box key than its newest one.', {
    cause,
    isRetryable: true,
  })

const keyUnusable = (cause: unknown): SealpostError =>
  new SealpostError('key_refused', 'The prekeys of this peer can not begin a ratchet.', { cause })

const prekeyRefused = (code: 'prekey_forged' | 'prekey_rolled_back'): SealpostError =>
  new SealpostError(code, `The broker returned prekeys of this peer that can't be trusted (${code}).`)
