/**
 * Opens the session of the profile's peer for every command that talks to the broker. The profile stores messages, so
 * that none is lost or shown twice.
 */
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { beginBoxKeyRotation, beginIdentityRotation, completeBoxKeyRotation } from '@sealpost/identity/key-file'
import { certificateUntrusted, openPeer, type Peer, type PeerEvent, type PeerKey, type PeerStore } from '@sealpost/sdk'
import { type Confirmations, confirmationsOf } from '@sealpost/sdk/confirmations'
import { openFileStore } from '@sealpost/sdk/file-store'
import type { StoredKeyEpochs } from '@sealpost/sdk/key-epochs'
import { sentLogOf } from '@sealpost/sdk/sent'
import { type Millis, OperatingError } from '@sealpost/std'
import { receiveFile } from '../messages/files.ts'
import { peerEventReporter } from '../messages/incoming-message.ts'
import { Contacts, openProfileKeyEpochs } from '../profile/contacts.ts'
import type { Membership, Profile } from '../profile/profile.ts'
import { TickStore } from '../schedule/tick-store.ts'
import { abortable, type Shell } from '../shell.ts'
import { meshPlaceOf, withStateAt } from '../state/open-state.ts'
import { callsOf, type Durability, type PeerCalls } from './peer-calls.ts'
import { callSessionDaemon, isDaemonGone, type SessionDaemon, startSessionDaemon } from './session-daemon.ts'

export interface PeerSession extends JoinedProfile, AsyncDisposable {
  readonly peer: Peer
  /** Rejects when the peer ends for good. */
  readonly failed: Promise<never>
}

/** The time limit of a single call. */
export const REACH_WITHIN_MS = 10_000
/** How long an ending command waits for others' calls. */
const GRACE_MS = 2_000
/** How long a long-running command waits for a short one of the profile. */
const PASSING_MS = 5_000
const RETRY_EVERY_MS = 100

/**
 * Opens the profile's session for a command, even without a broker. Other commands use it through the daemon. Waits for
 * another holder until `patience` ends, by default 5 s.
 * @throws OperatingError `profile_in_use`, and the errors of `readJoinedProfile` and the store
 */
export async function openSession(shell: Shell, options: SessionOptions = {}): Promise<PeerSession> {
  const { patience = AbortSignal.timeout(PASSING_MS), ...terms } = options
  const place = await readJoinedProfile(shell)
  const daemon = await startDaemonWhenFree(shell, patience)
  return openAt(daemon, { shell, place, ...terms })
}

async function startDaemonWhenFree(shell: Shell, patience: AbortSignal): Promise<SessionDaemon> {
  for (let turn = 1; ; turn++) {
    const daemon = await startSessionDaemon(shell.profile)
    if (daemon) return daemon
    if (patience.aborted) throw inUse(shell.profile)
    if (turn === 1) shell.output.info('waiting for another command of this profile to end')
    await abortable(delay(RETRY_EVERY_MS), shell.signal)
  }
}

function inUse({ name }: Profile): OperatingError {
  return new OperatingError(
    'profile_in_use',
    `Another command is using the session of the profile ${name}. End that command, or use another profile.`,
  )
}

type CallResult<M extends keyof PeerCalls> = Promise<Awaited<ReturnType<PeerCalls[M]>>>

/**
 * Makes a call, through another command's session or a new one.
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
      await using session = await openAt(daemon, { shell, place, credit })
      patience.begin()
      const answer = session.calls[method](params as never) as CallResult<M>
      // A session that ends with this reply has not failed.
      const ended = method === 'rotateIdentity' ? [] : [session.failed]
      return await abortable(Promise.race([answer, session.distrusted, ...ended]), signal)
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

function unreachable(): OperatingError {
  return new OperatingError('unreachable', 'The broker does not respond. Run `sealpost doctor` to find out why.')
}

interface OpenedSession extends PeerSession {
  readonly calls: PeerCalls
  /** Rejects on an untrusted certificate, with which the peer would retry forever. */
  readonly distrusted: Promise<never>
}

interface Terms {
  readonly credit?: number
  /** The maximum age of messages; older ones are rejected. */
  readonly maxAgeSeconds?: number | undefined
  /** Replaces the store of the session by one that uses it. */
  readonly wrapStore?: (store: PeerStore) => PeerStore
}

interface SessionOptions extends Terms {
  readonly patience?: AbortSignal
}

interface Opening extends Terms {
  readonly shell: Shell
  readonly place: JoinedProfile
}

async function openAt(daemon: SessionDaemon, opening: Opening): Promise<OpenedSession> {
  const { shell, place, credit, maxAgeSeconds, wrapStore = (store) => store } = opening
  try {
    const keys = await shell.profile.readKeys()
    const { identity, formerBoxKeys, formerKeys = [], warning } = keys
    if (warning) shell.output.warn(warning.message)
    const { url, brokerKey, meshId } = place.membership
    const keyEpochs = await openProfileKeyEpochs(shell.profile, keys, meshId)
    const store = new TickStore(wrapStore(await openFileStore(join(shell.profile.folder, 'messages'))))
    const online = Promise.withResolvers<Durability>()
    const distrusted = Promise.withResolvers<never>()
    distrusted.promise.catch(() => undefined) // single calls await it
    const news = peerEventReporter(shell.output, place.contacts)
    const onEvent = (event: PeerEvent) => {
      if (event.type === 'connected') online.resolve(event.durability)
      if (event.type === 'disconnected' && event.code === 'certificate_untrusted')
        distrusted.reject(certificateUntrusted(event.reason ?? 'unknown'))
      if (event.type === 'addresses') void noteCell(shell, event.cell)
      news(event)
    }
    const peer = await openPeer({
      ...{
        url: (await shell.profile.readFirstUrl()) ?? url,
        brokerKey,
        meshId,
        identity,
        formerBoxKeys,
        formerKeys,
        store,
        keyEpochs,
        onEvent,
      },
      ...(credit === undefined ? {} : { credit }),
      ...(maxAgeSeconds === undefined ? {} : { maxAgeSeconds }),
    })
    const confirmations = confirmationsOf(peer)
    sentLogOf(peer) // before the first report arrives
    const status = await shell.profile.readStatus()
    if (status) peer.setStatus(status)
    const calls = callsOf(peer, {
      ticks: store,
      online: online.promise,
      rotate: {
        boxKey: () => rotateBoxKey(shell.profile, peer),
        identity: () => rotateIdentity(shell.profile, peer),
      },
      receiveFile: (message, folder) => receiveFile(shell, message, folder),
      withStateOf: async (group, use) => withStateAt(shell, { ...(await meshPlaceOf(shell)), group }, use),
    })
    daemon.serve(calls)
    return {
      ...place,
      peer,
      calls,
      failed: failureOf(peer),
      distrusted: distrusted.promise,
      [Symbol.asyncDispose]: () => end({ daemon, peer, keyEpochs, confirmations }),
    }
  } catch (error) {
    await daemon.release()
    throw error
  }
}

/** Stores the cell's addresses for HTTP commands and invites; the peer has its own copy. */
async function noteCell({ profile, output }: Shell, cell: readonly string[]): Promise<void> {
  await profile.writeCell(cell).catch((error: Error) => output.warn(error.message))
}

function failureOf(peer: Peer): Promise<never> {
  const failed = peer.closed.then((error) => {
    throw error ?? new OperatingError('closed', 'This peer was closed.')
  })
  failed.catch(() => undefined) // the waiting caller reports the error
  return failed
}

interface OpenResources {
  readonly daemon: SessionDaemon
  readonly peer: Peer
  readonly keyEpochs: StoredKeyEpochs
  readonly confirmations: Confirmations
}

async function end({ daemon, peer, keyEpochs, confirmations }: OpenResources): Promise<void> {
  const graceMs = (done: Promise<unknown>) => Promise.race([done, delay(GRACE_MS, undefined, { ref: false })])
  await graceMs(daemon.endCalls())
  if (peer.isOnline) await graceMs(confirmations.stored()) // otherwise, the next command would send them
  await peer.close() // closing rejects pending calls
  await keyEpochs.close().finally(() => daemon.release())
}

interface JoinedProfile {
  readonly membership: Membership
  readonly contacts: Contacts
}

/**
 * Reads the profile's keys and membership. @throws OperatingError `profile_missing`, `not_joined`, and the errors of
 * reading the profile's files
 */
export async function readJoinedProfile({ profile }: Shell): Promise<JoinedProfile> {
  const membership = await profile.readMembership()
  return { membership, contacts: await Contacts.read(profile.contactsFile) }
}

/**
 * Rotates the box key, which is on disk before anyone can seal to it. A repeated call continues with the same key.
 * @returns its epoch
 * @throws the errors of `Peer.lookup`, `Peer.rotateBoxKey` and writing the key file
 */
export async function rotateBoxKey(profile: Profile, peer: Peer): Promise<number> {
  const published = await peer.lookupKey(peer.key)
  const { next, file } = beginBoxKeyRotation(await profile.readKeyFile(), published)
  await profile.replaceKeys(file)
  await peer.rotateBoxKey(next)
  await profile.replaceKeys(completeBoxKeyRotation(file, next, Date.now()))
  return next.epoch
}

/**
 * Rotates the identity key, which is in its own file until the broker has accepted it. A repeated call continues with
 * the same identity.
 * @throws the errors of `Peer.lookup`, `Peer.rotateIdentity` and writing the key file
 */
export async function rotateIdentity(profile: Profile, peer: Peer): Promise<PeerKey> {
  const { boxEpoch } = await peer.lookupKey(peer.key)
  const file =
    (await profile.findNextKeys()) ?? beginIdentityRotation(await profile.readKeyFile(), boxEpoch, Date.now())
  await profile.writeNextKeys(file)
  await peer.rotateIdentity(file.identity)
  await profile.promoteNextKeys()
  return file.identity.signing.publicKey
}
