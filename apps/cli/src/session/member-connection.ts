/** Opens the connection of the profile's own key, and serves the calls that need this key to other commands. */
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { beginBoxKeyRotation, beginIdentityRotation, completeBoxKeyRotation } from '@sealpost/identity/key-file'
import {
  certificateUntrusted,
  type Message,
  openPeer,
  type Peer,
  type PeerEvent,
  type PeerKey,
  type PeerStore,
  type Status,
} from '@sealpost/sdk'
import { type Confirmations, confirmationsOf } from '@sealpost/sdk/confirmations'
import { openFileStore } from '@sealpost/sdk/file-store'
import { forwardSecrecy } from '@sealpost/sdk/forward'
import { groupsOf } from '@sealpost/sdk/groups'
import { exchangeHeads, type WitnessedLog } from '@sealpost/sdk/heads'
import type { StoredKeyEpochs } from '@sealpost/sdk/key-epochs'
import { guardMembers, type MemberProofs } from '@sealpost/sdk/members'
import { leaveUnread } from '@sealpost/sdk/peek'
import { poolsOf } from '@sealpost/sdk/pools'
import { applyRecoveries, type Recoveries } from '@sealpost/sdk/recoveries'
import { sentLogOf } from '@sealpost/sdk/sent'
import type { HostEnd, SessionMember } from '@sealpost/sdk/sessions'
import { OperatingError } from '@sealpost/std'
import { receiveFile } from '../messages/files.ts'
import { peerEventReporter } from '../messages/incoming-message.ts'
import { type Contacts, openProfileKeyEpochs } from '../profile/contacts.ts'
import type { Membership, Profile, ProfileKeys } from '../profile/profile.ts'
import { openProfileProofs, openProofsWith } from '../profile/proofs.ts'
import { openProfileRecoveries, readRecoveries } from '../profile/recoveries.ts'
import { watchRecoveries } from '../profile/recovery-checks.ts'
import { TickStore } from '../schedule/tick-store.ts'
import type { Shell } from '../shell.ts'
import { meshPlaceOf, withStateAt } from '../state/open-state.ts'
import { callsOf, type Durability, type PeerCalls } from './peer-calls.ts'
import { PoolSeats } from './pool-seats.ts'
import { type SessionDaemon, startHostDaemon } from './session-daemon.ts'

/** How long an ending command waits for others' calls. */
const GRACE_MS = 2_000

/** The connection of the profile's own key, for one call and those of other commands. */
export interface MemberConnection extends JoinedProfile, AsyncDisposable {
  readonly peer: Peer
  readonly calls: PeerCalls
  /** Rejects when the peer ends for good. */
  readonly failed: Promise<never>
  /** Rejects on an untrusted certificate, with which the peer would retry forever. */
  readonly distrusted: Promise<never>
}

export interface JoinedProfile {
  readonly membership: Membership
  readonly contacts: Contacts
}

export interface MemberPeerOptions {
  readonly credit?: number
  /** The maximum age of messages; older ones are rejected. */
  readonly maxAgeSeconds?: number | undefined
}

interface Opening extends MemberPeerOptions {
  readonly shell: Shell
  readonly place: JoinedProfile
}

export async function openMemberConnection(
  daemon: SessionDaemon,
  { shell, place, credit, maxAgeSeconds }: Opening,
): Promise<MemberConnection> {
  try {
    const keys = await shell.profile.readKeys()
    const { identity, formerBoxKeys, formerKeys = [], warning } = keys
    if (warning) shell.output.warn(warning.message)
    const { url, brokerKey, meshId } = place.membership
    const keyEpochs = await openProfileKeyEpochs(shell.profile, keys, meshId)
    const recoveries = await openProfileRecoveries(shell)
    const store = new TickStore(await openFileStore(join(shell.profile.folder, 'messages')))
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
    const urls = (await shell.profile.readFirstUrl()) ?? url
    const terms = {
      ...{ identity, formerBoxKeys, formerKeys, store, keyEpochs, onEvent, padding: shell.settings.padding() },
      secrecy: forwardSecrecy(),
      ...(credit !== undefined && { credit }),
      ...(maxAgeSeconds !== undefined && { maxAgeSeconds }),
    }
    const proofs = await openProofsWith(recoveries, shell)
    const peer = await openPeer({ url: urls, brokerKey, meshId, ...terms })
    applyRecoveries(peer, recoveries)
    leaveUnread(peer)
    const confirmations = beginLogs(peer, proofs.log) // first, because a report can arrive during each wait
    guardMembers(peer, proofs)
    const endWatch = watchRecoveries(shell, peer)
    const status = await shell.profile.readStatus()
    if (status) peer.setStatus(status)
    const seats = seatsOf(peer)
    const calls = memberCallsOf(shell, peer, {
      ...{ seats, ticks: store, online: online.promise },
      setStatus: (status) => peer.setStatus(status),
    })
    daemon.serve(calls)
    return {
      ...place,
      peer,
      calls,
      failed: failureOf(peer),
      distrusted: distrusted.promise,
      [Symbol.asyncDispose]: () =>
        endWatch().then(() => end({ daemon, peer, keyEpochs, proofs, seats, confirmations })),
    }
  } catch (error) {
    await daemon.release()
    throw error
  }
}

/**
 * Records what becomes of all sent messages, confirms received ones, and exchanges heads. Call before the peer's first
 * report arrives.
 */
export function beginLogs(peer: Peer, log: WitnessedLog): Confirmations {
  sentLogOf(peer).recordAll()
  exchangeHeads(peer, { log })
  return confirmationsOf(peer)
}

const seatsOf = (peer: Peer): PoolSeats =>
  new PoolSeats({
    join: async (pool, credit) => (await poolsOf(peer).find(pool)).join({ credit }),
    leave: async (pool) => (await poolsOf(peer).find(pool)).leave(),
  })

type MemberCallParts = Pick<Parameters<typeof callsOf>[1], 'seats' | 'ticks' | 'online' | 'setStatus'>

function memberCallsOf(shell: Shell, peer: Peer, parts: MemberCallParts): PeerCalls {
  return callsOf(peer, {
    ...parts,
    rotate: {
      boxKey: () => rotateBoxKey(shell.profile, peer),
      identity: () => rotateIdentity(shell.profile, peer),
    },
    receiveFile: (message, folder) => receiveFile(shell, message, { folder }),
    withStateOf: async (id, use) => {
      const group = await groupsOf(peer).find(id)
      return withStateAt(shell, { ...(await meshPlaceOf(shell)), group: id, statement: () => group.statement }, use)
    },
  })
}

interface SessionHostParts {
  readonly shell: Shell
  readonly news: (event: PeerEvent) => void
  readonly setStatus: (status: Status) => void
}

/** What the host of the profile's sessions does for other commands: it executes the calls that need the member's key. */
export class SessionHost {
  readonly #parts: SessionHostParts
  #online = Promise.withResolvers<Durability>()
  #ticks: TickStore | null = null
  #confirmations: Confirmations | null = null
  #recoveries: Recoveries | null = null
  /** By identity, because a rotation changes the owner of the store. The newest one is the last. */
  readonly #proofs = new Map<PeerKey, MemberProofs>()
  readonly #keyEpochs = new Map<PeerKey, StoredKeyEpochs>()

  constructor(parts: SessionHostParts) {
    this.#parts = parts
  }

  /** Reads the keys, which another process may have rotated since. */
  async readMember(): Promise<SessionMember> {
    const { shell } = this.#parts
    const { profile } = shell
    await profile.readKeyFile()
    this.#recoveries = await readRecoveries(shell)
    const keys = await profile.readKeys()
    const { identity, formerBoxKeys, formerKeys = [] } = keys
    await this.openProofs()
    return { identity, formerBoxKeys, formerKeys, keyEpochs: await this.#epochsOf(keys) }
  }

  /** Opens the proofs of the mesh for the current key of the profile, unless they are open. */
  async openProofs(): Promise<MemberProofs> {
    const { shell } = this.#parts
    const owner = (await shell.profile.readKeys()).identity.signing.publicKey
    const proofs = this.#proofs.get(owner) ?? (await openProfileProofs(shell))
    this.#proofs.set(owner, proofs)
    return proofs
  }

  /** The log of the mesh, as the current key of the profile reads it. */
  get log(): WitnessedLog {
    const log = () => this.#newestProofs.log
    return {
      get checkpoint() {
        return log().checkpoint
      },
      witness: (checkpoint) => log().witness(checkpoint),
    }
  }

  /** Returns the store of the member's mail, which also records the ticks of schedules. */
  wrapStore(store: PeerStore): PeerStore {
    this.#ticks = new TickStore(store)
    return this.#ticks
  }

  /** Handles an event of the member's peer. The session's own peer reports the state of the connection. */
  heard(event: PeerEvent): void {
    if (event.type === 'connected') this.#online.resolve(event.durability)
    else if (event.type === 'closed') this.#online = Promise.withResolvers()
    else if (event.type !== 'disconnected') this.#parts.news(event)
  }

  /** Confirms that a session has read a message of the member. */
  read(message: Message): void {
    this.#confirmations?.read(message)
  }

  async begin(peer: Peer): Promise<HostEnd> {
    const { shell, setStatus } = this.#parts
    if (this.#recoveries) applyRecoveries(peer, this.#recoveries)
    const confirmations = beginLogs(peer, this.log)
    this.#confirmations = confirmations
    guardMembers(peer, this.#newestProofs)
    const daemon = await startHostDaemon(shell.profile)
    const seats = seatsOf(peer)
    const parts = { seats, ticks: this.#ticks!, online: this.#online.promise, setStatus }
    daemon.serve(memberCallsOf(shell, peer, parts))
    const endWatch = watchRecoveries(shell, peer)
    return () => endWatch().then(() => endCalls({ daemon, seats, peer, confirmations }))
  }

  /** Another process uses the member's key in a way that this one can't join, or its connection was refused. */
  failed(error: unknown): void {
    const { code, message } = error as { code?: string; message: string }
    if (code !== 'superseded') this.#parts.shell.output.warn(`can't receive messages to the member: ${message}`)
  }

  async close(): Promise<void> {
    await Promise.all([...this.#keyEpochs.values(), ...this.#proofs.values()].map((each) => each.close()))
  }

  get #newestProofs(): MemberProofs {
    return [...this.#proofs.values()].at(-1)!
  }

  async #epochsOf(keys: ProfileKeys): Promise<StoredKeyEpochs> {
    const { profile } = this.#parts.shell
    const owner = keys.identity.signing.publicKey
    const epochs =
      this.#keyEpochs.get(owner) ?? (await openProfileKeyEpochs(profile, keys, (await profile.readMembership()).meshId))
    this.#keyEpochs.set(owner, epochs)
    return epochs
  }
}

/** Stores the cell's addresses for HTTP commands and invites; the peer has its own copy. */
export async function noteCell({ profile, output }: Shell, cell: readonly string[]): Promise<void> {
  await profile.writeCell(cell).catch((error: Error) => output.warn(error.message))
}

export function failureOf({ closed }: Pick<Peer, 'closed'>): Promise<never> {
  const failed = closed.then((error) => {
    throw error ?? new OperatingError('closed', 'This peer was closed.')
  })
  failed.catch(() => undefined) // the waiting caller reports the error
  return failed
}

interface OpenResources {
  readonly daemon: SessionDaemon
  readonly seats: PoolSeats
  readonly peer: Peer
  readonly keyEpochs: StoredKeyEpochs
  readonly proofs: MemberProofs
  readonly confirmations: Confirmations
}

async function end({ keyEpochs, proofs, ...resources }: OpenResources): Promise<void> {
  const { daemon, peer } = resources
  await endCalls(resources)
  await peer.close() // closing rejects pending calls
  await Promise.all([keyEpochs.close(), proofs.close()]).finally(() => daemon.release())
}

async function endCalls({
  daemon,
  seats,
  peer,
  confirmations,
}: Omit<OpenResources, 'keyEpochs' | 'proofs'>): Promise<void> {
  seats.end()
  await inGrace(daemon.endCalls())
  await endLogs(peer, confirmations)
}

/** Sends the last confirmations. Without a connection, the next process sends them. */
export async function endLogs(peer: Peer, confirmations: Confirmations): Promise<void> {
  if (peer.isOnline) await inGrace(confirmations.stored())
}

const inGrace = (done: Promise<unknown>): Promise<unknown> =>
  Promise.race([done, delay(GRACE_MS, undefined, { ref: false })])

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
