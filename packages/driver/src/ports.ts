/**
 * Defines the ports of the driver. The broker passes the real clock and Postgres; the simulator passes virtual time and
 * the memory queue.
 */
import type { Bus } from '@sealpost/bus'
import type {
  Authentication,
  Enrolment,
  FoundGroups,
  Lookup,
  RequestTable,
  SendOutcome,
  SocketId,
  SpaceFacts,
} from '@sealpost/core'
import type { Append, Claimed, CloseCode, FrameOf, Member, PoolEntry, ServerFrame } from '@sealpost/protocol'
import type { Batch, Queue, Swept } from '@sealpost/queue'
import type { MeshId, Millis, OperatingError, PeerKey } from '@sealpost/std'

export interface DriverPorts {
  readonly clock: Clock
  /** Returns a number in [0, 1). */
  readonly random: () => number
  readonly queue: Queue
  readonly bus: HintBus
  readonly requests: RequestServices
  readonly report: DriverReport
}

export type Cancel = () => void

export interface Clock {
  /** Returns monotonic milliseconds, so that setting the system clock moves no deadline. */
  nowMs(): Millis
  wallMs(): Millis
  after(delayMs: Millis, run: () => void): Cancel
  /** Runs at the end of this turn of the event loop. */
  soon(run: () => void): void
}

export interface Connection {
  readonly authority: string
  send(frames: readonly ServerFrame[]): SendOutcome
  close(code: CloseCode, retryAfterMs: Millis): void
  hangUp(): void
  ping(): void
  pause(): void
  resume(): void
}

export type HintBus = Pick<Bus, 'replyMs' | 'publish' | 'follow' | 'unfollow' | 'subscribe'>

/** A client that authenticates itself in a handshake. */
export interface Prover {
  readonly authority: string
  /** Whether the connection still waits for the outcome. */
  readonly isThere: () => boolean
}

export interface Resolution {
  readonly members: readonly Member[]
  /** The current keys by former ones. */
  readonly successors: ReadonlyMap<PeerKey, PeerKey>
  readonly groups: FoundGroups
  readonly pools: readonly PoolEntry[]
  readonly spaces: readonly SpaceFacts[]
}

/** Checks and looks up members. Each method rejects with an `OperatingError` while the database is unavailable. */
export interface RequestServices {
  /** Resolves with null if too many handshakes are waiting. */
  authenticate(prover: Prover, hello: FrameOf<'hello'>, auth: FrameOf<'auth'>): Promise<Authentication | null>
  /** Resolves with null if too many enrolments are waiting. */
  enrol(authority: string, hello: FrameOf<'hello'>, enrol: FrameOf<'enrol' | 'enrolDevice'>): Promise<Enrolment | null>
  resolve(meshId: MeshId, lookup: Lookup): Promise<Resolution>
  readonly table: RequestTable
}

export interface DriverReport {
  /** Called after failed statements, at most once a second per event. */
  failed(event: string, error: OperatingError): void
  /** Called with an unexpected error, which must end the process. */
  fault(error: unknown): void
  committed(batch: Batch, tookMs: Millis): void
  commitFailed(batch: Batch, tookMs: Millis): void
  /** Called after some of these appends have been recorded in the history of their spaces. */
  recorded(appends: readonly Append[]): void
  claimed(claimed: readonly Claimed[], tookMs: Millis): void
  swept(swept: Swept): void
  closed(socket: SocketId, code: CloseCode): void
}
