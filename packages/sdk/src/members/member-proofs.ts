/**
 * Proves who is a member of a mesh with a root (`@sealpost/sdk/members`, docs/adr/0017). Requests the signed statements
 * about each key once, verifies them, and keeps them in a store of its own.
 */
import { type InviteRole, MembershipProofs, ready, type SigningKeys, type UnprovenReason } from '@sealpost/identity'
import type { EntryKind, LogEntry } from '@sealpost/identity/log'
import { LOOKUP_MAX } from '@sealpost/protocol'
import { type MeshId, type Millis, type PeerKey, toBase64url, unicodeName } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import { HttpAccess, type HttpOptions, type PeerCredentials } from '../http/access.ts'
import { chunksOf } from '../outbox/lane.ts'
import { type Peer, portsOf } from '../peer.ts'
import type { MemberEntry } from '../requests/requests.ts'
import type { ProofRecord, StoreRecord } from '../stores/records.ts'
import { loadStore, type PeerStore, WriteBehindStore } from '../stores/store.ts'
import type { Recoveries } from '../users/recoveries.ts'
import { Certifier } from './certifier.ts'
import { setGuard, unprovenAmong, withoutBarred } from './member-guard.ts'
import { type LogEvent, MeshLog } from './mesh-log.ts'
import { entriesOf, type ProofRow, type ProofsAnswer, requestProofs } from './proofs-request.ts'

export type { LogContradiction, LogEvent, MeshLog, SignedCheckpoint, WitnessVerdict } from './mesh-log.ts'

/**
 * Whether a member is proven, or why not. `no_root`: the mesh has no root. `name_differs`, `role_differs`: the broker lists
 * another name or role than the certificate. `revocations_missing`: the broker withholds revocations that exist.
 * `key_recovered`: a device has certified the key, and this peer does not follow it yet.
 */
export type MemberStanding =
  | 'proven'
  | 'no_root'
  | UnprovenReason
  | 'name_differs'
  | 'role_differs'
  | 'revocations_missing'
  | 'key_recovered'

export type MembersEvent =
  | LogEvent
  /** The broker lists a member that no certificate proves. It receives no keys of groups, pools and spaces. */
  | { readonly type: 'member_unproven'; readonly peer: PeerKey; readonly name: string | null; readonly reason: string }
  /** This peer knew no root, and has pinned the one that the broker shows. Compare its fingerprint with an admin. */
  | { readonly type: 'root_pinned'; readonly root: PeerKey }
  /** The broker shows another root than the pinned one, or none. The pinned root stays. */
  | { readonly type: 'root_differs'; readonly root: PeerKey | null }
  /** The broker shows fewer revocations than exist, or other ones. */
  | { readonly type: 'revocations_rolled_back'; readonly known: number; readonly shown: number }

export interface MemberProofsOptions extends PeerCredentials, HttpOptions {
  /** The pinned root, from the invite. Default: the one in the store; without one, the first that the broker shows. */
  readonly root?: PeerKey | undefined
  /** How many revocations exist at least, from the invite. */
  readonly revocations?: number | undefined
  /** Keeps the root and the verified statements. `close` closes it. Don't use the store of the peer. */
  readonly store?: PeerStore
  readonly formerKeys?: readonly PeerKey[]
  /** Proves recovered keys that these recoveries follow. `close` closes them. Default: a recovered key needs an endorsement. */
  readonly recoveries?: Recoveries
  readonly onEvent?: (event: MembersEvent) => void
}

/** The age at which the revocations are read again. */
const REFRESH_MS = 60_000
const PATIENCE_MS = 10_000
/** The maximum number of requests for one chain, whose length is limited too. */
const ROUNDS_MAX = 18

/**
 * Opens the proofs of a mesh. Sends no request.
 * @throws SealpostError `store_foreign`, `store_corrupt`, `store_failed`
 * @example await using members = await openMemberProofs({ ...membership, identity })
 */
export async function openMemberProofs(options: MemberProofsOptions): Promise<MemberProofs> {
  await ready()
  const { store, meshId, identity, formerKeys } = options
  const owner = { meshId, peerKey: identity.signing.publicKey }
  try {
    return new MemberProofs(options, store ? await loadStore(store, owner, formerKeys) : [])
  } catch (error) {
    await store?.close().catch(() => undefined) // the first error is the one to report
    throw error
  }
}

/**
 * From now on, the groups and pools of this peer seal messages only for proven members, if the mesh has a root. Call it
 * right after `openPeer`, before a session begins: the peer then also guards the messages that an earlier process left.
 * @example guardMembers(peer, members)
 */
export function guardMembers(peer: Peer, members: Pick<MemberProofs, 'areKnown' | 'unprovenAmong'>): void {
  const ports = portsOf(peer)
  setGuard(ports, members)
  ports.tell(({ hooks }) => {
    hooks.guard = (among, observer, then) => {
      const guarded = (barred: ReadonlySet<PeerKey>) => then({ ...withoutBarred(observer, barred), barred })
      const known = unprovenAmong(ports, among)
      if (known instanceof Promise) void known.then((barred) => ports.tell(() => guarded(barred)))
      else guarded(known)
    }
  })
}

export class MemberProofs implements AsyncDisposable {
  /** The transparent log of the mesh. */
  readonly log: MeshLog
  readonly #access: HttpAccess
  readonly #meshId: MeshId
  readonly #store: WriteBehindStore | null
  readonly #emit: (event: MembersEvent) => void
  readonly #revocationsMin: number
  readonly #recoveries: Recoveries | null
  readonly #certifier: Certifier
  /** The former keys of the recoveries that `#proofs` contains. */
  readonly #recovered = new Set<PeerKey>()
  /** Null while no root is known. */
  #proofs: MembershipProofs | null = null
  #root: PeerKey | null = null
  /** Stored statements that were not needed yet, by the keys that they are about. */
  readonly #unread = new Map<PeerKey, ProofRow[]>()
  #storedRevocations: readonly Uint8Array[] = []
  /** Removals and revocations in the log that were read before a root was known. */
  readonly #ends: LogEntry[] = []
  #refreshedAtMs: Millis = -Infinity
  #shownRevocations = 0
  #turn: Promise<unknown> = Promise.resolve()
  #waiting = 0
  /** Reports that were made, so that each is made once. */
  readonly #reported = new Set<string>()

  /** Use `openMemberProofs` instead. @internal */
  constructor(options: MemberProofsOptions, records: readonly StoreRecord[]) {
    const { meshId, root, revocations = 0, recoveries, store, onEvent, fetch, patienceMs = PATIENCE_MS } = options
    this.#access = new HttpAccess(options, { patienceMs, ...(fetch && { fetch }) })
    this.#meshId = meshId
    this.#store = store ? new WriteBehindStore(store) : null
    this.#emit = (event) => onEvent && queueMicrotask(() => onEvent(event))
    this.#revocationsMin = revocations
    this.log = new MeshLog({
      ...{ access: this.#access, meshId, brokerKey: options.brokerKey, emit: this.#emit },
      follow: (entries) => this.#follow(entries),
      keep: (record) => this.#keep('checkpoint', record),
    })
    this.#recoveries = recoveries ?? null
    this.#recoveries?.requireLogged(this.log)
    this.#certifier = new Certifier({
      ...{ access: this.#access, meshId, proofs: () => this.#knownProofs(), refresh: () => this.#ask([]) },
    })
    this.#restore(records, root)
  }

  /**
   * The root of the mesh; null while none is known.
   * @example console.log(members.root && fingerprint(members.root))
   */
  get root(): PeerKey | null {
    return this.#root
  }

  /**
   * How many revocations this peer knows.
   * @example const known = members.revocationCount
   */
  get revocationCount(): number {
    return this.#proofs?.revocationCount ?? 0
  }

  /**
   * Checks members as the broker lists them. Reports those that are unproven, with an event, unless the mesh has no root.
   * @throws SealpostError `connection_lost`, and the broker's refusals
   * @example const standings = await members.check(await peer.members())
   */
  check(listed: readonly MemberEntry[]): Promise<ReadonlyMap<PeerKey, MemberStanding>> {
    return this.#inTurn(async () => {
      await this.#learn(listed.map(({ peer }) => peer))
      return new Map(listed.map((member) => [member.peer, this.#report(this.#standing(member), member)]))
    })
  }

  /**
   * Returns those of the keys that are not proven; none in a mesh without a root. If the broker does not respond, the
   * statements that are known count.
   * @example const unproven = await members.unprovenAmong([ben])
   */
  unprovenAmong(peers: readonly PeerKey[]): Promise<readonly PeerKey[]> {
    return this.#inTurn(async () => {
      await this.#learn(peers).catch((error) => {
        if (!(error instanceof SealpostError)) throw error
      })
      return peers.filter((peer) => this.#report(this.#standing({ peer }), { peer, name: null }) !== 'proven')
    }).then((unproven) => (this.#root === null ? [] : unproven))
  }

  /**
   * Returns whether all of the keys are known to be proven, or the mesh to have no root. Sends no request that the caller
   * would have to wait for.
   * @example const isSure = members.areKnown([ben])
   */
  areKnown(peers: readonly PeerKey[]): boolean {
    if (this.#waiting > 0 || this.#refreshedAtMs === -Infinity) return false
    const areProven = this.#proofs === null || peers.every((peer) => this.#standing({ peer }) === 'proven')
    if (areProven && performance.now() - this.#refreshedAtMs > REFRESH_MS)
      void this.unprovenAmong(peers).catch(() => undefined) // the next call reports the failure
    return areProven
  }

  /**
   * Makes `root` the root of the mesh, and endorses these members with the names and roles that the broker lists, so compare
   * the list first. Admins only. Can be repeated.
   * @throws SealpostError `not_admin`, `root_differs`
   * @example await members.adopt(rootKeys, await peer.members())
   */
  async adopt(root: SigningKeys, listed: readonly MemberEntry[], replaces?: PeerKey): Promise<void> {
    const endorsements = await this.#certifier.adopt(root, listed, replaces)
    this.trust(root.publicKey)
    for (const bytes of endorsements) this.#take({ kind: 'endorsement', bytes })
  }

  /**
   * Endorses members with their names and roles, as an admin. @throws SealpostError `not_admin`, `root_missing`
   * @example await members.endorse(identity.signing, [{ peer: ben, name: 'ben', role: 'member' }])
   */
  async endorse(admin: SigningKeys, listed: readonly MemberEntry[]): Promise<void> {
    this.#knownProofs()
    const endorsements = await this.#certifier.endorse(admin, listed)
    for (const bytes of endorsements) this.#take({ kind: 'endorsement', bytes })
  }

  /**
   * Publishes a signed revocation of all identity keys of a member, and endorses those of `listed` again that only this member
   * had certified. Call `peer.revokeMember` afterwards. Can be repeated. Returns the members that were endorsed again.
   * @throws SealpostError `not_admin`, `root_missing`, `stale_epoch` if other admins revoke at the same time
   * @example await members.revoke(identity.signing, ben, await peer.members())
   */
  async revoke(admin: SigningKeys, member: PeerKey, listed: readonly MemberEntry[]): Promise<readonly MemberEntry[]> {
    this.#knownProofs()
    const proven = async () => {
      const standings = await this.check(listed)
      return listed.filter(({ peer }) => standings.get(peer) === 'proven')
    }
    const before = await proven()
    for (const key of this.#knownProofs().keysOf(member)) await this.#certifier.revoke(admin, key)
    const after = new Set(await proven())
    const left = before.filter((entry) => !after.has(entry) && !entry.name.includes('/'))
    const again = left.filter(({ peer }) => peer !== member && !this.#knownProofs().isRevoked(peer))
    if (again.length > 0) await this.endorse(admin, again)
    return again
  }

  /**
   * Pins a root, instead of the one that was pinned before. Compare its fingerprint with an admin first.
   * @example members.trust(root)
   */
  trust(root: PeerKey): void {
    if (root === this.#root) return
    this.#pin(root)
    this.#keep('root', { kind: 'root', root })
    this.#refreshedAtMs = -Infinity
  }

  /**
   * Returns the root that the broker shows, which may differ from the pinned one.
   * @throws SealpostError `connection_lost`, and the broker's refusals
   * @example const shown = await members.shownRoot()
   */
  shownRoot(): Promise<PeerKey | null> {
    return this.#inTurn(async () => (await this.#request([])).root)
  }

  /**
   * Resolves when everything is stored and the store is closed. @throws SealpostError `store_failed`
   * @example await members.close()
   */
  async close(): Promise<void> {
    await this.#turn
    await this.#access.close()
    await this.#recoveries?.close()
    await this.#store?.close()
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    this.#waiting += 1
    const done = this.#turn.then(work).finally(() => {
      this.#waiting -= 1
    })
    this.#turn = done.catch(() => undefined) // the caller handles the failure
    return done
  }

  #restore(records: readonly StoreRecord[], given: PeerKey | undefined): void {
    let kept: PeerKey | undefined
    this.log.restore(records)
    const revocations: Uint8Array[] = []
    for (const record of records) {
      if (record.kind === 'root') kept = record.root
      else if (record.kind === 'revocation') revocations[record.number - 1] = record.bytes
      else if (record.kind === 'proof') {
        const { proof: kind, bytes } = record
        for (const peer of record.peers) this.#unread.set(peer, [...(this.#unread.get(peer) ?? []), { kind, bytes }])
      }
    }
    this.#storedRevocations = revocations.filter(Boolean)
    // `trust` may have replaced the root of the invite.
    const root = kept ?? given
    if (!root) return
    this.#pin(root)
    if (!kept) this.#keep('root', { kind: 'root', root })
  }

  #pin(root: PeerKey): void {
    this.#root = root
    this.#proofs = new MembershipProofs({ meshId: this.#meshId, root })
    this.#recovered.clear()
    for (const bytes of this.#storedRevocations) this.#proofs.addRevocation(bytes)
    this.#takeEnds(this.#proofs)
  }

  #knownProofs(): MembershipProofs {
    if (this.#proofs) return this.#proofs
    throw new SealpostError('root_missing', 'This mesh has no root.')
  }

  #standing({ peer, name, role }: { peer: PeerKey; name?: string; role?: InviteRole }): MemberStanding {
    if (!this.#proofs) return 'no_root'
    if (this.#proofs.revocationCount < Math.max(this.#revocationsMin, this.#shownRevocations))
      return 'revocations_missing'
    const standing = this.#proofs.standingOf(peer, Date.now())
    if (!standing.proven) return this.#reasonOf(peer, standing.reason)
    const { names, role: provenRole } = standing.proven
    if (name !== undefined && !names.some((each) => unicodeName(each) === name)) return 'name_differs'
    return role !== undefined && role !== provenRole ? 'role_differs' : 'proven'
  }

  #reasonOf(peer: PeerKey, reason: UnprovenReason): MemberStanding {
    return reason === 'no_certificate' && this.#recoveries?.findBySuccessor(peer) ? 'key_recovered' : reason
  }

  /** Adds the recoveries that this peer follows since the last call. */
  #addRecoveries(): void {
    for (const { former, bytes } of this.#recoveries?.followed() ?? []) {
      if (!this.#recovered.has(former)) this.#proofs?.add('recovery', bytes)
      this.#recovered.add(former)
    }
  }

  #report(reason: MemberStanding, { peer, name }: { peer: PeerKey; name: string | null }): MemberStanding {
    const isNews = reason !== 'proven' && reason !== 'no_root' && !this.#reported.has(`${peer} ${reason}`)
    if (isNews) this.#emit({ type: 'member_unproven', peer, name, reason })
    if (isNews) this.#reported.add(`${peer} ${reason}`)
    return reason
  }

  /** Requests what is missing to judge these keys. Known keys are not requested again. */
  async #learn(peers: readonly PeerKey[]): Promise<void> {
    const asked = new Set<PeerKey>()
    let wanted = this.#wanted(peers, asked)
    const isDue = performance.now() - this.#refreshedAtMs > REFRESH_MS
    if (isDue && wanted.length === 0) await this.#ask([])
    for (let round = 0; wanted.length > 0 && round < ROUNDS_MAX; round++) {
      for (const some of chunksOf(wanted, LOOKUP_MAX)) await this.#ask(some)
      if (!this.#proofs) return
      for (const key of wanted) asked.add(key)
      wanted = this.#wanted(peers, asked)
    }
  }

  #wanted(peers: readonly PeerKey[], asked: ReadonlySet<PeerKey>): PeerKey[] {
    this.#addRecoveries()
    const proofs = this.#proofs
    if (!proofs) return performance.now() - this.#refreshedAtMs > REFRESH_MS ? [...peers] : []
    const wanted = new Set<PeerKey>()
    const look = (peer: PeerKey): void => {
      this.#read(peer)
      const standing = proofs.standingOf(peer, Date.now())
      if (standing.proven) return
      const unread = standing.wanted.filter((key) => this.#unread.has(key))
      for (const key of unread) this.#read(key)
      if (unread.length > 0) return look(peer)
      // The key itself is requested too, because a newer endorsement may exist, such as that of a new root.
      for (const key of [...standing.wanted, peer]) if (!asked.has(key)) wanted.add(key)
    }
    for (const peer of peers) look(peer)
    return [...wanted]
  }

  /** Verifies the stored statements about a key. */
  #read(peer: PeerKey): void {
    const rows = this.#unread.get(peer)
    if (!rows) return
    this.#unread.delete(peer)
    for (const { kind, bytes } of rows) for (const key of this.#proofs!.add(kind, bytes)) this.#read(key)
  }

  async #ask(peers: readonly PeerKey[]): Promise<void> {
    const answer = await this.#request(peers)
    const areLogged = await this.log.areLogged(entriesOf(answer))
    this.#refreshedAtMs = performance.now()
    this.#recoveries?.take(answer.userStatements.filter((_, at) => areLogged[answer.proofs.length + at]))
    if (answer.root !== this.#root) this.#rootShown(answer.root)
    if (!this.#proofs) return
    // A removal counts even if it is not logged, like a revocation.
    for (const [at, proof] of answer.proofs.entries()) if (areLogged[at] || proof.kind === 'removal') this.#take(proof)
    this.#takeRevocations(answer)
    if (answer.revocations.length > 0 && this.#proofs.revocationCount < answer.revocationCount) await this.#ask([])
  }

  /** Takes entries that end a membership or object to a recovery, which the broker may hide from requests. */
  #follow(entries: readonly LogEntry[]): void {
    const of = (...kinds: readonly EntryKind[]) => entries.filter(({ kind }) => kinds.includes(kind))
    this.#recoveries?.takeLogged(of('heirs', 'succession'))
    this.#ends.push(...of('removal', 'revocation'))
    if (this.#proofs) this.#takeEnds(this.#proofs)
  }

  #takeEnds(proofs: MembershipProofs): void {
    for (const { kind, statement: bytes } of this.#ends.splice(0)) {
      if (kind === 'removal') this.#take({ kind, bytes })
      else if (proofs.addRevocation(bytes) === 'added') this.#keepRevocation(bytes)
    }
  }

  #request(peers: readonly PeerKey[]): Promise<ProofsAnswer> {
    return requestProofs(this.#access, { peers, revocationsAfter: this.#proofs?.revocationCount ?? 0 })
  }

  #rootShown(root: PeerKey | null): void {
    if (this.#root === null && root !== null) {
      this.trust(root)
      this.#emit({ type: 'root_pinned', root })
    } else if (!this.#reported.has(`root ${root}`)) {
      this.#reported.add(`root ${root}`)
      this.#emit({ type: 'root_differs', root })
    }
  }

  #take({ kind, bytes }: ProofRow): void {
    const peers = this.#proofs!.add(kind, bytes)
    if (peers.length === 0) return
    const signature = toBase64url(bytes.subarray(-16)) // a stored statement is replaced only by itself
    this.#keep(`proof ${kind} ${peers[0]} ${signature}`, { kind: 'proof', proof: kind, peers, bytes })
  }

  #takeRevocations({ revocations, revocationCount }: ProofsAnswer): void {
    const proofs = this.#proofs!
    let isForked = false
    for (const bytes of revocations) {
      const outcome = proofs.addRevocation(bytes)
      if (outcome === 'added') this.#keepRevocation(bytes)
      else if (outcome !== 'known') isForked = true
    }
    const isWithheld = isForked || revocations.length === 0
    if (isWithheld) this.#shownRevocations = Math.max(this.#shownRevocations, revocationCount)
    const known = Math.max(proofs.revocationCount, this.#revocationsMin)
    if ((!isForked && revocationCount >= known) || this.#reported.has('revocations')) return
    this.#reported.add('revocations')
    this.#emit({ type: 'revocations_rolled_back', known, shown: revocationCount })
  }

  #keepRevocation(bytes: Uint8Array): void {
    this.#storedRevocations = [...this.#storedRevocations, bytes]
    const number = this.#proofs!.revocationCount
    this.#keep(`revocation ${number}`, { kind: 'revocation', number, bytes })
  }

  #keep(key: string, record: ProofRecord): void {
    this.#store?.put(key, record)
  }
}
