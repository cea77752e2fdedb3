/** Sends requests to the broker about one space. Parses the replies but does not verify them. */
import {
  GRANT_KEYS_MAX,
  type GroupStatement,
  isGroupEnded,
  type KeyBinding,
  type KeyGrant,
  type KeyScope,
  keyLink,
  NO_LINK,
  newSpaceKey,
  readGroup,
  readSpace,
  type SpaceStatement,
} from '@sealpost/identity'
import { LOOKUP_MAX } from '@sealpost/protocol'
import { type GroupId, isHex, isSameBytes, type MeshId, type PeerKey, type SpaceId, toBase64url } from '@sealpost/std'
import { answerMalformed, bytesOf } from '../http/access.ts'
import { chunksOf } from '../outbox/lane.ts'
import type { Access, Ask } from './access.ts'
import { linesOf, microseconds, RECORDS, recordsOf, type StreamLine, type StreamQuery, whole } from './event-stream.ts'

/** A member and the newest key epoch that was granted to it; 0 if there is none. */
export interface MemberGrant {
  readonly peer: PeerKey
  readonly keyEpoch: number
}

export interface SpaceStatus {
  readonly statement: SpaceStatement
  /** 0 if no key exists yet. */
  readonly keyEpoch: number
  readonly lastSeq: number
  readonly entries: number
  readonly entryBytes: number
  readonly historyBytes: number
  /** When the complete history begins, in microseconds since 1970; null if there is none. */
  readonly horizonUs: number | null
  readonly memberCount: number
  /** The number of former members that have the newest key. */
  readonly departed: number
  /** Members without the newest key. */
  readonly lacking: readonly MemberGrant[]
  /** Grants that this peer has not confirmed yet, ascending by epoch. */
  readonly grants: readonly { readonly keyEpoch: number; readonly box: Uint8Array }[]
}

export interface NewGrants {
  readonly keyEpoch: number
  /**
   * The newest key epoch that the broker must have before this request: `keyEpoch`, or the previous epoch for a new
   * key.
   */
  readonly expects: number
  readonly grants: readonly { readonly peer: PeerKey; readonly box: Uint8Array }[]
}

export type EntryWriteOutcome =
  | { readonly outcome: 'done'; readonly seq: number; readonly atUs: number }
  | { readonly outcome: 'conflict'; readonly entry: Uint8Array | null }
  | { readonly outcome: 'too_large' | 'quota' | 'malformed' | 'stale_key_epoch' | 'busy' | 'unknown_space' }

/** The maximum silence of a response, on which the broker sends a keep-alive every 15 s. */
const SILENT_MAX_MS = 40_000

export class SpaceService {
  readonly meshId: MeshId
  readonly spaceId: SpaceId
  readonly #access: Access
  readonly #mesh: string

  constructor(access: Access, { meshId, spaceId }: { meshId: MeshId; spaceId: SpaceId }) {
    this.#access = access
    this.meshId = meshId
    this.spaceId = spaceId
    this.#mesh = `/v1/meshes/${meshId}`
  }

  /**
   * Returns the status. `statement` is null if its owner's signature is missing. @throws SealpostError `space_unknown`
   */
  async status(): Promise<Omit<SpaceStatus, 'statement'> & { statement: SpaceStatement | null }> {
    const reply = await this.#json({ method: 'GET', path: '' })
    return {
      statement: readSpace(bytesOf(reply.statement)),
      keyEpoch: whole(reply.keyEpoch),
      lastSeq: whole(reply.lastSeq),
      entries: whole(reply.entries),
      entryBytes: whole(reply.entryBytes),
      historyBytes: whole(reply.historyBytes),
      horizonUs: reply.horizon === null || reply.horizon === undefined ? null : microseconds(reply.horizon),
      memberCount: whole(reply.memberCount),
      departed: whole(reply.departed),
      lacking: listed(reply.lacking).map(grantedOf),
      grants: listed(reply.grants).map(({ keyEpoch, box }) => ({ keyEpoch: whole(keyEpoch), box: bytesOf(box) })),
    }
  }

  /** Publishes the terms of the space. @throws SealpostError `stale_epoch`, `not_owner` */
  async declare({ bytes }: SpaceStatement): Promise<void> {
    await this.#access.ask({ method: 'PUT', path: this.#path(''), body: { statement: toBase64url(bytes) } })
  }

  async members(): Promise<MemberGrant[]> {
    const found: MemberGrant[] = []
    for (let after: PeerKey | undefined; ; after = found.at(-1)!.peer) {
      const reply = await this.#json({ method: 'GET', path: '/members', query: { after } })
      const page = listed(reply.members).map(grantedOf)
      found.push(...page)
      if (reply.isLast !== false || page.length === 0) return found
    }
  }

  /** Stores grants for members. @throws SealpostError `stale_epoch` */
  async grant({ keyEpoch, expects, grants }: NewGrants): Promise<void> {
    const boxes = grants.map(({ peer, box }) => ({ peer, box: toBase64url(box) }))
    await this.#access.ask({ method: 'POST', path: this.#path('/grants'), body: { keyEpoch, expects, grants: boxes } })
  }

  /** Reports that this peer has stored the grants. */
  async fetched(keyEpoch: number): Promise<void> {
    await this.#access.ask({ method: 'DELETE', path: this.#path(`/grants/${keyEpoch}`) })
  }

  /** Reports a grant that can't be opened, so that a member grants again. */
  async grantAnew(keyEpoch: number): Promise<void> {
    await this.#access.ask({ method: 'DELETE', path: this.#path(`/grants/${keyEpoch}`), query: { replace: 'true' } })
  }

  /** Writes entries. Returns the results in the same order. */
  async write(entries: readonly Uint8Array[]): Promise<EntryWriteOutcome[]> {
    const reply = await this.#json({ method: 'POST', path: '/entries', body: { entries: entries.map(toBase64url) } })
    const outcomes = listed(reply.outcomes).map(outcomeOf)
    if (outcomes.length === entries.length) return outcomes
    throw answerMalformed()
  }

  async stream({ of, query, signal }: StreamQuery): Promise<AsyncGenerator<StreamLine>> {
    const { follow, keys, limit } = query
    const isLong = (follow ?? keys ?? limit) === undefined
    const asked = {
      method: 'GET',
      path: `${this.#mesh}/${of}`,
      query: { space: this.spaceId, ...query },
      isAsItIs: isLong || follow !== undefined,
      ...(isLong && { accept: RECORDS }),
      ...(follow !== undefined && { stallMs: SILENT_MAX_MS }),
      signal,
    } as const
    const answer = await this.#access.ask(asked)
    return answer.headers.get('content-type') === RECORDS ? recordsOf(answer) : linesOf(answer)
  }

  /** Returns the group's newest statement if its owner signed it; null if there is none, as in a mesh's space. */
  async group(): Promise<GroupStatement | null> {
    if ((this.spaceId as string) === this.meshId) return null
    const reply = await this.#access.json({ method: 'POST', path: '/v1/rosters', body: { groups: [this.spaceId] } })
    const [found] = listed(reply.groups)
    const group = found && this.readGroup(bytesOf(found.statement))
    return group && !isGroupEnded(group) ? group : null
  }

  /** Returns null unless the bytes are a statement of this space's group. */
  readGroup(statement: Uint8Array): GroupStatement | null {
    const group = readGroup(statement)
    return group?.meshId === this.meshId && group.groupId === (this.spaceId as GroupId) ? group : null
  }

  /** Returns the directory's bindings of these peers, unverified. */
  async bindings(peers: readonly PeerKey[]): Promise<KeyBinding[]> {
    const found: KeyBinding[] = []
    for (const piece of chunksOf([...peers], LOOKUP_MAX)) {
      const reply = await this.#access.json({ method: 'POST', path: '/v1/lookup', body: { peers: piece } })
      found.push(...listed(reply.bindings).map((binding) => this.#bindingOf(binding)))
    }
    return found
  }

  #bindingOf(reply: Record<string, unknown>): KeyBinding {
    const terms = { boxEpoch: Number(reply.boxEpoch), notAfterMs: Number(reply.notAfterMs) }
    const bytes = { boxKey: bytesOf(reply.boxKey), signature: bytesOf(reply.signature) }
    return { meshId: this.meshId, peerKey: reply.peer as PeerKey, ...terms, ...bytes }
  }

  #json(asked: Ask): Promise<Record<string, unknown>> {
    return this.#access.json({ ...asked, path: this.#path(asked.path) })
  }

  #path(below: string): string {
    return `${this.#mesh}/spaces/${this.spaceId}${below}`
  }
}

function listed(value: unknown): Record<string, unknown>[] {
  if (Array.isArray(value) && value.every((one) => typeof one === 'object' && one !== null)) return value
  throw answerMalformed()
}

function grantedOf({ peer, keyEpoch }: Record<string, unknown>): MemberGrant {
  if (!isHex(peer, 32)) throw answerMalformed()
  return { peer: peer as string as PeerKey, keyEpoch: whole(keyEpoch) }
}

function outcomeOf({ outcome, seq, at, entry }: Record<string, unknown>): EntryWriteOutcome {
  switch (outcome) {
    case 'done':
      return { outcome, seq: whole(seq), atUs: microseconds(at) }
    case 'conflict':
      return { outcome, entry: entry === null || entry === undefined ? null : bytesOf(entry) }
    case 'too_large':
    case 'quota':
    case 'malformed':
    case 'stale_key_epoch':
    case 'busy':
    case 'unknown_space':
      return { outcome }
    default:
      throw answerMalformed()
  }
}

type Place = Omit<KeyScope, 'keyEpoch'>
/** A key that no member has yet. */
export interface NextKey {
  readonly keyEpoch: number
  readonly groupEpoch: number
  readonly key: Uint8Array
  readonly nameKey: Uint8Array
}

type GrantFlaw = string

export class SpaceKeyRing {
  readonly #place: Place
  readonly #keys = new Map<number, Uint8Array>()
  #nameKey: Uint8Array | null = null
  /** The group epoch of the newest key (see `KeyGrant`). */
  #groupEpoch = 0

  constructor(place: Place) {
    this.#place = place
  }

  get nameKey(): Uint8Array | null {
    return this.#nameKey
  }
  /** The newest key epoch; 0 if there is none. */
  get newest(): number {
    return Math.max(0, ...this.#keys.keys())
  }
  /** The group epoch at which only members had the newest key, as far as its granters know. */
  get groupEpoch(): number {
    return this.#groupEpoch
  }
  get size(): number {
    return this.#keys.size
  }

  find(keyEpoch: number): Uint8Array | null {
    return this.#keys.get(keyEpoch) ?? null
  }

  /** Accepts the new keys of a grant, all or none. The caller must check that the granter belongs to the space. */
  take(grant: KeyGrant): GrantFlaw | null {
    const { meshId, spaceId, nameKey, keys, keyEpoch, link } = grant
    if (meshId !== this.#place.meshId || spaceId !== this.#place.spaceId) return 'a grant belongs to another space'
    if (this.#nameKey && !isSameBytes(this.#nameKey, nameKey)) return 'a grant has a different name key'
    for (const one of keys) {
      const known = this.#keys.get(one.keyEpoch)
      if (known && !isSameBytes(known, one.key)) return 'a grant has a different key for a known epoch'
    }
    const former = this.#keys.get(keyEpoch - 1)
    const key = keys.at(-1)!.key
    if (former && !isSameBytes(link, keyLink(former, key, { ...this.#place, keyEpoch })))
      return 'a grant has a key that does not follow the previous one'
    if (keyEpoch >= this.newest)
      this.#groupEpoch = Math.max(keyEpoch > this.newest ? 0 : this.#groupEpoch, grant.groupEpoch)
    this.#nameKey ??= nameKey
    for (const one of keys) this.#keys.set(one.keyEpoch, one.key)
    return null
  }

  /** Marks everyone with the newest key as a member at this group epoch. */
  vouch(groupEpoch: number): void {
    this.#groupEpoch = groupEpoch
  }

  /** Generates the next key, which joins the ring only when its grant is taken. */
  next(groupEpoch: number): NextKey {
    return { keyEpoch: this.newest + 1, groupEpoch, key: newSpaceKey(), nameKey: this.#nameKey ?? newSpaceKey() }
  }

  /** Returns a grant of all keys from one epoch on, including the next key, if there is one. */
  grantTo(member: PeerKey, { granter, from, next }: { granter: PeerKey; from: number; next?: NextKey }): KeyGrant {
    const keys = [...this.#keys].map(([keyEpoch, key]) => ({ keyEpoch, key }))
    const all = (next ? [...keys, next] : keys).filter(({ keyEpoch }) => keyEpoch >= from)
    const given = all.sort((a, b) => a.keyEpoch - b.keyEpoch).slice(-GRANT_KEYS_MAX)
    const { keyEpoch, key } = given.at(-1)!
    const former = this.#keys.get(keyEpoch - 1)
    const link = former ? keyLink(former, key, { ...this.#place, keyEpoch }) : NO_LINK
    const named = given.map((one) => ({ keyEpoch: one.keyEpoch, key: one.key }))
    const { groupEpoch, nameKey } = next ?? { groupEpoch: this.#groupEpoch, nameKey: this.#nameKey! }
    return { ...this.#place, keyEpoch, groupEpoch, granter, member, link, nameKey, keys: named }
  }
}
