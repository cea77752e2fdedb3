/**
 * Defines the engine's limits. They come from the broker's configuration; `docs/reference` lists defaults and units.
 */
import type { Millis } from '@sealpost/std'
import type { MailboxLimits } from './send/quotas.ts'
import type { Rate } from './send/rate.ts'

export interface EngineLimits {
  /** The time limit from the connection to `auth`. */
  readonly authWithinMs: Millis
  /**
   * The silence after which a session is sent a ping. After three times as long without a frame or pong, it is ended.
   */
  readonly heartbeatMs: Millis
  /** The maximum time between two claims of a session. */
  readonly pollMs: Millis
  /** The maximum time between two checks of a session in the database. */
  readonly checkMs: Millis
  readonly leaseMs: Millis
  /** How long resends are detected. */
  readonly dedupeMs: Millis
  /** The maximum number of unsettled deliveries of a session, even if it requests more credit. */
  readonly creditMax: number
  /**
   * The maximum size of a session's unsettled deliveries in bytes, which limits the memory for a socket that is never
   * read.
   */
  readonly creditBytes: number
  readonly envelopeBytesMax: number
  readonly ttlSecondsDefault: number
  readonly ttlSecondsMax: number
  /** The maximum number of uncommitted envelopes of a session, beyond which the broker stops reading the socket. */
  readonly inFlightMax: number
  /** The maximum size of these envelopes in bytes. Larger commits delay everybody's mail. */
  readonly inFlightBytesMax: number
  /**
   * The maximum size of a user's uncommitted envelopes in bytes. Beyond it, envelopes are refused as `busy`, because
   * reading an HTTP request can't be stopped.
   */
  readonly inFlightBytesPerUserMax: number
  /** The maximum number of uncommitted envelopes of all sessions, beyond which envelopes are refused as `busy`. */
  readonly waitingMax: number
  readonly waitingBytesMax: number
  /** Maximum rate of envelopes from a peer: per second, and in one burst. `null` switches the limit off. */
  readonly rate: Rate | null
  /** Maximum rate of bytes from a peer; `null` switches the limit off. */
  readonly byteRate: Rate | null
  /** Maximum rate of envelopes in one thread, from all its peers together; `null` switches the limit off. */
  readonly threadRate: { readonly perSecond: number; readonly burst: number } | null
  /** Limits the backlog of one recipient; `null` switches the limit off. */
  readonly mailbox: MailboxLimits | null
  /** Limits the backlog of one mesh, including its dead letters; `null` switches the limit off. */
  readonly mesh: MailboxLimits | null
  /** The maximum number of times that a thread may pass from peer to peer. */
  readonly hopsMax: number
  readonly isInsertLeaseOn: boolean
}

const DAY_SECONDS = 86_400
const MIB = 1024 * 1024

export const defaultLimits: EngineLimits = {
  authWithinMs: 10_000,
  heartbeatMs: 15_000,
  pollMs: 15_000,
  checkMs: 10_000,
  leaseMs: 30_000,
  dedupeMs: 24 * 3600_000,
  creditMax: 1024,
  creditBytes: 1024 * 1024,
  envelopeBytesMax: 72 * 1024,
  ttlSecondsDefault: 14 * DAY_SECONDS,
  ttlSecondsMax: 30 * DAY_SECONDS,
  inFlightMax: 1024,
  inFlightBytesMax: 256 * 1024,
  inFlightBytesPerUserMax: MIB,
  waitingMax: 50_000,
  waitingBytesMax: 64 * 1024 * 1024,
  rate: { perSecond: 200, burst: 400 },
  byteRate: { perSecond: MIB, burst: 4 * MIB },
  threadRate: { perSecond: 0.1, burst: 200 },
  mailbox: { countMax: 10_000, bytesMax: 64 * MIB, perSenderMax: 1000, bytesPerSenderMax: 8 * MIB },
  mesh: { countMax: 1_000_000, bytesMax: 8192 * MIB, perSenderMax: 250_000, bytesPerSenderMax: 2048 * MIB },
  hopsMax: 64,
  isInsertLeaseOn: true,
}
