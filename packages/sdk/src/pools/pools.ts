/**
 * Implements pools for applications. Each message to a pool goes to one of several peers. The owner's signature
 * determines the members.
 */
import { changePool, createPool, endPool, type PoolStatement, readPool } from '@sealpost/identity'
import { type FrameOf, POOL_MEMBERS_MAX, type ServerFrame } from '@sealpost/protocol'
import type { MeshId, Millis, PeerKey, PoolId } from '@sealpost/std'
import type { PeerEngine } from '../engine.ts'
import type { SealpostError } from '../errors.ts'
import { MemberList, MemberLists, StatementCache } from '../groups/member-lists.ts'
import { bytesOf, type Message } from '../inbox/message.ts'
import { checkProven, unprovenAmong } from '../members/member-guard.ts'
import { postTermsOf, type Receipt, type SendOptions } from '../outbox/lane.ts'
import type { OutboxLimits } from '../outbox/outbox.ts'
import { oncePerPeer, type Peer, type PeerPorts, portsOf, REQUEST_TIMEOUT_MS } from '../peer.ts'
import { type AddedPart, type AddedPartPorts, NO_FRAMES } from '../ports.ts'
import { type ConfirmWish, wishNote } from '../sent/hooks.ts'
import type { SeenStore } from '../stores/store.ts'
import { PoolJoins, type PoolSend, PoolSender, unknownPool } from './pool-sender.ts'

/** Returns null unless the bytes are a pool statement of this mesh, signed by the pool's owner. */
type ReadPool = (statement: Uint8Array) => PoolStatement | null

/** The pools of the mesh, read on demand. @internal */
export class PoolStatements extends StatementCache<PoolId, PoolStatement> {
  constructor(read: ReadPool, { emit, seen }: Pick<AddedPartPorts, 'emit' | 'seen'>, ask: (after: PoolId) => void) {
    super({
      ...{ of: 'pool', seen, read },
      idOf: ({ poolId }) => poolId,
      beforeAll: '0'.repeat(64) as PoolId,
      ask,
      tampered: (pool, reason) => emit({ type: 'pool_tamper', pool, reason }),
    })
  }
}

/** The engine's part for pools: the trusted statements, messages to pools, and joined pools. @internal */
export class PoolClient implements AddedPart {
  readonly statements: PoolStatements
  readonly sender: PoolSender
  readonly joins: PoolJoins
  readonly #ports: AddedPartPorts
  /** The number of statements that are not stored yet. Until they are, nothing is sealed for their members. */
  #unkeptCount = 0

  constructor(read: ReadPool, ports: AddedPartPorts) {
    this.#ports = ports
    const keep: SeenStore['keep'] = (key, record) => this.#keep(key, record)
    const seen = { records: ports.seen.records, keep }
    this.statements = new PoolStatements(read, { emit: ports.emit, seen }, (after) => this.#ask(after))
    this.sender = new PoolSender({ ...ports, statements: this.statements })
    this.joins = new PoolJoins(ports)
  }

  connected(limits: OutboxLimits): void {
    this.sender.connected(limits)
  }

  disconnected(): void {
    this.sender.disconnected()
    this.joins.disconnected()
  }

  takeFrames(nowMs: Millis): readonly (FrameOf<'sendPool'> | FrameOf<'joinPool'>)[] {
    if (this.joins.isIdle && this.sender.pendingCount === 0) return NO_FRAMES
    return [...this.joins.takeFrames(nowMs), ...(this.#unkeptCount > 0 ? [] : this.sender.takeFrames(nowMs))]
  }

  received(frame: ServerFrame, nowMs: Millis): void {
    if (frame.type === 'ack') this.sender.acked(frame.items, nowMs)
    else if (frame.type === 'nack') this.sender.nacked(frame.items, nowMs)
    else if (frame.type === 'poolJoined') this.joins.answered(frame)
    if (this.sender.pendingCount > 0) this.#ports.flushSoon()
  }

  tick(nowMs: Millis): void {
    this.sender.expire(nowMs)
  }

  get pendingCount(): number {
    return this.sender.pendingCount
  }

  get isPoolMember(): boolean {
    return this.joins.isAny
  }

  /** When `takeFrames` must be called next. Valid only during a session. */
  get wakeAtMs(): Millis {
    return Math.min(this.joins.wakeAtMs, this.sender.wakeAtMs)
  }

  close(error: SealpostError): void {
    this.sender.close(error)
    this.joins.close(error)
  }

  #keep(key: string, record: Parameters<SeenStore['keep']>[1]): void {
    this.#unkeptCount += 1
    this.#ports.seen.keep(key, record, () => {
      this.#unkeptCount -= 1
      this.#ports.flushSoon()
    })
  }

  #ask(after: PoolId): void {
    this.#ports.ask(
      { type: 'pools', after },
      {
        replied: ({ statements, isLast }) => this.statements.listed(statements, isLast),
        refused: (error) => this.statements.close(error),
      },
    )
  }
}

/**
 * Like `SendOptions`, without `ifOnline`, since a pool is never refused as offline. Upload an attachment for all members
 * of the pool, since any of them may receive the message.
 */
export type PoolSendOptions = Omit<SendOptions, 'ifOnline'> & ConfirmWish

export interface PoolRequestOptions extends Omit<PoolSendOptions, 'notBefore'> {
  /** The time limit from the call to the reply. Default: 30 s. */
  readonly timeoutMs?: Millis
}

const CREDIT_MAX = 0xffff

const clientFor = oncePerPeer(({ meshId, tell }) =>
  tell((engine) => engine.add((its) => new PoolClient(readerFor(meshId), its))),
)

/** Returns the pool statements that this peer has verified. @internal */
export const poolStatementsOf = (peer: Peer): PoolStatements => clientFor(peer).statements

/**
 * Returns the pools of the mesh.
 * @example const pool = await poolsOf(peer).create('reviewers', [ben])
 */
export function poolsOf(peer: Peer): Pools {
  const ports = portsOf(peer)
  const client = clientFor(peer)
  return new Pools(ports, (happened) => ports.tell((engine) => happened(client, engine)))
}

function readerFor(meshId: MeshId): ReadPool {
  return (statement) => {
    const pool = readPool(statement)
    return pool?.meshId === meshId ? pool : null
  }
}

type TellPools = <T>(happened: (client: PoolClient, engine: PeerEngine) => T) => T

export class Pools {
  readonly #ports: PeerPorts
  readonly #tell: TellPools
  readonly #lists: MemberLists<PoolId, PoolStatement>

  /** Use `poolsOf` instead. @internal */
  constructor(ports: PeerPorts, tell: TellPools) {
    const { self, signing, meshId } = ports
    this.#ports = ports
    this.#tell = tell
    this.#lists = new MemberLists<PoolId, PoolStatement>({
      ...{ noun: 'pool', membersMax: POOL_MEMBERS_MAX, unknown: unknownPool, self },
      create: (draft) => createPool(signing, { ...draft, meshId }),
      change: (pool, draft) => changePool(signing, pool, draft),
      end: (pool) => endPool(signing, pool),
      set: (statement) => ports.ask({ type: 'setPool', statement }),
      checkProven: (added) => checkProven(ports, added),
      tell: (happened) => tell(({ statements }) => happened(statements)),
    })
  }

  /**
   * Creates a pool. This peer is a member only if `members` contains it.
   * @throws SealpostError `pool_malformed`, `too_many_pools`, `too_many_own_pools`
   * @example const pool = await poolsOf(peer).create('reviewers', [ben])
   */
  async create(name: string, members: readonly PeerKey[]): Promise<Pool> {
    const { poolId } = await this.#lists.create(name, members)
    return this.#poolOf(poolId)
  }

  /**
   * Reads all pools of the mesh from the broker. Any member may send to them.
   * @example const pools = await poolsOf(peer).list()
   */
  async list(): Promise<Pool[]> {
    return (await this.#lists.list()).map(({ poolId }) => this.#poolOf(poolId))
  }

  /**
   * Returns a pool of the mesh.
   * @throws SealpostError `unknown_pool`
   * @example const pool = await poolsOf(peer).find(poolId)
   */
  async find(poolId: PoolId): Promise<Pool> {
    await this.#lists.find(poolId)
    return this.#poolOf(poolId)
  }

  #poolOf(poolId: PoolId): Pool {
    return new Pool(this.#ports, { tell: this.#tell, lists: this.#lists }, poolId)
  }
}

interface PoolParts {
  readonly tell: TellPools
  readonly lists: MemberLists<PoolId, PoolStatement>
}

/** A pool. `list` and sends update its properties. */
export class Pool extends MemberList<PoolId> {
  readonly #ports: PeerPorts
  readonly #tell: TellPools

  /** @internal */
  constructor(ports: PeerPorts, { tell, lists }: PoolParts, poolId: PoolId) {
    super(lists, poolId)
    this.#ports = ports
    this.#tell = tell
  }

  /**
   * The newest statement of the pool that this peer has verified, for `exportLog`.
   * @example const statements = (await pools.list()).map((pool) => pool.statement)
   */
  get statement(): Uint8Array {
    return this.#tell(({ statements }) => statements.find(this.id))!.bytes
  }

  /** Returns the members that no certificate proves. Nothing is sealed for them. */
  #barred(): ReadonlySet<PeerKey> | Promise<ReadonlySet<PeerKey>> {
    return unprovenAmong(this.#ports, this.members)
  }

  /**
   * Sends to a member that is free. The message is sealed for all members. Resolves when the broker has stored it
   * durably. The message has no order relative to others and is not stored locally: if the process dies before the
   * promise resolves, the message may or may not have been sent.
   * @throws SealpostError `unknown_pool`, and the errors of `Peer.send`
   * @example await pool.send('for one of you')
   */
  async send(body: Uint8Array | string, options: PoolSendOptions = {}): Promise<Receipt> {
    const { to: _, ...terms } = postTermsOf(this.owner, options, wishNote(options))
    const bytes = bytesOf(body)
    const known = this.#barred()
    const barred = known instanceof Promise ? await known : known
    return new Promise((accepted, refused) => {
      this.#post({ poolId: this.id, body: bytes, barred, ...terms, accepted, refused })
    })
  }

  /**
   * Sends a request to a member that is free, and resolves with its reply. The reply is settled like that to
   * `peer.request`. A reply after the timeout arrives as an ordinary message.
   * @throws SealpostError `timeout`, and the errors of `send`
   * @example const answer = await pool.request('review this', { timeoutMs: 600_000 })
   */
  async request(body: Uint8Array | string, options: PoolRequestOptions = {}): Promise<Message> {
    const { timeoutMs = REQUEST_TIMEOUT_MS, ...asked } = options
    if (!(timeoutMs > 0)) throw new RangeError('timeoutMs must be greater than 0')
    const { to, ...terms } = postTermsOf(this.owner, asked, { isRequest: true, ...wishNote(options) })
    const post = { ...terms, body: bytesOf(body) }
    const known = this.#barred()
    const barred = known instanceof Promise ? await known : known
    return new Promise((replied, refused) => {
      this.#tell((_, engine) => {
        const isFrom = (peer: PeerKey) => this.members.some((member) => engine.users.current(member) === peer)
        const open = engine.beginRequest({ ...post, to, timeoutMs, isFrom, replied, refused })
        const { accepted, refused: failed, sealed } = open
        this.#post({ ...post, poolId: this.id, barred, accepted, refused: failed, sealed })
      })
    })
  }

  #post(send: PoolSend): void {
    this.#tell(({ sender }, { hooks }) => sender.send(hooks.sendingToPool?.(this, send) ?? send))
  }

  /**
   * Accepts messages of this pool from now on, in every session. They arrive like other messages, with `message.pool`
   * set. Only one member at a time holds a message. A message that this peer does not settle goes to another member
   * when the session ends. `credit`: the maximum number of messages at a time. Default: 1.
   * @throws SealpostError `not_in_pool`, `unknown_pool`, `too_many_pools`
   * @example await pool.join({ credit: 2 })
   */
  join({ credit = 1 }: { readonly credit?: number } = {}): Promise<void> {
    if (!Number.isInteger(credit) || credit < 1 || credit > CREDIT_MAX)
      throw new RangeError(`credit must be a whole number from 1 to ${CREDIT_MAX}`)
    return new Promise((joined, refused) => this.#tell(({ joins }) => joins.join(this.id, credit, { joined, refused })))
  }

  /**
   * Accepts no more messages of the pool. Messages that this peer holds go to other members immediately, so finish them
   * first.
   * @example pool.leave()
   */
  leave(): void {
    this.#tell(({ joins }) => joins.leave(this.id))
  }
}
