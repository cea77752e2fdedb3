/** The checks of `doctor`, in the order in which one needs the other. */
import { stat } from 'node:fs/promises'
import { certificateUntrusted, connect, type Peer, SealpostError } from '@sealpost/sdk'
import { type BrokerHealth, checkBroker, dialWarning, UNENCRYPTED } from '../broker/broker-supervisor.ts'
import type { Shell } from '../completion.ts'
import { abortable } from '../deadline.ts'
import type { Membership } from '../profile/profile.ts'
import { REACH_WITHIN_MS } from '../session/peer-session.ts'
import { startSessionDaemon } from '../session/session-daemon.ts'

export interface DoctorCheck {
  readonly name: string
  readonly outcome: 'ok' | 'warning' | 'failed' | 'skipped'
  readonly detail: string
  /** Of a warning that scripts look for. */
  readonly code?: string
}

const CLOCK_OFF_MAX_MS = 5_000
const ROUND_TRIP_WITHIN_MS = 10_000
const ROUND_TRIP_TTL_SECONDS = 60

/** Ends early where nothing further can be checked. */
export async function* checkAll(shell: Shell): AsyncGenerator<DoctorCheck> {
  const keys = await attempt('keys', () => checkKeys(shell))
  yield keys
  const found = await shell.profile.findMembership().catch((error: Error) => error)
  yield membershipCheck(found, shell)
  if (keys.outcome === 'failed' || !found || found instanceof Error) return
  yield transportCheck(found)
  const health = await checkBroker(found.url, shell.signal)
  yield* brokerChecks(health, found)
  if (health.live) yield* sessionChecks(shell, found)
}

async function attempt(name: string, check: () => Promise<DoctorCheck>): Promise<DoctorCheck> {
  try {
    return await check()
  } catch (error) {
    return { name, outcome: 'failed', detail: (error as Error).message }
  }
}

async function checkKeys({ profile }: Shell): Promise<DoctorCheck> {
  const { warning } = await profile.readKeys()
  if (warning) return { name: 'keys', outcome: 'warning', detail: warning.message }
  const { mode } = await stat(profile.folder)
  if (process.platform !== 'win32' && (mode & 0o077) !== 0)
    return { name: 'keys', outcome: 'warning', detail: `The folder ${profile.folder} is open to others: chmod 700 it.` }
  return { name: 'keys', outcome: 'ok', detail: `${profile.keyFile}, readable by its owner only` }
}

function membershipCheck(found: Membership | undefined | Error, { profile }: Shell): DoctorCheck {
  const name = 'membership'
  if (found instanceof Error) return { name, outcome: 'failed', detail: found.message }
  if (!found)
    return { name, outcome: 'failed', detail: `The profile ${profile.name} belongs to no mesh: sealpost join INVITE` }
  return { name, outcome: 'ok', detail: `${found.name || 'a member'} in the mesh ${found.meshId}` }
}

function transportCheck({ url }: Membership): DoctorCheck {
  const warning = dialWarning(url)
  if (warning !== null) return { name: 'transport', outcome: 'warning', detail: warning, code: UNENCRYPTED }
  const isEncrypted = /^(wss|https):/i.test(url)
  const detail = isEncrypted ? 'encrypted by TLS on the way' : 'not encrypted, and on this machine only'
  return { name: 'transport', outcome: 'ok', detail }
}

function* brokerChecks(
  { live, ready, version, clockAheadMs, certificateErrorCode }: BrokerHealth,
  { url, brokerKey }: Membership,
): Generator<DoctorCheck> {
  if (certificateErrorCode !== null) {
    const { message, code } = certificateUntrusted(certificateErrorCode)
    return yield { name: 'broker', outcome: 'failed', detail: message, code }
  }
  if (!live) return yield { name: 'broker', outcome: 'failed', detail: `Nobody answers at ${url}.` }
  if (!ready)
    yield { name: 'broker', outcome: 'failed', detail: 'It runs, but its database does not answer, or it is stopping.' }
  else yield { name: 'broker', outcome: 'ok', detail: `${url}, version ${version?.version ?? 'unknown'}` }
  if (version && version.brokerKey !== brokerKey)
    yield { name: 'broker key', outcome: 'failed', detail: 'Another broker than the one of your invite answers there.' }
  if (version)
    yield version.durability === 'fsync'
      ? { name: 'durability', outcome: 'ok', detail: 'fsync: what is acknowledged is on disk' }
      : { name: 'durability', outcome: 'warning', detail: `${version.durability}: acknowledged messages may be lost` }
  if (clockAheadMs === null) return
  const seconds = Math.round(Math.abs(clockAheadMs) / 1000)
  yield Math.abs(clockAheadMs) <= CLOCK_OFF_MAX_MS
    ? { name: 'clock', outcome: 'ok', detail: 'within a few seconds of the broker' }
    : {
        name: 'clock',
        outcome: 'warning',
        detail: `${seconds} s ${clockAheadMs > 0 ? 'behind' : 'ahead of'} the broker: expiry of invites and key bindings goes by it`,
      }
}

/** In a session of its own: another command's would be ended by it, so then there is none. */
async function* sessionChecks(shell: Shell, { url, brokerKey, meshId }: Membership): AsyncGenerator<DoctorCheck> {
  const daemon = await startSessionDaemon(shell.profile)
  if (!daemon)
    return yield { name: 'handshake', outcome: 'skipped', detail: 'Another command of this profile holds its session.' }
  try {
    const { identity, formerBoxKeys } = await shell.profile.readKeys()
    const signal = AbortSignal.any([shell.signal, AbortSignal.timeout(REACH_WITHIN_MS)])
    await using peer = await connect({ url, brokerKey, meshId, identity, formerBoxKeys, signal })
    yield { name: 'handshake', outcome: 'ok', detail: 'the broker proved its key, and knows yours' }
    yield await attempt('round trip', () => checkRoundTrip(peer, shell.signal))
  } catch (error) {
    if (!(error instanceof SealpostError)) throw error
    yield { name: 'handshake', outcome: 'failed', detail: `${error.message} (${error.code})` }
  } finally {
    await daemon.release()
  }
}

/** Other mail that comes meanwhile stays unsettled, and comes again. */
async function checkRoundTrip(peer: Peer, signal: AbortSignal): Promise<DoctorCheck> {
  const startedAtMs = performance.now()
  const mark = crypto.randomUUID()
  const arrived = Promise.withResolvers<void>()
  peer.onMessage((message) => {
    const isOurs = message.sender === peer.key && message.text() === mark
    if (isOurs) arrived.resolve()
    return isOurs ? undefined : new Promise(() => undefined)
  })
  const within = AbortSignal.any([signal, AbortSignal.timeout(ROUND_TRIP_WITHIN_MS)])
  await abortable(peer.send(peer.key, mark, { priority: 'now', ttlSeconds: ROUND_TRIP_TTL_SECONDS }), within)
  await abortable(arrived.promise, within)
  const tookMs = Math.round(performance.now() - startedAtMs)
  return { name: 'round trip', outcome: 'ok', detail: `a message to yourself was stored and delivered in ${tookMs} ms` }
}
