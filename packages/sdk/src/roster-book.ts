/**
 * Statements of groups or of pools, as their owners' signatures prove them. A broker hands them out and can withhold the
 * newest one; it can't make one up, nor go back behind what was seen, which is told as tampering. Pure and synchronous.
 */
import type { SealpostError } from './errors.ts'

export type StatementTamper = 'statement_forged' | 'statement_rolled_back'

export interface RosterBookPorts<Id extends string, Statement> {
  /** Null unless its owner signed it. */
  readonly read: (bytes: Uint8Array) => Statement | null
  readonly idOf: (statement: Statement) => Id
  /** Before every id there is. */
  readonly beforeAll: Id
  /** Asks for the statements behind one. Answer: `listed`, or `close`. */
  readonly ask: (after: Id) => void
  readonly tampered: (id: Id | null, reason: StatementTamper) => void
  /** It is known for the first time, or another one than before. */
  readonly changed?: (statement: Statement, isNew: boolean) => void
}

/** `null`: they are read. */
type Waiter = (error: SealpostError | null) => void

export abstract class RosterBook<Id extends string, Statement extends { readonly epoch: number }> {
  readonly #kind: RosterBookPorts<Id, Statement>
  readonly #known = new Map<Id, Statement>()
  /** What was known when the reading began that is under way; what it says must not be older. */
  #floor: ReadonlyMap<Id, number> | null = null
  #waiters: Waiter[] = []
  /** They came during a reading, which may have passed what they wait for. */
  #latecomers: Waiter[] = []

  constructor(ports: RosterBookPorts<Id, Statement>) {
    this.#kind = ports
  }

  get all(): Statement[] {
    return [...this.#known.values()]
  }

  find(id: Id): Statement | undefined {
    return this.#known.get(id)
  }

  /** Reads all of them anew, and calls back when that is done: in the next session, if there is none. */
  refresh(done: Waiter): void {
    if (this.#floor) this.#latecomers.push(done)
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
    this.#waiters = this.#latecomers
    this.#latecomers = []
    this.#floor = null
    if (this.#waiters.length > 0) this.begin()
    for (const waiter of done) waiter(null)
  }

  /** Nothing will be answered any more. */
  close(error: SealpostError): void {
    const waiters = [...this.#waiters, ...this.#latecomers]
    this.#waiters = []
    this.#latecomers = []
    this.#floor = null
    for (const waiter of waiters) waiter(error)
  }

  /** The broker says by itself that these changed. */
  told(statements: readonly Uint8Array[]): void {
    for (const bytes of statements) this.#take(bytes, null)
  }

  /** One of this peer's own, which the broker has taken. */
  keep(statement: Statement): void {
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
    // The answer to a question may be older than what was told since: only what was known before it counts.
    const lowest = floor ? (floor.get(id) ?? 0) : (this.#known.get(id)?.epoch ?? 0)
    if (statement.epoch < lowest) this.#kind.tampered(id, 'statement_rolled_back')
    this.keep(statement)
    return id
  }
}
