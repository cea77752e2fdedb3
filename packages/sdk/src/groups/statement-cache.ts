/**
 * Caches statements of groups or pools, verified by their owners' signatures. A broker can withhold the newest
 * statement. It can neither forge one nor return to an older one unnoticed, which is reported as tampering. Pure and
 * synchronous.
 */
import { type GroupStatement, isGroupEnded, type PoolStatement } from '@sealpost/identity'
import type { GroupId, PoolId } from '@sealpost/std'
import type { SealpostError } from '../errors.ts'
import type { GroupCrypto, PeerEvent, PoolCrypto } from '../ports.ts'

export type StatementTamper = 'statement_forged' | 'statement_rolled_back'

export interface StatementCachePorts<Id extends string, Statement> {
  /** Returns null unless its owner signed it. */
  readonly read: (bytes: Uint8Array) => Statement | null
  readonly idOf: (statement: Statement) => Id
  /** An id that precedes all others. */
  readonly beforeAll: Id
  /** Requests the statements after this id. Reply: `listed`, or `close`. */
  readonly ask: (after: Id) => void
  readonly tampered: (id: Id | null, reason: StatementTamper) => void
  /** Called when the statement is new or replaces an older one. */
  readonly changed?: (statement: Statement, isNew: boolean) => void
}

/** Called with null when the statements were read. */
type Waiter = (error: SealpostError | null) => void

export abstract class StatementCache<Id extends string, Statement extends { readonly epoch: number }> {
  readonly #kind: StatementCachePorts<Id, Statement>
  readonly #known = new Map<Id, Statement>()
  /** The epochs known when the current read began. Older replies are rollbacks. */
  #floor: ReadonlyMap<Id, number> | null = null
  #waiters: Waiter[] = []
  /** Waiters that arrived during a read, which may already be past their statements. */
  #nextWaiters: Waiter[] = []

  constructor(ports: StatementCachePorts<Id, Statement>) {
    this.#kind = ports
  }

  get all(): Statement[] {
    return [...this.#known.values()]
  }

  find(id: Id): Statement | undefined {
    return this.#known.get(id)
  }

  /** Reads all statements again, in the next session if there is none now, and then calls back. */
  refresh(done: Waiter): void {
    if (this.#floor) this.#nextWaiters.push(done)
    else {
      this.#waiters.push(done)
      this.begin()
    }
  }

  listed(statements: readonly Uint8Array[], isLast: boolean): void {
    let last: Id | null = null
    for (const bytes of statements) last = this.#take(bytes, this.#floor) ?? last
    if (!isLast && last !== null) return this.#kind.ask(last)
    const done = this.#waiters
    this.#waiters = this.#nextWaiters
    this.#nextWaiters = []
    this.#floor = null
    if (this.#waiters.length > 0) this.begin()
    for (const waiter of done) waiter(null)
  }

  /** Call when no more replies will arrive. */
  close(error: SealpostError): void {
    const waiters = [...this.#waiters, ...this.#nextWaiters]
    this.#waiters = []
    this.#nextWaiters = []
    this.#floor = null
    for (const waiter of waiters) waiter(error)
  }

  /** Call when the broker reports changed statements without a request. */
  pushed(statements: readonly Uint8Array[]): void {
    for (const bytes of statements) this.#take(bytes, null)
  }

  /** Adds a statement of this peer that the broker has accepted. */
  add(statement: Statement): void {
    const id = this.#kind.idOf(statement)
    const before = this.#known.get(id)
    if (before && before.epoch >= statement.epoch) return
    this.#known.set(id, statement)
    this.#kind.changed?.(statement, !before)
  }

  protected get isReading(): boolean {
    return this.#floor !== null
  }

  protected begin(): void {
    this.#floor = new Map([...this.#known].map(([id, { epoch }]) => [id, epoch]))
    this.#kind.ask(this.#kind.beforeAll)
  }

  #take(bytes: Uint8Array, floor: ReadonlyMap<Id, number> | null): Id | null {
    const statement = this.#kind.read(bytes)
    if (!statement) {
      this.#kind.tampered(null, 'statement_forged')
      return null
    }
    const id = this.#kind.idOf(statement)
    // A reply may be older than a pushed statement, so only epochs known at the request count.
    const lowest = floor ? (floor.get(id) ?? 0) : (this.#known.get(id)?.epoch ?? 0)
    if (statement.epoch < lowest) this.#kind.tampered(id, 'statement_rolled_back')
    this.add(statement)
    return id
  }
}

export interface GroupStatementsPorts {
  readonly crypto: Pick<GroupCrypto, 'read'>
  readonly emit: (event: PeerEvent) => void
  /** Requests the statements after this id. Reply: `listed`, or `close`. */
  readonly ask: (after: GroupId) => void
  /** Called when the group is new, has changed, or has ended. */
  readonly changed: (group: GroupStatement) => void
}

/** The groups of the mesh. They are read on first use, and from then on in every session. */
export class GroupStatements extends StatementCache<GroupId, GroupStatement> {
  #isUsed = false

  constructor({ crypto, emit, ask, changed }: GroupStatementsPorts) {
    super({
      read: (bytes) => crypto.read(bytes),
      idOf: ({ groupId }) => groupId,
      beforeAll: '0'.repeat(32) as GroupId,
      ask,
      tampered: (group, reason) => emit({ type: 'group_tamper', group, reason }),
      changed: (group, isNew) => {
        if (!isNew || !isGroupEnded(group)) changed(group)
      },
    })
  }

  override refresh(done: (error: SealpostError | null) => void): void {
    this.#isUsed = true
    super.refresh(done)
  }

  /** Reads the statements again, because this session missed changes made between sessions. */
  connected(): void {
    if (this.#isUsed && !this.isReading) this.begin()
  }
}

export interface PoolStatementsPorts {
  readonly crypto: Pick<PoolCrypto, 'read'>
  readonly emit: (event: PeerEvent) => void
  /** Requests the statements after this id. Reply: `listed`, or `close`. */
  readonly ask: (after: PoolId) => void
}

/** The pools of the mesh, read on demand. */
export class PoolStatements extends StatementCache<PoolId, PoolStatement> {
  constructor({ crypto, emit, ask }: PoolStatementsPorts) {
    super({
      read: (bytes) => crypto.read(bytes),
      idOf: ({ poolId }) => poolId,
      beforeAll: '0'.repeat(64) as PoolId,
      ask,
      tampered: (pool, reason) => emit({ type: 'pool_tamper', pool, reason }),
    })
  }
}
