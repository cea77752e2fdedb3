/**
 * The pools of the mesh, as their owners' signatures prove them; read when somebody asks. A broker can withhold the newest
 * statement; it can't make one up, nor go back behind what was seen, which is told as tampering. Pure and synchronous.
 */
import type { PoolStatement } from '@sealpost/identity'
import type { PoolId } from '@sealpost/std'
import type { SealpostError } from './errors.ts'
import type { PeerEvent } from './events.ts'
import type { PoolCrypto } from './pool-crypto.ts'

export interface PoolBookPorts {
  readonly crypto: Pick<PoolCrypto, 'read'>
  readonly announce: (event: PeerEvent) => void
  /** Asks for the statements behind one. Answer: `listed`, or `failed`. */
  readonly ask: (after: PoolId) => void
}

/** `null`: they are read. */
type Waiter = (error: SealpostError | null) => void

const BEFORE_ALL = '0'.repeat(64) as PoolId

export class PoolBook {
  private readonly ports: PoolBookPorts
  private readonly known = new Map<PoolId, PoolStatement>()
  private waiters: Waiter[] = []
  /** They came during a reading, which may have passed what they wait for. */
  private latecomers: Waiter[] = []
  private isReading = false

  constructor(ports: PoolBookPorts) {
    this.ports = ports
  }

  get all(): PoolStatement[] {
    return [...this.known.values()]
  }

  find(poolId: PoolId): PoolStatement | undefined {
    return this.known.get(poolId)
  }

  /** Reads all pools anew, and calls back when that is done: in the next session, if there is none. */
  refresh(done: Waiter): void {
    if (this.isReading) {
      this.latecomers.push(done)
      return
    }
    this.waiters.push(done)
    this.begin()
  }

  listed(statements: readonly Uint8Array[], isLast: boolean): void {
    const ids = statements.flatMap((bytes) => this.take(bytes) ?? [])
    const last = ids.at(-1)
    if (!isLast && last !== undefined) return this.ports.ask(last)
    this.isReading = false
    const done = this.waiters
    this.waiters = this.latecomers
    this.latecomers = []
    if (this.waiters.length > 0) this.begin()
    for (const waiter of done) waiter(null)
  }

  /** Nothing will be answered any more. */
  failed(error: SealpostError): void {
    const waiters = [...this.waiters, ...this.latecomers]
    this.waiters = []
    this.latecomers = []
    this.isReading = false
    for (const waiter of waiters) waiter(error)
  }

  /** One of this peer's own, which the broker has taken. */
  keep(pool: PoolStatement): void {
    const before = this.known.get(pool.poolId)
    if (!before || before.epoch < pool.epoch) this.known.set(pool.poolId, pool)
  }

  private begin(): void {
    this.isReading = true
    this.ports.ask(BEFORE_ALL)
  }

  private take(bytes: Uint8Array): PoolId | null {
    const pool = this.ports.crypto.read(bytes)
    if (!pool) {
      this.ports.announce({ type: 'pool_tamper', pool: null, reason: 'statement_forged' })
      return null
    }
    const { poolId, epoch } = pool
    if (epoch < (this.known.get(poolId)?.epoch ?? 0))
      this.ports.announce({ type: 'pool_tamper', pool: poolId, reason: 'statement_rolled_back' })
    this.keep(pool)
    return poolId
  }
}
