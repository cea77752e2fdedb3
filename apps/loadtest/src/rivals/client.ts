/**
 * Runs a share of one server's peers in a comparison. A peer starts at most one send per turn, so that no client packs
 * messages.
 */
import { serveParent } from '@sealpost/harness/programs/child'
import { ready } from '@sealpost/identity'
import { clockMs } from '@sealpost/sdk'
import { dueMs, type Plan, planOf, recipientOf } from '../generators/plan.ts'
import { type SendNumbered, sendOnePerTurn, sendPaced } from '../generators/senders.ts'
import { openRivalPeer, type RivalCast, type RivalPeer } from './peers.ts'

/** The messages of a phase. In the exchange, each peer writes once to each other. */
export interface RivalPhase {
  readonly kind: 'exchange' | 'measured'
  /** The phase's unique id, so that late messages count in no other. */
  readonly number: number
  readonly total: number
  /** Messages per second; null for as fast as the window allows. */
  readonly rate: number | null
}

export type RivalOrder =
  | { readonly do: 'open'; readonly cast: RivalCast }
  | { readonly do: 'run'; readonly phase: RivalPhase; readonly atMs: number }
  | { readonly do: 'finish' }

export type RivalReply =
  | { readonly did: 'open' | 'sent' }
  | { readonly did: 'progress'; readonly received: number }
  | ({ readonly did: 'finish' } & ClientFigures)

export interface ClientFigures {
  /** The latencies in ms, from the call to `send` or the due time to the opened message. */
  readonly latencies: Float32Array
  readonly lastReceivedAtMs: number
  readonly redelivered: number
  readonly cpuSeconds: number
}

export const PAYLOAD_BYTES = 200
const OPENING_AT_ONCE = 8
const PROGRESS_MS = 50
/** The offset of the phase in a body, before the message number and the latency's start. */
const PHASE_AT = 0
const NUMBER_AT = 4
const TIME_AT = 8

class ComparedPeers {
  readonly #peers: RivalPeer[] = []
  #cast!: RivalCast
  #phase: RivalPhase | undefined
  #plan!: Plan
  #seen = new Set<number>()
  #latencies: number[] = []
  #lastReceivedAtMs = 0
  #redelivered = 0
  #cpu = process.cpuUsage()

  async open(cast: RivalCast): Promise<void> {
    await ready()
    this.#cast = cast
    const { first, end } = cast.share
    const numbers = Array.from({ length: end - first }, (_, i) => first + i)
    const openNext = async (): Promise<void> => {
      for (let number = numbers.shift(); number !== undefined; number = numbers.shift())
        this.#peers[number - first] = await openRivalPeer(cast, number, (body) => this.#received(body))
    }
    await Promise.all(Array.from({ length: OPENING_AT_ONCE }, openNext))
  }

  get received(): number {
    return this.#seen.size
  }

  /** Sends this program's messages. Resolves once all are acknowledged. */
  async run(phase: RivalPhase, atMs: number): Promise<void> {
    this.#phase = phase
    this.#seen = new Set()
    this.#latencies = []
    this.#redelivered = 0
    await Bun.sleep(Math.max(0, atMs - clockMs()))
    this.#cpu = process.cpuUsage()
    const { share, window, peerKeys } = this.#cast
    const { rate, total } = phase
    const plan = planOf({ peers: peerKeys.length, total })
    this.#plan = plan
    if (rate === null) return sendOnePerTurn(plan, { share, window }, (number) => this.#send(number, clockMs()))
    const sends: Promise<unknown>[] = []
    const send: SendNumbered = (number) => {
      const sending = this.#send(number, atMs + dueMs(rate, number))
      sends.push(sending)
      return sending
    }
    await sendPaced(plan, { rate, share, atMs }, send)
    await Promise.all(sends)
  }

  finish(): ClientFigures {
    const { user, system } = process.cpuUsage(this.#cpu)
    return {
      latencies: Float32Array.from(this.#latencies),
      lastReceivedAtMs: this.#lastReceivedAtMs,
      redelivered: this.#redelivered,
      cpuSeconds: (user + system) / 1e6,
    }
  }

  close(): Promise<unknown> {
    return Promise.all(this.#peers.map((peer) => peer.close()))
  }

  #send(number: number, fromMs: number): Promise<unknown> {
    const { peerKeys, share } = this.#cast
    const { kind, number: phase } = this.#phase!
    const { length: peers } = peerKeys
    const sender = number % peers
    const nextOther = (sender + 1 + Math.floor(number / peers)) % peers
    const recipient = kind === 'exchange' ? nextOther : recipientOf(this.#plan, number)
    const body = Buffer.alloc(PAYLOAD_BYTES, number & 0xff)
    body.writeUInt32BE(phase, PHASE_AT)
    body.writeUInt32BE(number, NUMBER_AT)
    body.writeDoubleBE(fromMs, TIME_AT)
    return this.#peers[sender - share.first]!.send(recipient, body)
  }

  #received(bytes: Uint8Array): void {
    const nowMs = clockMs()
    const body = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
    if (body.readUInt32BE(PHASE_AT) !== this.#phase?.number) return
    const number = body.readUInt32BE(NUMBER_AT)
    if (this.#seen.has(number)) {
      this.#redelivered += 1
      return
    }
    this.#seen.add(number)
    this.#lastReceivedAtMs = nowMs
    this.#latencies.push(nowMs - body.readDoubleBE(TIME_AT))
  }
}

function serve(): void {
  const peers = new ComparedPeers()
  let progress: ReturnType<typeof setInterval> | undefined
  serveParent<RivalOrder, RivalReply>(
    async (order, reply) => {
      if (order.do === 'open') {
        await peers.open(order.cast)
        return reply({ did: 'open' })
      }
      if (order.do === 'finish') {
        clearInterval(progress)
        return reply({ did: 'finish', ...peers.finish() })
      }
      progress = setInterval(() => reply({ did: 'progress', received: peers.received }), PROGRESS_MS)
      await peers.run(order.phase, order.atMs)
      return reply({ did: 'sent' })
    },
    () => peers.close(),
  )
}

if (import.meta.main) serve()
