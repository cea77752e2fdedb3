/**
 * The box keys of other peers: asked of the broker, believed only with the peer's own signature, kept until they
 * expire. The broker's directory is not trusted: a binding that is forged, of another peer, expired or older than one
 * seen before, in this process or a former one (`key-epochs.ts`), is refused. Former keys are asked for when something does not open, and open, but never seal.
 */
import type { Correspondent, KeyBindingVerdict } from '@sealpost/identity'
import { type FrameOf, type KeyBindingEntry, LOOKUP_MAX } from '@sealpost/protocol'
import { isSameBytes, type Millis, type PeerKey } from '@sealpost/std'
import { chunksOf } from '../outbox/lane.ts'
import { type CryptoPort, type KeyRefusal, NO_FRAMES } from '../ports.ts'
import type { KeyEpochs } from './key-epochs.ts'

/** A checked key of a peer. */
export interface KnownKey extends Correspondent {
  readonly notAfterMs: Millis
}

export interface KeyDirectoryPorts {
  readonly crypto: Pick<CryptoPort, 'checkBinding'>
  readonly epochs: Pick<KeyEpochs, 'of' | 'raise'>
  /** The peer's key is known, for the first time or again. */
  readonly learned: (peer: PeerKey, key: KnownKey) => void
  readonly refused: (peer: PeerKey, reason: KeyRefusal) => void
  /** Whether another identity key has followed this one, and is this peer's now. */
  readonly isFormer: (former: PeerKey, of: PeerKey) => boolean
  /** It is another key than before. */
  readonly changed: (peer: PeerKey, key: KnownKey) => void
}

interface Known {
  readonly key: KnownKey
  /** The ones before, newest first, for what was sealed under them. */
  readonly formers: readonly Correspondent[]
  readonly checkedAtMs: Millis
  /** When former keys were asked for. */
  readonly historyAtMs: Millis
}

/** What is asked of one peer's keys and not answered. */
interface Wish {
  /** Former keys are asked for as well. */
  isHistory: boolean
  /** The key may have changed since it was asked for: the answer is not enough. */
  isStale: boolean
  /** The epoch that was known when it was asked for: an answer below it is a rollback. */
  floor: number
}

type KeyQuestion = FrameOf<'lookup'> | FrameOf<'lookupHistory'>

/** A broker whose database is away does not answer. */
const ASK_AGAIN_MS = 5_000
/** An envelope that does not open asks for former keys at most this often, so that garbage can't make us flood. */
export const RECHECK_MS = 10_000
/** A key that is used is looked up again after this time, in case the news of another one was lost. */
const REFRESH_MS = 3_600_000

export class KeyDirectory {
  readonly #ports: KeyDirectoryPorts
  readonly #known = new Map<PeerKey, Known>()
  readonly #open = new Map<PeerKey, Wish>()
  /** Of these, not asked for in this session. */
  #unsent = new Set<PeerKey>()
  /** Whose former keys a question of this session is about. */
  readonly #histories = new Map<number, PeerKey>()
  /** The oldest question of this session that is open, or was when it was asked. */
  #askedAtMs: Millis = Infinity
  #ref = 0

  constructor(ports: KeyDirectoryPorts) {
    this.#ports = ports
  }

  /** The peer's key, or null: then it is asked for, and `learned` or `refused` follows. */
  find(peer: PeerKey, nowMs: Millis): KnownKey | null {
    const known = this.#known.get(peer)
    const isGood = known !== undefined && nowMs <= known.key.notAfterMs
    if (!isGood || nowMs - known.checkedAtMs > REFRESH_MS) this.ask(peer)
    return isGood ? known.key : null
  }

  /** Also an expired one: a message sealed while it was good is none the worse. */
  findForOpening(peer: PeerKey): Correspondent | null {
    const known = this.#known.get(peer)
    if (known) return known.key
    this.ask(peer)
    return null
  }

  formersOf(peer: PeerKey): readonly Correspondent[] {
    return this.#known.get(peer)?.formers ?? []
  }

  /** Returns whether all keys of this peer were asked for; false when that was done just now. */
  recheck(peer: PeerKey, nowMs: Millis): boolean {
    const wish = this.#open.get(peer)
    if (wish?.isHistory) wish.isStale = true
    else if (!wish && nowMs - (this.#known.get(peer)?.historyAtMs ?? -Infinity) < RECHECK_MS) return false
    else this.#want(peer, { isHistory: true, isStale: false })
    return true
  }

  /** All keys of this peer were asked for, and have not come yet. */
  isRechecking(peer: PeerKey): boolean {
    return this.#open.get(peer)?.isHistory === true
  }

  /** The same, and the question has not left: its answer holds for all that came until now. */
  isRecheckUnsent(peer: PeerKey): boolean {
    return this.isRechecking(peer) && this.#unsent.has(peer)
  }

  /** The broker says that these have new keys. */
  rebound(peers: readonly PeerKey[]): void {
    for (const peer of peers) {
      const wish = this.#open.get(peer)
      if (wish) wish.isStale = true
      else if (this.#known.has(peer)) this.ask(peer)
    }
  }

  /** The session ended, and with it every question. */
  disconnected(): void {
    this.#unsent = new Set(this.#open.keys())
    this.#histories.clear()
    this.#askedAtMs = Infinity
  }

  /** Whether keys were asked for and have not come. */
  get isOpen(): boolean {
    return this.#open.size > 0
  }

  takeFrames(nowMs: Millis): readonly KeyQuestion[] {
    if (this.#open.size === 0) return NO_FRAMES
    const isOverdue = nowMs >= this.wakeAtMs
    const peers = isOverdue ? [...this.#open.keys()] : [...this.#unsent]
    if (peers.length === 0) return []
    this.#unsent.clear()
    if (isOverdue || this.#askedAtMs === Infinity) this.#askedAtMs = nowMs
    const plain = peers.filter((peer) => !this.#open.get(peer)!.isHistory)
    return [
      ...chunksOf(plain, LOOKUP_MAX).map((piece) => ({ type: 'lookup' as const, ref: this.#nextRef(), peers: piece })),
      ...peers.filter((peer) => this.#open.get(peer)!.isHistory).map((peer) => this.#historyQuestion(peer)),
    ]
  }

  get wakeAtMs(): Millis {
    return this.#open.size === 0 ? Infinity : this.#askedAtMs + ASK_AGAIN_MS
  }

  answered(directory: FrameOf<'directory'>, nowMs: Millis): void {
    for (const binding of directory.bindings)
      if (this.#open.get(binding.peer)?.isHistory === false) this.#check(binding, nowMs)
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

  /** Asks for the peer's key, known or not: `learned` or `refused` follows. */
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
    if (this.#open.size === 0) this.#askedAtMs = Infinity
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

  /** A space of this process may have seen the next key while the answer was on its way: it is asked for once more. */
  #rolledBack(peer: PeerKey, boxEpoch: number): void {
    const wish = this.#open.get(peer)
    if (wish && boxEpoch >= wish.floor && boxEpoch >= (this.#known.get(peer)?.key.boxEpoch ?? 0)) wish.isStale = true
    this.#refuse(peer, 'binding_rolled_back')
  }

  /** Of former keys those that this peer signed, under this identity key or one before it, whether their time is over or not. */
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

  /** What may be from before a change is asked for once more first. */
  #answeredOf(peer: PeerKey, tell: () => void): void {
    const wish = this.#open.get(peer)
    this.#open.delete(peer)
    this.#unsent.delete(peer) // a broker may answer what it was not asked yet
    if (wish?.isStale) this.#want(peer, { isHistory: wish.isHistory, isStale: false })
    else tell()
  }
}

/** A copy: the frame it came in holds other bytes that would be kept with it. */
function correspondent({ peer, boxKey, boxEpoch }: KeyBindingEntry): Correspondent {
  return { peerKey: peer, boxKey: boxKey.slice(), boxEpoch }
}
