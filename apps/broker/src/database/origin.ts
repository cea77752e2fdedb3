/**
 * Determines which server the database is on, and whether that server still has everything that was acknowledged.
 * Before the verdict, a server runs no statement, so nothing is acknowledged there (docs/adr/0010-failover.md).
 */
import type { ConnectionCheck, Database, DatabaseOptions } from '@sealpost/pg'
import type { LastAcknowledged } from '@sealpost/queue/postgres'
import { type Millis, OperatingError, type ShardId } from '@sealpost/std'
import {
  attestOrigin,
  type BrokerCheckpoint,
  type Origin,
  type OriginVerdict,
  parseOrigin,
  SELECT_ORIGIN,
} from '@sealpost/store'
import type { Log } from '../telemetry/log.ts'

export interface OriginPorts {
  /** Opens a connection to any server. @throws OperatingError */
  readonly open: () => Promise<Database>
  readonly shard: ShardId
  readonly log: Log
  /** Called if this run does not know the database. */
  readonly replaced: () => void
}

export type Acknowledgements = Pick<LastAcknowledged, 'envelopes' | 'version' | 'forget'>

/** How long a broker waits for others after the first attestation. */
export const ORIGIN_PATIENCE_MS: Millis = 5_000
const ASK_EVERY_MS: Millis = 100
/** The maximum retry interval while no server responds. */
const ASK_EVERY_MS_MAX: Millis = 500

type State =
  | { readonly name: 'unknown' }
  | { readonly name: 'known'; readonly origin: Origin }
  | { readonly name: 'judging'; readonly origin: Origin; readonly decided: Promise<void> }
  | { readonly name: 'replaced' }

export class DatabaseOrigin {
  keptCount = 0
  readonly #ports: OriginPorts
  #state: State = { name: 'unknown' }
  #acknowledged: Acknowledgements | null = null
  #leaseUntil: string | null = null
  #isBack: () => void = () => undefined
  readonly #pools: Pick<Database, 'reconnect'>[] = []
  #isLooking = false
  #isStopped = false

  constructor(ports: OriginPorts) {
    this.#ports = ports
  }

  get guard(): Pick<DatabaseOptions, 'checkConnection' | 'onConnectionLost'> {
    return { checkConnection: this.#admit, onConnectionLost: () => this.#connectionLost() }
  }

  guards<Pool extends Pick<Database, 'reconnect'>>(pool: Pool): Pool {
    this.#pools.push(pool)
    return pool
  }

  get isJudging(): boolean {
    return this.#state.name === 'judging'
  }

  begin(origin: Origin, acknowledged: Acknowledgements): void {
    this.#acknowledged = acknowledged
    this.#state = { name: 'known', origin }
  }

  /** Calls `isBack` whenever the same database responds after an outage. */
  onBack(isBack: () => void): void {
    this.#isBack = isBack
  }

  /**
   * Call before this shard renews its lease, and the returned function afterwards, with null if it was not renewed. A
   * renewal proves that everything acknowledged before is stored.
   */
  renewing(): (leaseUntil: string | null) => void {
    const version = this.#acknowledged?.version ?? 0
    return (leaseUntil) => {
      this.#leaseUntil = leaseUntil
      if (leaseUntil !== null) this.#acknowledged?.forget(version)
    }
  }

  stop(): void {
    this.#isStopped = true
  }

  readonly #admit: ConnectionCheck = async (row) => {
    if (this.#state.name === 'unknown') return null
    if (this.#state.name === 'judging') await this.#state.decided
    const answer = await row(SELECT_ORIGIN)
    if (answer[0] === null) return 'it is a standby'
    if (!this.#isKnown(answer)) await this.judge()
    return this.#isKnown(await row(SELECT_ORIGIN)) ? null : 'the database has a different origin'
  }

  /** Compares the origin with the known one, because `sealpost db restored` fails no connection. */
  check(found: Origin | null): void {
    const state = this.#state
    if (state.name === 'known' && !isSame(found, state.origin)) void this.judge()
  }

  /** Checks immediately which server the next connection reaches. */
  #connectionLost(): void {
    if (!this.#isLooking && this.#state.name === 'known') void this.#look()
  }

  /** Requests the brokers' verdict on the current server. */
  judge(): Promise<void> {
    const state = this.#state
    if (state.name === 'judging') return state.decided
    if (state.name !== 'known') return Promise.resolve()
    const { origin } = state
    const decided = Promise.resolve().then(() => this.#decide(origin))
    this.#state = { name: 'judging', origin, decided }
    return decided
  }

  async #decide(former: Origin): Promise<void> {
    const { log, replaced } = this.#ports
    const startedAtMs = performance.now()
    log.warn('database.moved', { incarnation: former.incarnation })
    for (const pool of this.#pools) pool.reconnect() // the former server must acknowledge nothing more
    await new Promise((resolve) => setImmediate(resolve)) // replies that have arrived count as acknowledged
    const verdict = await this.#verdict(former)
    if (!verdict) return
    const { server, incarnation } = verdict
    const fields = { incarnation, server, tookMs: Math.round(performance.now() - startedAtMs) }
    if (incarnation !== former.incarnation) {
      this.#state = { name: 'replaced' }
      log.error('database.replaced', fields)
      return replaced()
    }
    this.#state = { name: 'known', origin: { server, incarnation } }
    if (server !== former.server) {
      this.keptCount += 1
      log.info('database.kept', fields)
    }
    this.#isBack()
  }

  get #checkpoint(): BrokerCheckpoint {
    const { shard } = this.#ports
    return { shard, leaseUntil: this.#leaseUntil, acknowledged: this.#acknowledged?.envelopes ?? null }
  }

  /** Returns null if this run must end. */
  async #verdict({ incarnation }: Origin): Promise<Extract<OriginVerdict, { is: 'decided' }> | null> {
    const attestation = { checkpoint: this.#checkpoint, former: incarnation, patienceMs: ORIGIN_PATIENCE_MS }
    while (!this.#isStopped) {
      const verdict = await this.#asked((db) => attestOrigin(db, attestation))
      if (verdict?.is === 'decided') return verdict
      await pause(ASK_EVERY_MS)
    }
    return null
  }

  async #look(): Promise<void> {
    this.#isLooking = true
    for (let pauseMs = ASK_EVERY_MS; !this.#isStopped && this.#state.name === 'known'; ) {
      const answer = await this.#asked(async (db) => (await db.run((sql) => sql.unsafe(SELECT_ORIGIN).values()))[0])
      if (answer && answer[0] !== null) {
        if (this.#isKnown(answer as string[])) this.#isBack()
        else await this.judge()
        break
      }
      await pause(pauseMs)
      pauseMs = Math.min(ASK_EVERY_MS_MAX, pauseMs * 1.2)
    }
    this.#isLooking = false
  }

  /** Returns null if no server responded. */
  async #asked<T>(ask: (db: Database) => Promise<T>): Promise<T | null> {
    let db: Database | null = null
    try {
      db = await this.#ports.open()
      return await ask(db)
    } catch (error) {
      if (!(error instanceof OperatingError)) throw error
      return null
    } finally {
      await db?.close()
    }
  }

  #isKnown(answer: readonly (string | null)[]): boolean {
    return this.#state.name === 'known' && isSame(parseOrigin(answer), this.#state.origin)
  }
}

const isSame = (found: Origin | null, known: Origin): boolean =>
  found?.server === known.server && found.incarnation === known.incarnation

const pause = (ms: Millis) => new Promise((resolve) => setTimeout(resolve, ms))
