/** Pools as an application has them: peers of whom one takes each message. Membership is what the owner signed. */
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

/** Pools as the engine has them: the statements it believes, messages that go to them, and the work that is taken. */
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

  /** Passes by what is none of its own. */
  received(frame: ServerFrame, nowMs: Millis): void {
    if (frame.type === 'ack') this.sender.acked(frame.items, nowMs)
    else if (frame.type === 'nack') this.sender.nacked(frame.items, nowMs)
    else if (frame.type === 'poolJoined') this.joins.answered(frame)
  }

  /** In a session. */
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

/** As of a message to one, though a pool is never refused for being offline, and no file goes to whichever member takes it. */
export type PoolSendOptions = Omit<SendOptions, 'ifOnline' | 'attachment'>

export interface PoolsPorts {
  readonly self: PeerKey
  /** Tells the engine the time, and gives its pools. */
  readonly tell: <T>(happened: (client: PoolClient) => T) => T
  readonly ask: RequestBroker
}

const CREDIT_MAX = 0xffff

export class Pools {
  readonly #ports: PoolsPorts

  /** Use `peer.pools`. */
  constructor(ports: PoolsPorts) {
    this.#ports = ports
  }

  /**
   * A new pool of one's own. This peer is among its members only if it is named.
   * @throws SealpostError `pool_malformed`, `too_many_pools`, `too_many_own_pools`
   */
  async create(name: string, members: readonly PeerKey[]): Promise<Pool> {
    const draft = checked({ name: chosenName(name), members })
    const pool = this.#ports.tell(({ crypto }) => crypto.create(draft))
    await this.#set(pool)
    return this.#poolOf(pool.poolId)
  }

  /** All pools of the mesh, as the broker tells them now: who knows one may send to it. */
  async list(): Promise<Pool[]> {
    await this.#refresh()
    const all = this.#ports.tell(({ statements }) => statements.all.filter((pool) => !isPoolEnded(pool)))
    return all.map(({ poolId }) => this.#poolOf(poolId))
  }

  /** @throws SealpostError `unknown_pool` */
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

  /** Of a change made elsewhere meanwhile it makes one more, once. */
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

  /** Two ends of a pool differ when it was renamed between them: one is enough. */
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

  /** Returns whether it stands; false when it came too late, unless that is to be thrown. */
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

/** `list` and what is sent learn more of it. */
export class Pool extends MemberList<PoolStatement> {
  protected readonly ports: PoolPorts

  /** @internal */
  constructor(ports: PoolPorts) {
    super()
    this.ports = ports
  }

  get id(): PoolId {
    return this.now.poolId
  }

  /** Its owner deleted it: it has no members, and nobody can write to it. */
  get isDeleted(): boolean {
    return isPoolEnded(this.now)
  }

  /**
   * Ends it for good. Sends to it fail with `unknown_pool` from then on, and what still waits for a member expires.
   * @throws SealpostError `not_owner`
   */
  delete(): Promise<void> {
    return this.ports.end()
  }

  /**
   * To whichever member is free, sealed for all of them. Resolves when the broker has stored it durably. It keeps no order
   * with others, and it is not kept in a store: a process that dies before it resolves may or may not have sent it.
   * @throws SealpostError as `Peer.send`; `unknown_pool`
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
   * Takes work of this pool from now on, in every session: its messages come as all others do, with `message.pool`. Each
   * is with one member at a time; what this peer does not settle goes to another one when its session ends.
   * `credit`: how many at a time; 1 unless it is said.
   * @throws SealpostError `not_in_pool`, `unknown_pool`, `too_many_pools`
   */
  join({ credit = 1 }: { readonly credit?: number } = {}): Promise<void> {
    if (!Number.isInteger(credit) || credit < 1 || credit > CREDIT_MAX)
      throw new RangeError(`credit is a whole number from 1 to ${CREDIT_MAX}`)
    return new Promise((joined, refused) =>
      this.ports.tell(({ joins: seats }) => seats.join(this.id, credit, { joined, refused })),
    )
  }

  /** Takes no more of it. What is with this peer goes to others at once, so end it first. */
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

/** A name that is chosen now; older pools keep theirs. */
function chosenName(text: string): string {
  const name = tidyName(text)
  if (!isChosenName(name)) throw malformed()
  return name
}

const malformed = () =>
  new SealpostError('pool_malformed', `A pool has 1 to ${POOL_MEMBERS_MAX} members, and a name: ${NAME_RULE}.`)

function refusedAs(outcome: Exclude<FrameOf<'groupSet'>['outcome'], 'done'>): SealpostError {
  switch (outcome) {
    case 'not_owner':
      return notOwner()
    case 'too_many':
      return new SealpostError('too_many_pools', 'The mesh has as many pools as it may have.')
    case 'too_many_own':
      return new SealpostError(
        'too_many_own_pools',
        'You have as many pools as one peer may have: delete one. It counts for a day more.',
      )
    case 'malformed':
      return new SealpostError('pool_malformed', 'The broker does not take this pool.')
    case 'stale':
      return new SealpostError('stale_epoch', 'The pool was changed elsewhere at the same time.', { isRetryable: true })
  }
}

const notOwner = () => new SealpostError('not_owner', 'Only the owner of the pool may change it.')
