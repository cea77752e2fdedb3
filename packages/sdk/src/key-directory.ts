/**
 * The box keys of other peers: asked of the broker, believed only with the peer's own signature, kept until they
 * expire. The broker's directory is not trusted: a binding that is forged, of another peer, expired or older than one
 * seen before is refused.
 */
import type { Correspondent, KeyBindingVerdict } from '@sealpost/identity'
import { type FrameOf, type KeyBindingEntry, LOOKUP_MAX } from '@sealpost/protocol'
import type { Millis, PeerKey } from '@sealpost/std'
import type { KeyRefusal } from './events.ts'
import type { CryptoPort } from './ports.ts'
import { pieces } from './send-frames.ts'

/** A checked key of a peer. */
export interface KnownKey extends Correspondent {
  readonly notAfterMs: Millis
}

export interface KeyDirectoryPorts {
  readonly crypto: Pick<CryptoPort, 'checkBinding'>
  /** The peer's key is known, for the first time or anew. */
  readonly learned: (peer: PeerKey, key: KnownKey) => void
  readonly refused: (peer: PeerKey, reason: KeyRefusal) => void
  /** It is another key than before. */
  readonly changed: (peer: PeerKey, key: KnownKey) => void
}

interface Known {
  readonly key: KnownKey
  /** The one before, for envelopes that were sealed before it changed. */
  readonly former: Correspondent | null
  readonly checkedAtMs: Millis
}

/** A broker whose database is away does not answer. */
const ASK_AGAIN_MS = 5_000
/** An envelope that does not open asks for a newer key at most this often, so that garbage can't make us flood. */
const RECHECK_MS = 10_000

export class KeyDirectory {
  private readonly ports: KeyDirectoryPorts
  private readonly known = new Map<PeerKey, Known>()
  /** Asked for and not answered. */
  private readonly open = new Set<PeerKey>()
  /** Of these, not asked for in this session. */
  private unsent: PeerKey[] = []
  /** The oldest question of this session that is open, or was when it was asked. */
  private askedAtMs: Millis = Infinity
  private ref = 0

  constructor(ports: KeyDirectoryPorts) {
    this.ports = ports
  }

  /** The peer's key, or null: then it is asked for, and `learned` or `refused` follows. */
  find(peer: PeerKey, nowMs: Millis): KnownKey | null {
    const known = this.known.get(peer)
    if (known && nowMs <= known.key.notAfterMs) return known.key
    this.ask(peer)
    return null
  }

  /** Also an expired one: a message sealed while it was good is none the worse. */
  findForOpening(peer: PeerKey): Correspondent | null {
    const known = this.known.get(peer)
    if (known) return known.key
    this.ask(peer)
    return null
  }

  formerOf(peer: PeerKey): Correspondent | null {
    return this.known.get(peer)?.former ?? null
  }

  /** Answers whether a newer key of this peer was asked for; false when that was done just now. */
  recheck(peer: PeerKey, nowMs: Millis): boolean {
    if (this.open.has(peer)) return true
    const known = this.known.get(peer)
    if (known && nowMs - known.checkedAtMs < RECHECK_MS) return false
    this.ask(peer)
    return true
  }

  /** The session ended, and with it every question. */
  disconnected(): void {
    this.unsent = [...this.open]
    this.askedAtMs = Infinity
  }

  takeFrames(nowMs: Millis): FrameOf<'lookup'>[] {
    const isOverdue = nowMs >= this.wakeAtMs
    const peers = isOverdue ? [...this.open] : this.unsent
    if (peers.length === 0) return []
    this.unsent = []
    if (isOverdue || this.askedAtMs === Infinity) this.askedAtMs = nowMs
    return pieces(peers, LOOKUP_MAX).map((piece) => {
      this.ref = (this.ref + 1) >>> 0
      return { type: 'lookup', ref: this.ref, peers: piece }
    })
  }

  get wakeAtMs(): Millis {
    return this.open.size === 0 ? Infinity : this.askedAtMs + ASK_AGAIN_MS
  }

  answered(directory: FrameOf<'directory'>, nowMs: Millis): void {
    for (const binding of directory.bindings) if (this.open.has(binding.peer)) this.check(binding, nowMs)
    for (const peer of directory.unknown) if (this.open.has(peer)) this.refuse(peer, 'unknown_peer')
    if (this.open.size === 0) this.askedAtMs = Infinity
  }

  private ask(peer: PeerKey): void {
    if (this.open.has(peer)) return
    this.open.add(peer)
    this.unsent.push(peer)
  }

  private check(binding: KeyBindingEntry, nowMs: Millis): void {
    const { peer, boxEpoch, notAfterMs } = binding
    const former = this.known.get(peer)?.key
    const verdict = this.ports.crypto.checkBinding(binding, { peer, nowMs })
    if (verdict !== 'ok') return this.refuse(peer, verdict)
    if (former && boxEpoch < former.boxEpoch) return this.refuse(peer, 'binding_rolled_back')
    // A copy: the frame it came in holds other bytes that would be kept with it.
    const key: KnownKey = { peerKey: peer, boxKey: binding.boxKey.slice(), boxEpoch, notAfterMs }
    const isChanged = former !== undefined && !isSame(former.boxKey, key.boxKey)
    this.known.set(peer, { key, former: isChanged ? former : this.formerOf(peer), checkedAtMs: nowMs })
    this.open.delete(peer)
    if (isChanged) this.ports.changed(peer, key)
    this.ports.learned(peer, key)
  }

  private refuse(peer: PeerKey, reason: Exclude<KeyBindingVerdict, 'ok'> | KeyRefusal): void {
    this.open.delete(peer)
    this.ports.refused(peer, reason)
  }
}

function isSame(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, i) => byte === b[i])
}
