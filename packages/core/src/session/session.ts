/** Implements a connection: its handshake, its state and its end. */
import type { FrameOf, Member } from '@sealpost/protocol'
import type { Millis, ShardId } from '@sealpost/std'
import type { NewDevice } from '../directory/users.ts'
import type { EngineLimits } from '../limits.ts'
import type { LiveSession, SocketId } from '../model.ts'
import type { RedirectTarget } from '../shards/homes.ts'

export type SessionState =
  | { readonly name: 'greeted'; readonly hello: FrameOf<'hello'> }
  | { readonly name: 'enrolling' }
  | { readonly name: 'proving'; readonly credit: number }
  | { readonly name: 'opening'; readonly member: Member; readonly credit: number; readonly proof: Uint8Array }
  | { readonly name: 'live'; readonly live: LiveSession }
  | { readonly name: 'over' }

/**
 * Whether the session may be redirected. An HTTP request can't be, and a client is not redirected again to a shard that
 * it could not reach.
 */
export type Mobility =
  | { readonly name: 'fixed' }
  | { readonly name: 'mobile' }
  | { readonly name: 'stranded'; readonly from: ShardId | null }

export const mobilityOf = ({ capabilities }: FrameOf<'auth'>): Mobility =>
  capabilities.includes('home_unreachable') ? { name: 'stranded', from: null } : { name: 'mobile' }

export class Session {
  readonly socket: SocketId
  readonly connectedAtMs: Millis
  state: SessionState
  mobility: Mobility = { name: 'fixed' }
  heardAtMs: Millis
  pingedAtMs: Millis
  /** The peer has received all frames sent before this time, because it answered a later ping. */
  arrivedUntilMs: Millis
  /** When the first unanswered ping was sent. */
  private unansweredAtMs: Millis | null = null

  constructor(socket: SocketId, state: SessionState, nowMs: Millis) {
    this.socket = socket
    this.connectedAtMs = nowMs
    this.heardAtMs = nowMs
    this.pingedAtMs = nowMs
    this.arrivedUntilMs = nowMs
    this.state = state
  }

  /**
   * Returns when the peer fell silent. Any frame proves that the peer is alive; only a pong proves that our data
   * arrived.
   */
  quietSince({ credit }: LiveSession): Millis {
    return credit.unsettled.size > 0 ? this.pingedAtMs : Math.max(this.pingedAtMs, this.heardAtMs)
  }

  pinged(nowMs: Millis): void {
    this.pingedAtMs = nowMs
    this.unansweredAtMs ??= nowMs
  }

  ponged(nowMs: Millis): void {
    this.heardAtMs = nowMs
    this.arrivedUntilMs = this.unansweredAtMs ?? this.arrivedUntilMs
    this.unansweredAtMs = null
  }
}

/** The driver's reply to an `auth`. */
export interface Authentication {
  readonly member: Member | null
  readonly isSignatureGood: boolean
  /** The broker's signature over this handshake. */
  readonly proof: Uint8Array
  /** The redirect target if the mesh is in another cell, in which case `member` is unknown. */
  readonly cell?: RedirectTarget | null
}

/** The outcome of an enrolment. `moved`: the mesh is in another cell. */
export type Enrolment =
  | { readonly status: 'enrolled'; readonly name: string; readonly proof: Uint8Array; readonly device?: NewDevice }
  | { readonly status: 'moved'; readonly cell: RedirectTarget; readonly proof: Uint8Array }
  | { readonly status: EnrolRefusal }

export type EnrolRefusal =
  | 'invite_refused'
  | 'already_member'
  | 'name_taken'
  | 'name_malformed'
  | 'revoked'
  | 'too_many_devices'
  | 'too_many_members'

/** The broker's properties in a `welcome`. */
export interface Welcome {
  readonly limits: EngineLimits
  readonly incarnation: string
  readonly durability: 'fsync' | 'degraded'
}

export function welcomeOf(
  { limits, incarnation, durability }: Welcome,
  { lineage }: Member,
  { epoch, proof }: Pick<FrameOf<'welcome'>, 'epoch' | 'proof'>,
): FrameOf<'welcome'> {
  return {
    type: 'welcome',
    proof,
    epoch,
    incarnation: lineage?.cameIn === incarnation ? lineage.incarnation : incarnation,
    durability,
    heartbeatMs: limits.heartbeatMs,
    leaseMs: limits.leaseMs,
    dedupeSeconds: Math.floor(limits.dedupeMs / 1000),
    creditMax: limits.creditMax,
    envelopeBytesMax: limits.envelopeBytesMax,
    ttlSecondsMax: limits.ttlSecondsMax,
    inFlightMax: limits.inFlightMax,
  }
}
