/** One connection: two ordered one-way pipes. A cut discards their contents, and both ends notice late. */
import type { ClientFrame, ServerFrame } from '@sealpost/protocol'
import type { Millis, Random } from '@sealpost/std'
import type { VirtualClock } from '../clock.ts'

export interface ClientEnd {
  received(frame: ServerFrame): void
  closed(closeNumber: number): void
}

export interface ServerEnd {
  received(frame: ClientFrame): void
  closed(): void
}

const ABNORMAL = 1006

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
      if (!this.isCut) this.tellClient(closeNumber)
    })
  }

  closeFromClient(): void {
    this.client = null
    this.towardsServer(() => this.tellServer())
  }

  breakServer(): void {
    this.server = null
    this.isCut = true
    this.clock.after(this.delay(), () => this.tellClient(ABNORMAL))
  }

  /** Cuts the wire; each end notices by itself, the server perhaps only by its heartbeat. */
  cut(noticed: { clientAfterMs: Millis; serverAfterMs: Millis }): void {
    if (this.isCut) return
    this.isCut = true
    this.clock.after(noticed.clientAfterMs, () => this.tellClient(ABNORMAL))
    this.clock.after(noticed.serverAfterMs, () => this.tellServer())
  }

  private towardsServer(arrive: () => void): void {
    this.toServerAtMs = this.arrivalAfter(this.toServerAtMs)
    this.clock.at(this.toServerAtMs, () => {
      if (this.isCut) return
      if (this.unread) this.unread.push(arrive)
      else arrive()
    })
  }

  private tellClient(closeNumber: number): void {
    const { client } = this
    this.client = null
    client?.closed(closeNumber)
  }

  private tellServer(): void {
    const { server } = this
    this.server = null
    server?.closed()
  }

  private arrivalAfter(lastMs: Millis): Millis {
    return Math.max(lastMs, this.clock.nowMs + this.delay())
  }

  private delay(): Millis {
    return this.random.next() * this.delayMaxMs
  }
}
