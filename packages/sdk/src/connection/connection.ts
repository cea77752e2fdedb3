/**
 * Implements the state machine of a peer's connection: dialling, the signed handshake, liveness, and reconnecting. Pure
 * and synchronous. Passes the frames of a live session to its owner.
 *
 * The handshake (security model 3.3): the broker greets with a nonce, we sign, the broker proves itself. Nothing is
 * sent or trusted before the broker's proof is checked with the pinned key, regardless of the key that the greeting
 * claims.
 */
import type { Transcript } from '@sealpost/identity'
import {
  type FrameOf,
  PROTOCOL_VERSIONS,
  type RefusalCode,
  refusal,
  refusals,
  type ServerFrame,
} from '@sealpost/protocol'
import type { Millis } from '@sealpost/std'
import { refusedBy, type SealpostCode, SealpostError } from '../errors.ts'
import type { ConnectionTarget, CryptoPort, PeerEffects } from '../ports.ts'
import { judgeKey, type KnownAddresses, ShardAddresses, type ShardRefusal, TLS_FAILED } from './addresses.ts'
import { backoffMs, HINT_MAX_MS, Liveness, putOffMs } from './timing.ts'

export type ConnectionState =
  | { readonly name: 'idle' }
  | { readonly name: 'waiting'; readonly dialAtMs: Millis }
  | { readonly name: 'connecting'; readonly deadlineMs: Millis; readonly sessionByMs: Millis }
  | { readonly name: 'greeting'; readonly deadlineMs: Millis; readonly sessionByMs: Millis }
  | {
      readonly name: 'proving'
      readonly deadlineMs: Millis
      readonly transcript: Transcript
      readonly signature: Uint8Array
    }
  | {
      readonly name: 'live'
      readonly welcome: FrameOf<'welcome'>
      readonly sinceMs: Millis
      /** When the client leaves, because the broker is shutting down. */
      leaveAtMs: Millis
    }
  | { readonly name: 'closed'; readonly error: SealpostError | null }

export interface ConnectionPorts {
  readonly effects: Pick<PeerEffects, 'dial' | 'closeSocket' | 'transmit' | 'emit'>
  readonly crypto: Pick<CryptoPort, 'signAuth' | 'isBrokerProof' | 'checkCertificate' | 'newNonce'>
  readonly random: () => number
  /** Returns whether the broker owes a reply in this session. */
  readonly isOwed: () => boolean
  readonly live: (welcome: FrameOf<'welcome'>) => void
  /** Called when the broker reports new addresses of the mesh. */
  readonly learned: (known: KnownAddresses) => void
  /** Called when a session or dial has ended. The next dial follows after `retryInMs`. */
  readonly lost: (code: SealpostCode | 'connection_lost', retryInMs: Millis) => void
  /** Called when the connection has ended for good. `error` is null after `close`. */
  readonly ended: (error: SealpostError | null) => void
}

/** The time limit from the dial to `welcome`. */
const SESSION_WITHIN_MS = 20_000
/**
 * The time limit from the dial to the greeting, if there is another shard to try. A broker greets without querying its
 * database.
 */
const GREETED_WITHIN_MS = 5_000
/**
 * The time within which a broker refuses a handshake that exceeds its time limit. After that, the broker counts as
 * hung.
 */
const REFUSED_WITHIN_MS = 2_000
/**
 * How long to wait after `goaway`. The broker ends the session itself once it has replied to everything that it has
 * accepted.
 */
const LEAVE_AFTER_MS = 10_000
/** The age at which the broker has certainly abandoned a handshake. */
const STALE_HANDSHAKE_MS = 30_000
/** The duration after which a session proves that dialling works; a shorter one counts as a failure. */
const STEADY_AFTER_MS = 5_000

export class BrokerConnection {
  state: ConnectionState = { name: 'idle' }
  /** The number of the current or most recent dial. */
  dialNo = 0
  readonly #ports: ConnectionPorts
  readonly #place: ConnectionTarget
  readonly #addresses: ShardAddresses
  readonly #liveness = new Liveness()
  readonly #credit: number
  /** Consecutive failures without a retry-after from the broker. */
  #failures = 0
  /** Consecutive failures with a retry-after, which back off separately. */
  #putOffs = 0
  /** The broker's retry-after; 0 if there is none. */
  #hintMs: Millis = 0
  /** When the handshakes without a reply were signed. */
  #lostHandshakes: Millis[] = []
  #pingNo = 0
  #awaitedPong: { readonly ref: number; readonly ponged: () => void } | null = null
  /** The certificate received before the greeting of the current dial. */
  #certificate: Uint8Array | null = null

  constructor(ports: ConnectionPorts, place: ConnectionTarget, credit: number) {
    this.#ports = ports
    this.#place = place
    this.#addresses = new ShardAddresses(place.urls, place.known)
    this.#credit = credit
  }

  start(nowMs: Millis): void {
    if (this.state.name === 'idle') this.#dial(nowMs)
  }

  opened(dialNo: number): void {
    if (dialNo !== this.dialNo || this.state.name !== 'connecting') return
    const { deadlineMs, sessionByMs } = this.state
    this.state = { name: 'greeting', deadlineMs, sessionByMs }
  }

  /** Returns the frame if it belongs to the live session; otherwise, handles it. */
  received(dialNo: number, frame: ServerFrame, nowMs: Millis): ServerFrame | null {
    if (dialNo !== this.dialNo) return null
    const { state } = this
    switch (state.name) {
      case 'idle':
      case 'waiting':
      case 'closed':
        return null
      case 'live':
        this.#liveness.heard(nowMs)
        return this.#receivedLive(state, frame, nowMs)
      case 'greeting':
      case 'proving':
      case 'connecting':
        this.#receivedEarly(state, frame, nowMs)
        return null
    }
  }

  /** Call when the received bytes are not a valid frame. */
  malformed(dialNo: number, nowMs: Millis): void {
    if (dialNo === this.dialNo && this.#isDialled()) this.#drop('frame_malformed', nowMs)
  }

  /** `closeNumber` is the WebSocket's close code. */
  closed(dialNo: number, closeNumber: number, nowMs: Millis): void {
    if (dialNo !== this.dialNo || !this.#isDialled()) return
    if (closeNumber === TLS_FAILED) return this.#lose('certificate_untrusted', nowMs)
    const code = codeOfClose(closeNumber)
    if (code && this.#isFinal(code, nowMs)) this.#end(refusedBy(code))
    else this.#lose(code ?? 'connection_lost', nowMs)
  }

  /** Call when frames of the live session were passed to the socket. */
  sent(nowMs: Millis): void {
    this.#liveness.sent(nowMs)
  }

  tick(nowMs: Millis): void {
    const { state } = this
    switch (state.name) {
      case 'waiting':
        if (nowMs >= state.dialAtMs) this.#dial(nowMs)
        return
      case 'connecting':
      case 'greeting':
      case 'proving':
        if (nowMs >= state.deadlineMs) this.#drop('connection_lost', nowMs)
        return
      case 'live':
        return this.#watch(state, nowMs)
      case 'idle':
      case 'closed':
        return
    }
  }

  get wakeAtMs(): Millis {
    const { state } = this
    switch (state.name) {
      case 'waiting':
        return state.dialAtMs
      case 'connecting':
      case 'greeting':
      case 'proving':
        return state.deadlineMs
      case 'live':
        return Math.min(this.#liveness.wakeAtMs(this.#ports.isOwed()), state.leaveAtMs)
      case 'idle':
      case 'closed':
        break
    }
    return Infinity
  }

  get publicUrl(): string {
    return this.#addresses.publicUrl
  }

  close(): void {
    this.#end(null)
  }

  /** Ends the connection permanently, for a reason on this peer's side. */
  fail(error: SealpostError): void {
    this.#end(error)
  }

  #dial(nowMs: Millis): void {
    this.dialNo += 1
    this.#hintMs = 0
    this.#certificate = this.#addresses.current.certificate
    const greetedWithinMs = this.#addresses.hasOther(nowMs) ? GREETED_WITHIN_MS : SESSION_WITHIN_MS
    this.state = { name: 'connecting', deadlineMs: nowMs + greetedWithinMs, sessionByMs: nowMs + SESSION_WITHIN_MS }
    this.#ports.effects.dial(this.dialNo, this.#addresses.current.url)
  }

  #receivedEarly(state: Extract<ConnectionState, { deadlineMs: Millis }>, frame: ServerFrame, nowMs: Millis): void {
    if (frame.type === 'refused') return this.#refused(frame, nowMs)
    if (frame.type === 'hello' && state.name !== 'proving') return this.#greeted(frame, state.sessionByMs, nowMs)
    if (frame.type === 'certificate' && state.name !== 'proving') {
      this.#certificate = frame.certificate
      return
    }
    if (frame.type === 'welcome' && state.name === 'proving') return this.#welcomed(frame, state, nowMs)
    if (frame.type === 'moved' && state.name === 'proving') return this.#moved(frame, state, nowMs)
    this.#drop('frame_unexpected', nowMs)
  }

  #greeted(hello: FrameOf<'hello'>, sessionByMs: Millis, nowMs: Millis): void {
    const { brokerKey: pinned, meshId, peerKey } = this.#place
    const { asksToStay, current } = this.#addresses
    const capabilities = asksToStay ? ['home_unreachable'] : []
    const { brokerKey } = hello
    const claim = { pinned, brokerKey, authority: current.authority, certificate: this.#certificate, nowMs }
    const verdict = judgeKey(claim, this.#ports.crypto.checkCertificate)
    if (verdict !== 'ok') return this.#mistrust(verdict, nowMs)
    const version = PROTOCOL_VERSIONS.find((own) => hello.versions.includes(own))
    if (version === undefined) return this.#end(refusedBy('version_unsupported'))
    const transcript: Transcript = {
      version,
      versionsOffered: hello.versions,
      authority: current.authority,
      brokerKey,
      meshId,
      peerKey,
      serverNonce: hello.nonce,
      clientNonce: this.#ports.crypto.newNonce(),
      connectionId: hello.connectionId,
      issuedAtMs: hello.issuedAtMs,
      capabilities,
    }
    const signature = this.#ports.crypto.signAuth(transcript)
    const deadlineMs = Math.min(sessionByMs, nowMs + hello.authWithinMs + REFUSED_WITHIN_MS)
    this.state = { name: 'proving', deadlineMs, transcript, signature }
    const { clientNonce } = transcript
    this.#ports.effects.transmit({
      type: 'auth',
      version,
      meshId,
      peerKey,
      clientNonce,
      capabilities,
      signature,
      credit: this.#credit,
    })
  }

  #welcomed(
    welcome: FrameOf<'welcome'>,
    { transcript, signature }: Extract<ConnectionState, { name: 'proving' }>,
    nowMs: Millis,
  ): void {
    if (!this.#ports.crypto.isBrokerProof(transcript, signature, welcome.proof))
      return this.#mistrust('proof_forged', nowMs)
    const hasLearned = this.#addresses.settle()
    this.#liveness.begin(welcome.heartbeatMs, nowMs)
    this.state = { name: 'live', welcome, sinceMs: nowMs, leaveAtMs: Infinity }
    this.#ports.live(welcome)
    if (hasLearned) this.#ports.learned(this.#addresses.known)
  }

  /** Follows a redirect to the home of our mesh. The home must authenticate itself too. */
  #moved(
    { url, certificate, proof }: FrameOf<'moved'>,
    { transcript, signature }: Extract<ConnectionState, { name: 'proving' }>,
    nowMs: Millis,
  ): void {
    if (!this.#ports.crypto.isBrokerProof(transcript, signature, proof)) return this.#mistrust('proof_forged', nowMs)
    if (this.#addresses.asksToStay) return this.#drop('moved', nowMs)
    const isFollowed = this.#addresses.follow({ url, certificate }, nowMs)
    this.#ports.effects.emit({ type: isFollowed ? 'moved' : 'home_unreachable', url })
    this.#ports.effects.closeSocket(this.dialNo)
    this.#dial(nowMs)
  }

  #receivedLive(
    state: Extract<ConnectionState, { name: 'live' }>,
    frame: ServerFrame,
    nowMs: Millis,
  ): ServerFrame | null {
    switch (frame.type) {
      case 'pong':
        if (frame.ref === this.#awaitedPong?.ref) this.#awaitedPong.ponged()
        return null
      case 'refused':
        this.#refused(frame, nowMs)
        return null
      case 'goaway':
        this.#hintMs = frame.retryAfterMs
        state.leaveAtMs = Math.min(state.leaveAtMs, nowMs + LEAVE_AFTER_MS)
        return frame
      case 'shards':
        if (this.#addresses.learn(frame)) this.#ports.learned(this.#addresses.known)
        return null
      case 'hello':
      case 'welcome':
      case 'certificate':
      case 'moved':
        this.#drop('frame_unexpected', nowMs)
        return null
      default:
        return frame
    }
  }

  #refused({ code, retryAfterMs }: FrameOf<'refused'>, nowMs: Millis): void {
    this.#hintMs = retryAfterMs
    if (this.#isFinal(code, nowMs)) return this.#end(refusedBy(code))
    this.#drop(code, nowMs)
  }

  /**
   * Returns whether a refusal ends this peer. An unauthenticated shard can't end it; the redirecting shard must confirm
   * the refusal.
   */
  #isFinal(code: RefusalCode, nowMs: Millis): boolean {
    if (code === 'superseded' && this.#mayBeOwnHandshake(nowMs)) return false
    const { from } = this.#addresses.current
    const isBelieved = this.state.name === 'live' || from === 'given' || from === 'cell'
    return isBelieved && !refusal(code).isRetryable
  }

  /**
   * Returns whether the newer session may be this peer's own: a slow shard may have opened it for a connection that no
   * longer exists. Each handshake excuses only one `superseded`, so that two devices with the same key don't keep
   * ending each other.
   */
  #mayBeOwnHandshake(nowMs: Millis): boolean {
    this.#lostHandshakes = this.#lostHandshakes.filter((atMs) => nowMs - atMs < STALE_HANDSHAKE_MS)
    return this.#lostHandshakes.shift() !== undefined
  }

  #watch(state: Extract<ConnectionState, { name: 'live' }>, nowMs: Millis): void {
    if (nowMs >= state.leaveAtMs) return this.#drop('restarting', nowMs)
    const verdict = this.#liveness.look(nowMs, this.#ports.isOwed())
    if (verdict === 'gone') return this.#drop('heartbeat_missed', nowMs)
    if (verdict === 'alive') return
    this.ping()
  }

  /** Sends a ping. The pong arrives once everything that this session settled before it is committed, or after 2 s. */
  ping(ponged?: () => void): void {
    this.#pingNo = (this.#pingNo + 1) >>> 0
    if (ponged) this.#awaitedPong = { ref: this.#pingNo, ponged }
    this.#ports.effects.transmit({ type: 'ping', ref: this.#pingNo })
  }

  /** Ends the peer if the application gave the address; otherwise dials another shard. */
  #mistrust(reason: ShardRefusal, nowMs: Millis): void {
    const { url, from } = this.#addresses.current
    if (from === 'given') return this.#end(wrongBroker())
    this.#ports.effects.emit({ type: 'shard_refused', url, reason })
    this.#drop('wrong_broker', nowMs)
  }

  #drop(code: SealpostCode | 'connection_lost', nowMs: Millis): void {
    this.#ports.effects.closeSocket(this.dialNo)
    this.#lose(code, nowMs)
  }

  #lose(code: SealpostCode | 'connection_lost', nowMs: Millis): void {
    const { state } = this
    if (state.name === 'proving' && !isRefusal(code)) this.#lostHandshakes.push(nowMs)
    const isSteady = state.name === 'live' && nowMs - state.sinceMs >= STEADY_AFTER_MS
    if (isSteady) {
      this.#failures = 0
      this.#putOffs = 0
    }
    const isSentOn = code === 'moved' && isSteady
    // A shard can't serve a mesh of another cell, so accept its redirects again.
    if (code === 'try_later') this.#addresses.asksToStay = false
    const isTurned = isAway(state, code) && this.#tryOther(code, nowMs)
    const retryInMs = isSentOn ? 0 : isTurned ? this.#drawTurn(code) : this.#drawRetry()
    this.state = { name: 'waiting', dialAtMs: nowMs + retryInMs }
    this.#ports.lost(code, retryInMs)
  }

  /** Dials another shard, if one is left. `code`: why the previous one was left. */
  #tryOther(code: SealpostCode | 'connection_lost', nowMs: Millis): boolean {
    const { url, from } = this.#addresses.current
    const isTurned = code === 'restarting' ? this.#addresses.leave(nowMs) : this.#addresses.next(nowMs)
    if (isTurned && from === 'home') this.#ports.effects.emit({ type: 'home_unreachable', url })
    return isTurned
  }

  /** Returns a random pause before another shard is dialled, so that peers of a lost shard do not arrive together. */
  #drawTurn(code: SealpostCode | 'connection_lost'): Millis {
    const hintMs = Math.min(this.#hintMs, HINT_MAX_MS)
    return code === 'restarting' && hintMs > 0 ? hintMs : hintMs + backoffMs(0, this.#ports.random)
  }

  /**
   * Returns the pause before a retry: the broker's retry-after plus a random time, so that peers do not return
   * together.
   */
  #drawRetry(): Millis {
    const { random } = this.#ports
    if (this.#hintMs === 0) return backoffMs(this.#failures++, random)
    return Math.min(this.#hintMs, HINT_MAX_MS) + putOffMs(this.#putOffs++, random)
  }

  #end(error: SealpostError | null): void {
    if (this.state.name === 'closed') return
    if (this.#isDialled()) this.#ports.effects.closeSocket(this.dialNo, 1000)
    this.state = { name: 'closed', error }
    this.#ports.ended(error)
  }

  #isDialled(): boolean {
    const { name } = this.state
    return name !== 'idle' && name !== 'waiting' && name !== 'closed'
  }
}

/**
 * Returns whether the shard seems unavailable, in which case redialling it immediately would not help. Losing a live
 * session does not imply that.
 */
const isAway = ({ name }: ConnectionState, code: SealpostCode | 'connection_lost'): boolean =>
  code === 'restarting' || code === 'heartbeat_missed' || (name !== 'live' && !isPutOff(code))

const isRefusal = (code: string): boolean => refusals.some((row) => row.code === code)
const isPutOff = (code: string): boolean => refusals.some((row) => row.code === code && row.isRetryable)

const byCloseNumber = new Map<number, RefusalCode>()
for (const row of refusals) if (row.close && !byCloseNumber.has(row.close)) byCloseNumber.set(row.close, row.code)

/** Returns the refusal that a close code stands for, for sessions that end without a `refused` frame. */
export function codeOfClose(closeNumber: number): RefusalCode | undefined {
  return byCloseNumber.get(closeNumber)
}

export function wrongBroker(): SealpostError {
  return new SealpostError('wrong_broker', 'The server did not prove the pinned key of this broker.')
}

/**
 * Returns whether the database was restored since the last session. Epochs increase with each session, so a repeated
 * one means that the database has lost the start of the last session and everything after it.
 */
export const isRestoredSince = (last: FrameOf<'welcome'>, now: FrameOf<'welcome'>): boolean =>
  last.incarnation !== now.incarnation || last.epoch >= now.epoch
