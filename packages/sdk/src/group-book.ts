/**
 * The groups of the mesh, as their owners' signatures prove them. A broker hands the statements out and can withhold the
 * newest one; it can't make one up, nor go back behind what was seen, which is told as tampering. Pure and synchronous.
 *
 * Nothing is asked before groups are used for the first time; from then on all of them are, in each session anew.
 */
import { type GroupStatement, isGroupOver } from '@sealpost/identity'
import type { GroupId } from '@sealpost/std'
import type { SealpostError } from './errors.ts'
import type { PeerEvent } from './events.ts'
import type { GroupCrypto } from './group-crypto.ts'

export interface GroupBookPorts {
  readonly crypto: Pick<GroupCrypto, 'read'>
  readonly announce: (event: PeerEvent) => void
  /** Asks for the statements behind one. Answer: `listed`. */
  readonly ask: (after: GroupId) => void
  /** A group is another one now or has ended, or is known for the first time and goes on. */
  readonly changed: (group: GroupStatement) => void
}

/** `null`: they are read. */
type Waiter = (error: SealpostError | null) => void

const BEFORE_ALL = '0'.repeat(32) as GroupId

export class GroupBook {
  private readonly ports: GroupBookPorts
  private readonly known = new Map<GroupId, GroupStatement>()
  /** What was known when the reading began that is under way; what it says must not be older. */
  private floor: ReadonlyMap<GroupId, number> | null = null
  private waiters: Waiter[] = []
  /** They came during a reading, which may have passed what they wait for. */
  private latecomers: Waiter[] = []
  private isUsed = false

  constructor(ports: GroupBookPorts) {
    this.ports = ports
  }

  get all(): GroupStatement[] {
    return [...this.known.values()]
  }

  find(groupId: GroupId): GroupStatement | undefined {
    return this.known.get(groupId)
  }

  /** Reads all groups anew, and calls back when that is done: in the next session, if there is none. */
  refresh(done: Waiter): void {
    this.isUsed = true
    if (this.floor) this.latecomers.push(done)
    else {
      this.waiters.push(done)
      this.begin()
    }
  }

  /** What other sessions changed meanwhile went past this one. */
  connected(): void {
    if (this.isUsed && !this.floor) this.begin()
  }

  listed(statements: readonly Uint8Array[], isLast: boolean): void {
    let last: GroupId | null = null
    for (const bytes of statements) last = this.take(bytes, this.floor) ?? last
    if (!isLast && last !== null) return this.ports.ask(last)
    const done = this.waiters
    this.waiters = this.latecomers
    this.latecomers = []
    this.floor = null
    if (this.waiters.length > 0) this.begin()
    for (const waiter of done) waiter(null)
  }

  /** Nothing will be answered any more. */
  close(error: SealpostError): void {
    const waiters = [...this.waiters, ...this.latecomers]
    this.waiters = []
    this.latecomers = []
    this.floor = null
    for (const waiter of waiters) waiter(error)
  }

  /** The broker says by itself that these changed. */
  told(statements: readonly Uint8Array[]): void {
    for (const bytes of statements) this.take(bytes, null)
  }

  /** One of this peer's own, which the broker has taken. */
  keep(group: GroupStatement): void {
    const before = this.known.get(group.groupId)
    if (before && before.epoch >= group.epoch) return
    this.known.set(group.groupId, group)
    if (before || !isGroupOver(group)) this.ports.changed(group)
  }

  private begin(): void {
    this.floor = new Map(this.all.map(({ groupId, epoch }) => [groupId, epoch]))
    this.ports.ask(BEFORE_ALL)
  }

  private take(bytes: Uint8Array, floor: ReadonlyMap<GroupId, number> | null): GroupId | null {
    const group = this.ports.crypto.read(bytes)
    if (!group) {
      this.ports.announce({ type: 'group_tamper', group: null, reason: 'statement_forged' })
      return null
    }
    const { groupId } = group
    // The answer to a question may be older than what was told since: only what was known before it counts.
    const lowest = floor ? (floor.get(groupId) ?? 0) : (this.known.get(groupId)?.epoch ?? 0)
    if (group.epoch < lowest)
      this.ports.announce({ type: 'group_tamper', group: groupId, reason: 'statement_rolled_back' })
    this.keep(group)
    return groupId
  }
}
