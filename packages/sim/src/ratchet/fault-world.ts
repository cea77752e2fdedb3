/**
 * Simulates peers with ratchets, their stores, and a queue that delivers at least once. A seed determines the world,
 * including every key. Most worlds use a symbolic X25519, and the rest uses libsodium.
 */
import type { RatchetCrypto } from '@sealpost/identity/ratchet'
import { type MeshId, type Random, seededRandom } from '@sealpost/std'
import { RatchetBroker } from './ratchet-broker.ts'
import { ID_LENGTH, type Posted, RatchetOracle } from './ratchet-oracle.ts'
import {
  type ProcessChances,
  type RatchetProcess,
  SimulatedCrash,
  type SimulatedLine,
  type SimulatedOwner,
} from './ratchet-process.ts'
import { simulatedCrypto, simulatedIdentity } from './simulated-crypto.ts'

export interface WorldOutcome {
  readonly seed: number
  readonly violation: string | null
  readonly marks: ReadonlyMap<string, number>
}

const MESH = 'a0'.repeat(16) as MeshId
const START_MS = 1_767_225_600_000
const DAY_MS = 86_400_000
const STEPS = 70
const ROUNDS_MAX = 10
/** The number of rounds without a refusal after which all keys have changed. */
const HEALTHY_ROUNDS = 4

export interface StoreFaults extends ProcessChances {
  readonly isReal: boolean
  readonly reorder: number
  readonly restore: number
  readonly twin: number
  readonly lostStore: number
  readonly weeks: number
  readonly theft: number
  readonly redrive: number
  readonly forge: number
  readonly oneTimeMax: number
}

export interface WorldShape {
  readonly peers: number
  /** The ratchets of two peers. */
  readonly lanes: number
  /** A peer publishes fewer one-time prekeys than this at once. */
  readonly oneTimeMax: number
  /** The time between two rounds of probes. */
  readonly roundMs: number
}

/** Draws the faults of a seed. Each is absent in many seeds, so that none always hides another. */
function planOf(random: Random, seed: number, shape: WorldShape): StoreFaults {
  const some = (max: number, share = 0.5) => (random.chance(share) ? random.next() * max : 0)
  return {
    isReal: seed % 16 === 0,
    crash: some(0.15),
    replyLost: some(0.4),
    appRejects: some(0.2, 0.3),
    appHolds: some(0.6),
    reorder: some(1),
    restore: some(0.06, 0.3),
    twin: some(0.06, 0.2),
    lostStore: some(0.03, 0.1),
    weeks: some(0.1, 0.3),
    theft: random.chance(0.5) ? 0.05 : 0,
    redrive: some(0.1, 0.3),
    forge: some(0.3, 0.3),
    oneTimeMax: random.below(shape.oneTimeMax),
  }
}

export interface SimulatedSide<Process> {
  readonly owner: SimulatedOwner
  processes: Process[]
  snapshot: Map<string, Uint8Array> | null
}

export abstract class FaultWorld<Process extends RatchetProcess> {
  readonly oracle: RatchetOracle
  protected readonly random: Random
  protected readonly broker: RatchetBroker
  protected readonly sides: readonly SimulatedSide<Process>[]
  protected plan: StoreFaults
  readonly #shape: WorldShape
  #nowMs = START_MS
  #lastId = 0

  constructor(seed: number, shape: WorldShape) {
    this.#shape = shape
    this.random = seededRandom(seed)
    this.plan = planOf(this.random, seed, shape)
    this.broker = new RatchetBroker((text) => this.oracle.violated(text))
    this.oracle = new RatchetOracle(this.broker)
    const sealedWith = (key: Uint8Array) => this.oracle.sealedWith(key)
    const crypto = simulatedCrypto(this.random, { isReal: this.plan.isReal, sealedWith })
    const identities = Array.from({ length: shape.peers }, (_, no) => simulatedIdentity(no, crypto))
    this.sides = identities.map((_, no) => this.#sideOf(no, identities, crypto))
  }

  protected abstract processOf(owner: SimulatedOwner): Process
  /** Lets a process send messages of chance. */
  protected abstract send(process: Process, side: SimulatedSide<Process>): void
  /** Delivers what an honest broker does not deliver. */
  protected abstract forge(process: Process, side: SimulatedSide<Process>): void
  /** Sends a message to each other peer, in each way. */
  protected abstract probe(process: Process, text: string): void
  /** Copies everything of a peer that has one process. */
  protected abstract steal(side: SimulatedSide<Process>, process: Process): void
  /** Judges once everything is delivered. `isLastProbe`: null if the world broke before. */
  protected abstract judge(isLastProbe: ((post: Posted) => boolean) | null): void

  run(): void {
    for (let step = 0; step < STEPS && this.oracle.violation === null; step++) {
      this.#nowMs += this.random.below(1_500)
      for (const side of this.sides) this.#applyFaults(side)
      const side = this.pick(this.sides)
      this.guarded(side, (process) => this.#act(process, side))
    }
    this.#drain()
    const isLast = this.oracle.violation === null ? this.#probe() : null
    this.oracle.end()
    this.judge(isLast)
  }

  #act(process: Process, side: SimulatedSide<Process>): void {
    const { random, plan } = this
    const action = random.below(10)
    if (action < 4) this.send(process, side)
    else if (action < 8) this.#deliverSome(side, process)
    else if (action === 8) process.finish()
    else process.resend()
    if (random.chance(plan.forge)) this.forge(process, side)
    if (random.chance(0.05)) process.publish(random.below(plan.oneTimeMax + 1), random.chance(0.3))
  }

  #deliverSome({ owner }: SimulatedSide<Process>, process: Process): void {
    const count = 1 + this.random.below(4)
    for (let i = 0; i < count; i++) {
      const waiting = this.broker.queue.filter(({ to, envelopeId }) => to === owner.no && !process.holds(envelopeId))
      if (waiting.length === 0) return
      const isFirst = !this.random.chance(this.plan.reorder)
      if (!isFirst) this.oracle.mark('reordered')
      process.receive(isFirst ? waiting[0]! : this.pick(waiting))
    }
  }

  #applyFaults(side: SimulatedSide<Process>): void {
    const { restore, twin, lostStore, weeks, theft, redrive } = this.plan
    const { random } = this
    if (random.chance(0.05)) side.snapshot = new Map(side.owner.records)
    if (side.snapshot && random.chance(restore)) this.#replaceStore(side, side.snapshot, 'restored')
    if (random.chance(lostStore)) this.#replaceStore(side, new Map(), 'lost its store')
    if (random.chance(twin) && side.processes.length === 1) this.#addTwin(side)
    if (random.chance(weeks)) this.#pass(side)
    if (random.chance(theft) && side.processes.length === 1) this.steal(side, side.processes[0]!)
    if (random.chance(redrive) && this.broker.redrive(this.#nowMs) > 0) this.oracle.mark('redriven')
  }

  #replaceStore(side: SimulatedSide<Process>, records: ReadonlyMap<string, Uint8Array>, mark: string): void {
    this.oracle.disturb(side.owner.no, mark)
    side.owner.records.clear()
    for (const [key, bytes] of records) side.owner.records.set(key, bytes)
    side.processes = []
    this.guarded(side, (process) => {
      if (records.size === 0) process.publish(this.random.below(this.plan.oneTimeMax + 1), true)
    })
  }

  #addTwin(side: SimulatedSide<Process>): void {
    this.oracle.disturb(side.owner.no, 'two processes')
    side.processes.push(this.processOf(side.owner))
  }

  /** Lets days or months pass. */
  #pass(side: SimulatedSide<Process>): void {
    const days = this.pick([2, 20, 80])
    this.oracle.mark(`${days} days`)
    this.#nowMs += days * DAY_MS
    for (const { envelopeId } of this.broker.expire(this.#nowMs))
      this.oracle.posted.get(envelopeId)!.refusals.push('expired')
    if (this.#nowMs - START_MS > 60 * DAY_MS) this.oracle.isAged = true
    this.guarded(side, (process) => process.expire())
  }

  /** Runs a process of the peer, which starts if there is none, and ends if it crashes. */
  protected guarded(side: SimulatedSide<Process>, run: (process: Process) => void): void {
    let process: Process | undefined
    try {
      if (side.processes.length === 0) this.#start(side)
      process = this.pick(side.processes)
      run(process)
    } catch (error) {
      if (!(error instanceof SimulatedCrash)) throw error
      side.processes = process ? side.processes.filter((other) => other !== process) : []
    }
  }

  #start(side: SimulatedSide<Process>): void {
    side.processes = [this.processOf(side.owner)]
    if (!side.owner.records.has('statement')) side.processes[0]!.publish(1, true)
    side.processes[0]!.reportResets()
  }

  /** Stops the faults, and delivers everything. */
  #drain(): void {
    this.plan = { ...this.plan, reorder: 0 }
    for (const side of this.sides) {
      Object.assign(side.owner.chances, { crash: 0, replyLost: 0, appRejects: 0, appHolds: 0 })
      side.processes = side.processes.slice(0, 1)
    }
    this.#deliverAll()
  }

  #deliverAll(): void {
    for (let round = 0; round < 50; round++) {
      this.#nowMs += 10
      for (const side of this.sides)
        this.guarded(side, (process) => {
          process.reportResets()
          process.resend()
          process.finish()
          for (const message of this.broker.queue.filter(({ to }) => to === side.owner.no)) process.receive(message)
        })
      if (this.broker.queue.length === 0) return
    }
    this.oracle.violated('liveness: the queue does not become empty')
  }

  /**
   * After the faults, every lane must work again in all directions, within a few rounds, and heal after a theft. Returns
   * which messages are of the last round, or null.
   */
  #probe(): ((post: Posted) => boolean) | null {
    let healthy = 0
    for (let round = 0; round < ROUNDS_MAX; round++) {
      this.#nowMs += this.#shape.roundMs
      const before = this.#refusedCount()
      for (const side of this.sides) this.guarded(side, (process) => this.probe(process, `probe ${round}`))
      this.#deliverAll()
      healthy = this.#refusedCount() === before ? healthy + 1 : 0
      if (healthy >= HEALTHY_ROUNDS) return ({ text }) => text.endsWith(`probe ${round}`)
    }
    this.oracle.violated('liveness: a lane does not recover')
    return null
  }

  #refusedCount(): number {
    let count = 0
    for (const { refusals } of this.oracle.posted.values()) count += refusals.length
    return count
  }

  #sideOf(no: number, identities: readonly ReturnType<typeof simulatedIdentity>[], crypto: RatchetCrypto) {
    const { crash, replyLost, appRejects, appHolds } = this.plan
    const others = [...identities.keys()].filter((other) => other !== no)
    const lines = others.flatMap((to): SimulatedLine[] => {
      const { signing, box } = identities[to]!
      const peer = { peerKey: signing.publicKey, boxKey: box.publicKey, boxEpoch: box.epoch }
      return Array.from({ length: this.#shape.lanes }, (_, lane) => ({ to, peer, lane }))
    })
    const owner: SimulatedOwner = {
      ...{ no, meshId: MESH, identity: identities[no]!, lines, crypto, records: new Map(), random: this.random },
      ...{ broker: this.broker, oracle: this.oracle, chances: { crash: 0, replyLost, appRejects, appHolds } },
      nowMs: () => this.#nowMs,
      newId: () => {
        this.#lastId += 1
        return String(this.#lastId).padStart(ID_LENGTH, '0')
      },
    }
    const first = this.processOf(owner)
    first.publish(this.random.below(this.plan.oneTimeMax + 1), true)
    owner.chances.crash = crash
    const side: SimulatedSide<Process> = { owner, processes: [first], snapshot: null }
    return side
  }

  protected pick<Value>(values: readonly Value[]): Value {
    return values[this.random.below(values.length)]!
  }
}

export function runWorld<Process extends RatchetProcess>(seed: number, world: FaultWorld<Process>): WorldOutcome {
  try {
    world.run()
  } catch (error) {
    world.oracle.violated(`bug: ${error instanceof Error ? error.message : String(error)}`)
  }
  return { seed, violation: world.oracle.violation, marks: world.oracle.marks }
}
