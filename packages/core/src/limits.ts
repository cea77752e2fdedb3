/** What the engine bounds. The broker's configuration sets them; `docs/reference` lists defaults and units. */
import type { Millis } from '@sealpost/std'
import type { MailboxLimits } from './send/quotas.ts'
import type { Rate } from './send/rate.ts'

export interface EngineLimits {
  /** From connection to `auth`. */
  readonly authWithinMs: Millis
  /** A ping after so long without a word; no complete message and no pong for three times as long ends the session. */
  readonly heartbeatMs: Millis
  /** Each session claims at least this often, hint or no hint. */
  readonly pollMs: Millis
  /** And asks the database whether it may go on. */
  readonly checkMs: Millis
  readonly leaseMs: Millis
  /** A resend is known this long after its envelope was accepted. */
  readonly dedupeMs: Millis
  /** Unsettled deliveries a session may have, whatever credit it names. */
  readonly creditMax: number
  /** Bytes of unsettled deliveries a session may have: the bound of a socket that is never read. */
  readonly creditBytes: number
  readonly envelopeBytesMax: number
  readonly ttlSecondsDefault: number
  readonly ttlSecondsMax: number
  /** Envelopes of one session that wait to be stored; past it the socket is not read. */
  readonly inFlightMax: number
  /** Their bytes. A commit takes longer with them, and everybody's mail waits for it. */
  readonly inFlightBytesMax: number
  /** The same of all sessions of one user, on all its devices; past it envelopes are refused as `busy`. A request by HTTP can't be left unread. */
  readonly inFlightBytesPerUserMax: number
  /** Envelopes of all sessions that wait to be stored; past it they are refused as `busy`. */
  readonly waitingMax: number
  readonly waitingBytesMax: number
  /** Envelopes a peer may send in a second and in a burst; `null` switches the limit off. */
  readonly rate: Rate | null
  /** And their bytes. */
  readonly byteRate: Rate | null
  /** Envelopes of one thread in a second and in a burst, of all its peers together; `null` switches the limit off. */
  readonly threadRate: { readonly perSecond: number; readonly burst: number } | null
  /** What may wait for one recipient; `null` switches the limit off. */
  readonly mailbox: MailboxLimits | null
  /** What may wait in one mesh, its dead letters included; `null` switches the limit off. */
  readonly mesh: MailboxLimits | null
  /** How often a thread may pass from peer to peer. */
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
