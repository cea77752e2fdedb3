/** Exports shared state and history, separately from the core, so that a page loads them only if needed. */
import { type BoxKeys, type Identity, ready, type SpaceStatement, signSpace } from '@sealpost/identity'
import type { GroupId, MeshId, Millis, PeerKey } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import { KeyEpochs } from '../keys/key-epochs.ts'
import type { MemberProofs } from '../members/member-proofs.ts'
import type { StoreRecord } from '../stores/records.ts'
import { loadStore, type PeerStore } from '../stores/store.ts'
import { Access, type AccessPorts } from './access.ts'
import { EntryVerifier, SpaceMemory, type StateEvent, type TamperReport } from './entry-verifier.ts'
import { KeyMaintenance } from './key-maintenance.ts'
import { SpaceReader } from './space-reader.ts'
import { SpaceKeyRing, SpaceService } from './space-service.ts'
import { SpaceWriter } from './space-writer.ts'
import { checkedTerms, type SpaceTerms, State, type StateParts } from './state.ts'

export type { HistoryAudience, SpaceStatement } from '@sealpost/identity'
export type { FetchLike } from '../http/access.ts'
export {
  type SealedChange,
  type StateChange,
  type StateDeletion,
  StateEntry,
  type StateEvent,
  type Tamper,
} from './entry-verifier.ts'
export { openReactions, type ReactionCount, type Reactions, type ReactionsOptions } from './reactions.ts'
export type { HistoryEvent, HistoryMessage, SealedMessage } from './space-reader.ts'
export type { MemberGrant, SpaceStatus } from './space-service.ts'
export type { Written } from './space-writer.ts'
export { type Conversation, type Moment, type SpaceTerms, State, type StateValue, type WriteOptions } from './state.ts'

/** The space and the peer that opens it, as for `connect`. The peer need not have a session. */
export interface SpaceOptions {
  /** `wss://host[:port]`, or `ws://` on the same machine. If one address does not reply, the next one is tried. */
  readonly url: string | readonly string[]
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
  readonly identity: Identity
  /** The group of the space. Default: the space of the whole mesh. */
  readonly group?: GroupId
}

export interface OpenStateOptions extends SpaceOptions, StateRequestOptions {
  /** Box keys from before a rotation, used for opening grants only. */
  readonly formerBoxKeys?: readonly BoxKeys[]
  readonly formerKeys?: readonly PeerKey[]
  /**
   * The required signer of the terms of a mesh's space. Default: the signer when it was first opened. For a group, the
   * signer is always the group's owner.
   */
  readonly owner?: PeerKey
  /**
   * Keeps the space's keys and the newest entry of each key beyond this process. Create it with `openFileStore`,
   * `openIndexedDbStore` or `MemoryStore`; don't use the store of the peer. `close` closes it. Default: none; a
   * rollback by the broker between two processes then stays unnoticed.
   */
  readonly store?: PeerStore
  /**
   * The newest box key epochs that were seen: `peer.keyEpochs` of a peer in this process, or the result of
   * `openKeyEpochs` (`@sealpost/sdk/key-epochs`). The space then trusts no key that is older than one seen in mail.
   * Default: `store` saves the epochs that the space sees.
   */
  readonly keyEpochs?: KeyEpochs
  /**
   * Returns the newest statement of the group that this peer has seen: `() => group.statement`. The space then trusts no
   * older list of members, and changes its key before the next write after a member was removed. Default: the newest
   * statement that the space itself has seen.
   */
  readonly statement?: () => Uint8Array
  /**
   * The proofs of the mesh's members (`openMemberProofs` of `@sealpost/sdk/members`). With a root, only proven members
   * receive keys of the space, and only their grants are accepted. Default: the broker's list of members counts.
   */
  readonly members?: Pick<MemberProofs, 'unprovenAmong' | 'revocationCount'>
  /**
   * Pads values so that the length of key and value together is a multiple of this. Default: 1, which means no padding.
   */
  readonly bucketBytes?: number
  /** The interval at which to look for members that lack keys. Default: 30 s. 0 means only when the state is opened. */
  readonly maintainKeysEveryMs?: Millis
  /** Receives reports of the broker's misconduct. */
  readonly onEvent?: (event: StateEvent) => void
  /** Default: the platform's implementation. */
  readonly ports?: Partial<AccessPorts>
}

export interface StateRequestOptions {
  /**
   * How long a request is repeated while no address replies, before it fails with `connection_lost`. Default: 1 minute.
   */
  readonly patienceMs?: Millis
  /** Aborts every request, including those that open the state. They fail with `aborted`. */
  readonly signal?: AbortSignal
}

const TEND_EVERY_MS = 30_000

/**
 * Opens the state of a mesh or a group. Missing keys are requested again as needed.
 * @throws SealpostError `space_unknown` if the owner has not set up a space or this peer does not belong to it;
 * `space_forged`, `store_foreign`, `store_corrupt`, and the broker's refusals
 * @example await using state = await openState({ ...place, group: group.id })
 */
export async function openState(options: OpenStateOptions): Promise<State> {
  await ready()
  const { store, meshId, identity, formerKeys } = options
  const owner = { meshId, peerKey: identity.signing.publicKey }
  try {
    const records = store ? await loadStore(store, owner, formerKeys) : []
    const parts = partsOf(options, records)
    await parts.tending.run()
    keepTending(parts, options)
    return new State(parts)
  } catch (error) {
    await store?.close().catch(() => undefined) // report the first error, not this one
    throw error
  }
}

/**
 * Sets up a space, or changes its terms. The first member that opens it creates its keys.
 * @throws SealpostError `not_owner` unless the caller is an admin of the mesh or the group's owner; `space_malformed`,
 * `stale_epoch`
 * @example await setSpace({ ...place, group: group.id }, { historyFor: 'all' })
 */
export async function setSpace(
  options: SpaceOptions & StateRequestOptions & Pick<OpenStateOptions, 'ports'>,
  terms: SpaceTerms = {},
): Promise<SpaceStatement> {
  await ready()
  const checked = checkedTerms(terms)
  const { access, calls } = callsOf(options)
  const { meshId, spaceId } = calls
  const { signing } = options.identity
  try {
    const epoch = (await standingEpoch(calls)) + 1
    const space = signSpace(signing, { meshId, spaceId, owner: signing.publicKey, epoch, ...checked })
    await calls.declare(space)
    return space
  } finally {
    await access.close()
  }
}

async function standingEpoch(calls: SpaceService): Promise<number> {
  try {
    return (await calls.status()).statement?.epoch ?? 0
  } catch (error) {
    if (error instanceof SealpostError && error.code === 'space_unknown') return 0
    throw error
  }
}

const PORTS: AccessPorts = {
  fetch: (url, init) => fetch(url, init),
  wait: (ms, signal) =>
    new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(calledOff())
      const abort = () => {
        clearTimeout(timer)
        reject(calledOff())
      }
      const timer = setTimeout(() => {
        signal?.removeEventListener('abort', abort)
        resolve()
      }, ms)
      signal?.addEventListener('abort', abort, { once: true })
    }),
  random: Math.random,
}

const calledOff = (): SealpostError => new SealpostError('aborted', 'Waiting was aborted.')

function callsOf(options: SpaceOptions & StateRequestOptions & Pick<OpenStateOptions, 'ports'>) {
  const { url, brokerKey, meshId, identity, group, ports, patienceMs, signal } = options
  const access = new Access({ url, brokerKey, meshId, identity }, { ...PORTS, ...ports }, { patienceMs, signal })
  return { access, calls: new SpaceService(access, { meshId, spaceId: group ?? meshId }) }
}

function partsOf(options: OpenStateOptions, records: readonly StoreRecord[]): StateParts {
  const { identity, meshId, formerBoxKeys = [], owner = null, bucketBytes = 1, onEvent, store = null } = options
  const { access, calls } = callsOf(options)
  const { spaceId } = calls
  // A microtask keeps the application's exceptions out of this code.
  const tell = (told: TamperReport) => onEvent && queueMicrotask(() => onEvent({ ...told, spaceId }))
  const memory = new SpaceMemory(spaceId, store, records)
  const keep = memory.put.bind(memory)
  const keyEpochs = options.keyEpochs ?? new KeyEpochs({ self: identity.signing.publicKey, records, keep })
  const ring = new SpaceKeyRing({ meshId, spaceId })
  const reader = new EntryVerifier({ meshId, spaceId, ring, memory, tell })
  const { members = null, statement } = options
  const seenGroup = () => (statement ? calls.readGroup(statement()) : null)
  const keys = { calls, ring, memory, identity, formerBoxKeys, keyEpochs, owner, tell, members, seenGroup }
  const tending = new KeyMaintenance(keys)
  const tend = () => tending.run()
  const pause = (tries: number, signal?: AbortSignal) => access.pause(tries, signal).catch(() => undefined)
  const reading = new SpaceReader({ calls, ring, memory, reader, tell, tend, pause })
  const lookup = (keyHash: string) => reading.one(keyHash)
  const isOutdated = () => tending.isOutdated
  const keeping = { tend, isOutdated, pause, lookup }
  const writing = new SpaceWriter({ calls, ring, memory, reader, identity, bucketBytes, ...keeping })
  return { identity, access, calls, ring, memory, reader, tending, writing, reading, stop: new AbortController() }
}

/** Maintains the keys until the space is closed. Retries after errors, which readers and writers report. */
function keepTending(
  { tending, stop }: StateParts,
  { maintainKeysEveryMs: tendEveryMs = TEND_EVERY_MS, ports }: OpenStateOptions,
): void {
  if (tendEveryMs === 0) return
  const { wait, random } = { ...PORTS, ...ports }
  const next = async (): Promise<void> => {
    // The pause is random, so that members that open the space together don't act together.
    await wait(tendEveryMs * (0.5 + random()), stop.signal)
    await tending.run().catch(() => undefined)
    return next()
  }
  void next().catch(() => undefined) // rejects only because the space was closed
}
