/**
 * Implements pools for applications. One of several peers takes each message. The owner's signature decides membership.
 */
import { isMemberListName, isPoolEnded, type PoolStatement } from '@sealpost/identity'
import { type FrameOf, POOL_MEMBERS_MAX, type ServerFrame } from '@sealpost/protocol'
import { isChosenName, type Millis, NAME_RULE, type PeerKey, type PoolId, tidyName } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import { MemberList, type MemberListEdit, type MemberListPorts } from '../groups/groups.ts'
import { PoolStatements } from '../groups/statement-cache.ts'
import { bytesOf } from '../inbox/message.ts'
import { postTermsOf, type Receipt, type SendOptions } from '../outbox/lane.ts'
import type { OutboxLimits } from '../outbox/outbox.ts'
import { type CryptoPort, type EnginePart, NO_FRAMES, type PeerEvent } from '../ports.ts'
import type { ReplyHandler, RequestBroker } from '../requests/requests.ts'
import { PoolJoins, PoolSender, type PoolSenderPorts, unknownPool } from './pool-sender.ts'

/** The engine's part for pools: the trusted statements, messages to pools, and joined pools. */
interface PoolClientPorts extends Omit<PoolSenderPorts, 'statements'> {
  readonly crypto: CryptoPort
  readonly emit: (event: PeerEvent) => void
  readonly ask: (question: { type: 'pools'; after: PoolId }, handler: ReplyHandler<'pools'>) => void
}

export class PoolClient implements EnginePart {
  readonly crypto: CryptoPort['pools']
  readonly statements: PoolStatements
  readonly sender: PoolSender
  readonly joins: PoolJoins
  readonly #ports: PoolClientPorts

  constructor(ports: PoolClientPorts) {
    const { crypto, emit } = ports
    this.#ports = ports
    this.crypto = crypto.pools
    this.statements = new PoolStatements({ crypto: crypto.pools, emit, ask: (after) => this.#ask(after) })
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
    return [...this.joins.takeFrames(nowMs), ...this.sender.takeFrames(nowMs)]
  }

  /** Ignores items of other messages. */
  received(frame: ServerFrame, nowMs: Millis): void {
    if (frame.type === 'ack') this.sender.acked(frame.items, nowMs)
    else if (frame.type === 'nack') this.sender.nacked(frame.items, nowMs)
    else if (frame.type === 'poolJoined') this.joins.answered(frame)
  }

  /** Called within a session. */
  get wakeAtMs(): Millis {
    return Math.min(this.joins.wakeAtMs, this.sender.wakeAtMs)
  }

  close(error: SealpostError): void {
    this.sender.close(error)
    this.joins.close(error)
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
 * Like `SendOptions`, without `ifOnline`, since a pool is never refused as offline, and without an attachment, since
 * the recipient is not known.
 */
export type PoolSendOptions = Omit<SendOptions, 'ifOnline' | 'attachment'>

export interface PoolsPorts {
  readonly self: PeerKey
  /** Advances the engine's clock and passes its pool client. */
  readonly tell: <T>(happened: (client: PoolClient) => T) => T
  readonly ask: RequestBroker
}

const CREDIT_MAX = 0xffff

export class Pools {
  readonly #ports: PoolsPorts

  /** Use `peer.pools` instead. @internal */
  constructor(ports: PoolsPorts) {
    this.#ports = ports
  }

  /**
   * Creates a pool. This peer is a member only if it is named.
   * @throws SealpostError `pool_malformed`, `too_many_pools`, `too_many_own_pools`
   * @example const pool = await peer.pools.create('reviewers', [ben])
   */
  async create(name: string, members: readonly PeerKey[]): Promise<Pool> {
    const draft = checked({ name: chosenName(name), members })
    const pool = this.#ports.tell(({ crypto }) => crypto.create(draft))
    await this.#set(pool)
    return this.#poolOf(pool.poolId)
  }

  /**
   * Lists all pools of the mesh, as read from the broker. Any member may send to them.
   * @example const pools = await peer.pools.list()
   */
  async list(): Promise<Pool[]> {
    await this.#refresh()
    const all = this.#ports.tell(({ statements }) => statements.all.filter((pool) => !isPoolEnded(pool)))
    return all.map(({ poolId }) => this.#poolOf(poolId))
  }

  /**
   * Returns a pool of the mesh.
   * @throws SealpostError `unknown_pool`
   * @example const pool = await peer.pools.find(poolId)
   */
  async find(poolId: PoolId): Promise<Pool> {
    if (!this.#known(poolId)) await this.#refresh()
    const pool = this.#known(poolId)
    if (!pool || isPoolEnded(pool)) throw unknownPool()
    return this.#poolOf(poolId)
  }

  #poolOf(poolId: PoolId): Pool {
    return new Pool({
      self: this.#ports.self,
      now: () => this.#known(poolId)!,
      change: (change) => this.#change(poolId, change),
      end: () => this.#end(poolId),
      tell: this.#ports.tell,
    })
  }

  /** Retries once if the pool was changed by another process in the meantime. */
  async #change(poolId: PoolId, change: MemberListEdit): Promise<void> {
    for (const isLast of [false, true]) {
      const pool = this.#own(poolId)
      if (isPoolEnded(pool)) throw unknownPool()
      const { name, members = pool.members } = change(pool)
      const draft = checked({ name: name === undefined ? pool.name : chosenName(name), members })
      const next = this.#ports.tell(({ crypto }) => crypto.change(pool, draft))
      if (await this.#set(next, isLast)) return
      await this.#refresh()
    }
  }

  /** Ends the pool. After a rename, two end statements differ, but either one suffices. */
  async #end(poolId: PoolId): Promise<void> {
    const pool = this.#own(poolId)
    if (isPoolEnded(pool)) return
    const end = this.#ports.tell(({ crypto }) => crypto.end(pool))
    if (await this.#set(end, false)) return
    await this.#refresh()
    if (!isPoolEnded(this.#own(poolId))) throw refusedAs('stale')
  }

  #own(poolId: PoolId): PoolStatement {
    const pool = this.#known(poolId)!
    if (pool.owner !== this.#ports.self) throw notOwner()
    return pool
  }

  /** Returns whether the broker accepted it; false if it is stale and not the last try. */
  async #set(pool: PoolStatement, isLast = true): Promise<boolean> {
    const { outcome } = await this.#ports.ask({ type: 'setPool', statement: pool.bytes })
    if (outcome === 'done') this.#ports.tell(({ statements }) => statements.add(pool))
    else if (isLast || outcome !== 'stale') throw refusedAs(outcome)
    return outcome === 'done'
  }

  #refresh(): Promise<void> {
    return new Promise((done, failed) =>
      this.#ports.tell(({ statements }) => statements.refresh((error) => (error ? failed(error) : done()))),
    )
  }

  #known(poolId: PoolId): PoolStatement | undefined {
    return this.#ports.tell(({ statements }) => statements.find(poolId))
  }
}

interface PoolPorts extends MemberListPorts<PoolStatement>, Pick<PoolsPorts, 'tell'> {
  readonly end: () => Promise<void>
}

/** `list` and sends update these properties. */
export class Pool extends MemberList<PoolStatement> {
  /** @internal */
  protected readonly ports: PoolPorts

  /** @internal */
  constructor(ports: PoolPorts) {
    super()
    this.ports = ports
  }

  get id(): PoolId {
    return this.now.poolId
  }

  /** Whether the owner has deleted the pool. It then has no members, and nobody can send to it. */
  get isDeleted(): boolean {
    return isPoolEnded(this.now)
  }

  /**
   * Ends the pool for good. Later sends fail with `unknown_pool`, and messages that wait for a member expire.
   * @throws SealpostError `not_owner`
   * @example await pool.delete()
   */
  delete(): Promise<void> {
    return this.ports.end()
  }

  /**
   * Sends to a member that is free. The message is sealed for all members. Resolves when the broker has stored it
   * durably. The message has no order relative to others and is not stored locally: if the process dies before the
   * promise resolves, the message may or may not have been sent.
   * @throws SealpostError `unknown_pool`, and whatever `Peer.send` throws
   * @example await pool.send('for one of you')
   */
  send(body: Uint8Array | string, options: PoolSendOptions = {}): Promise<Receipt> {
    return new Promise((accepted, refused) => {
      const { priority, ttlSeconds, terms } = postTermsOf(this.ports.self, options)
      const poolId = this.id
      const send = {
        poolId,
        body: bytesOf(body),
        priority,
        ttlSeconds,
        terms,
        thread: options.thread,
        accepted,
        refused,
      }
      this.ports.tell(({ sender: sends }) => sends.send(send))
    })
  }

  /**
   * Accepts messages of this pool from now on, in every session. They arrive like other messages, with `message.pool`
   * set. One member at a time holds each message. A message that this peer does not settle goes to another member when
   * the session ends. `credit`: the maximum number of messages at a time; default 1.
   * @throws SealpostError `not_in_pool`, `unknown_pool`, `too_many_pools`
   * @example await pool.join({ credit: 2 })
   */
  join({ credit = 1 }: { readonly credit?: number } = {}): Promise<void> {
    if (!Number.isInteger(credit) || credit < 1 || credit > CREDIT_MAX)
      throw new RangeError(`credit must be a whole number from 1 to ${CREDIT_MAX}`)
    return new Promise((joined, refused) =>
      this.ports.tell(({ joins: seats }) => seats.join(this.id, credit, { joined, refused })),
    )
  }

  /**
   * Accepts no more messages of the pool. Messages that this peer holds go to others at once, so finish them first.
   * @example pool.leave()
   */
  leave(): void {
    this.ports.tell(({ joins: seats }) => seats.leave(this.id))
  }
}

function checked(draft: { name: string; members: readonly PeerKey[] }): { name: string; members: PeerKey[] } {
  const members = [...new Set(draft.members)]
  if (isMemberListName(draft.name) && members.length > 0 && members.length <= POOL_MEMBERS_MAX)
    return { ...draft, members }
  throw malformed()
}

/** Checks a new name; existing pools keep theirs. */
function chosenName(text: string): string {
  const name = tidyName(text)
  if (!isChosenName(name)) throw malformed()
  return name
}

const malformed = () =>
  new SealpostError('pool_malformed', `A pool needs 1 to ${POOL_MEMBERS_MAX} members and a name: ${NAME_RULE}.`)

function refusedAs(outcome: Exclude<FrameOf<'groupSet'>['outcome'], 'done'>): SealpostError {
  switch (outcome) {
    case 'not_owner':
      return notOwner()
    case 'too_many':
      return new SealpostError('too_many_pools', 'The mesh has reached its pool limit.')
    case 'too_many_own':
      return new SealpostError(
        'too_many_own_pools',
        'You have reached your pool limit. Delete a pool; it counts for one more day.',
      )
    case 'malformed':
      return new SealpostError('pool_malformed', 'The broker does not accept this pool.')
    case 'stale':
      return new SealpostError('stale_epoch', 'The pool was changed by another request at the same time.', {
        isRetryable: true,
      })
  }
}

const notOwner = () => new SealpostError('not_owner', 'Only the owner of the pool may change it.')
