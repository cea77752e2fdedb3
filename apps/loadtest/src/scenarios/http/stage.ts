/** Sets up a mesh whose peers listen in this process or send over HTTP, with a ledger. */

import { HttpSender, type RetryCount, type SealedItem } from '@sealpost/harness/members/http-peers'
import { identityOf, type MeshMembers, type SecretKeys, sliceOf } from '@sealpost/harness/members/mesh'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { Latencies } from '@sealpost/harness/report/latencies'
import { count, sum } from '@sealpost/harness/report/text'
import { ready } from '@sealpost/identity'
import { clockMs, connect, type Peer } from '@sealpost/sdk'
import type { MeshId } from '@sealpost/std'
import type { Shard } from '../../environment/environment.ts'
import { Bodies, planOf } from '../../generators/plan.ts'
import { newMesh, type RunContext } from '../../run/run.ts'
import { type Check, type Graph, mailCheck, percentilesGraph } from '../scenario.ts'

interface StageSize {
  readonly listeners: number
  readonly senders: number
  readonly others?: number
  /** Whether each body goes to every listener, with a number for each. */
  readonly isToAll?: boolean
}

interface StageParts {
  readonly mesh: MeshMembers
  readonly listeners: Listeners
  readonly senders: readonly HttpSender[]
  readonly retries: RetryCount
  readonly bodies: Bodies
  readonly size: StageSize
}

const EXCHANGE_WITHIN_MS = 30_000

export class HttpStage {
  readonly mesh: MeshMembers
  readonly listeners: Listeners
  readonly senders: readonly HttpSender[]
  /** Members that neither listen nor send. */
  readonly others: MeshMembers
  /** The number of repeated requests. */
  readonly retries: RetryCount
  readonly #bodies: Bodies
  readonly #isToAll: boolean
  #ledger = new Ledger(clockMs())

  /** Connects listeners, and requests senders' tokens. */
  static async open(context: RunContext, size: StageSize, teardown: Teardown): Promise<HttpStage> {
    const { target, display } = context
    const { listeners, senders, others = 0 } = size
    const plan = planOf({ peers: listeners + senders + others })
    const mesh = await newMesh(plan, target, teardown)
    const broker = target.shards[0]!
    const { meshId } = mesh
    const bodies = new Bodies(plan)
    const retries = { retries: 0 }
    display.step(`${listeners} listen, ${senders} send by HTTP`)
    let stage: HttpStage | undefined
    const take = (number: number, atMs: number, listener: number) => stage?.arrived(number, atMs, listener)
    const secrets = mesh.secrets.slice(0, listeners)
    const listening = Listeners.open({ broker, meshId, secrets, bodies, take }, teardown)
    const entering = mesh.secrets
      .slice(listeners, listeners + senders)
      .map((keys) => HttpSender.enter({ ...broker, meshId }, keys, retries))
    const opening = Promise.all([listening, Promise.all(entering)])
    const [opened, entered] = await Promise.race([opening, target.failed])
    stage = new HttpStage({ mesh, listeners: opened, senders: entered, retries, bodies, size })
    return stage
  }

  private constructor({ mesh, listeners, senders, retries, bodies, size }: StageParts) {
    this.mesh = mesh
    this.listeners = listeners
    this.senders = senders
    this.others = sliceOf(mesh, size.listeners + size.senders)
    this.retries = retries
    this.#bodies = bodies
    this.#isToAll = size.isToAll === true
  }

  get ledger(): Ledger {
    return this.#ledger
  }

  /** Starts a new ledger. */
  begin(): { readonly ledger: Ledger; readonly startMs: number } {
    const startMs = clockMs()
    this.#ledger = new Ledger(startMs)
    return { ledger: this.#ledger, startMs }
  }

  arrived(number: number, atMs: number, listener: number): void {
    const own = this.#isToAll && number >= 0 ? number * this.listeners.count + listener : number
    this.#ledger.arrived(own, atMs)
  }

  body(number: number): Uint8Array {
    return this.#bodies.make(number)
  }

  seal(sender: number, listener: number, number: number): SealedItem {
    return this.senders[sender]!.seal(this.mesh.bindings[listener]!, this.body(number))
  }

  async send(sender: number, listener: number, dueAtMs = clockMs()): Promise<void> {
    const ledger = this.#ledger
    const number = ledger.due(dueAtMs)
    const outcome = await this.senders[sender]!.post(this.seal(sender, listener, number))
    if (outcome === 'stored') ledger.answered(number, clockMs())
    else ledger.failed(outcome)
  }

  /** Sends along each pair, so that shared keys exist before the measurement. */
  async exchange(pairs: readonly (readonly [sender: number, listener: number])[]): Promise<void> {
    const { ledger } = this.begin()
    for (const [sender, listener] of pairs) await this.send(sender, listener)
    await ledger.until(pairs.length, EXCHANGE_WITHIN_MS)
  }
}

interface ListenersSetup {
  readonly broker: Shard
  readonly meshId: MeshId
  readonly secrets: readonly SecretKeys[]
  readonly bodies: Bodies
  /** Called with each message. @param number - -1 for a damaged body */
  readonly take: (number: number, atMs: number, listener: number) => void
}

/** Peers with the real SDK, which check every byte. */
class Listeners {
  readonly #peers: Peer[] = []
  #dropped = 0

  static async open(setup: ListenersSetup, teardown: Teardown): Promise<Listeners> {
    await ready()
    const listeners = new Listeners()
    teardown.add({ end: () => listeners.close() })
    for (const [i, secret] of setup.secrets.entries()) listeners.#peers.push(await listeners.#listen(i, secret, setup))
    return listeners
  }

  get count(): number {
    return this.#peers.length
  }

  get dropped(): number {
    return this.#dropped
  }

  async close(): Promise<void> {
    await Promise.all(this.#peers.map((peer) => peer.close()))
  }

  async #listen(listener: number, secret: SecretKeys, { broker, meshId, bodies, take }: ListenersSetup): Promise<Peer> {
    const onEvent = ({ type }: { readonly type: string }) => {
      if (type === 'disconnected') this.#dropped += 1
    }
    const peer = await connect({ ...broker, meshId, identity: identityOf(secret), onEvent })
    peer.onMessage(({ body }) => {
      const number = bodies.numberOf(body)
      take(bodies.isIntact(body, number) ? number : -1, clockMs(), listener)
    })
    return peer
  }
}

/** Records how often each message arrived, and the latencies. */
export class Ledger {
  readonly ack = new Latencies()
  readonly e2e = new Latencies()
  /** Refusals and lost connections by code. */
  readonly failures: Record<string, number> = {}
  acked = 0
  readonly #startMs: number
  readonly #dueAtMs: number[] = []
  readonly #arrived = new Set<number>()
  /** Latencies by the second in which messages were due. */
  readonly #seconds: Latencies[] = []
  #twice = 0
  #wrong = 0
  #waiting: { readonly count: number; readonly resolve: () => void } | undefined

  constructor(startMs: number) {
    this.#startMs = startMs
  }

  /** Adds a due message. @returns its number, from 0 */
  due(atMs: number): number {
    return this.#dueAtMs.push(atMs) - 1
  }

  answered(number: number, atMs: number): void {
    this.acked += 1
    this.ack.note(atMs - this.#dueAtMs[number]!)
  }

  failed(code: string): void {
    this.failures[code] = (this.failures[code] ?? 0) + 1
  }

  arrived(number: number, atMs: number): void {
    const dueAtMs = this.#dueAtMs[number]
    if (dueAtMs === undefined) this.#wrong += 1
    else if (this.#arrived.has(number)) this.#twice += 1
    else this.#note(number, { dueAtMs, atMs })
  }

  #note(number: number, { dueAtMs, atMs }: { readonly dueAtMs: number; readonly atMs: number }): void {
    this.#arrived.add(number)
    this.e2e.note(atMs - dueAtMs)
    const second = Math.max(0, Math.floor((dueAtMs - this.#startMs) / 1000))
    for (let next = this.#seconds.length; next <= second; next++) this.#seconds.push(new Latencies())
    this.#seconds[second]!.note(atMs - dueAtMs)
    if (this.#waiting && this.delivered >= this.#waiting.count) this.#waiting.resolve()
  }

  get sent(): number {
    return this.#dueAtMs.length
  }
  get delivered(): number {
    return this.#arrived.size
  }
  get failedCount(): number {
    return sum(Object.values(this.failures))
  }
  /** Whether every message arrived once and undamaged. */
  get isSound(): boolean {
    return this.#twice + this.#wrong === 0
  }

  /** Resolves when `count` messages have arrived, or after `withinMs`. */
  async until(count: number, withinMs: number): Promise<void> {
    if (this.delivered >= count) return
    const arrived = new Promise<void>((resolve) => {
      this.#waiting = { count, resolve }
    })
    await Promise.race([arrived, Bun.sleep(withinMs)])
  }

  get graph(): Graph {
    const points = this.#seconds.map((of, second) => [second, of.percentiles] as const)
    return percentilesGraph('Due → push, by the second', 'seconds', points, ['p50', 'p99'])
  }
}

export const soundCheck = (isSound: boolean): Check => mailCheck(isSound, 'None arrived twice or damaged.')

export const failuresOf = ({ failures }: Ledger): string =>
  Object.entries(failures)
    .map(([code, times]) => `${code} ${count(times)}`)
    .join(', ') || 'none'
