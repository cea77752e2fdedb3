/**
 * Simulates two peers with ratchets, their stores, and a queue that delivers at least once. A seed determines the world,
 * including every key. Most worlds use a symbolic X25519, which takes 2 µs instead of 60; the rest uses libsodium.
 */
import { hash256, type Identity, signingKeysFromSeed } from '@sealpost/identity'
import { Ratchet, type RatchetCrypto, sodiumRatchetCrypto } from '@sealpost/identity/ratchet'
import { fromHex, type MeshId, type Random, seededRandom, toHex } from '@sealpost/std'
import { RatchetBroker } from './ratchet-broker.ts'
import { ID_LENGTH, RatchetOracle } from './ratchet-oracle.ts'
import { LANES, type ProcessChances, RatchetProcess, SimulatedCrash, type SimulatedOwner } from './ratchet-process.ts'

export interface RatchetOutcome {
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

interface RatchetPlan extends ProcessChances {
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

/** Draws the faults of a seed. Each is absent in many seeds, so that none always hides another. */
function planOf(random: Random, seed: number): RatchetPlan {
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
    oneTimeMax: random.below(4),
  }
}

export function runRatchetSeed(seed: number): RatchetOutcome {
  const world = new RatchetWorld(seed)
  try {
    world.run()
  } catch (error) {
    world.oracle.violated(`bug: ${error instanceof Error ? error.message : String(error)}`)
  }
  return { seed, violation: world.oracle.violation, marks: world.oracle.marks }
}

interface SimulatedSide {
  readonly owner: SimulatedOwner
  processes: RatchetProcess[]
  snapshot: Map<string, Uint8Array> | null
}

class RatchetWorld {
  readonly oracle: RatchetOracle
  readonly #random: Random
  readonly #broker: RatchetBroker
  readonly #sides: readonly SimulatedSide[]
  #plan: RatchetPlan
  #nowMs = START_MS
  #lastId = 0

  constructor(seed: number) {
    this.#random = seededRandom(seed)
    this.#plan = planOf(this.#random, seed)
    this.#broker = new RatchetBroker((text) => this.oracle.violated(text))
    this.oracle = new RatchetOracle(this.#broker)
    const crypto = this.#cryptoOf(this.#plan.isReal)
    const identities = [0, 1].map((no) => identityOf(no, crypto))
    this.#sides = identities.map((identity, no) => this.#sideOf(no, identity, identities[1 - no]!, crypto))
  }

  run(): void {
    for (let step = 0; step < STEPS && this.oracle.violation === null; step++) {
      this.#nowMs += this.#random.below(1_500)
      for (const side of this.#sides) this.#mayFail(side)
      const side = this.#pick(this.#sides)
      this.#guarded(side, (process) => this.#act(process, side))
    }
    this.#drain()
    if (this.oracle.violation === null) this.#probe()
    this.oracle.end()
  }

  #act(process: RatchetProcess, side: SimulatedSide): void {
    const { random, plan } = { random: this.#random, plan: this.#plan }
    const action = random.below(10)
    if (action < 4) process.send(random.below(LANES), 'hello')
    else if (action < 8) this.#deliverSome(side, process)
    else if (action === 8) process.finish()
    else process.resend()
    if (random.chance(plan.forge)) this.#forge(process)
    if (random.chance(0.05)) process.publish(random.below(plan.oneTimeMax + 1), random.chance(0.3))
  }

  #deliverSome({ owner }: SimulatedSide, process: RatchetProcess): void {
    const count = 1 + this.#random.below(4)
    for (let i = 0; i < count; i++) {
      const waiting = this.#broker.queue.filter(({ to, envelopeId }) => to === owner.no && !process.holds(envelopeId))
      if (waiting.length === 0) return
      const isFirst = !this.#random.chance(this.#plan.reorder)
      if (!isFirst) this.oracle.mark('reordered')
      process.receive(isFirst ? waiting[0]! : this.#pick(waiting))
    }
  }

  /** Delivers a copy of any message, changed or not, also of the peer's own. */
  #forge(process: RatchetProcess): void {
    const all = [...this.oracle.posted.values()]
    if (all.length === 0) return
    const { bytes, lane } = this.#pick(all)
    const copy = bytes.slice()
    if (this.#random.chance(0.7)) copy[this.#random.below(copy.length)]! ^= 1 << this.#random.below(8)
    const isMoved = this.#random.chance(0.2)
    process.receiveForged(isMoved ? LANES - 1 - lane : lane, copy)
  }

  #mayFail(side: SimulatedSide): void {
    const { restore, twin, lostStore, weeks, theft, redrive } = this.#plan
    const random = this.#random
    if (random.chance(0.05)) side.snapshot = new Map(side.owner.records)
    if (side.snapshot && random.chance(restore)) this.#replaceStore(side, side.snapshot, 'restored')
    if (random.chance(lostStore)) this.#replaceStore(side, new Map(), 'lost its store')
    if (random.chance(twin) && side.processes.length === 1) this.#addTwin(side)
    if (random.chance(weeks)) this.#pass(side)
    if (random.chance(theft)) this.#steal(side)
    if (random.chance(redrive) && this.#broker.redrive(this.#nowMs) > 0) this.oracle.mark('redriven')
  }

  #replaceStore(side: SimulatedSide, records: ReadonlyMap<string, Uint8Array>, mark: string): void {
    this.oracle.disturb(side.owner.no, mark)
    side.owner.records.clear()
    for (const [key, bytes] of records) side.owner.records.set(key, bytes)
    side.processes = []
    this.#guarded(side, (process) => {
      if (records.size === 0) process.publish(this.#random.below(this.#plan.oneTimeMax + 1), true)
    })
  }

  #addTwin(side: SimulatedSide): void {
    this.oracle.disturb(side.owner.no, 'two processes')
    side.processes.push(new RatchetProcess(side.owner))
  }

  /** Lets days or months pass. */
  #pass(side: SimulatedSide): void {
    const days = this.#pick([2, 20, 80])
    this.oracle.mark(`${days} days`)
    this.#nowMs += days * DAY_MS
    for (const { envelopeId } of this.#broker.expire(this.#nowMs))
      this.oracle.posted.get(envelopeId)!.refusals.push('expired')
    if (this.#nowMs - START_MS > 60 * DAY_MS) this.oracle.isAged = true
    this.#guarded(side, (process) => process.expire())
  }

  #steal({ owner, processes }: SimulatedSide): void {
    const process = processes[0]
    if (!process || processes.length > 1) return
    const { identity: own, peer, crypto, records } = owner
    const lootOf = (ratchet: Ratchet, priority: number) => ({
      ...{ own, peer, crypto, ratchet, prekeys: process.prekeys },
      scope: { meshId: MESH, priority },
    })
    const memory = process.ratchets.map(lootOf)
    const disk = memory.flatMap(({ scope }, lane) => {
      const bytes = records.get(`ratchet ${lane}`)
      return bytes ? [lootOf(Ratchet.restore(bytes, scope, crypto), lane)] : []
    })
    this.oracle.stolen(owner.no, [...memory, ...disk], LANES)
  }

  /** Runs a process of the peer, which starts if there is none, and ends if it crashes. */
  #guarded(side: SimulatedSide, run: (process: RatchetProcess) => void): void {
    let process: RatchetProcess | undefined
    try {
      if (side.processes.length === 0) this.#start(side)
      process = this.#pick(side.processes)
      run(process)
    } catch (error) {
      if (!(error instanceof SimulatedCrash)) throw error
      side.processes = process ? side.processes.filter((other) => other !== process) : []
    }
  }

  #start(side: SimulatedSide): void {
    side.processes = [new RatchetProcess(side.owner)]
    if (!side.owner.records.has('statement')) side.processes[0]!.publish(1, true)
    side.processes[0]!.reportResets()
  }

  /** Stops the faults, and delivers everything. */
  #drain(): void {
    this.#plan = { ...this.#plan, reorder: 0 }
    for (const side of this.#sides) {
      Object.assign(side.owner.chances, { crash: 0, replyLost: 0, appRejects: 0, appHolds: 0 })
      side.processes = side.processes.slice(0, 1)
    }
    this.#deliverAll()
  }

  #deliverAll(): void {
    for (let round = 0; round < 50; round++) {
      this.#nowMs += 10
      for (const side of this.#sides)
        this.#guarded(side, (process) => {
          process.reportResets()
          process.resend()
          process.finish()
          for (const message of this.#broker.queue.filter(({ to }) => to === side.owner.no)) process.receive(message)
        })
      if (this.#broker.queue.length === 0) return
    }
    this.oracle.violated('liveness: the queue does not become empty')
  }

  /** After the faults, every lane must work again in both directions, within a few rounds, and heal after a theft. */
  #probe(): void {
    let healthy = 0
    for (let round = 0; round < ROUNDS_MAX; round++) {
      this.#nowMs += 61_000
      const before = this.#refusedCount()
      for (const side of this.#sides)
        for (let lane = 0; lane < LANES; lane++) this.#guarded(side, (process) => process.send(lane, `probe ${round}`))
      this.#deliverAll()
      healthy = this.#refusedCount() === before ? healthy + 1 : 0
      if (healthy < HEALTHY_ROUNDS) continue
      this.oracle.judgeHealing(({ text }) => text.endsWith(`probe ${round}`))
      return
    }
    this.oracle.violated('liveness: a lane does not recover')
  }

  #refusedCount(): number {
    let count = 0
    for (const { refusals } of this.oracle.posted.values()) count += refusals.length
    return count
  }

  #sideOf(no: number, identity: Identity, other: Identity, crypto: RatchetCrypto): SimulatedSide {
    const { crash, replyLost, appRejects, appHolds } = this.#plan
    const peer = { peerKey: other.signing.publicKey, boxKey: other.box.publicKey, boxEpoch: other.box.epoch }
    const owner: SimulatedOwner = {
      ...{ no, meshId: MESH, identity, peer, crypto, records: new Map(), random: this.#random },
      ...{ broker: this.#broker, oracle: this.oracle, chances: { crash: 0, replyLost, appRejects, appHolds } },
      nowMs: () => this.#nowMs,
      newId: () => {
        this.#lastId += 1
        return String(this.#lastId).padStart(ID_LENGTH, '0')
      },
    }
    const first = new RatchetProcess(owner)
    first.publish(this.#random.below(this.#plan.oneTimeMax + 1), true)
    owner.chances.crash = crash
    return { owner, processes: [first], snapshot: null }
  }

  #cryptoOf(isReal: boolean): RatchetCrypto {
    const random = (length: number) => Uint8Array.from({ length }, () => this.#random.below(256))
    const seal: RatchetCrypto['seal'] = (text, key, nonce, data) => {
      this.oracle.sealedWith(key)
      return sodiumRatchetCrypto.seal(text, key, nonce, data)
    }
    return { ...sodiumRatchetCrypto, ...(isReal ? {} : symbolicX25519), random, seal }
  }

  #pick<Value>(values: readonly Value[]): Value {
    return values[this.#random.below(values.length)]!
  }
}

/** X25519 as symbols: only a secret of either side leads to the shared one, as the thief of a world respects. */
const symbolicX25519: Pick<RatchetCrypto, 'publicKeyOf' | 'sharedSecret'> = {
  publicKeyOf: hash256,
  sharedSecret: (secretKey, publicKey) => {
    const [low, high] = [toHex(hash256(secretKey)), toHex(publicKey)].sort()
    return hash256(fromHex(`${low}${high}`))
  },
}

function identityOf(no: number, crypto: RatchetCrypto): Identity {
  const [signing, box] = [new Uint8Array(32).fill(2 * no + 1), new Uint8Array(32).fill(2 * no + 2)]
  const keys = { publicKey: crypto.publicKeyOf(box), secretKey: box, epoch: 1 }
  return { signing: signingKeysFromSeed(signing), box: keys }
}
