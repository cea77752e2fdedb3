/**
 * Provides tests with an in-process broker that serves spaces through `fetch`. It follows the rules unless a test makes
 * it hostile; it then changes its replies before it sends them.
 */
import {
  bindBoxKey,
  entryFields,
  type GroupStatement,
  generateIdentity,
  hash256,
  type Identity,
  readSpace,
  type SpaceStatement,
  signAsBroker,
  signingKeysFromSeed,
  type Transcript,
} from '@sealpost/identity'
import { fromBase64url, type MeshId, type PeerKey, type SpaceId, toBase64url, toHex } from '@sealpost/std'
import type { FetchLike } from '../http/access.ts'
import type { OpenStateOptions } from '../state/index.ts'

export interface Stored {
  readonly seq: number
  readonly atUs: number
  readonly kind: 1 | 2 | 3
  readonly value: Uint8Array
  readonly body?: Uint8Array
}

type Json = Record<string, unknown>
interface Asked {
  readonly method: string
  readonly path: string
  readonly query: URLSearchParams
  readonly body: Json
  readonly caller: PeerKey
}

const FIRST_US = 1_700_000_000_000_000
const AUTHORITY = 'broker.test:443'

export class SpaceBroker {
  readonly keys = signingKeysFromSeed(new Uint8Array(32).fill(77))
  readonly meshId = 'ab'.repeat(16) as MeshId
  readonly members = new Map<PeerKey, Identity>()
  statement: SpaceStatement | null = null
  group: GroupStatement | null = null
  keyEpoch = 0
  grants: { peer: PeerKey; keyEpoch: number; box: Uint8Array; isFetched: boolean }[] = []
  events: Stored[] = []
  readonly standing = new Map<string, Stored>()
  /** Changes the lines of a stream before they are sent. */
  bend: (lines: Json[], asked: Asked) => Json[] = (lines) => lines
  /** Changes any other reply before it is sent. */
  bendAnswer: (answer: Json, asked: Asked) => Json = (answer) => answer
  /** The number of lines after which the next stream is cut. */
  cutAfter: number | null = null
  /** The largest page. */
  pageMax = Infinity
  /** Members that the broker serves even if the group's newest statement lacks them. */
  readonly keptIn = new Set<PeerKey>()
  /** The directory's box keys, where they differ from the peers' own. */
  readonly boxKeys = new Map<PeerKey, Identity['box']>()
  readonly asked: string[] = []
  readonly #followers = new Set<() => void>()
  #firstFollower = Promise.withResolvers<void>()
  #challenges = new Map<string, Json>()

  join(identity = generateIdentity()): Identity {
    this.members.set(identity.signing.publicKey, identity)
    return identity
  }

  leave(identity: Identity): void {
    this.members.delete(identity.signing.publicKey)
  }

  placeOf(identity: Identity): OpenStateOptions {
    return {
      url: `wss://${AUTHORITY}`,
      brokerKey: this.keys.publicKey,
      meshId: this.meshId,
      identity,
      maintainKeysEveryMs: 0,
      ports: { fetch: this.fetch, wait: async () => undefined, random: () => 0 },
      ...(this.group && { group: this.group.groupId }),
    }
  }

  readonly fetch: FetchLike = async (href, init) => {
    const url = new URL(href)
    const body = init.body ? (JSON.parse(String(init.body)) as Json) : {}
    const method = init.method ?? 'GET'
    this.asked.push(`${method} ${url.pathname}`)
    if (url.pathname === '/v1/token/challenge') return this.#challenge()
    if (url.pathname === '/v1/token' && method === 'POST') return this.#token(body)
    const { Authorization } = init.headers as Record<string, string>
    const caller = (Authorization ?? '').slice('Bearer '.length) as PeerKey
    if (!this.members.has(caller)) return json({ code: 'token_invalid' }, 401)
    const asked = { method, path: url.pathname, query: url.searchParams, body, caller }
    init.signal?.throwIfAborted() // like the platform's `fetch`
    return this.#answer(asked, init.signal ?? undefined)
  }

  #challenge(): Response {
    const connectionId = toBase64url(crypto.getRandomValues(new Uint8Array(16)))
    const nonce = toBase64url(crypto.getRandomValues(new Uint8Array(32)))
    const hello = { versions: [1], brokerKey: this.keys.publicKey, connectionId, nonce, issuedAtMs: 5 }
    this.#challenges.set(connectionId, hello)
    return json(hello)
  }

  #token(body: Json): Response {
    const hello = this.#challenges.get(String(body.connectionId))!
    const transcript: Transcript = {
      ...{ version: 1, versionsOffered: [1], authority: AUTHORITY, brokerKey: this.keys.publicKey },
      ...{ meshId: this.meshId, peerKey: body.peerKey as PeerKey, serverNonce: fromBase64url(String(hello.nonce)) },
      clientNonce: fromBase64url(String(body.clientNonce)),
      connectionId: fromBase64url(String(body.connectionId)),
      ...{ issuedAtMs: 5, capabilities: [] },
    }
    const proof = signAsBroker(this.keys, transcript, fromBase64url(String(body.signature)))
    return json({ token: body.peerKey, expiresAtMs: 0, proof: toBase64url(proof) })
  }

  #answer(asked: Asked, signal: AbortSignal | undefined): Response {
    const [, , , , what, , below = ''] = asked.path.split('/')
    if (asked.path === '/v1/token') return new Response(null, { status: 204 })
    if (asked.path === '/v1/rosters') return json(this.#rosters())
    if (asked.path === '/v1/lookup') return json(this.#lookup(asked.body.peers as PeerKey[]))
    if (what === 'spaces' && below === '' && asked.method === 'PUT') return this.#declare(asked)
    if (!this.statement || !this.#isIn(asked.caller)) return json({ code: 'space_unknown' }, 404)
    if (what === 'state' || what === 'history') return this.#stream(asked, what, signal)
    if (below === '') return json(this.bendAnswer(this.#status(asked.caller), asked))
    if (below === 'members') return json({ members: this.#granted(), isLast: true })
    if (below === 'entries') return json(this.bendAnswer(this.#write(asked), asked))
    return asked.method === 'POST' ? this.#grant(asked) : this.#fetched(asked)
  }

  #isIn(peer: PeerKey): boolean {
    if (this.keptIn.has(peer)) return true
    return this.members.has(peer) && (!this.group || this.group.members.includes(peer))
  }

  #rosters(): Json {
    const { group } = this
    return group ? { groups: [{ statement: toBase64url(group.bytes) }], unknown: [] } : { groups: [], unknown: [] }
  }

  #lookup(peers: readonly PeerKey[]): Json {
    const bindings = peers.flatMap((peer) => {
      const identity = this.members.get(peer)
      if (!identity) return []
      const box = this.boxKeys.get(peer) ?? identity.box
      const { boxKey, signature, ...terms } = bindBoxKey({ ...identity, box }, this.meshId, 4e12)
      return [{ ...terms, peer, boxKey: toBase64url(boxKey), signature: toBase64url(signature) }]
    })
    return { bindings, unknown: [] }
  }

  #declare({ body }: Asked): Response {
    const space = readSpace(fromBase64url(String(body.statement)))
    if (!space || space.epoch <= (this.statement?.epoch ?? 0)) return json({ code: 'stale_epoch' }, 409)
    this.statement = space
    return json({})
  }

  #granted(): { peer: PeerKey; keyEpoch: number }[] {
    const epochOf = (peer: PeerKey) =>
      Math.max(0, ...this.grants.filter((grant) => grant.peer === peer).map(({ keyEpoch }) => keyEpoch))
    return [...this.members.keys()]
      .filter((peer) => this.#isIn(peer))
      .map((peer) => ({ peer, keyEpoch: epochOf(peer) }))
  }

  #status(caller: PeerKey): Json {
    const members = this.#granted()
    const newest = this.grants.filter(({ keyEpoch }) => keyEpoch === this.keyEpoch)
    const mine = this.grants.filter(({ peer, isFetched }) => peer === caller && !isFetched)
    return {
      ...{ statement: toBase64url(this.statement!.bytes), keyEpoch: this.keyEpoch, lastSeq: this.events.length },
      ...{
        entries: this.standing.size,
        entryBytes: 0,
        historyBytes: 0,
        horizon: FIRST_US,
        memberCount: members.length,
      },
      departed: newest.filter(({ peer }) => !this.#isIn(peer)).length,
      lacking: members.filter(({ keyEpoch }) => keyEpoch < this.keyEpoch),
      grants: mine.map(({ keyEpoch, box }) => ({ keyEpoch, granter: '00'.repeat(32), box: toBase64url(box) })),
    }
  }

  #grant({ body }: Asked): Response {
    const { keyEpoch, expects, grants } = body as { keyEpoch: number; expects: number; grants: Json[] }
    if (expects !== this.keyEpoch) return json({ code: 'stale_epoch', keyEpoch: this.keyEpoch }, 409)
    if (keyEpoch > expects) this.grants = this.grants.filter(({ peer }) => this.#isIn(peer))
    this.keyEpoch = keyEpoch
    for (const { peer, box } of grants) this.give(peer as PeerKey, fromBase64url(String(box)))
    return json({})
  }

  give(peer: PeerKey, box: Uint8Array, keyEpoch = this.keyEpoch): void {
    if (this.grants.some((grant) => grant.peer === peer && grant.keyEpoch === keyEpoch)) return
    this.grants.push({ peer, keyEpoch, box, isFetched: false })
  }

  #fetched({ path, query, caller }: Asked): Response {
    const epoch = Number(path.split('/').at(-1))
    const isMine = (grant: { peer: PeerKey; keyEpoch: number }) => grant.peer === caller && grant.keyEpoch <= epoch
    if (query.has('replace')) this.grants = this.grants.filter((grant) => !isMine(grant))
    else this.grants = this.grants.map((grant) => (isMine(grant) ? { ...grant, isFetched: true } : grant))
    return new Response(null, { status: 204 })
  }

  #write({ body }: Asked): Json {
    const outcomes = (body.entries as string[]).map((text) => {
      const bytes = fromBase64url(text)
      const entry = entryFields(bytes)!
      const former = this.standing.get(entry.keyHash)
      if (former && toBase64url(former.value) === text) return { outcome: 'done', seq: former.seq, at: former.atUs }
      if (entry.keyEpoch < this.keyEpoch) return { outcome: 'stale_key_epoch' }
      const isNext = former
        ? entryFields(former.value)!.revision + 1 === entry.revision &&
          toHex(entry.prevHash) === toHex(hash256(former.value))
        : entry.revision === 1
      if (!isNext) return { outcome: 'conflict', entry: former ? toBase64url(former.value) : null }
      const { seq, atUs } = this.append({ kind: entry.isDeleted ? 2 : 1, value: bytes })
      return { outcome: 'done', seq, at: atUs }
    })
    return { outcomes }
  }

  append(event: Pick<Stored, 'kind' | 'value' | 'body'>): Stored {
    const seq = this.events.length + 1
    const stored = { ...event, seq, atUs: FIRST_US + seq * 1000 }
    this.events.push(stored)
    if (event.kind !== 3) this.standing.set(entryFields(event.value)!.keyHash, stored)
    for (const follower of this.#followers) follower()
    return stored
  }

  #stream(asked: Asked, what: string, signal: AbortSignal | undefined): Response {
    const { query } = asked
    const after = Number(query.get('after') ?? 0)
    const before = Number(query.get('before') ?? Infinity)
    const found = (what === 'state' ? this.#stateAt(query) : this.#between(query)).filter(({ seq }) => seq < before)
    const limit = Math.min(Number(query.get('limit') ?? Infinity), this.pageMax)
    const start = { start: true, at: FIRST_US + this.events.length * 1000, lastSeq: this.events.length }
    const rest = found.filter(({ seq }) => seq > after)
    const page = query.has('before') ? rest.slice(-limit) : rest.slice(0, limit)
    const lines = this.bend(page.map(lineOf), asked)
    const more = query.has('limit') && page.length < rest.length
    if (!query.has('follow')) return this.#body([start, ...lines, { end: true, seq: this.events.length, more }])
    return this.#follow([start, ...lines], { asked, signal })
  }

  #stateAt(query: URLSearchParams): Stored[] {
    const keys = query.get('keys')?.split(',')
    const atUs = query.has('at') ? Date.parse(query.get('at')!) * 1000 : null
    if (atUs === null)
      return [...this.standing]
        .filter(([hash]) => !keys || keys.includes(hash))
        .map(([, stored]) => stored)
        .sort(bySeq)
    const last = new Map<string, Stored>()
    for (const event of this.events)
      if (event.kind !== 3 && event.atUs <= atUs) last.set(entryFields(event.value)!.keyHash, event)
    return [...last.values()].sort(bySeq)
  }

  #between(query: URLSearchParams): Stored[] {
    const bound = (name: string, none: number) => (query.has(name) ? Date.parse(query.get(name)!) * 1000 : none)
    const [from, to] = [bound('from', 0), bound('to', Infinity)]
    return this.events.filter(({ atUs }) => atUs >= from && atUs < to)
  }

  #body(lines: Json[]): Response {
    const { cutAfter } = this
    this.cutAfter = null
    const told = cutAfter === null ? lines : lines.slice(0, cutAfter)
    return new Response(told.map((line) => `${JSON.stringify(line)}\n`).join(''))
  }

  #follow(lines: Json[], { asked, signal }: { asked: Asked; signal: AbortSignal | undefined }): Response {
    const encoder = new TextEncoder()
    let told = this.events.length
    let left = this.cutAfter ?? Infinity
    this.cutAfter = null
    const { promise: isOver, resolve: end } = Promise.withResolvers<void>()
    let follower: () => void = () => undefined
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        const say = (line: Json) => {
          if (left-- > 0) controller.enqueue(encoder.encode(`${JSON.stringify(line)}\n`))
          if (left === 0) end()
        }
        follower = () => {
          const news = this.events.slice(told)
          told = this.events.length
          for (const line of this.bend(news.map(lineOf), asked)) say(line)
        }
        this.#followers.add(follower)
        this.#firstFollower.resolve()
        for (const line of lines) say(line)
        signal?.addEventListener('abort', () => end())
        void isOver.then(() => {
          this.#followers.delete(follower)
          controller.close()
        })
      },
      cancel: () => {
        this.#followers.delete(follower)
      },
    })
    return new Response(body)
  }

  /** Resolves when the next watch begins. */
  async followed(): Promise<void> {
    await this.#firstFollower.promise
    this.#firstFollower = Promise.withResolvers<void>()
  }

  get spaceId(): SpaceId {
    return this.group?.groupId ?? this.meshId
  }
}

const bySeq = (a: Stored, b: Stored): number => a.seq - b.seq

function lineOf({ seq, atUs, kind, value, body }: Stored): Json {
  const base64 = (bytes: Uint8Array) => Buffer.from(bytes).toString('base64')
  return { seq, at: atUs, kind, value: base64(value), ...(body && { body: base64(body) }) }
}

const json = (answer: Json, status = 200): Response => Response.json(answer, { status })
