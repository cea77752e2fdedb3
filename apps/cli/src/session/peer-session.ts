/**
 * Opens the sessions of a profile, and makes the calls that need its own key. The profile stores messages, so that none
 * is lost or shown twice.
 */
import { watch } from 'node:fs'
import { basename } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import type { Identity } from '@sealpost/identity'
import { type Message, type Peer, SealpostError, type Status } from '@sealpost/sdk'
import { forwardSecrecy } from '@sealpost/sdk/forward'
import { applyRecoveries } from '@sealpost/sdk/recoveries'
import {
  forgetSession,
  type LocalSession,
  localSessions,
  type MemberSession,
  openSession as openSdkSession,
  type SessionOptions,
} from '@sealpost/sdk/sessions'
import { isChosenName, type Millis, OperatingError } from '@sealpost/std'
import { peerEventReporter } from '../messages/incoming-message.ts'
import { Contacts } from '../profile/contacts.ts'
import type { Membership } from '../profile/profile.ts'
import { readRecoveries } from '../profile/recoveries.ts'
import { abortable, type Shell } from '../shell.ts'
import {
  beginLogs,
  endLogs,
  failureOf,
  type JoinedProfile,
  type MemberPeerOptions,
  noteCell,
  openMemberConnection,
  SessionHost,
} from './member-connection.ts'
import type { PeerCalls } from './peer-calls.ts'
import { type SentCalls, sentCallsOf } from './sent-calls.ts'
import { callSessionDaemon, isDaemonGone, startSessionDaemon } from './session-daemon.ts'

/** The session of a command that keeps running: an instance of the profile's member with an address of its own. */
export interface PeerSession extends JoinedProfile, AsyncDisposable {
  /** Receives the messages to the session, and those of the member that it is given. */
  readonly session: MemberSession
  /** The session's own peer, which sends. */
  readonly peer: Peer
  /** The session's name, such as `alice/laptop-1`. */
  readonly name: string
  /** Rejects when the session ends for good. */
  readonly failed: Promise<never>
  /** The log of the messages that the session has sent. */
  readonly sent: SentCalls
  /** Returns the identity that fetches the message's file; null for the profile's own, which may have been rotated. */
  identityFor(message: Message): Promise<Identity | null>
}

/** The time limit of a single call. */
export const REACH_WITHIN_MS = 10_000
/** No time limit: the command has its own, or none. */
export const NO_LIMIT_MS = 2 ** 31 - 1
/** How much longer a command waits than a call that has its own limit, so that the call reports what it knows. */
export const SLACK_SECONDS = 5
/** The credit of a call that waits for mail. Large, because unsettled messages may precede it. */
export const WAITING_CREDIT = 512
const RETRY_EVERY_MS = 100
const ENROL_EVERY_MS = 1_000

export interface PeerSessionOptions
  extends MemberPeerOptions,
    Pick<SessionOptions, 'readWhen' | 'sharesUnread' | 'takes' | 'onWithdrawn' | 'wrapStore'> {
  /** The name that the session keeps across restarts. Default: `baseLabel` and a number. */
  readonly as?: string | undefined
  /** Default: the name of this host. */
  readonly baseLabel?: string | undefined
  /** How long to wait for the broker, which has to enrol a new session. Default: until the signal fires. */
  readonly enrolWithinMs?: Millis
}

/**
 * Opens a session of the profile for a command that keeps running. Waits until the broker has enrolled a new session;
 * later starts need no broker. One session of the profile is the host, which serves the calls of other commands.
 * @throws SealpostError `session_in_use`, and the errors of `readJoinedProfile` and the SDK's `openSession`
 */
export async function openSession(shell: Shell, options: PeerSessionOptions = {}): Promise<PeerSession> {
  const place = await readJoinedProfile(shell)
  const { identity, formerKeys, warning } = await shell.profile.readKeys()
  if (warning) shell.output.warn(warning.message)
  const news = peerEventReporter(shell.output, place.contacts)
  const opened = Promise.withResolvers<MemberSession>()
  const setStatus = (status: Status) => void opened.promise.then((session) => session.setStatus(status))
  const host = new SessionHost({ shell, news, setStatus })
  const recoveries = await readRecoveries(shell)
  const proofs = await host.openProofs()
  void proofs.log.refresh().catch(() => undefined) // each response with proofs is a further occasion
  const session = await openWhenEnrolled(shell, options, {
    ...(await sessionPlaceOf(shell)),
    member: { identity, ...(formerKeys && { formerKeys }) },
    readMember: () => host.readMember(),
    wrapMemberStore: (store) => host.wrapStore(store),
    onMemberEvent: (event) => host.heard(event),
    onHost: (memberPeer) => host.begin(memberPeer),
    onHostFailed: (error) => host.failed(error),
    onMemberRead: (message) => host.read(message),
    onEvent: (event) => {
      if (event.type === 'addresses') void noteCell(shell, event.cell)
      news(event)
    },
  })
  const confirmations = beginLogs(session.peer, host.log)
  applyRecoveries(session.peer, recoveries)
  opened.resolve(session)
  const watcher = await followStatus(shell, session)
  return {
    ...place,
    session,
    peer: session.peer,
    name: nameOf(place.membership, session.label),
    failed: failureOf(session),
    sent: sentCallsOf(session.peer),
    identityFor: (message) => recipientIdentity(session, message),
    [Symbol.asyncDispose]: async () => {
      watcher.close()
      await endLogs(session.peer, confirmations)
      await session.close()
      await host.close()
    },
  }
}

async function recipientIdentity(session: MemberSession, message: Message): Promise<Identity | null> {
  const identity = await session.identityFor(message)
  return identity.signing.publicKey === session.member ? null : identity
}

/** Returns where the sessions of the profile are, and the mesh that they belong to. */
export async function sessionPlaceOf({ profile, settings }: Shell) {
  const { url, brokerKey, meshId } = await profile.readMembership()
  const passphrase = await profile.findPassphrase()
  const sealing = { padding: settings.padding(), secrecy: forwardSecrecy() }
  const connection = { url: (await profile.readFirstUrl()) ?? url, brokerKey, meshId, ...sealing }
  const base = { ...connection, folder: profile.folder }
  return passphrase === null ? base : { ...base, passphrase }
}

/** Tries again while the broker is away. */
async function openWhenEnrolled(
  shell: Shell,
  { as, baseLabel, credit, maxAgeSeconds, enrolWithinMs = Infinity, ...reading }: PeerSessionOptions,
  parts: SessionOptions,
): Promise<MemberSession> {
  const options = {
    ...{ ...parts, ...reading },
    ...(as !== undefined && { as }),
    ...(baseLabel !== undefined && { baseLabel }),
    ...(credit !== undefined && { credit }),
    ...(maxAgeSeconds !== undefined && { maxAgeSeconds }),
  }
  const lateMs = performance.now() + enrolWithinMs
  for (let turn = 1; ; turn++) {
    try {
      return await abortable(openSdkSession(options), shell.signal)
    } catch (error) {
      await prepareRetry(shell, error, { isFirst: turn === 1, lateMs })
    }
  }
}

/** Makes room for the session, or waits for a while. @throws the error, unless another attempt may succeed */
async function prepareRetry(
  shell: Shell,
  error: unknown,
  { isFirst, lateMs }: { readonly isFirst: boolean; readonly lateMs: Millis },
): Promise<void> {
  if (isOverLimit(error)) {
    if (await endUnusedSession(shell)) return
    throw tooMany(error)
  }
  if (!(error instanceof SealpostError && error.isRetryable)) throw error
  if (performance.now() > lateMs) throw unreachable()
  if (isFirst) shell.output.info(`waiting for the broker, which has to enrol this session (${error.code})`)
  await abortable(delay(ENROL_EVERY_MS), shell.signal)
}

const isOverLimit = (error: unknown): error is SealpostError =>
  error instanceof SealpostError && error.code === 'too_many_devices'

function tooMany(cause: SealpostError): OperatingError {
  return new OperatingError(
    cause.code,
    'This member has reached the limit of 64 devices and sessions. List them with `sealpost sessions`, and end one with `sealpost sessions end LABEL`.',
    { cause },
  )
}

/** Agents in many folders leave many sessions behind. Nobody waits for one that no process has used for so long. */
const UNUSED_MS: Millis = 7 * 24 * 3600_000

/** Ends the unnamed session that no process has used for the longest time. Returns whether there was one. */
async function endUnusedSession(shell: Shell): Promise<boolean> {
  const { profile, output } = shell
  const unused = longestUnused(await localSessions(profile.folder), Date.now())
  const devices = unused ? await callPeer(shell, { method: 'devices', params: null }) : []
  const device = devices.find(({ label }) => label === unused?.label)
  if (!unused || !device) return false
  await callPeer(shell, { method: 'removeDevice', params: device.key })
  await forgetSession(profile.folder, unused.label)
  output.info(`ended the session ${unused.label}, which was unused for the longest time, to make room`)
  return true
}

/** Returns the unnamed session that was unused for the longest time, at least 7 days; undefined if there is none. */
export function longestUnused(sessions: readonly LocalSession[], nowMs: Millis): LocalSession | undefined {
  return sessions
    .filter(({ isNamed, isRunning, lastUsedMs }) => !isNamed && !isRunning && nowMs - lastUsedMs >= UNUSED_MS)
    .toSorted((a, b) => a.lastUsedMs - b.lastUsedMs)[0]
}

/** The name of a session is the name of the user, who may have other devices, and the label. */
const nameOf = ({ name }: Membership, label: string): string =>
  name === '' ? label : `${name.split('/', 1)[0]}/${label}`

/** The number that follows in a label has at most three digits. */
const BASE_CHARS_MAX = 28

/** Returns the first part of a session's label for a name of another kind; undefined if it has no valid part. */
export function sessionLabelOf(name: string): string | undefined {
  const base = name.replace(/[^a-z0-9._-]+/gi, '-').replace(/^[-._]+/, '').slice(0, BASE_CHARS_MAX) // biome-ignore format: one thing
  return isChosenName(base) ? base : undefined
}

/** Gives the session the profile's status, now and whenever a command sets it. */
async function followStatus({ profile, output }: Shell, session: MemberSession): Promise<{ close(): void }> {
  const apply = async () => {
    const status = await profile.readStatus()
    if (status) session.setStatus(status)
  }
  await apply()
  const changed = () => apply().catch((error: Error) => output.warn(error.message))
  return watch(profile.folder, { persistent: false }, (_, name) => name === basename(profile.statusFile) && changed())
}

type CallResult<M extends keyof PeerCalls> = Promise<Awaited<ReturnType<PeerCalls[M]>>>

/**
 * Makes a call with the profile's own key, through another command's connection or a new one.
 * @throws OperatingError `unreachable` after `withinMs`, and the errors of `openSession` and the call
 */
export async function callPeer<M extends keyof PeerCalls>(
  shell: Shell,
  call: { method: M; params: Parameters<PeerCalls[M]>[0]; withinMs?: Millis; credit?: number },
): CallResult<M> {
  const { method, params, withinMs = REACH_WITHIN_MS, credit = 0 } = call
  const place = await readJoinedProfile(shell)
  using patience = new Patience(withinMs)
  const signal = AbortSignal.any([shell.signal, patience.signal])
  for (;;) {
    const daemon = await startSessionDaemon(shell.profile)
    if (daemon) {
      await using connection = await openMemberConnection(daemon, { shell, place, credit })
      patience.begin()
      const answer = connection.calls[method](params as never) as CallResult<M>
      // A connection that ends with this reply has not failed.
      const ended = method === 'rotateIdentity' ? [] : [connection.failed]
      return await abortable(Promise.race([answer, connection.distrusted, ...ended]), signal)
    }
    patience.begin()
    try {
      return await abortable(callSessionDaemon(shell.profile, method, params), signal)
    } catch (error) {
      if (!isDaemonGone(error)) throw error
    }
    await abortable(delay(RETRY_EVERY_MS), signal)
  }
}

/** Limits how long a command waits, without the time to open locked keys. */
class Patience implements Disposable {
  readonly #controller = new AbortController()
  readonly #withinMs: Millis
  #timer: ReturnType<typeof setTimeout> | undefined

  constructor(withinMs: Millis) {
    this.#withinMs = withinMs
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  begin(): void {
    this.#timer ??= setTimeout(() => this.#controller.abort(unreachable()), this.#withinMs)
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer)
  }
}

export function unreachable(): OperatingError {
  return new OperatingError('unreachable', 'The broker does not respond. Run `sealpost doctor` to find out why.')
}

/**
 * Reads the profile's keys and membership. @throws OperatingError `profile_missing`, `not_joined`, and the errors of
 * reading the profile's files
 */
export async function readJoinedProfile({ profile }: Shell): Promise<JoinedProfile> {
  const membership = await profile.readMembership()
  return { membership, contacts: await Contacts.read(profile.contactsFile) }
}
