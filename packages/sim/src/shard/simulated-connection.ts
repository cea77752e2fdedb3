/**
 * Simulates a connection on its shard, where the oracle observes frames and settles. Requests take one or two
 * statements.
 */
import type {
  Authentication,
  Engine,
  Enrolment,
  FoundGroups,
  FrameOfRequest,
  Lookup,
  Replies,
  Requester,
  RequestTable,
  RequestType,
  SendOutcome,
  SocketId,
} from '@sealpost/core'
import type { Connection, Prover, RequestServices, Resolution } from '@sealpost/driver'
import {
  BATCH_MAX,
  type ClientFrame,
  type CloseCode,
  closeNumber,
  type FrameOf,
  MEMBER_PAGE_MAX,
  type Member,
  type ServerFrame,
} from '@sealpost/protocol'
import type { DeliveryId, GroupId, MeshId, Millis, PeerKey } from '@sealpost/std'
import type { SimulatedLink } from '../network.ts'
import { poolStatementOf } from '../peer/crypto.ts'
import { LEASE_MS, type ShardRun } from '../surroundings.ts'
import type { SimulatedQueue } from './simulated-queue.ts'
import type { WatchedStatements } from './watched-statements.ts'

const LAPSES_WITHIN_MS: Millis = 4_000
const PING_MS: Millis = 50
const CLOGGED_MS_MAX: Millis = 400

export class SimulatedConnection implements Connection {
  readonly link: SimulatedLink
  readonly authority: string
  socket: SocketId = 0
  isOpen = true
  peer: { readonly meshId: MeshId; readonly peerKey: PeerKey; readonly credit: number } | null = null
  member: Member | null = null
  epoch = 0
  welcomedAtMs: Millis = Infinity
  isResting = false
  pushedAtMs: Millis = -Infinity
  /** Unsettled deliveries, except those of pools, by the time of their push. */
  readonly #outstanding = new Map<DeliveryId, Millis>()
  /** When the extended leases end. */
  readonly #extended = new Map<DeliveryId, Millis>()
  readonly #shard: ShardRun

  constructor(shard: ShardRun, link: SimulatedLink, authority: string) {
    this.#shard = shard
    this.link = link
    this.authority = authority
  }

  /** Returns whether the session has credit, which a poll frees after a delivery's lease. */
  mayTake(priority: number): boolean {
    if (!this.link.isWhole || (this.isResting && priority > 0)) return false
    const fromMs = this.#shard.world.clock.nowMs - LAPSES_WITHIN_MS
    const isHeld = ([id, atMs]: [DeliveryId, Millis]) => Math.max(atMs + LEASE_MS, this.#extended.get(id) ?? 0) > fromMs
    return [...this.#outstanding].filter(isHeld).length < this.peer!.credit
  }

  noteReceived(frame: ClientFrame): void {
    if (frame.type === 'auth') this.peer = { meshId: frame.meshId, peerKey: frame.peerKey, credit: frame.credit }
    if (frame.type === 'status') this.isResting = frame.availability === 'dnd'
    if (frame.type === 'settle') for (const id of frame.ids) this.#outstanding.delete(id)
    if (frame.type === 'extend') this.#noteExtended(frame)
    if (frame.type === 'retry' || frame.type === 'reject')
      for (const { id } of frame.items) this.#outstanding.delete(id)
  }

  #noteExtended({ ids, forMs }: FrameOf<'extend'>): void {
    for (const id of ids) {
      if (forMs === 0) this.#extended.delete(id)
      else if (this.#outstanding.has(id)) this.#extended.set(id, this.#shard.world.clock.nowMs + forMs)
    }
  }

  /** The leased deliveries of the peer that it has neither ended nor extended. */
  get untouched(): ReadonlySet<DeliveryId> {
    const fromMs = this.#shard.world.clock.nowMs - LEASE_MS
    const isUntouched = ([id, atMs]: [DeliveryId, Millis]) => atMs > fromMs && !this.#extended.has(id)
    return new Set([...this.#outstanding].filter(isUntouched).map(([id]) => id))
  }

  send(frames: readonly ServerFrame[]): SendOutcome {
    const { world, heard } = this.#shard
    const { revocations, oracle } = world
    if (this.peer && revocations.isLeaver(this.peer) && revocations.isHeardBy(this.#shard)) oracle.served()
    for (const frame of frames) {
      this.#watch(frame)
      if (frame.type === 'welcome') heard.heardOfMembers([this.member!])
    }
    if (world.chance('sendDropped')) {
      oracle.mark('send: dropped')
      return 'dropped'
    }
    for (const frame of frames) this.link.sendToClient(frame)
    if (!world.chance('sendBuffered')) return 'sent'
    oracle.mark('send: buffered')
    this.#clog(world.random.next() * CLOGGED_MS_MAX)
    return 'buffered'
  }

  close(code: CloseCode, retryAfterMs: Millis): void {
    this.isOpen = false
    // A socket that has dropped a frame accepts no others.
    if (code === 'slow_consumer') return this.link.breakServer()
    this.link.sendToClient({ type: 'refused', code, retryAfterMs, reason: '' })
    this.link.closeFromServer(closeNumber(code))
  }

  hangUp(): void {
    this.isOpen = false
    this.link.closeFromServer(1000)
  }

  ping(): void {
    this.#shard.after(PING_MS, () => {
      if (this.isOpen && this.link.isWhole) this.#step((engine) => engine.ponged(this.socket))
    })
  }
  pause(): void {
    this.#shard.world.oracle.mark('paused')
    this.link.pause()
  }
  resume(): void {
    this.link.resume()
  }

  #clog(forMs: Millis): void {
    this.link.clog(forMs)
    this.#shard.after(forMs, () => {
      if (this.isOpen) this.#step((engine) => engine.drained(this.socket))
    })
  }

  #step(decide: (engine: Engine) => void): void {
    const { driver } = this.#shard
    driver.step(() => decide(driver.engine))
  }

  #watch(frame: ServerFrame): void {
    const { oracle, store, clock } = this.#shard.world
    if (frame.type === 'welcome') {
      this.epoch = frame.epoch
      this.welcomedAtMs = clock.nowMs
    }
    if (!this.peer) return
    const { meshId, peerKey, credit } = this.peer
    if (frame.type === 'nack') for (const { code } of frame.items) oracle.mark(`nack: ${code}`)
    if (frame.type === 'ack')
      for (const { envelopeId, isDuplicate } of frame.items) {
        if (isDuplicate) oracle.mark('ack: duplicate')
        const sender = store.findByKey(meshId, peerKey)!.peer
        oracle.ackSent(meshId, peerKey, envelopeId, store.isStored(meshId, sender, envelopeId))
      }
    for (const delivery of pushesOf(frame)) oracle.pushSent(meshId, peerKey, delivery)
    const own = pushesOf(frame).filter(({ sender, envelopeId }) => !oracle.isOfPool(meshId, sender, envelopeId))
    for (const delivery of own) this.#shard.watch.pushed(this.member!, delivery)
    const ids = [...own, ...(frame.type === 'receipts' ? frame.items : [])].map(({ id }) => id)
    if (ids.length === 0) return
    this.pushedAtMs = clock.nowMs
    for (const id of ids) this.#outstanding.set(id, clock.nowMs)
    // After its lease, a delivery no longer takes credit.
    const fromMs = clock.nowMs - LEASE_MS
    oracle.creditOf([...this.#outstanding.values()].filter((atMs) => atMs > fromMs).length, credit)
  }
}

function pushesOf(frame: ServerFrame): FrameOf<'push'>['deliveries'] {
  if (frame.type === 'push') return frame.deliveries
  const hasMore = frame.type === 'pushWith' || frame.type === 'pushBody'
  return hasMore ? frame.deliveries.map(({ push }) => push) : []
}

/** The statements for requests. Simulated peers send no others, because groups and pools are seeded. */
type RequestStatements = {
  readonly [Type in RequestType]?: (requester: Requester, frame: FrameOfRequest<Type>) => Replies[Type]
}

interface RequestParts {
  readonly queue: SimulatedQueue
  readonly statements: WatchedStatements
  readonly connectionOf: (authority: string) => SimulatedConnection
}

const PROOF = new Uint8Array(64)

export class SimulatedRequests implements RequestServices {
  readonly table: RequestTable
  readonly #shard: ShardRun
  readonly #parts: RequestParts
  readonly #statements: RequestStatements

  constructor(shard: ShardRun, parts: RequestParts) {
    this.#shard = shard
    this.#parts = parts
    this.#statements = this.#statementsOf()
    const types = Object.keys(this.#statements) as RequestType[]
    this.table = Object.fromEntries(
      types.map((type) => [type, (requester: Requester, frame: never) => this.#reply(type, requester, frame)]),
    ) as unknown as RequestTable
  }

  async authenticate(
    { authority }: Prover,
    _hello: FrameOf<'hello'>,
    { meshId, peerKey }: FrameOf<'auth'>,
  ): Promise<Authentication> {
    const { queue, connectionOf } = this.#parts
    const [member = null] = await queue.findMembers(meshId, [peerKey])
    connectionOf(authority).member = member
    return { member, isSignatureGood: true, proof: PROOF }
  }

  async enrol(): Promise<Enrolment> {
    return { status: 'invite_refused' }
  }

  async resolve(meshId: MeshId, { peers, groups, pools }: Lookup): Promise<Resolution> {
    const { queue } = this.#parts
    const [members, foundPools] = await Promise.all([
      queue.findMembers(meshId, peers),
      pools.length > 0 ? queue.findPools(meshId, pools) : [],
    ])
    this.#shard.heard.heardOfMembers(members)
    return { members, successors: new Map(), groups: this.#foundGroups(meshId, groups), pools: foundPools, spaces: [] }
  }

  async #reply<Type extends RequestType>(
    type: Type,
    requester: Requester,
    frame: FrameOfRequest<Type>,
  ): Promise<Replies[Type]> {
    const { world, heard } = this.#shard
    const reply = await this.#parts.queue.ask(type, () => this.#statements[type]!(requester, frame))
    if (type === 'revoke') world.revocations.heardBy(this.#shard)
    if (type === 'consent') heard.heardOf(requester.meshId, requester.peer, (reply as Replies['consent']).consent)
    return reply
  }

  #statementsOf(): RequestStatements {
    const { world } = this.#shard
    const { statements } = this.#parts
    return {
      lookup: ({ meshId }, { peers }) => ({
        bindings: statements.findBindings(meshId, peers),
        users: { statements: [], removals: [], successions: [] },
      }),
      lookupHistory: ({ meshId }, { peer }) => [
        ...statements.findBindings(meshId, [peer]),
        ...world.turns.formersOf({ meshId, peer }),
      ],
      members: ({ meshId }, { after }) => {
        const keys = world.store.keysAfter(meshId, after, MEMBER_PAGE_MAX + 1)
        const page = keys.slice(0, MEMBER_PAGE_MAX).map((peer) => ({ peer, name: '', role: 'member' as const }))
        return { members: page, isLast: keys.length <= MEMBER_PAGE_MAX }
      },
      revoke: () => {
        const { revocations, store, oracle } = world
        return { outcome: 'done', ended: revocations.commit(store, oracle) }
      },
      consent: (requester, frame) => world.consents.change(world.store, requester, frame),
      bind: ({ meshId, peerKey }, frame) => world.turns.bind(world.store, { meshId, peer: peerKey }, frame),
      groups: ({ meshId }) => ({ groups: [world.groupIn(meshId)], isLast: true }),
      pools: ({ meshId }) => ({ statements: [poolStatementOf(meshId, world.members)], isLast: true }),
      joinPool: ({ meshId }, { pool }) => ({ pool: statements.pools.find(meshId, [pool])[0] ?? null }),
      findLost: ({ meshId, peer }) => {
        const lost = statements.findLost(meshId, peer, BATCH_MAX)
        return { lost, isAll: lost.length < BATCH_MAX }
      },
    }
  }

  #foundGroups(meshId: MeshId, asked: readonly GroupId[]): FoundGroups {
    const group = this.#shard.world.groupIn(meshId)
    return new Map(asked.map((id) => [id, id === group.groupId ? group : null]))
  }
}
