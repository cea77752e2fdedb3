/**
 * Maintains the keys of a space: accepts the grants for this member, creates those that others lack, and changes to a
 * new key when someone has left, or has joined a space whose new members may not read earlier contents. Any member may
 * make the change: the broker's compare-and-set on the key epoch decides between two.
 *
 * In a group, the owner's statement determines who has left, even if a broker denies it. In the space of a mesh, nobody
 * signs the list of members, so the broker's list decides.
 */
import {
  type BoxKeys,
  checkKeyBinding,
  type GroupStatement,
  type Identity,
  type KeyGrant,
  openGrant,
  readGroup,
  type SpaceStatement,
  sealGrant,
} from '@sealpost/identity'
import { isSameBytes, type PeerKey } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { KeyEpochs } from '../keys/key-epochs.ts'
import type { MemberProofs } from '../members/member-proofs.ts'
import { chunksOf } from '../outbox/lane.ts'
import { type SpaceMemory, type SpacePin, type TamperReport, tampered } from './entry-verifier.ts'
import type { MemberGrant, NextKey, SpaceKeyRing, SpaceService, SpaceStatus } from './space-service.ts'

export interface KeyMaintenanceParts {
  readonly calls: SpaceService
  readonly ring: SpaceKeyRing
  readonly memory: SpaceMemory
  readonly identity: Identity
  readonly formerBoxKeys: readonly BoxKeys[]
  readonly keyEpochs: KeyEpochs
  /** The required owner of the space of the whole mesh. If null, the first owner seen is trusted. */
  readonly owner: PeerKey | null
  readonly tell: (told: TamperReport) => void
  /** Returns the newest statement of the group that the peer has seen, also in mail; null if none is known. */
  readonly seenGroup: () => GroupStatement | null
  /** Decides who may have keys; null if the broker's list of members does. */
  readonly members: Pick<MemberProofs, 'unprovenAmong' | 'revocationCount'> | null
}

type SpaceAnswer = Pick<SpaceStatus, 'lastSeq' | 'keyEpoch'>

/** The maximum number of boxes per request. A box has about 500 bytes, unless it contains many keys. */
const GRANTS_AT_ONCE = 256
const BOX_BYTES_AT_ONCE = 96 * 1024
/** The maximum number of rounds, because other members may make the same changes concurrently. */
const ROUNDS_MAX = 4

export class KeyMaintenance {
  readonly #parts: KeyMaintenanceParts
  #underWay: Promise<SpaceStatus> | null = null
  #group: GroupStatement | null = null
  /** The statement with the epoch `SpaceKeyRing.groupEpoch`, if this member has seen it. */
  #vouched: GroupStatement | null = null
  /** The revocations after which the holders of the newest key were checked. */
  #revocationsSeen = 0
  /** The last verdict on each peer's box key, so that each refusal is reported once. */
  readonly #verdicts = new Map<PeerKey, string>()

  constructor(parts: KeyMaintenanceParts) {
    this.#parts = parts
    this.#restore()
  }

  /**
   * Maintains the keys. Concurrent calls share one run. @throws SealpostError `space_unknown`, `space_forged`, and the
   * errors of the requests
   */
  run(): Promise<SpaceStatus> {
    this.#underWay ??= this.#rounds().finally(() => {
      this.#underWay = null
    })
    return this.#underWay
  }

  /** Whether the peer has seen a newer statement of the group than that for which the keys were last checked. */
  get isOutdated(): boolean {
    return (this.#parts.seenGroup()?.epoch ?? 0) > (this.#group?.epoch ?? 0)
  }

  /** Returns the broker's status of the space, after checking it against the known facts. */
  async checkStatus(): Promise<SpaceStatus> {
    const { calls } = this.#parts
    const known = this.#pin // Replies may arrive out of order, so compare with the facts known at the time of the reply.
    const seen = [this.#parts.seenGroup(), this.#group, this.#vouched]
    const group = await calls.group()
    const status = await calls.status()
    const space = status.statement
    const flaw = this.#flawOf(space, group, known) ?? groupFlawOf(group, seen)
    if (flaw || !space) this.#refuse({ type: 'space_forged', reason: flaw ?? 'its statement is not signed' })
    const lost = known && lostOf(status, known)
    if (lost) this.#refuse({ type: 'state_rolled_back', reason: `the space has ${lost} than before` })
    if (group && group.epoch >= (this.#group?.epoch ?? 0)) this.#group = group
    this.#pinTo(space!, status)
    return { ...status, statement: space! }
  }

  get #pin() {
    return this.#parts.memory.pin
  }

  #refuse(told: TamperReport): never {
    this.#parts.tell(told)
    throw tampered(told)
  }

  #flawOf(space: SpaceStatement | null, group: GroupStatement | null, known: SpacePin | null): string | null {
    const { calls, owner } = this.#parts
    if (!space) return 'its statement is not signed by an owner'
    if (space.meshId !== calls.meshId || space.spaceId !== calls.spaceId)
      return 'its statement belongs to another space'
    const isOfMesh = (calls.spaceId as string) === calls.meshId
    if (!isOfMesh && !group) return 'the statement of its group is unavailable'
    const expected = group ? group.owner : (owner ?? known?.owner ?? space.owner)
    if (space.owner !== expected) return 'its statement is not signed by its owner'
    if (space.epoch < (known?.epoch ?? 0)) return 'its statement is older than one seen before'
    return (group?.epoch ?? 0) < (known?.groupEpoch ?? 0) ? 'its group is older than one seen before' : null
  }

  #pinTo({ owner, epoch }: SpaceStatement, { lastSeq, keyEpoch }: SpaceAnswer): void {
    const known = this.#pin
    const pin = {
      owner,
      epoch: Math.max(epoch, known?.epoch ?? 0),
      groupEpoch: this.#group?.epoch ?? 0,
      seq: Math.max(lastSeq, known?.seq ?? 0),
      keyEpoch: Math.max(keyEpoch, known?.keyEpoch ?? 0),
    }
    const isNews = (Object.keys(pin) as (keyof SpacePin)[]).some((name) => pin[name] !== known?.[name])
    if (isNews) this.#parts.memory.pinTo(pin)
  }

  async #rounds(): Promise<SpaceStatus> {
    for (let round = 1; ; round++) {
      const status = await this.checkStatus()
      await this.#take(status)
      try {
        if (!(await this.#give(status)) || round >= ROUNDS_MAX) return status
      } catch (error) {
        const isLate = error instanceof SealpostError && error.code === 'stale_epoch'
        if (!isLate || round >= ROUNDS_MAX) throw error // another member won the race, so check again
      }
    }
  }

  #restore(): void {
    const { memory, ring } = this.#parts
    const grant = memory.keys && this.#opened(memory.keys)
    if (grant) ring.take(grant)
    this.#vouched = memory.keysGroup && readGroup(memory.keysGroup)
  }

  #opened(box: Uint8Array): KeyGrant | null {
    const { identity, formerBoxKeys } = this.#parts
    return openGrant(box, identity.signing.publicKey, [identity.box, ...formerBoxKeys])
  }

  async #take({ grants }: SpaceStatus): Promise<void> {
    if (grants.length === 0) return
    const { ring, calls, memory } = this.#parts
    const before = ring.size
    const granters = grants.flatMap(({ box }) => this.#opened(box)?.granter ?? [])
    const barred = await this.#barred(granters)
    for (const { keyEpoch, box } of grants) {
      const flaw = this.#takeOne(keyEpoch, box, barred)
      if (!flaw) continue
      this.#parts.tell({ type: 'grant_forged', reason: flaw })
      if (!ring.find(keyEpoch)) return calls.grantAnew(keyEpoch)
    }
    if (ring.size > before) await this.#keepKeys()
    // Confirm only with a store; otherwise, the next process needs the grants again.
    if (memory.hasStore) await calls.fetched(grants.at(-1)!.keyEpoch)
  }

  /** Takes a grant. Returns null if its key is now in the ring. */
  #takeOne(keyEpoch: number, box: Uint8Array, barred: ReadonlySet<PeerKey>): string | null {
    const grant = this.#opened(box)
    if (!grant) return "a grant can't be opened"
    if (grant.keyEpoch !== keyEpoch) return 'a grant has a different epoch than the broker reported'
    if (!this.#belongs(grant.granter)) return 'a grant comes from a peer that does not belong to the space'
    if (barred.has(grant.granter)) return 'a grant comes from a peer that no certificate proves to be a member'
    return this.#parts.ring.take({ ...grant, groupEpoch: Math.min(grant.groupEpoch, this.#group?.epoch ?? 0) })
  }

  /** Returns those of the peers that must not have keys. This member trusts itself. */
  async #barred(peers: readonly PeerKey[]): Promise<ReadonlySet<PeerKey>> {
    const self = this.#parts.identity.signing.publicKey
    const others = [...new Set(peers)].filter((peer) => peer !== self)
    return new Set(await this.#parts.members?.unprovenAmong(others))
  }

  /** Returns whether the peer belongs to the space. For a mesh, the broker decides; for a group, the owner. */
  #belongs(peer: PeerKey): boolean {
    return !this.#group || this.#group.owner === peer || this.#group.members.includes(peer)
  }

  #keepKeys(): Promise<void> {
    const { identity, ring, memory } = this.#parts
    const self = identity.signing.publicKey
    const all = ring.grantTo(self, { granter: self, from: 0 })
    return memory.keepKeys(sealGrant(identity.signing, all, identity.box.publicKey), this.#vouched?.bytes ?? null)
  }

  /**
   * Returns whether an outsider may have been given the newest key. Only a member that has seen every statement since
   * knows everyone who was listed.
   */
  async #mustTurn({ historyFor }: SpaceStatement): Promise<boolean> {
    const [group, { ring }] = [this.#group, this.#parts]
    if (!group) return false
    if (ring.groupEpoch < group.epoch) {
      const before = this.#vouched
      const isNext = before?.epoch === ring.groupEpoch && group.epoch === before.epoch + 1
      const hasAll = isNext && before.members.every((member) => group.members.includes(member))
      if (!hasAll || (historyFor !== 'all' && before.members.length < group.members.length)) return true
      ring.vouch(group.epoch)
    }
    if (this.#vouched?.epoch === ring.groupEpoch || group.epoch !== ring.groupEpoch) return false
    this.#vouched = group
    await this.#keepKeys()
    return false
  }

  /** Gives keys to members that lack them. Returns whether any key was given, in which case another check is useful. */
  async #give(status: SpaceStatus): Promise<boolean> {
    const { ring } = this.#parts
    const { keyEpoch, departed, statement } = status
    if (keyEpoch === 0) return this.#turn(status)
    if (ring.newest > keyEpoch) return this.#turn(status) // after `forget`, the broker may be behind the ring: never continue with an old key
    if (ring.newest < keyEpoch) return false // another member must grant us the newest key first
    const lacking = await this.#eligible(status.lacking)
    const isBarred = statement.historyFor !== 'all' && lacking.some((member) => member.keyEpoch === 0)
    if ((await this.#mustTurn(statement)) || departed > 0 || isBarred) return this.#turn(status)
    if (await this.#isHeldByUnproven(keyEpoch)) return this.#turn(status)
    if (lacking.length === 0) return false
    return this.#grant(lacking, { statement, expects: keyEpoch })
  }

  /**
   * Returns whether a member that is not proven has the newest key, because the broker hides that it was revoked. Looks
   * once for each revocation.
   */
  async #isHeldByUnproven(keyEpoch: number): Promise<boolean> {
    const { members, calls } = this.#parts
    await members?.unprovenAmong([]) // learns of new revocations
    const count = members?.revocationCount ?? 0
    if (count <= this.#revocationsSeen) return false
    this.#revocationsSeen = count
    const holders = (await calls.members()).filter((member) => member.keyEpoch === keyEpoch)
    return (await this.#barred(holders.map(({ peer }) => peer))).size > 0
  }

  async #turn({ statement, keyEpoch }: SpaceStatus): Promise<boolean> {
    const { calls, ring } = this.#parts
    const members = await this.#eligible(await calls.members())
    return this.#grant(members, { statement, expects: keyEpoch, next: ring.next(this.#group?.epoch ?? 0) })
  }

  /** Returns the members that belong to the space and may have its keys. */
  async #eligible(listed: readonly MemberGrant[]): Promise<MemberGrant[]> {
    const members = listed.filter(({ peer }) => this.#belongs(peer))
    const barred = await this.#barred(members.map(({ peer }) => peer))
    return members.filter(({ peer }) => !barred.has(peer))
  }

  async #grant(
    members: readonly MemberGrant[],
    { statement, expects, next }: { statement: SpaceStatement; expects: number; next?: NextKey },
  ): Promise<boolean> {
    const { calls, identity } = this.#parts
    const keyEpoch = next?.keyEpoch ?? expects
    const self = identity.signing.publicKey
    const boxKeys = await this.#boxKeys(members.map(({ peer }) => peer).filter((peer) => peer !== self))
    boxKeys.set(self, identity.box.publicKey)
    // The first request must contain this member's own grant, because the creator of a key must have it.
    const ordered = [...members].sort((a, b) => Number(b.peer === self) - Number(a.peer === self))
    if (next && ordered[0]?.peer !== self) return false // a former member must not create a key
    const grants = ordered.flatMap((member) => {
      const boxKey = boxKeys.get(member.peer)
      if (!boxKey) return [] // skip the member until its key has a valid binding again
      return [{ peer: member.peer, box: this.#boxFor(member, boxKey, { statement, keyEpoch, ...(next && { next }) }) }]
    })
    let stands = expects
    for (const some of inRequests(grants)) {
      await calls.grant({ keyEpoch, expects: stands, grants: some })
      stands = keyEpoch
    }
    return grants.length > 0
  }

  /** Returns the box keys that are signed by their peers and not older than known ones (see `KeyDirectory`). */
  async #boxKeys(peers: readonly PeerKey[]): Promise<Map<PeerKey, Uint8Array>> {
    const { calls, keyEpochs, tell } = this.#parts
    const wanted = new Map(peers.map((peer) => [peer, keyEpochs.of(peer)]))
    const found = new Map<PeerKey, Uint8Array>()
    for (const binding of await calls.bindings(peers)) {
      const { meshId, peerKey, boxKey, boxEpoch } = binding
      const floor = wanted.get(peerKey)
      if (floor === undefined) continue
      const verdict = checkKeyBinding(binding, { meshId, peerKey, nowMs: Date.now() })
      const reason = verdict === 'ok' && boxEpoch < floor ? 'binding_rolled_back' : verdict
      if (reason !== this.#verdicts.get(peerKey) && reason !== 'ok')
        tell({ type: 'key_refused', reason, author: peerKey })
      this.#verdicts.set(peerKey, reason)
      if (reason !== 'ok' || boxEpoch < keyEpochs.of(peerKey)) continue
      keyEpochs.raise(peerKey, boxEpoch)
      found.set(peerKey, boxKey)
    }
    return found
  }

  #boxFor(
    { peer, keyEpoch: granted }: MemberGrant,
    boxKey: Uint8Array,
    { statement, keyEpoch, next }: { statement: SpaceStatement; keyEpoch: number; next?: NextKey },
  ): Uint8Array {
    const { ring, identity } = this.#parts
    const isNew = this.#vouched !== null && this.#vouched.owner !== peer && !this.#vouched.members.includes(peer)
    const from = fromOf(statement, {
      granted: isNew ? 0 : granted,
      keyEpoch,
      isSelf: peer === identity.signing.publicKey,
    })
    const grant = ring.grantTo(peer, { granter: identity.signing.publicKey, from, ...(next && { next }) })
    return sealGrant(identity.signing, grant, boxKey)
  }
}

/** Compares the group's statement with those that this member has seen. */
function groupFlawOf(group: GroupStatement | null, seen: readonly (GroupStatement | null)[]): string | null {
  if (!group) return null
  for (const known of seen) {
    if (known && group.epoch < known.epoch) return 'its group is older than one seen before'
    if (known?.epoch === group.epoch && !isSameBytes(known.bytes, group.bytes))
      return 'its group has two statements with one epoch'
  }
  return null
}

/** Returns a description of what the broker has lost; null if it has everything that is known. */
function lostOf({ lastSeq, keyEpoch }: SpaceAnswer, known: SpacePin): string | null {
  if (lastSeq < known.seq) return 'fewer events'
  return keyEpoch < known.keyEpoch ? 'an older key' : null
}

/** Returns the first key epoch that a member may have: of all keys, of those since it joined, or of the newest. */
function fromOf(
  { historyFor }: SpaceStatement,
  { granted, keyEpoch, isSelf }: { granted: number; keyEpoch: number; isSelf: boolean },
): number {
  if (historyFor === 'all' || isSelf) return 0
  return granted === 0 ? keyEpoch : granted
}

function inRequests<T extends { readonly box: Uint8Array }>(grants: readonly T[]): T[][] {
  const bytes = Math.max(1, ...grants.map(({ box }) => box.length))
  const count = Math.max(1, Math.min(GRANTS_AT_ONCE, Math.floor(BOX_BYTES_AT_ONCE / bytes)))
  return chunksOf([...grants], count)
}
