/**
 * Runs the brokers, each behind proxies to Postgres and to programs of peers. An unexpected exit or logged error is a
 * bug.
 */

import { type BrokerProgram, logLine, startBroker } from '@sealpost/broker-program'
import { TcpProxy } from '@sealpost/harness/programs/proxy'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { generateSigningKeys, ready } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { clockMs } from '@sealpost/sdk'
import { OperatingError, type PeerKey } from '@sealpost/std'
import type { LedgerWriter } from '../judgement/ledger.ts'

export interface BrokerSetting {
  readonly brokers: number
  readonly env: Readonly<Record<string, string>>
  readonly runtimeArgs?: readonly string[]
}

interface Surroundings extends BrokerSetting {
  readonly postgres: { readonly url: string; readonly port: number }
  readonly keyFile: string
  /** The number of programs of peers. */
  readonly programs: number
  readonly ledger: LedgerWriter
}

/** The brokers' settings, with short times, so that timers fire often. The verdict doesn't depend on them. */
export const SETTINGS: Readonly<Record<string, string>> = {
  HOST: '127.0.0.1',
  PORT: '0',
  ADMIN_PORT: '0',
  LIMITS: 'off',
  LEASE_MS: '10000',
  POLL_MS: '1000',
  HEARTBEAT_MS: '2000',
  SWEEP_MS: '200',
  FAILED_ATTEMPTS_MAX: '4',
  FAILED_ATTEMPTS_SPAN_MS: '2000',
  LOG_LEVEL: 'info',
}

const STARTS_MAX = 10
const ENDED_WELL = 'it ended with exit code 0'

/** A broker's program and its proxies, which outlive it. */
interface Place {
  readonly link: TcpProxy
  process: BrokerProgram | null
}

export class Brokers {
  /** Failures that no scenario caused. */
  readonly faults: string[] = []
  /** The proxies to each program of peers. */
  readonly fronts: readonly TcpProxy[]
  readonly #around: Surroundings
  readonly #places: readonly Place[]
  #brokerKey: PeerKey | null = null
  #complaints = 0

  private constructor(around: Surroundings, fronts: readonly TcpProxy[], places: readonly Place[]) {
    this.#around = around
    this.fronts = fronts
    this.#places = places
  }

  static async open(around: Surroundings, teardown: Teardown): Promise<Brokers> {
    await ready()
    await writeKeyFile(around.keyFile, { kind: 'broker', signing: generateSigningKeys() })
    const open = (n: number, port: number) => Promise.all(Array.from({ length: n }, () => TcpProxy.open(port)))
    const fronts = await open(around.programs, 0)
    const links = await open(around.brokers, around.postgres.port)
    for (const proxy of [...fronts, ...links]) teardown.add({ end: () => proxy.close() })
    const places = links.map((link): Place => ({ link, process: null }))
    const brokers = new Brokers(around, fronts, places)
    teardown.add({ end: () => brokers.stop(), kill: () => brokers.#each(({ process }) => process?.kill()) })
    for (const no of places.keys()) await brokers.start(no)
    return brokers
  }

  get count(): number {
    return this.#places.length
  }

  get key(): PeerKey {
    return this.#brokerKey!
  }

  /** Returns the proxy between this broker and Postgres. */
  link(no: number): TcpProxy {
    return this.#places[no]!.link
  }

  pid(no: number): number {
    const { process } = this.#places[no]!
    if (!process) throw new OperatingError('broker_absent', `Broker ${no} is not running.`)
    return process.pid
  }

  get pids(): number[] {
    return this.#places.flatMap(({ process }) => process?.pid ?? [])
  }

  get httpUrls(): string[] {
    return this.#places.flatMap(({ process }) => process?.httpUrl ?? [])
  }

  /** The number of failed database operations in the logs. */
  get complaints(): number {
    return this.#complaints
  }

  frontUrl(program: number): string {
    return `ws://127.0.0.1:${this.fronts[program]!.port}`
  }

  /** Returns the broker's own address until its restart. */
  urlFor(program: number): string {
    return this.#places[program % this.count]!.process!.url
  }

  programsOf(no: number): number[] {
    return [...this.fronts.keys()].filter((program) => program % this.count === no)
  }

  /** Starts a broker behind its proxies. */
  async start(no: number): Promise<void> {
    this.#lead(no, await this.#spawn(no))
  }

  async kill(no: number): Promise<void> {
    const place = this.#places[no]!
    const { process } = place
    place.process = null // the stop is no fault
    process?.kill()
    await process?.exited
  }

  /** Replaces a broker by one that is ready first. */
  async roll(no: number): Promise<void> {
    const former = this.#places[no]!.process
    this.#lead(no, await this.#spawn(no))
    await this.#stopOne(no, former)
  }

  async stop(): Promise<void> {
    const running = this.#places.map((place) => {
      const { process } = place
      place.process = null
      return process
    })
    await Promise.all(running.map((process, no) => this.#stopOne(no, process)))
  }

  async #stopOne(no: number, broker: BrokerProgram | null): Promise<void> {
    if (!broker) return
    await broker.stop()
    const lastWords = await broker.exited
    if (lastWords !== ENDED_WELL) this.faults.push(`broker ${no} ended after SIGTERM: ${lastWords}`)
  }

  /** Starts the program. Retries like a supervisor, because Postgres may be too busy. */
  async #spawn(no: number): Promise<BrokerProgram> {
    for (let tries = 1; ; tries++) {
      try {
        return await this.#spawnOnce(no)
      } catch (error) {
        if (tries === STARTS_MAX || !(error instanceof OperatingError)) throw error
      }
    }
  }

  async #spawnOnce(no: number): Promise<BrokerProgram> {
    const { postgres, keyFile, env, runtimeArgs = [] } = this.#around
    const databaseUrl = new URL(postgres.url)
    databaseUrl.port = String(this.link(no).port)
    const authorities = this.fronts.map(({ port }) => `127.0.0.1:${port}`).join(',')
    let isReady = false // earlier lines are part of its error
    const broker = await startBroker({
      environment: {
        ...process.env,
        ...SETTINGS,
        ...{ AUTHORITIES: authorities, BROKER_KEY_FILE: keyFile, DATABASE_URL: databaseUrl.href },
        ...env,
      },
      runtimeArgs,
      onLine: (line) => isReady && this.#logged(no, line),
    })
    isReady = true
    return broker
  }

  #lead(no: number, process: BrokerProgram): void {
    const place = this.#places[no]!
    place.process = process
    this.#brokerKey = process.brokerKey
    for (const program of this.programsOf(no)) this.fronts[program]!.targetPort = Number(new URL(process.url).port)
    void process.exited.then((lastWords) => {
      if (place.process === process) this.faults.push(`broker ${no} ended unexpectedly: ${lastWords}`)
    })
  }

  #logged(no: number, line: string): void {
    const { event, level } = (logLine(line) ?? {}) as { event?: string; level?: string }
    if (level === 'error' || level === 'fatal' || event === undefined) this.faults.push(`broker ${no} logged: ${line}`)
    else if (event.endsWith('.failed')) {
      this.#complaints += 1
      this.#around.ledger.write({ atMs: clockMs(), e: 'broker failed', event })
    }
  }

  #each(act: (place: Place) => unknown): void {
    for (const place of this.#places) act(place)
  }
}
