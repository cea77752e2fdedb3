/** Implements what groups and pools have in common: a named list of members that its owner changes by statements. */
import { isGroupEnded, isMemberListName } from '@sealpost/identity'
import type { FrameOf } from '@sealpost/protocol'
import { asciiName, isChosenName, NAME_RULE, type PeerKey, tidyName, unicodeName } from '@sealpost/std'
import { SealpostError } from '../errors.ts'
import type { StatementRecord } from '../stores/records.ts'
import type { SeenStore } from '../stores/store.ts'

type StatementTamper = 'statement_forged' | 'statement_rolled_back'

export interface StatementCachePorts<Id extends string, Statement> {
  /** Reads a statement. Returns null unless its owner signed it. */
  readonly read: (bytes: Uint8Array) => Statement | null
  readonly of: StatementRecord['of']
  /** Keeps each newest statement, and has those that earlier processes kept. */
  readonly seen: SeenStore
  readonly idOf: (statement: Statement) => Id
  /** An id that sorts before all others. */
  readonly beforeAll: Id
  /** Requests the statements after this id. Reply: `listed`, or `close`. */
  readonly ask: (after: Id) => void
  readonly tampered: (id: Id | null, reason: StatementTamper) => void
  /** Called when a statement is new or replaces an older one. */
  readonly changed?: (statement: Statement, isNew: boolean) => void
}

type Known = Pick<MemberListStatement, 'epoch' | 'bytes'>

/** Called with null once the statements have been read. */
type Waiter = (error: SealpostError | null) => void

/**
 * Caches statements of groups or pools, whose owners' signatures were verified, and keeps them for later processes. A
 * broker can withhold the newest statement. It can neither forge a statement nor return an older one unnoticed; either
 * is reported as tampering. Pure and synchronous.
 */
export class StatementCache<Id extends string, Statement extends Known> {
  readonly #kind: StatementCachePorts<Id, Statement>
  readonly #known = new Map<Id, Statement>()
  /** The epochs when the current read began. A reply with an older one is a rollback. */
  #floor: ReadonlyMap<Id, number> | null = null
  #waiters: Waiter[] = []
  /** Waiters that arrived during a read, which may have passed the statements that they need. */
  #nextWaiters: Waiter[] = []

  constructor(ports: StatementCachePorts<Id, Statement>) {
    this.#kind = ports
    for (const record of ports.seen.records) {
      const statement = record.kind === 'statement' && record.of === ports.of && ports.read(record.bytes)
      if (statement) this.#known.set(ports.idOf(statement), statement)
    }
  }

  get all(): Statement[] {
    return [...this.#known.values()]
  }

  find(id: Id): Statement | undefined {
    return this.#known.get(id)
  }

  /** Reads all statements again, in the next session if there is none now, then calls back. */
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

  close(error: SealpostError): void {
    const waiters = [...this.#waiters, ...this.#nextWaiters]
    this.#waiters = []
    this.#nextWaiters = []
    this.#floor = null
    for (const waiter of waiters) waiter(error)
  }

  /** Call when the broker pushes changed statements unprompted. */
  pushed(statements: readonly Uint8Array[]): void {
    for (const bytes of statements) this.#take(bytes, null)
  }

  /** Adds a statement of this peer that the broker has accepted. */
  add(statement: Statement): void {
    const id = this.#kind.idOf(statement)
    const before = this.#known.get(id)
    if (before && before.epoch >= statement.epoch) return
    this.#known.set(id, statement)
    const { of, seen } = this.#kind
    seen.keep(`statement ${id}`, { kind: 'statement', of, bytes: statement.bytes })
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
    // A reply may be older than a pushed statement, so compare it only with the epochs at the time of the request.
    const lowest = floor ? (floor.get(id) ?? 0) : (this.#known.get(id)?.epoch ?? 0)
    if (statement.epoch < lowest) this.#kind.tampered(id, 'statement_rolled_back')
    this.add(statement)
    return id
  }
}

interface MemberListStatement {
  readonly name: string
  readonly epoch: number
  readonly owner: PeerKey
  readonly members: readonly PeerKey[]
  readonly bytes: Uint8Array
}

interface MemberListDraft {
  readonly name: string
  readonly members: PeerKey[]
}

type MemberListEdit = (now: MemberListStatement) => { name?: string; members?: readonly PeerKey[] }

interface MemberListsPorts<Id extends string, Statement> {
  readonly noun: 'group' | 'pool'
  readonly membersMax: number
  readonly self: PeerKey
  readonly unknown: () => SealpostError
  readonly create: (draft: MemberListDraft) => Statement
  readonly change: (statement: Statement, draft: MemberListDraft) => Statement
  readonly end: (statement: Statement) => Statement
  readonly set: (statement: Uint8Array) => Promise<FrameOf<'groupSet'>>
  /** Checks new members. @throws SealpostError `member_unproven` */
  readonly checkProven: (added: readonly PeerKey[]) => Promise<void>
  /** Advances the engine's clock and passes the cache. */
  readonly tell: <T>(happened: (cache: StatementCache<Id, Statement & MemberListStatement>) => T) => T
}

/** Manages the groups or the pools of a mesh, and publishes this peer's statements. */
export class MemberLists<Id extends string, Statement extends MemberListStatement> {
  readonly #ports: MemberListsPorts<Id, Statement>

  constructor(ports: MemberListsPorts<Id, Statement>) {
    this.#ports = ports
  }

  get self(): PeerKey {
    return this.#ports.self
  }

  async create(name: string, members: readonly PeerKey[]): Promise<Statement> {
    const draft = this.#checked(this.#chosenName(name), members)
    await this.#ports.checkProven(draft.members)
    const statement = this.#ports.create(draft)
    await this.#set(statement)
    return statement
  }

  /** Reads all lists from the broker. Omits ended ones. */
  async list(): Promise<Statement[]> {
    await this.#refresh()
    return this.#ports.tell((cache) => cache.all).filter((statement) => !isGroupEnded(statement))
  }

  /** @throws SealpostError `unknown_group` or `unknown_pool` */
  async find(id: Id): Promise<Statement> {
    if (!this.known(id)) await this.#refresh()
    const statement = this.known(id)
    if (!statement || isGroupEnded(statement)) throw this.#ports.unknown()
    return statement
  }

  known(id: Id): Statement | undefined {
    return this.#ports.tell((cache) => cache.find(id))
  }

  /** Retries once if another process has changed the list in the meantime. */
  async change(id: Id, edit: MemberListEdit): Promise<void> {
    for (const isLast of [false, true]) {
      const now = this.#own(id)
      if (isGroupEnded(now)) throw this.#ports.unknown()
      const { name, members = now.members } = edit(now)
      const draft = this.#checked(name === undefined ? now.name : this.#chosenName(name), members)
      await this.#ports.checkProven(draft.members.filter((member) => !now.members.includes(member)))
      if (await this.#set(this.#ports.change(now, draft), isLast)) return
      await this.#refresh()
    }
  }

  /** Ends the list. After a concurrent rename, two different end statements may exist; either one ends it. */
  async end(id: Id): Promise<void> {
    const now = this.#own(id)
    if (isGroupEnded(now) || (await this.#set(this.#ports.end(now), false))) return
    await this.#refresh()
    if (!isGroupEnded(this.#own(id))) throw this.#refusedAs('stale')
  }

  #own(id: Id): Statement {
    const statement = this.known(id)!
    if (statement.owner !== this.#ports.self) throw this.#refusedAs('not_owner')
    return statement
  }

  /** Publishes a statement. Returns false if it is stale and this is not the last attempt. */
  async #set(statement: Statement, isLast = true): Promise<boolean> {
    const { outcome } = await this.#ports.set(statement.bytes)
    if (outcome === 'done') this.#ports.tell((cache) => cache.add(statement))
    else if (isLast || outcome !== 'stale') throw this.#refusedAs(outcome)
    return outcome === 'done'
  }

  #refresh(): Promise<void> {
    return new Promise((done, failed) =>
      this.#ports.tell((cache) => cache.refresh((error) => (error ? failed(error) : done()))),
    )
  }

  #checked(name: string, list: readonly PeerKey[]): MemberListDraft {
    const members = [...new Set(list)]
    if (isMemberListName(name) && members.length > 0 && members.length <= this.#ports.membersMax)
      return { name, members }
    throw this.#malformed()
  }

  /** Normalizes a new name and checks it. Returns its ASCII form. */
  #chosenName(text: string): string {
    const name = tidyName(text)
    if (!isChosenName(name)) throw this.#malformed()
    return asciiName(name)
  }

  #malformed(): SealpostError {
    const { noun, membersMax } = this.#ports
    return new SealpostError(
      `${noun}_malformed`,
      `A ${noun} needs 1 to ${membersMax} members and a name: ${NAME_RULE}.`,
    )
  }

  #refusedAs(outcome: Exclude<FrameOf<'groupSet'>['outcome'], 'done'>): SealpostError {
    const { noun } = this.#ports
    switch (outcome) {
      case 'not_owner':
        return new SealpostError('not_owner', `Only the owner of the ${noun} may change it.`)
      case 'too_many':
        return new SealpostError(`too_many_${noun}s`, `The mesh has reached its ${noun} limit.`)
      case 'too_many_own': {
        const delay = noun === 'pool' ? '; it counts for one more day' : ''
        return new SealpostError(
          `too_many_own_${noun}s`,
          `You have reached your ${noun} limit. Delete a ${noun}${delay}.`,
        )
      }
      case 'malformed':
        return new SealpostError(`${noun}_malformed`, `The broker does not accept this ${noun}.`)
      case 'stale':
        return new SealpostError('stale_epoch', `The ${noun} was changed by another request at the same time.`, {
          isRetryable: true,
        })
    }
  }
}

/** A group or a pool. The properties show the newest known statement. */
export abstract class MemberList<Id extends string> {
  readonly id: Id
  readonly #lists: Pick<MemberLists<Id, MemberListStatement>, 'self' | 'known' | 'change' | 'end'>

  /** @internal */
  constructor(lists: Pick<MemberLists<Id, MemberListStatement>, 'self' | 'known' | 'change' | 'end'>, id: Id) {
    this.#lists = lists
    this.id = id
  }

  get #now(): MemberListStatement {
    return this.#lists.known(this.id)!
  }

  get name(): string {
    return unicodeName(this.#now.name)
  }
  get epoch(): number {
    return this.#now.epoch
  }
  get owner(): PeerKey {
    return this.#now.owner
  }
  get members(): readonly PeerKey[] {
    return this.#now.members
  }
  get isOwn(): boolean {
    return this.owner === this.#lists.self
  }
  /** Whether the owner has deleted it. */
  get isDeleted(): boolean {
    return isGroupEnded(this.#now)
  }

  /**
   * Adds members. They receive messages that are sent from then on; earlier ones are not sealed for them.
   * @throws SealpostError `not_owner`, `group_malformed` or `pool_malformed`, `unknown_group` if it was deleted,
   * `member_unproven` with `guardMembers`
   * @example await group.add(ben)
   */
  add(...peers: PeerKey[]): Promise<void> {
    return this.#lists.change(this.id, ({ members }) => ({ members: [...members, ...peers] }))
  }

  /**
   * Removes members. They can't open messages sent from then on. A pool sends them no more messages, and messages that
   * they hold go to others.
   * @throws the errors of `add`
   * @example await group.remove(ben)
   */
  remove(...peers: PeerKey[]): Promise<void> {
    return this.#lists.change(this.id, ({ members }) => ({
      members: members.filter((member) => !peers.includes(member)),
    }))
  }

  /**
   * Changes the name.
   * @throws the errors of `add`
   * @example await group.rename('crew')
   */
  rename(name: string): Promise<void> {
    return this.#lists.change(this.id, () => ({ name }))
  }

  /**
   * Ends it for good. Later sends fail with `unknown_group` or `unknown_pool`. Earlier messages to a group still
   * arrive; messages that wait for a member of a pool expire.
   * @throws SealpostError `not_owner`
   * @example await group.delete()
   */
  delete(): Promise<void> {
    return this.#lists.end(this.id)
  }
}
