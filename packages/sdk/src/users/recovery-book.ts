/**
 * Decides which certified successors of lost identity keys a peer follows (docs/adr/0016). It trusts no source of statements and
 * no clock of the broker: a recovery waits seven days since this peer first saw it. Pure.
 */
import { type HeirStatement, type Recovery, readHeirs, readIdentityRotation, readRecovery } from '@sealpost/identity'
import { type MeshId, type Millis, type PeerKey, toHex, unicodeName } from '@sealpost/std'
import type { RecoveriesRecord, StoreRecord } from '../stores/records.ts'

/**
 * `pending`: the former key is in force, and can cancel the recovery. `waiting`: the broker uses the new key, but this peer has not
 * known of it for seven days. `unverified`: this peer had verified the former key, and has not accepted the new one. `followed`: the
 * new key replaces the former one.
 */
export type RecoveryState = 'pending' | 'waiting' | 'unverified' | 'followed'

export interface KeyRecovery {
  readonly former: PeerKey
  readonly successor: PeerKey
  /** The label of the device that certified the successor. */
  readonly label: string
  /** When the device signed, by its clock. */
  readonly signedAtMs: Millis
  /** When this peer first saw the recovery. */
  readonly seenAtMs: Millis
  /** When this peer follows the recovery at the earliest, unless the application accepts it before. */
  readonly followsAtMs: Millis
  readonly state: RecoveryState
}

export type RecoveryEvent =
  /**
   * A device has certified a successor of this key, which can still cancel it. For the peer's own key, each check reports it: call
   * `cancel` if you still have the key.
   */
  | ({ readonly type: 'recovery_pending' } & KeyRecovery)
  /** The former key has objected, by a newer heir statement or by a rotation. */
  | ({ readonly type: 'recovery_cancelled' } & KeyRecovery)
  /**
   * A key has a successor that one of the user's devices certified. The contact is no longer verified: compare fingerprints again. If
   * the state is `unverified`, call `accept` afterwards.
   */
  | ({ readonly type: 'identity_recovered' } & KeyRecovery)
  /** The broker shows a second successor of a key, which is ignored. */
  | { readonly type: 'succession_forked'; readonly former: PeerKey; readonly successor: PeerKey }
  /** The broker shows a recovery by an heir that the newest known heir statement does not name. It is ignored. */
  | { readonly type: 'recovery_refused'; readonly former: PeerKey; readonly successor: PeerKey }
  /** The broker shows an older heir statement than it did before. The newest one counts. */
  | { readonly type: 'heirs_rolled_back'; readonly user: PeerKey }

export type StatementKind = 'heirs' | 'succession' | 'recovery' | 'pending_recovery'

export interface StatementRow {
  readonly kind: StatementKind
  readonly bytes: Uint8Array
}

/** Returns the key whose successors the statement is about; null if it is invalid. */
export function subjectOf({ kind, bytes }: StatementRow): PeerKey | null {
  if (kind === 'heirs') return readHeirs(bytes)?.user ?? null
  const read = kind === 'succession' ? readIdentityRotation : readRecovery
  return read(bytes)?.former ?? null
}

interface BookPorts {
  readonly meshId: MeshId
  readonly self: PeerKey
  readonly nowMs: () => Millis
  readonly isVerified: (key: PeerKey) => boolean
  readonly emit: (event: RecoveryEvent) => void
  readonly keep: (key: string, record: RecoveriesRecord | null) => void
}

interface Known {
  readonly recovery: Recovery
  readonly bytes: Uint8Array
  readonly seenAtMs: Millis
  readonly isDone: boolean
  readonly isFollowed: boolean
}

interface KnownHeirs {
  readonly statement: HeirStatement
  readonly bytes: Uint8Array
}

const WAIT_MS: Millis = 7 * 86_400_000
/** Heirs come first, so that an objection counts before the recovery that it cancels. */
const ORDER: readonly StatementKind[] = ['heirs', 'succession', 'pending_recovery', 'recovery']
const CHAIN_MAX = 64

export class RecoveryBook {
  readonly #ports: BookPorts
  readonly #heirs = new Map<PeerKey, KnownHeirs>()
  readonly #recoveries = new Map<PeerKey, Known>()
  /** The successors that former keys have signed themselves. */
  readonly #rotated = new Map<PeerKey, PeerKey>()
  readonly #reported = new Set<string>()

  constructor(ports: BookPorts, records: readonly StoreRecord[]) {
    this.#ports = ports
    for (const record of records) this.#restore(record)
  }

  heirsOf(user: PeerKey): HeirStatement | null {
    return this.#heirs.get(user)?.statement ?? null
  }

  heirBytesOf(user: PeerKey): Uint8Array | null {
    return this.#heirs.get(user)?.bytes ?? null
  }

  bytesOf(former: PeerKey): Uint8Array | null {
    return this.#recoveries.get(former)?.bytes ?? null
  }

  find(former: PeerKey): KeyRecovery | null {
    const known = this.#recoveries.get(former)
    return known ? this.#viewOf(known) : null
  }

  /** Returns the recovery of which this key is the successor, if there is one. */
  findBySuccessor(successor: PeerKey): KeyRecovery | null {
    const known = [...this.#recoveries.values()].find(({ recovery }) => recovery.successor === successor)
    return known ? this.#viewOf(known) : null
  }

  /** Returns the key that follows this one, by a rotation or by a recovery that this peer follows. */
  successorOf(key: PeerKey): PeerKey | null {
    const known = this.#recoveries.get(key)
    return known?.isFollowed ? known.recovery.successor : (this.#rotated.get(key) ?? null)
  }

  /** Returns the last key of the chain of successors. */
  current(key: PeerKey): PeerKey {
    let at = key
    for (let step = 0; step < CHAIN_MAX; step++) {
      const next = this.successorOf(at)
      if (!next) break
      at = next
    }
    return at
  }

  followed(): { readonly former: PeerKey; readonly successor: PeerKey; readonly bytes: Uint8Array }[] {
    const all = [...this.#recoveries.values()].filter(({ isFollowed }) => isFollowed)
    return all.map(({ recovery: { former, successor }, bytes }) => ({ former, successor, bytes }))
  }

  /** Takes statements as the broker shows them. Verifies each. */
  take(rows: readonly StatementRow[]): void {
    for (const kind of ORDER) for (const row of rows) if (row.kind === kind) this.#takeRow(row)
  }

  /** Takes what keys have signed about themselves, as the log contains it. Older heir statements have no effect. */
  takeLogged(rows: readonly StatementRow[]): void {
    for (const row of rows) {
      const heirs = row.kind === 'heirs' ? readHeirs(row.bytes) : null
      if (!heirs || heirs.epoch > (this.heirsOf(heirs.user)?.epoch ?? 0)) this.#takeRow(row)
    }
  }

  /** Follows a recovery that has taken effect, because the user has compared fingerprints. Returns whether there is one. */
  accept(former: PeerKey): boolean {
    const known = this.#recoveries.get(former)
    if (!known?.isDone) return false
    this.#set({ ...known, isFollowed: true })
    return true
  }

  #restore(record: StoreRecord): void {
    if (record.kind === 'heirs') {
      const statement = readHeirs(record.bytes)
      if (statement) this.#heirs.set(statement.user, { statement, bytes: record.bytes })
    } else if (record.kind === 'recovery') {
      const recovery = readRecovery(record.bytes)
      if (recovery) this.#recoveries.set(recovery.former, { ...record, recovery })
    } else if (record.kind === 'rotated') this.#rotated.set(record.former, record.successor)
  }

  #takeRow({ kind, bytes }: StatementRow): void {
    if (kind === 'heirs') return this.#takeHeirs(bytes)
    if (kind === 'succession') return this.#takeSuccession(bytes)
    const recovery = readRecovery(bytes)
    if (recovery?.meshId === this.#ports.meshId) this.#takeRecovery(recovery, { bytes, isDone: kind === 'recovery' })
  }

  #takeHeirs(bytes: Uint8Array): void {
    const statement = readHeirs(bytes)
    if (statement?.meshId !== this.#ports.meshId) return
    const { user, epoch } = statement
    const known = this.#heirs.get(user)?.statement
    if (known && known.epoch > epoch)
      return this.#reportOnce(`heirs ${user} ${epoch}`, { type: 'heirs_rolled_back', user })
    if (known?.epoch === epoch) return
    this.#heirs.set(user, { statement, bytes })
    this.#ports.keep(`heirs ${user}`, { kind: 'heirs', bytes })
    const pending = this.#recoveries.get(user)
    if (pending && pending.recovery.epoch < epoch) this.#cancel(pending)
  }

  #takeSuccession(bytes: Uint8Array): void {
    const rotation = readIdentityRotation(bytes)
    if (rotation?.meshId !== this.#ports.meshId) return
    const { former, successor } = rotation
    const known = this.#recoveries.get(former)
    if (known?.isFollowed || (this.#rotated.get(former) ?? successor) !== successor)
      return this.#reportFork(former, successor)
    if (this.#rotated.has(former)) return
    this.#rotated.set(former, successor)
    this.#ports.keep(`rotated ${former}`, { kind: 'rotated', former, successor })
    if (known) this.#cancel(known)
  }

  #takeRecovery(recovery: Recovery, { bytes, isDone }: { bytes: Uint8Array; isDone: boolean }): void {
    const { former, successor, heirs, epoch } = recovery
    const earlier = this.#recoveries.get(former)
    if (earlier?.isFollowed || this.#rotated.has(former)) {
      if (earlier?.recovery.successor !== successor) this.#reportFork(former, successor)
      return
    }
    const named = this.#heirs.get(former)
    if (!named || named.statement.epoch < epoch) this.#takeHeirs(heirs)
    if (toHex(this.#heirs.get(former)!.bytes) !== toHex(heirs))
      return this.#reportOnce(`refused ${toHex(bytes)}`, { type: 'recovery_refused', former, successor })
    const known = this.#recoveries.get(former) // newer heirs have cancelled an earlier one
    const isNew = known?.recovery.successor !== successor
    const now: Known = isNew
      ? { recovery, bytes, seenAtMs: this.#ports.nowMs(), isDone, isFollowed: false }
      : { ...known, isDone }
    if (isNew || now.isDone !== known.isDone) this.#set(now)
    if (successor === this.#ports.self) return this.#followOwn(now)
    if (!now.isDone && (isNew || former === this.#ports.self)) this.#report('recovery_pending', now)
    if (now.isDone) this.#follow(now, isNew)
  }

  /** Follows the recovery by which this peer has its key. */
  #followOwn(known: Known): void {
    if (known.isDone) this.#set({ ...known, isFollowed: true })
  }

  /** Follows a recovery that took effect, unless the user has to wait or to compare fingerprints. */
  #follow(known: Known, isNew: boolean): void {
    const { former, successor } = known.recovery
    const mayFollow = this.#ports.nowMs() >= known.seenAtMs + WAIT_MS
    const isFollowed = mayFollow && !this.#ports.isVerified(former)
    if (isFollowed) this.#set({ ...known, isFollowed })
    const now = { ...known, isFollowed }
    if (!mayFollow && !isNew) return
    this.#reportOnce(`${former} ${successor} ${this.#stateOf(now)}`, {
      type: 'identity_recovered',
      ...this.#viewOf(now),
    })
  }

  #cancel(known: Known): void {
    const { former } = known.recovery
    if (known.isFollowed) return
    this.#recoveries.delete(former)
    this.#ports.keep(`recovery ${former}`, null)
    this.#report('recovery_cancelled', known)
  }

  #set(known: Known): void {
    const { recovery, ...facts } = known
    this.#recoveries.set(recovery.former, known)
    this.#ports.keep(`recovery ${recovery.former}`, { kind: 'recovery', ...facts })
  }

  #viewOf(known: Known): KeyRecovery {
    const { recovery, seenAtMs } = known
    const { former, successor, heir, atMs } = recovery
    const times = { signedAtMs: atMs, seenAtMs, followsAtMs: seenAtMs + WAIT_MS }
    return { former, successor, label: unicodeName(heir.label), ...times, state: this.#stateOf(known) }
  }

  #stateOf({ isFollowed, isDone, seenAtMs }: Known): RecoveryState {
    if (isFollowed) return 'followed'
    if (!isDone) return 'pending'
    return this.#ports.nowMs() < seenAtMs + WAIT_MS ? 'waiting' : 'unverified'
  }

  #report(type: 'recovery_pending' | 'recovery_cancelled', known: Known): void {
    this.#ports.emit({ type, ...this.#viewOf(known) })
  }

  #reportFork(former: PeerKey, successor: PeerKey): void {
    this.#reportOnce(`fork ${former} ${successor}`, { type: 'succession_forked', former, successor })
  }

  #reportOnce(subject: string, event: RecoveryEvent): void {
    if (this.#reported.has(subject)) return
    this.#reported.add(subject)
    this.#ports.emit(event)
  }
}
