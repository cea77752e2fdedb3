/** Simulates the network: connections between peers and shards, and hints between shards. */
import type { ClientFrame, ServerFrame } from '@sealpost/protocol'
import type { Hint } from '@sealpost/protocol/hints'
import { type Millis, type Random, seededRandom } from '@sealpost/std'
import type { VirtualClock } from './clock.ts'
import type { Oracle } from './oracle/oracle.ts'
import type { FaultPlan } from './plan.ts'

interface ClientEnd {
  received(frame: ServerFrame): void
  closed(closeNumber: number): void
}

interface ServerEnd {
  received(frame: ClientFrame): void
  closed(closeNumber: number): void
}

export const NORMAL = 1000
/** The close code that a server sees if the client gives none. */
export const NO_CODE = 1005
const ABNORMAL = 1006

/** A connection of two ordered pipes. A cut discards their contents, and both ends notice it late. */
export class SimulatedLink {
  private readonly clock: VirtualClock
  private readonly random: Random
  private readonly delayMaxMs: Millis
  private client: ClientEnd | null
  private server: ServerEnd | null = null
  private toClientAtMs: Millis = 0
  private toServerAtMs: Millis = 0
  private isCut = false
  private unread: (() => void)[] | null = null

  constructor(client: ClientEnd, parts: { clock: VirtualClock; random: Random; delayMaxMs: Millis }) {
    this.client = client
    this.clock = parts.clock
    this.random = parts.random
    this.delayMaxMs = parts.delayMaxMs
  }

  get isWhole(): boolean {
    return !this.isCut
  }

  accept(server: ServerEnd): void {
    this.server = server
  }

  sendToClient(frame: ServerFrame): void {
    this.toClientAtMs = this.arrivalAfter(this.toClientAtMs)
    this.clock.at(this.toClientAtMs, () => {
      if (!this.isCut) this.client?.received(frame)
    })
  }

  sendToServer(frame: ClientFrame): void {
    this.towardsServer(() => this.server?.received(frame))
  }

  clog(forMs: Millis): void {
    this.toClientAtMs = Math.max(this.toClientAtMs, this.clock.nowMs + forMs)
  }

  pause(): void {
    this.unread ??= []
  }

  resume(): void {
    const { unread } = this
    this.unread = null
    for (const arrive of unread ?? []) this.clock.after(0, () => !this.isCut && arrive())
  }

  closeFromServer(closeNumber: number): void {
    this.server = null
    this.toClientAtMs = this.arrivalAfter(this.toClientAtMs)
    this.clock.at(this.toClientAtMs, () => {
      if (!this.isCut) this.closeClient(closeNumber)
    })
  }

  closeFromClient(closeNumber: number): void {
    this.client = null
    this.towardsServer(() => this.closeServer(closeNumber))
  }

  breakServer(): void {
    this.server = null
    this.isCut = true
    this.clock.after(this.delay(), () => this.closeClient(ABNORMAL))
  }

  /** Cuts the connection. Each end notices it later, the server perhaps only by its heartbeat. */
  cut(noticed: { clientAfterMs: Millis; serverAfterMs: Millis }): void {
    if (this.isCut) return
    this.isCut = true
    this.clock.after(noticed.clientAfterMs, () => this.closeClient(ABNORMAL))
    this.clock.after(noticed.serverAfterMs, () => this.closeServer(ABNORMAL))
  }

  private towardsServer(arrive: () => void): void {
    this.toServerAtMs = this.arrivalAfter(this.toServerAtMs)
    this.clock.at(this.toServerAtMs, () => {
      if (this.isCut) return
      if (this.unread) this.unread.push(arrive)
      else arrive()
    })
  }

  private closeClient(closeNumber: number): void {
    const { client } = this
    this.client = null
    client?.closed(closeNumber)
  }

  private closeServer(closeNumber: number): void {
    const { server } = this
    this.server = null
    server?.closed(closeNumber)
  }

  private arrivalAfter(lastMs: Millis): Millis {
    return Math.max(lastMs, this.clock.nowMs + this.delay())
  }

  private delay(): Millis {
    return this.random.next() * this.delayMaxMs
  }
}

const NEWS_SALT = 0x9e75
const HINT_LATE_MS_MAX: Millis = 100

interface HintPathPorts {
  readonly seed: number
  readonly clock: VirtualClock
  readonly random: Random
  readonly plan: FaultPlan
  readonly oracle: Oracle
  readonly path: { readonly areFaultsOn: boolean }
}

/**
 * Simulates hints between shards, which may be lost, duplicated or late. Hints other than wakes use a separate random
 * source, so that the worlds of older seeds did not change.
 */
export class HintPath {
  private readonly ports: HintPathPorts
  private readonly newsRandom: Random

  constructor(ports: HintPathPorts) {
    this.ports = ports
    this.newsRandom = seededRandom(ports.seed ^ NEWS_SALT)
  }

  send({ type }: Hint, deliver: () => void): void {
    const { clock, random: ofWorld, plan, oracle, path } = this.ports
    const random = type === 'wake' ? ofWorld : this.newsRandom
    const kind = type === 'wake' ? 'hint' : 'news'
    if (path.areFaultsOn && random.chance(plan.hintLost)) return oracle.mark(`${kind}: lost`)
    const isDoubled = path.areFaultsOn && random.chance(plan.hintDoubled)
    if (isDoubled) oracle.mark(`${kind}: doubled`)
    oracle.mark(`${kind}: ${type}`)
    for (let i = isDoubled ? 0 : 1; i < 2; i++) clock.after(random.next() * HINT_LATE_MS_MAX, deliver)
  }
}
