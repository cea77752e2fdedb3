/** A mesh with peers that listen in this program and peers that send by HTTP: what several scenarios play on. */

import type { RetryCount } from '@sealpost/harness/members/http-sender'
import { HttpSender, type SealedItem } from '@sealpost/harness/members/http-sender'
import type { MeshMembers } from '@sealpost/harness/members/mesh'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { clockMs } from '@sealpost/sdk'
import { Bodies } from '../../generators/body.ts'
import type { Plan } from '../../generators/plan.ts'
import { ALONE } from '../../generators/spread.ts'
import { newMeshes } from '../../run/run.ts'
import type { ScenarioSetup } from '../scenario.ts'
import { Ledger } from './ledger.ts'
import { Listeners } from './listeners.ts'

export interface StageSize {
  readonly listeners: number
  readonly senders: number
  /** Members beside them, for scenarios that need more. */
  readonly others?: number
  /** Each body goes to every listener, and has a number in the ledger for each of them. */
  readonly isToAll?: boolean
}

export class HttpStage {
  readonly mesh: MeshMembers
  readonly listeners: Listeners
  readonly senders: readonly HttpSender[]
  /** The members beside listeners and senders. */
  readonly others: MeshMembers
  /** How often the broker put its peers off. */
  readonly putOffs: RetryCount
  readonly #bodies: Bodies
  readonly #isToAll: boolean
  #ledger: Ledger

  /** Everybody is there, and has a token; nothing was sent. */
  static async open(setup: ScenarioSetup, size: StageSize, teardown: Teardown): Promise<HttpStage> {
    const { target, options, display } = setup
    const { listeners, senders, others = 0, isToAll = false } = size
    const { payloadBytes, seed } = options
    const plan: Plan = {
      ...{ peers: listeners + senders + others, total: 0, rate: null, payloadBytes, seed },
      ...{ isOneWay: false, spread: ALONE },
    }
    const [mesh] = (await newMeshes({ plan, target }, teardown)) as [MeshMembers]
    const [place] = target.shards
    const bodies = new Bodies(plan)
    const putOffs = { retries: 0 }
    display.step(`${listeners} listen, ${senders} send by HTTP`)
    let stage: HttpStage | undefined
    const take = (number: number, atMs: number, listener: number) => stage?.arrived(number, atMs, listener)
    const { meshId } = mesh
    const secrets = mesh.secrets.slice(0, listeners)
    const listening = Listeners.open({ place: place!, meshId, secrets, bodies, take }, teardown)
    const entering = mesh.secrets
      .slice(listeners, listeners + senders)
      .map((keys) => HttpSender.enter({ ...place!, meshId }, keys, putOffs))
    const there = Promise.all([listening, Promise.all(entering)])
    const [opened, entered] = await Promise.race([there, target.failed])
    stage = new HttpStage(partOf(mesh, 0), {
      listeners: opened,
      senders: entered,
      others: partOf(mesh, listeners + senders),
      bodies,
      isToAll,
      putOffs,
    })
    return stage
  }

  private constructor(
    mesh: MeshMembers,
    parts: Pick<HttpStage, 'listeners' | 'senders' | 'others' | 'putOffs'> & {
      readonly bodies: Bodies
      readonly isToAll: boolean
    },
  ) {
    this.mesh = mesh
    this.listeners = parts.listeners
    this.senders = parts.senders
    this.others = parts.others
    this.putOffs = parts.putOffs
    this.#bodies = parts.bodies
    this.#isToAll = parts.isToAll
    this.#ledger = new Ledger(clockMs())
  }

  get ledger(): Ledger {
    return this.#ledger
  }

  /** What is sent from now on counts from 0. */
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

  /** One message, due then; resolves when it is answered. */
  async send(sender: number, listener: number, dueAtMs = clockMs()): Promise<void> {
    const ledger = this.#ledger
    const number = ledger.due(dueAtMs)
    const outcome = await this.senders[sender]!.post(this.seal(sender, listener, number))
    if (outcome === 'stored') ledger.answered(number, clockMs())
    else ledger.failed(outcome)
  }

  /** A first message along each pair that will be used costs both ends a shared key. */
  async exchange(pairs: readonly (readonly [sender: number, listener: number])[]): Promise<void> {
    const { ledger } = this.begin()
    for (const [sender, listener] of pairs) await this.send(sender, listener)
    await ledger.until(pairs.length, EXCHANGE_WITHIN_MS)
  }
}

const EXCHANGE_WITHIN_MS = 30_000

function partOf(mesh: MeshMembers, first: number): MeshMembers {
  const { meshId, peerKeys, secrets, bindings } = mesh
  return { meshId, peerKeys: peerKeys.slice(first), secrets: secrets.slice(first), bindings: bindings.slice(first) }
}
