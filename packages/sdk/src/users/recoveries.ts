/**
 * Recovers a lost identity key with a device that its user has named as an heir, and follows the recoveries of other members
 * (`@sealpost/sdk/recoveries`, docs/adr/0016). Uses HTTP, and a store of its own.
 */
import {
  bindBoxKey,
  type Heir,
  type Identity,
  readDevice,
  readIdentityRotation,
  ready,
  type SigningKeys,
  signHeirs,
  signRecovery,
} from '@sealpost/identity'
import type { LogEntry } from '@sealpost/identity/log'
import { BINDING_MS, LOOKUP_MAX } from '@sealpost/protocol'
import { asciiName, type Millis, type PeerKey, toBase64url, unicodeName } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import { answerMalformed, bytesOf, HttpAccess, type HttpOptions, type PeerCredentials } from '../http/access.ts'
import { chunksOf } from '../outbox/lane.ts'
import { type Peer, portsOf } from '../peer.ts'
import type { StoreRecord } from '../stores/records.ts'
import { loadStore, type PeerStore, WriteBehindStore } from '../stores/store.ts'
import {
  type KeyRecovery,
  RecoveryBook,
  type RecoveryEvent,
  type StatementKind,
  type StatementRow,
  subjectOf,
} from './recovery-book.ts'

export type { Heir } from '@sealpost/identity'
export type { KeyRecovery, RecoveryEvent, RecoveryState } from './recovery-book.ts'

export interface RecoveriesOptions extends PeerCredentials, HttpOptions {
  /** Keeps heir statements, and when each recovery was first seen. `close` closes it. Don't use the store of the peer. */
  readonly store?: PeerStore
  readonly formerKeys?: readonly PeerKey[]
  /** Whether the user has compared the fingerprint of this key. Default: no key counts as verified. */
  readonly isVerified?: (key: PeerKey) => boolean
  readonly onEvent?: (event: RecoveryEvent) => void
  /** Default: the clock of this machine. @internal */
  readonly nowMs?: () => Millis
}

/** A key that a device may recover. */
export interface LostKey {
  readonly user: PeerKey
  /** The epoch of the user's newest box key. The one of the successor must be higher. */
  readonly boxEpoch: number
  readonly heirs: readonly Heir[]
}

export interface RecoveryProgress {
  readonly former: PeerKey
  readonly state: 'pending' | 'done'
  /** The time until the recovery can take effect, by the clock of the database. */
  readonly waitMs: Millis
}

const PATIENCE_MS = 10_000
const CHECK_EVERY_MS = 86_400_000
/** The maximum number of requests that follow a chain of successors. */
const ROUNDS_MAX = 8
const TRIES_MAX = 3

/**
 * Opens the recoveries of a mesh. Sends no request.
 * @throws SealpostError `store_foreign`, `store_corrupt`, `store_failed`
 * @example await using recoveries = await openRecoveries({ ...membership, identity })
 */
export async function openRecoveries(options: RecoveriesOptions): Promise<Recoveries> {
  await ready()
  const { store, meshId, identity, formerKeys } = options
  const owner = { meshId, peerKey: identity.signing.publicKey }
  try {
    return new Recoveries(options, store ? await loadStore(store, owner, formerKeys) : [])
  } catch (error) {
    await store?.close().catch(() => undefined) // the first error is the one to report
    throw error
  }
}

/**
 * From now on, the peer sends to the successor of a key that these recoveries follow, as of the last check, and the devices of the
 * former key count as those of the successor.
 * @example applyRecoveries(peer, recoveries)
 */
export function applyRecoveries(peer: Peer, recoveries: Recoveries): void {
  portsOf(peer).tell(({ users }) => {
    for (const { former, successor } of recoveries.followed()) users.follow(former, successor)
  })
}

/**
 * Checks the given keys and the peer's own one, now and once a day, and applies the recoveries to the peer. Returns a function
 * that ends the checks.
 * @example const stop = followRecoveries(peer, recoveries, () => [ben])
 */
export function followRecoveries(peer: Peer, recoveries: Recoveries, keys: () => readonly PeerKey[]): () => void {
  const check = async () => {
    await recoveries.check([peer.key, ...keys()])
    applyRecoveries(peer, recoveries)
  }
  const attempt = () => void check().catch(() => undefined) // the next check tries again
  const timer = setInterval(attempt, CHECK_EVERY_MS)
  const stop = () => clearInterval(timer)
  void peer.closed.then(stop)
  attempt()
  return stop
}

/** The log of the mesh. `MemberProofs` has it as `log`. @internal */
export interface StatementLog {
  areLogged(entries: readonly LogEntry[]): Promise<readonly boolean[]>
}

export class Recoveries implements AsyncDisposable {
  readonly #access: HttpAccess
  readonly #identity: Identity
  readonly #meshId: PeerCredentials['meshId']
  readonly #store: WriteBehindStore | null
  readonly #book: RecoveryBook
  #log: StatementLog | null = null

  /** Use `openRecoveries` instead. @internal */
  constructor(options: RecoveriesOptions, records: readonly StoreRecord[]) {
    const { identity, meshId, store, onEvent, isVerified = () => false, nowMs = Date.now } = options
    const { fetch, patienceMs = PATIENCE_MS } = options
    this.#access = new HttpAccess(options, { patienceMs, ...(fetch && { fetch }) })
    this.#identity = identity
    this.#meshId = meshId
    this.#store = store ? new WriteBehindStore(store) : null
    this.#book = new RecoveryBook(
      {
        ...{ meshId, self: identity.signing.publicKey, isVerified, nowMs },
        emit: (event) => onEvent && queueMicrotask(() => onEvent(event)),
        keep: (key, record) => (record ? this.#store?.put(key, record) : this.#store?.remove(key)),
      },
      records,
    )
  }

  /**
   * Asks the broker for recoveries of these keys, and of the keys that follow them. Returns those that are pending or done.
   * @throws SealpostError `connection_lost`, and the broker's refusals
   * @example const found = await recoveries.check([ben])
   */
  async check(keys: readonly PeerKey[]): Promise<readonly KeyRecovery[]> {
    const asked = new Set<PeerKey>()
    let next = [...new Set(keys)]
    for (let round = 0; next.length > 0 && round < ROUNDS_MAX; round++) {
      for (const some of chunksOf(next, LOOKUP_MAX)) this.#book.take(await this.#request(some))
      for (const key of next) asked.add(key)
      next = next
        .map((key) => this.#book.successorOf(key))
        .filter((key) => key !== null && !asked.has(key)) as PeerKey[]
    }
    return [...asked].map((key) => this.#book.find(key)).filter((recovery) => recovery !== null)
  }

  /**
   * Returns the recovery of a key, as of the last check; null if there is none.
   * @example const recovery = recoveries.find(ben)
   */
  find(key: PeerKey): KeyRecovery | null {
    return this.#book.find(key)
  }

  /**
   * Returns the key to send to instead of this one, as of the last check.
   * @throws SealpostError `key_recovered` if the broker uses a new key that this peer does not follow yet
   * @example await peer.send(recoveries.currentKey(ben), 'hello')
   */
  currentKey(key: PeerKey): PeerKey {
    const current = this.#book.current(key)
    const recovery = this.#book.find(current)
    if (!recovery || recovery.state === 'pending') return current
    throw new SealpostError(
      'key_recovered',
      `The device ${recovery.label} of this user has certified a new key. Compare the fingerprint again, and accept the key.`,
    )
  }

  /**
   * Follows the new key of a recovery that took effect, without further waiting. Compare fingerprints first.
   * @throws SealpostError `recovery_unknown`
   * @example recoveries.accept(ben)
   */
  accept(former: PeerKey): void {
    if (!this.#book.accept(former)) throw unknownRecovery()
  }

  /** Returns the recoveries that this peer follows. @internal */
  followed(): ReturnType<RecoveryBook['followed']> {
    return this.#book.followed()
  }

  /** From now on, relies on a statement only if it is in the log. @internal */
  requireLogged(log: StatementLog): void {
    this.#log = log
  }

  /** Takes statements that another part has requested. @internal */
  take(rows: readonly StatementRow[]): void {
    this.#book.take(rows)
  }

  /** Takes entries of the log that may object to a recovery, although the broker hides them from requests. @internal */
  takeLogged(entries: readonly LogEntry[]): void {
    const rows = entries.map(({ kind, statement: bytes }) => ({ kind: String(kind), bytes }))
    this.#book.takeLogged(rows.filter(isUserStatement))
  }

  /** Returns the recovery that certifies this key. @internal */
  findBySuccessor(successor: PeerKey): KeyRecovery | null {
    return this.#book.findBySuccessor(successor)
  }

  /**
   * Returns the devices that may certify a successor of this peer's key.
   * @throws SealpostError `connection_lost`, and the broker's refusals
   * @example const heirs = await recoveries.heirs()
   */
  async heirs(): Promise<readonly Heir[]> {
    const own = this.#identity.signing.publicKey
    this.#book.take(await this.#request([own]))
    return (this.#book.heirsOf(own)?.heirs ?? []).map(shown)
  }

  /**
   * Names the devices that may certify a successor of this peer's key, at most four, instead of those named before. A session
   * must not be an heir, because its keys are lost with this peer's. Cancels a pending recovery.
   * @throws SealpostError `device_unknown`, `stale_epoch` if another process names heirs at the same time
   * @example await recoveries.nameHeirs([{ device, label: 'phone' }])
   */
  async nameHeirs(heirs: readonly Heir[]): Promise<void> {
    for (let tries = 1; ; tries++) {
      await this.heirs() // another process may have used the next epoch
      try {
        return await this.#publishHeirs(heirs)
      } catch (error) {
        const isStale = error instanceof SealpostError && error.code === 'stale_epoch'
        if (!isStale || tries === TRIES_MAX) throw error
      }
    }
  }

  /**
   * Cancels the pending recovery of this peer's key for good, and removes the device that published it from the heirs.
   * @throws SealpostError `recovery_unknown` if none is pending
   * @example const { label } = await recoveries.cancel()
   */
  async cancel(): Promise<KeyRecovery> {
    const own = this.#identity.signing.publicKey
    const [pending] = await this.check([own])
    if (pending?.former !== own) throw unknownRecovery()
    const heirs = await this.heirs()
    await this.nameHeirs(heirs.filter(({ label }) => label !== pending.label))
    return pending
  }

  /**
   * Returns the key of this device's user, as the broker shows it.
   * @throws SealpostError `not_heir` if the user has not named this device
   * @example const { boxEpoch } = await recoveries.lostKey()
   */
  async lostKey(): Promise<LostKey> {
    const user = await this.#user()
    const reply = await this.#access.ask({ method: 'POST', path: '/v1/lookup', json: { peers: [user] } })
    const { bindings } = reply.json<{ bindings?: readonly { readonly boxEpoch?: unknown }[] }>()
    const [binding] = bindings ?? []
    const heirs = this.#book.heirsOf(user)?.heirs ?? []
    if (!heirs.some(({ device }) => device === this.#identity.signing.publicKey)) throw notHeir()
    return { user, boxEpoch: Number(binding?.boxEpoch ?? 0), heirs: heirs.map(shown) }
  }

  /**
   * As a device: certifies a successor of its user's lost key. Call again with the same identity after `waitMs`, so that it takes
   * effect. The epoch of the successor's box key must be higher than that of `lostKey`. Repeatable.
   * @throws SealpostError `not_heir`, `recovery_cancelled`, `recovery_pending` if another device has certified a successor,
   * `key_taken`, `stale_epoch`
   * @example const { state, waitMs } = await recoveries.recover(successor)
   */
  async recover(successor: Identity): Promise<RecoveryProgress> {
    const former = await this.#user()
    const statement = this.#ownRecovery(former, successor.signing)
    const { boxKey, boxEpoch, notAfterMs, signature } = bindBoxKey(successor, this.#meshId, Date.now() + BINDING_MS)
    const binding = { boxKey: toBase64url(boxKey), boxEpoch, notAfterMs, signature: toBase64url(signature) }
    const json = { statement: toBase64url(statement), ...binding }
    const reply = await this.#access.ask({ method: 'POST', path: '/v1/recoveries', json })
    const { state, waitMs } = reply.json<{ state: 'pending' | 'done'; waitMs: Millis }>()
    return { former, state, waitMs }
  }

  /**
   * Resolves when everything is stored and the store is closed. @throws SealpostError `store_failed`
   * @example await recoveries.close()
   */
  async close(): Promise<void> {
    await this.#access.close()
    await this.#store?.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #publishHeirs(heirs: readonly Heir[]): Promise<void> {
    const { signing } = this.#identity
    const epoch = (this.#book.heirsOf(signing.publicKey)?.epoch ?? 0) + 1
    const named = heirs.map(({ device, label }) => ({ device, label: asciiName(label) }))
    const bytes = signHeirs(signing, { meshId: this.#meshId, epoch, heirs: named })
    await this.#access.ask({ method: 'PUT', path: '/v1/heirs', json: { statement: toBase64url(bytes) } })
    this.#book.take([{ kind: 'heirs', bytes }])
  }

  /** Returns the recovery that this device has published for the successor, or a new one. */
  #ownRecovery(former: PeerKey, successor: SigningKeys): Uint8Array {
    const heir = this.#identity.signing
    const known = this.#book.find(former)
    if (known?.successor === successor.publicKey) return this.#book.bytesOf(former)!
    const heirs = this.#book.heirsOf(former)?.heirs ?? []
    if (!heirs.some(({ device }) => device === heir.publicKey)) throw notHeir()
    return signRecovery({ heir, successor }, { heirs: this.#book.heirBytesOf(former)!, atMs: Date.now() })
  }

  /** Returns the key of this device's user, and reads the statements about it. @throws SealpostError `not_heir` */
  async #user(): Promise<PeerKey> {
    const own = this.#identity.signing.publicKey
    const [statement] = (await this.#proofs([own])).filter(({ kind }) => kind === 'device')
    const vouched = statement && readDevice(statement.bytes)
    if (vouched?.device !== own) throw notHeir()
    let user = vouched.user
    for (let round = 0; round < ROUNDS_MAX; round++) {
      const proofs = await this.#proofs([user])
      this.#book.take(proofs.filter(isUserStatement))
      const rotations = proofs
        .filter(({ kind }) => kind === 'succession')
        .map(({ bytes }) => readIdentityRotation(bytes))
      const next = rotations.find((rotation) => rotation?.former === user)?.successor
      if (!next) return user
      user = next
    }
    return user
  }

  async #request(peers: readonly PeerKey[]): Promise<StatementRow[]> {
    return this.#logged((await this.#proofs(peers)).filter(isUserStatement))
  }

  /** Returns the statements that are in the log, and all about the peer's own key, which only the peer itself can object to. */
  async #logged(rows: StatementRow[]): Promise<StatementRow[]> {
    const areLogged = await this.#log?.areLogged(rows.map(entryOf))
    const own = this.#identity.signing.publicKey
    return areLogged ? rows.filter((row, at) => areLogged[at] || subjectOf(row) === own) : rows
  }

  async #proofs(peers: readonly PeerKey[]): Promise<{ kind: string; bytes: Uint8Array }[]> {
    const reply = await this.#access.ask({ method: 'POST', path: '/v1/proofs', json: { peers } }).catch(unlessEarlier)
    const { proofs } = reply?.json<{ proofs?: unknown }>() ?? { proofs: [] }
    if (!Array.isArray(proofs)) throw answerMalformed()
    return proofs.map(({ kind, statement }) => ({ kind: String(kind), bytes: bytesOf(statement) }))
  }
}

const KINDS: readonly string[] = ['heirs', 'succession', 'recovery', 'pending_recovery'] satisfies StatementKind[]

/** Returns whether a statement is about the successor of a key. @internal */
export const isUserStatement = (row: { kind: string; bytes: Uint8Array }): row is StatementRow =>
  KINDS.includes(row.kind)

/** Returns the entry of a statement in the log, which does not show whether a recovery took effect. @internal */
export const entryOf = ({ kind, bytes: statement }: StatementRow): LogEntry => ({
  ...{ kind: kind === 'pending_recovery' ? 'recovery' : kind, statement },
})

const shown = ({ device, label }: Heir): Heir => ({ device, label: unicodeName(label) })

/** A broker of an earlier version has no such statements. */
function unlessEarlier(error: unknown): null {
  if (error instanceof SealpostError && error.code === 'not_found') return null
  throw error
}

const notHeir = (): SealpostError =>
  new SealpostError(
    'not_heir',
    'The user of this device has not named it as an heir, so it cannot certify a successor.',
  )

const unknownRecovery = (): SealpostError =>
  new SealpostError('recovery_unknown', 'There is no such recovery of this key.')
