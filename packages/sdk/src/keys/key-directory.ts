/**
 * Provides the box keys of other peers. They are requested from the broker, trusted only with the peer's own signature,
 * and cached until they expire. The broker's directory is not trusted: a binding is refused if it is forged, belongs to
 * another peer, has expired, or is older than one seen before in this process or an earlier one (`key-epochs.ts`).
 * Former keys are requested when an envelope can't be opened. They are used to open mail but never to seal it.
 */
import type { Correspondent, KeyBindingVerdict } from '@sealpost/identity'
import { BINDING_DUE_MS, type FrameOf, type KeyBindingEntry, LOOKUP_MAX } from '@sealpost/protocol'
import { isSameBytes, type Millis, type PeerKey } from '@sealpost/std'
import { chunksOf } from '../outbox/lane.ts'
import { type CryptoPort, type KeyRefusal, NO_FRAMES } from '../ports.ts'
import type { KeyEpochs } from './key-epochs.ts'

export interface KnownKey extends Correspondent {
  readonly notAfterMs: Millis
}

export interface KeyDirectoryPorts {
  readonly crypto: Pick<CryptoPort, 'checkBinding'>
  readonly epochs: Pick<KeyEpochs, 'of' | 'raise'>
  /** Called when the peer's key has arrived, for the first time or again. */
  readonly learned: (peer: PeerKey, key: KnownKey) => void
  readonly refused: (peer: PeerKey, reason: KeyRefusal) => void
  /** Returns whether `former` is an earlier identity key of the peer whose current key is `of`. */
  readonly isFormer: (former: PeerKey, of: PeerKey) => boolean
  /** Called when the peer has a new key. */
  readonly changed: (peer: PeerKey, key: KnownKey) => void
  readonly self?: PeerKey
  /** Called when this peer's own binding is due for renewal. */
  readonly bindingDue?: (() => void) | undefined
}

interface Known {
  readonly key: KnownKey
  /** Former keys, newest first, for mail that was sealed under them. */
  readonly formers: readonly Correspondent[]
  readonly checkedAtMs: Millis
  /** When former keys were last requested. */
  readonly historyAtMs: Millis
}

interface Wish {
  /** Whether former keys are requested as well. */
  isHistory: boolean
  /** Whether the reply may be outdated, because the key changed after the request. */
  isStale: boolean
  /** The epoch at the time of the request. A reply with a lower one is a rollback. */
  floor: number
}

type KeyQuestion = FrameOf<'lookup'> | FrameOf<'lookupHistory'>

/** The time after which a request is repeated, because a broker does not reply while its database is unavailable. */
const ASK_AGAIN_MS = 5_000
/** Minimum time between requests for former keys of one sender, so that garbage can't cause a flood. */
export const RECHECK_MS = 10_000
/** The age at which a key in use is looked up again, in case the notification of a change was lost. */
const REFRESH_MS = 3_600_000

export class KeyDirectory {
  readonly #ports: KeyDirectoryPorts
  readonly #known = new Map<PeerKey, Known>()
  readonly #open = new Map<PeerKey, Wish>()
  /** Keys that must still be requested in this session. */
  #unsent = new Set<PeerKey>()
  /** Peers whose former keys were requested in this session, by request number. */
  readonly #histories = new Map<number, PeerKey>()
  /** A lower bound for when the oldest open request was sent in this session. */
  #requestedAtMs: Millis = Infinity
  #ref = 0

  constructor(ports: KeyDirectoryPorts) {
    this.#ports = ports
  }

  /** Returns the peer's key. If it must be requested, returns null and later calls `learned` or `refused`. */
  find(peer: PeerKey, nowMs: Millis): KnownKey | null {
    const known = this.#known.get(peer)
    const isGood = known !== undefined && nowMs <= known.key.notAfterMs
    if (!isGood || nowMs - known.checkedAtMs > REFRESH_MS) this.ask(peer)
    return isGood ? known.key : null
  }

  /** Returns the peer's key even if it is expired, because messages sealed before expiry stay valid. */
  findForOpening(peer: PeerKey): Correspondent | null {
    const known = this.#known.get(peer)
    if (known) return known.key
    this.ask(peer)
    return null
  }

  formersOf(peer: PeerKey): readonly Correspondent[] {
    return this.#known.get(peer)?.formers ?? []
  }

  /**
   * Requests all keys of this peer, unless they arrived within the last `RECHECK_MS`. Returns whether it requested
   * them.
   */
  recheck(peer: PeerKey, nowMs: Millis): boolean {
    const wish = this.#open.get(peer)
    if (wish?.isHistory) wish.isStale = true
    else if (!wish && nowMs - (this.#known.get(peer)?.historyAtMs ?? -Infinity) < RECHECK_MS) return false
    else this.#want(peer, { isHistory: true, isStale: false })
    return true
  }

  /** Returns whether this peer's keys were requested and have not arrived. */
  isRechecking(peer: PeerKey): boolean {
    return this.#open.get(peer)?.isHistory === true
  }

  /**
   * Returns whether `recheck`'s request is still unsent, in which case its reply covers everything received until now.
   */
  isRecheckUnsent(peer: PeerKey): boolean {
    return this.isRechecking(peer) && this.#unsent.has(peer)
  }

  /** Call when the broker reports that these peers have new keys. */
  rebound(peers: readonly PeerKey[]): void {
    for (const peer of peers) {
      const wish = this.#open.get(peer)
      if (wish) wish.isStale = true
      else if (this.#known.has(peer)) this.ask(peer)
    }
  }

  disconnected(): void {
    this.#unsent = new Set(this.#open.keys())
    this.#histories.clear()
    this.#requestedAtMs = Infinity
  }

  get isOpen(): boolean {
    return this.#open.size > 0
  }

  takeFrames(nowMs: Millis): readonly KeyQuestion[] {
    if (this.#open.size === 0) return NO_FRAMES
    const isOverdue = nowMs >= this.wakeAtMs
    const peers = isOverdue ? [...this.#open.keys()] : [...this.#unsent]
    if (peers.length === 0) return []
    this.#unsent.clear()
    if (isOverdue || this.#requestedAtMs === Infinity) this.#requestedAtMs = nowMs
    const plain = peers.filter((peer) => !this.#open.get(peer)!.isHistory)
    return [
      ...chunksOf(plain, LOOKUP_MAX).map((piece) => ({ type: 'lookup' as const, ref: this.#nextRef(), peers: piece })),
      ...peers.filter((peer) => this.#open.get(peer)!.isHistory).map((peer) => this.#historyQuestion(peer)),
    ]
  }

  get wakeAtMs(): Millis {
    return this.#open.size === 0 ? Infinity : this.#requestedAtMs + ASK_AGAIN_MS
  }

  answered(directory: FrameOf<'directory'>, nowMs: Millis): void {
    for (const binding of directory.bindings) {
      const { peer, notAfterMs } = binding
      if (peer === this.#ports.self && notAfterMs - nowMs < BINDING_DUE_MS) this.#ports.bindingDue?.()
      if (this.#open.get(peer)?.isHistory === false) this.#check(binding, nowMs)
    }
    for (const peer of directory.unknown)
      if (this.#open.get(peer)?.isHistory === false) this.#refuse(peer, 'unknown_peer')
    this.#rest()
  }

  historyAnswered({ ref, bindings }: FrameOf<'keyHistory'>, nowMs: Millis): void {
    const peer = this.#histories.get(ref)
    if (!peer || !this.#open.has(peer)) return
    this.#histories.delete(ref)
    const [current, ...others] = bindings
    if (current?.peer !== peer) this.#refuse(peer, 'unknown_peer')
    else this.#check(current, nowMs, this.#believed(others, peer, nowMs))
    this.#rest()
  }

  /** Requests the peer's key even if it is known. `learned` or `refused` follows. */
  ask(peer: PeerKey): void {
    if (!this.#open.has(peer)) this.#want(peer, { isHistory: false, isStale: false })
  }

  #want(peer: PeerKey, wish: Omit<Wish, 'floor'>): void {
    this.#open.set(peer, { ...wish, floor: this.#ports.epochs.of(peer) })
    this.#unsent.add(peer)
  }

  #historyQuestion(peer: PeerKey): FrameOf<'lookupHistory'> {
    const ref = this.#nextRef()
    this.#histories.set(ref, peer)
    return { type: 'lookupHistory', ref, peer }
  }

  #nextRef(): number {
    this.#ref = (this.#ref + 1) >>> 0
    return this.#ref
  }

  #rest(): void {
    if (this.#open.size === 0) this.#requestedAtMs = Infinity
  }

  #check(binding: KeyBindingEntry, nowMs: Millis, history?: readonly Correspondent[]): void {
    const { peer, boxEpoch, notAfterMs } = binding
    const known = this.#known.get(peer)
    const verdict = this.#ports.crypto.checkBinding(binding, { peer, nowMs })
    if (verdict !== 'ok') return this.#refuse(peer, verdict)
    const newest = Math.max(known?.key.boxEpoch ?? 0, this.#ports.epochs.of(peer))
    if (boxEpoch < newest) return this.#rolledBack(peer, boxEpoch)
    this.#ports.epochs.raise(peer, boxEpoch)
    const key: KnownKey = { ...correspondent(binding), notAfterMs }
    const isChanged = known !== undefined && !isSameBytes(known.key.boxKey, key.boxKey)
    const formers = history ?? (isChanged ? [known.key, ...known.formers] : (known?.formers ?? []))
    const historyAtMs = history ? nowMs : (known?.historyAtMs ?? -Infinity)
    this.#known.set(peer, { key, formers, checkedAtMs: nowMs, historyAtMs })
    if (isChanged) this.#ports.changed(peer, key)
    this.#answeredOf(peer, () => this.#ports.learned(peer, key))
  }

  /** Requests the key again, because a space in this process may have seen a newer one in the meantime. */
  #rolledBack(peer: PeerKey, boxEpoch: number): void {
    const wish = this.#open.get(peer)
    if (wish && boxEpoch >= wish.floor && boxEpoch >= (this.#known.get(peer)?.key.boxEpoch ?? 0)) wish.isStale = true
    this.#refuse(peer, 'binding_rolled_back')
  }

  /** Returns the former keys signed with this or an earlier identity key, including expired ones. */
  #believed(bindings: readonly KeyBindingEntry[], peer: PeerKey, nowMs: Millis): Correspondent[] {
    const isBelieved = (binding: KeyBindingEntry) => {
      const isOwn = binding.peer === peer || this.#ports.isFormer(binding.peer, peer)
      const verdict = this.#ports.crypto.checkBinding(binding, { peer: binding.peer, nowMs })
      return isOwn && (verdict === 'ok' || verdict === 'binding_expired')
    }
    return bindings.filter(isBelieved).map(correspondent)
  }

  #refuse(peer: PeerKey, reason: Exclude<KeyBindingVerdict, 'ok'> | KeyRefusal): void {
    this.#answeredOf(peer, () => this.#ports.refused(peer, reason))
  }

  /** Requests keys again if the reply may be outdated. */
  #answeredOf(peer: PeerKey, tell: () => void): void {
    const wish = this.#open.get(peer)
    this.#open.delete(peer)
    this.#unsent.delete(peer) // A broker may send a reply unprompted.
    if (wish?.isStale) this.#want(peer, { isHistory: wish.isHistory, isStale: false })
    else tell()
  }
}

/** Copies the key, because a view would keep the whole frame in memory. */
function correspondent({ peer, boxKey, boxEpoch }: KeyBindingEntry): Correspondent {
  return { peerKey: peer, boxKey: boxKey.slice(), boxEpoch }
}
