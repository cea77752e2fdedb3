/**
 * Runs a share of the peers, each with the real SDK, as a load generator. Records what happens to each message
 * (`record-log.ts`), to join both sides later.
 */

import { identityOf } from '@sealpost/harness/members/mesh'
import { serveParent } from '@sealpost/harness/programs/child'
import { forever } from '@sealpost/harness/programs/teardown'
import { ready } from '@sealpost/identity'
import { clientForms, clientFrames } from '@sealpost/protocol'
import {
  clockMs,
  connect,
  type Message,
  type Peer,
  type PeerCounters,
  SealpostError,
  type WebSocketConstructor,
} from '@sealpost/sdk'
import { forwardSecrecy } from '@sealpost/sdk/forward'
import { MemoryStore } from '@sealpost/sdk/memory-store'
import type { GeneratorOrder, GeneratorReply, Preparation } from './fleet.ts'
import {
  Bits,
  Bodies,
  correspondents,
  EXCHANGE,
  expectedOf,
  holds,
  meshOf,
  ownOf,
  recipientOf,
  SDK_WINDOW,
  senderOf,
  sendersOf,
  shardOf,
} from './plan.ts'
import { FAULTS, RecordLog } from './record-log.ts'
import { nextTurn, sendAtOnce, sendOnePerTurn, sendPaced } from './senders.ts'

const CONNECTING_AT_ONCE = 16
const PROGRESS_MS = 200
/** The number of `send`, with which its binary form begins. */
const SEND_NUMBER = clientFrames.find(({ type }) => type === 'send')!.number
const SEND_START = '{"type":"send",'

class LoadGenerator {
  readonly #setup: Preparation
  readonly #bodies: Bodies
  readonly #log: RecordLog
  readonly #expected: number
  readonly #own: number
  readonly #seen: Bits
  readonly #peers: Peer[] = []
  readonly #refusals: Record<string, number> = {}
  readonly #events: Record<string, number> = {}
  #prepared = 0
  #called = 0
  #acked = 0
  #refused = 0
  #delivered = 0
  #isOver = false
  #exchangesDue = 0
  #exchanged: (() => void) | undefined
  #startCpu: NodeJS.CpuUsage | undefined
  #endCpu: NodeJS.CpuUsage | undefined
  #sendFrames = 0
  #endSendFrames: number | undefined

  constructor(setup: Preparation) {
    const { plan, share } = setup
    this.#setup = setup
    this.#bodies = new Bodies(plan)
    this.#log = new RecordLog(setup.records)
    this.#expected = expectedOf(plan, share)
    this.#seen = new Bits(plan.total)
    this.#own = ownOf(plan, share)
  }

  /** Connects the peers, which receive only once all are connected, because a backlog would slow others. */
  async connect(): Promise<void> {
    const { share, secrets } = this.#setup
    await ready()
    const waiting = secrets.map((keys, i) => ({ keys, recipient: share.first + i }))
    const connectNext = async (): Promise<void> => {
      for (let next = waiting.shift(); next; next = waiting.shift()) {
        const { recipient, keys } = next
        this.#peers[recipient - share.first] = await this.#connectOne(recipient, keys)
        this.#prepared += 1
      }
    }
    await Promise.all(Array.from({ length: CONNECTING_AT_ONCE }, connectNext))
    for (const [i, peer] of this.#peers.entries()) peer.onMessage((message) => this.#received(share.first + i, message))
  }

  /**
   * Sends a message along each pair, so that the run excludes lookups, signatures and shared keys, 0.3 ms per pair and
   * side. @returns their number
   */
  async exchange(): Promise<number> {
    const { plan, share } = this.#setup
    const lists = correspondents(plan)
    let due = 0
    const sending: Promise<unknown>[] = []
    const arrived = new Promise<void>((resolve) => (this.#exchanged = resolve))
    for (const list of lists) for (const recipient of list) if (holds(share, recipient)) due += 1
    this.#exchangesDue += due
    for (let sender = share.first; sender < share.end; sender++) {
      for (const recipient of lists[sender]!) sending.push(this.#exchangeOne(sender, recipient))
      await nextTurn()
    }
    if (this.#exchangesDue > 0) await arrived
    await Promise.all(sending)
    return sending.length
  }

  /** Sends another message through each broker, after which its database connections report their statistics. */
  async tap(): Promise<void> {
    const { plan, share } = this.#setup
    const tapped = new Set<number>()
    const taps: Promise<unknown>[] = []
    for (let peer = share.first; peer < Math.min(share.end, sendersOf(plan)); peer++) {
      const shard = shardOf(plan, peer)
      if (tapped.has(shard)) continue
      tapped.add(shard)
      taps.push(this.#send(recipientOf(plan, peer), EXCHANGE + peer, peer))
    }
    await Promise.all(taps)
  }

  async start(atMs: number): Promise<void> {
    const { plan, share, isPacking, window } = this.#setup
    await Bun.sleep(Math.max(0, atMs - clockMs()))
    this.#startCpu = process.cpuUsage()
    this.#sendFrames = 0
    const call = (number: number) => this.#call(number)
    if (plan.rate !== null) await sendPaced(plan, { rate: plan.rate, share, atMs }, call)
    else if (isPacking) await sendAtOnce(plan, share, call)
    else await sendOnePerTurn(plan, { share, window: window ?? SDK_WINDOW }, call)
  }

  get progress() {
    const isAnswered = this.#acked + this.#refused === this.#own
    const isDone = this.#startCpu !== undefined && isAnswered && this.#delivered === this.#expected
    if (isDone) {
      this.#endCpu ??= process.cpuUsage(this.#startCpu)
      this.#endSendFrames ??= this.#sendFrames
    }
    return {
      prepared: this.#prepared,
      called: this.#called,
      acked: this.#acked,
      refused: this.#refused,
      delivered: this.#delivered,
      isDone,
    }
  }

  async collect() {
    const { user, system } = this.#endCpu ?? process.cpuUsage(this.#startCpu)
    const rssMbPeak = process.resourceUsage().maxRSS / 1024
    this.#isOver = true
    await Promise.all(this.#peers.map((peer) => peer.close()))
    await this.#log.close()
    return {
      cpuSeconds: (user + system) / 1e6,
      rssMbPeak,
      called: this.#called,
      sendFrames: this.#endSendFrames ?? this.#sendFrames,
      counters: sumOf(this.#peers.map((peer) => peer.counters)),
      refusals: this.#refusals,
      events: this.#events,
    }
  }

  #connectOne(number: number, keys: Preparation['secrets'][number]): Promise<Peer> {
    const { plan, brokers, meshIds, form, window, isRatcheted } = this.#setup
    return connect({
      ...brokers[shardOf(plan, number)]!,
      meshId: meshIds[meshOf(plan, number)]!,
      identity: identityOf(keys),
      form: clientForms[form],
      webSocket: this.#countingWebSocket(),
      ...(window === null ? {} : { window }),
      ...(isRatcheted && { store: new MemoryStore(), secrecy: forwardSecrecy() }),
      onEvent: ({ type }) => {
        this.#events[type] = (this.#events[type] ?? 0) + 1
      },
    })
  }

  /** Returns a WebSocket class that counts frames with messages. */
  #countingWebSocket(): WebSocketConstructor {
    const count = () => (this.#sendFrames += 1)
    return class extends WebSocket {
      override send(wire: Uint8Array<ArrayBuffer> | string): void {
        if (typeof wire === 'string' ? wire.startsWith(SEND_START) : wire[0] === SEND_NUMBER) count()
        super.send(wire)
      }
    } as unknown as WebSocketConstructor
  }

  #send(recipient: number, number: number, sender: number) {
    const { share, peerKeys } = this.#setup
    return this.#peers[sender - share.first]!.send(peerKeys[recipient]!, this.#bodies.make(number))
  }

  async #exchangeOne(sender: number, recipient: number): Promise<void> {
    await this.#send(recipient, EXCHANGE + sender, sender)
    this.#prepared += 1
  }

  /** Sends a message. Resolves when it is acked or refused. */
  #call(number: number): Promise<void> {
    if (this.#isOver) return forever()
    const { plan, share, peerKeys } = this.#setup
    const [recipient, sender, body] = [recipientOf(plan, number), senderOf(plan, number), this.#bodies.make(number)]
    this.#called += 1
    const calledAtMs = clockMs()
    const sending = this.#peers[sender - share.first]!.send(peerKeys[recipient]!, body)
    return sending.then(
      (receipt) => {
        this.#acked += 1
        this.#log.answered({ number, calledAtMs, answeredAtMs: receipt.ackedAtMs, ack: receipt })
      },
      (error) => {
        if (this.#isOver) return // the send was pending when the peers closed
        this.#log.answered({ number, calledAtMs, answeredAtMs: clockMs(), ack: null })
        const code = error instanceof SealpostError ? error.code : 'unknown'
        this.#refused += 1
        this.#refusals[code] = (this.#refusals[code] ?? 0) + 1
      },
    )
  }

  /** Records a message when the application has the opened body. */
  #received(recipient: number, { body, sender, envelopeId }: Message): void {
    const atMs = clockMs()
    const { plan, peerKeys } = this.#setup
    const number = this.#bodies.numberOf(body)
    const isIntact = this.#bodies.isIntact(body, number)
    if (number >= EXCHANGE && isIntact && sender === peerKeys[number - EXCHANGE]) return this.#exchangeReceived()
    let faults = isIntact && number < plan.total ? 0 : FAULTS.body
    if (recipientOf(plan, number) !== recipient) faults |= FAULTS.recipient
    if (peerKeys[senderOf(plan, number)] !== sender) faults |= FAULTS.sender
    this.#log.received({ atMs, number, recipient, faults, envelopeId })
    if (faults !== 0 || this.#seen.has(number)) return
    this.#seen.add(number)
    this.#delivered += 1
  }

  #exchangeReceived(): void {
    this.#prepared += 1
    this.#exchangesDue -= 1
    if (this.#exchangesDue === 0) this.#exchanged?.()
  }
}

function sumOf(all: readonly Readonly<PeerCounters>[]): PeerCounters {
  const sum = { ...all[0]! }
  for (const counters of all.slice(1))
    for (const name of Object.keys(sum) as (keyof PeerCounters)[]) sum[name] += counters[name]
  return sum
}

function serve(): void {
  let generator: LoadGenerator | undefined
  serveParent<GeneratorOrder, GeneratorReply>(async (order, reply) => {
    if (order.do === 'prepare') generator = new LoadGenerator(order)
    const own = generator!
    if (order.do === 'prepare') setInterval(() => reply({ did: 'progress', ...own.progress }), PROGRESS_MS)
    if (order.do === 'connect') await own.connect()
    if (order.do === 'tap') await own.tap()
    if (order.do === 'exchange') return reply({ did: 'exchange', messages: await own.exchange() })
    if (order.do === 'collect') return reply({ did: 'collect', ...(await own.collect()) })
    if (order.do !== 'start') return reply({ did: order.do })
    await own.start(order.atMs)
  })
}

if (import.meta.main) serve()
