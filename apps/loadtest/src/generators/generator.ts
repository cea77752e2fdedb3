/**
 * A load generator: a program of its own that is a share of the peers. Each peer is the real SDK: it seals, sends, waits
 * for the durable ack, opens and compares. What happens to each message goes into a journal (`journal.ts`); the joining
 * is the script's work, afterwards.
 */

import { identityOf } from '@sealpost/harness/members/mesh'
import { forever } from '@sealpost/harness/programs/teardown'
import { ready } from '@sealpost/identity'
import { clockMs, connect, type Message, type Peer, type PeerCounters, SealpostError } from '@sealpost/sdk'
import { Bits } from './bits.ts'
import { Bodies, EXCHANGE } from './body.ts'
import { FAULTS, Journal } from './journal.ts'
import type { Answer, Order, Preparation } from './orders.ts'
import { sendBurst, sendPaced } from './pace.ts'
import { correspondents, expectedOf, holds, ownOf, recipientOf, senderOf, sendersOf } from './plan.ts'
import { meshOf, shardOf } from './spread.ts'

const CONNECTING_AT_ONCE = 16
const PROGRESS_MS = 200

export class Generator {
  readonly #setup: Preparation
  readonly #bodies: Bodies
  readonly #journal: Journal
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

  constructor(setup: Preparation) {
    const { plan, share } = setup
    this.#setup = setup
    this.#bodies = new Bodies(plan)
    this.#journal = new Journal(setup.journal)
    this.#expected = expectedOf(plan, share)
    this.#seen = new Bits(plan.total)
    this.#own = ownOf(plan, share)
  }

  async connect(): Promise<void> {
    const { share, secrets } = this.#setup
    await ready()
    const waiting = secrets.map((keys, i) => ({ keys, recipient: share.first + i }))
    const connectNext = async (): Promise<void> => {
      for (let next = waiting.shift(); next; next = waiting.shift()) {
        const { recipient, keys } = next
        const peer = await this.#connectOne(recipient, keys)
        peer.onMessage((message) => this.#received(recipient, message))
        this.#peers[recipient - share.first] = peer
        this.#prepared += 1
      }
    }
    await Promise.all(Array.from({ length: CONNECTING_AT_ONCE }, connectNext))
  }

  /**
   * Sends one message along every pair that will be used, so that directory, signatures and shared keys (about 0.3 ms a
   * pair and end) are not what the run measures.
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

  /** One message more for each broker, so that the database connections behind it report what they did (`database.ts`). */
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
    const { plan, share } = this.#setup
    await Bun.sleep(Math.max(0, atMs - clockMs()))
    this.#startCpu = process.cpuUsage()
    const call = (number: number) => this.#call(number)
    if (plan.rate === null) await sendBurst(plan, share, call)
    else await sendPaced(plan, plan.rate, { share, atMs }, call)
  }

  get progress() {
    const isAnswered = this.#acked + this.#refused === this.#own
    const isDone = this.#startCpu !== undefined && isAnswered && this.#delivered === this.#expected
    if (isDone) this.#endCpu ??= process.cpuUsage(this.#startCpu)
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
    await this.#journal.close()
    const counters = sumOf(this.#peers.map((peer) => peer.counters))
    return {
      cpuSeconds: (user + system) / 1e6,
      rssMbPeak,
      called: this.#called,
      counters,
      refusals: this.#refusals,
      events: this.#events,
    }
  }

  #connectOne(number: number, keys: Preparation['secrets'][number]): Promise<Peer> {
    const { plan, places, meshIds, form, window } = this.#setup
    const { url, brokerKey } = places[shardOf(plan, number)]!
    return connect({
      url,
      brokerKey,
      meshId: meshIds[meshOf(plan, number)]!,
      identity: identityOf(keys),
      form,
      ...(window === null ? {} : { window }),
      onEvent: ({ type }) => {
        this.#events[type] = (this.#events[type] ?? 0) + 1
      },
    })
  }

  #send(recipient: number, number: number, sender: number) {
    return this.#sendBody(recipient, sender, this.#bodies.make(number))
  }

  #sendBody(recipient: number, sender: number, body: Uint8Array) {
    const { share, peerKeys } = this.#setup
    return this.#peers[sender - share.first]!.send(peerKeys[recipient]!, body)
  }

  async #exchangeOne(sender: number, recipient: number): Promise<void> {
    await this.#send(recipient, EXCHANGE + sender, sender)
    this.#prepared += 1
  }

  /** One message of the run. Resolves when it is answered. */
  #call(number: number): Promise<void> {
    if (this.#isOver) return forever()
    const { plan } = this.#setup
    const [recipient, sender, body] = [recipientOf(plan, number), senderOf(plan, number), this.#bodies.make(number)]
    this.#called += 1
    const calledAtMs = clockMs()
    return this.#sendBody(recipient, sender, body).then(
      (receipt) => {
        this.#acked += 1
        this.#journal.answered({ number, calledAtMs, answeredAtMs: receipt.ackedAtMs, ack: receipt })
      },
      (error) => {
        if (this.#isOver) return // it waited still when the peers were closed
        this.#journal.answered({ number, calledAtMs, answeredAtMs: clockMs(), ack: null })
        this.#sendRefused(error)
      },
    )
  }

  #sendRefused(error: unknown): void {
    this.#refused += 1
    const code = error instanceof SealpostError ? error.code : 'unknown'
    this.#refusals[code] = (this.#refusals[code] ?? 0) + 1
  }

  /** The time is taken here, when the application holds the opened body, not when the frame arrived. */
  #received(recipient: number, message: Message): void {
    const atMs = clockMs()
    const { plan, peerKeys } = this.#setup
    const { body, sender, envelopeId } = message
    const number = this.#bodies.numberOf(body)
    const isIntact = this.#bodies.isIntact(body, number)
    if (number >= EXCHANGE && isIntact && sender === peerKeys[number - EXCHANGE]) return this.#exchangeReceived()
    let faults = isIntact && number < plan.total ? 0 : FAULTS.body
    if (recipientOf(plan, number) !== recipient) faults |= FAULTS.recipient
    if (peerKeys[senderOf(plan, number)] !== sender) faults |= FAULTS.sender
    this.#journal.received({ atMs, number, recipient, faults, envelopeId })
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
  for (const counters of all.slice(1)) {
    for (const name of Object.keys(sum) as (keyof PeerCounters)[]) sum[name] += counters[name]
  }
  return sum
}

const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve))

function listen(): void {
  let generator: Generator | undefined
  const answer = (words: Answer) => void process.send?.(words)
  const obey = async (order: Order): Promise<void> => {
    if (order.do === 'prepare') generator = new Generator(order)
    const own = generator!
    if (order.do === 'prepare') setInterval(() => answer({ did: 'progress', ...own.progress }), PROGRESS_MS)
    if (order.do === 'connect') await own.connect()
    if (order.do === 'tap') await own.tap()
    if (order.do === 'exchange') return answer({ did: 'exchange', messages: await own.exchange() })
    if (order.do === 'collect') return answer({ did: 'collect', ...(await own.collect()) })
    if (order.do !== 'start') return answer({ did: order.do })
    await own.start(order.atMs)
  }
  const fail = (error: unknown) => {
    answer({ did: 'fail', reason: error instanceof Error ? error.message : String(error) })
    setTimeout(() => process.exit(1), 50)
  }
  process.on('message', (order: Order) => void obey(order).catch(fail))
  process.on('uncaughtException', fail)
  process.on('unhandledRejection', fail)
  process.on('disconnect', () => process.exit(0)) // the parent is gone
  for (const signal of ['SIGINT', 'SIGHUP'] as const) process.on(signal, () => undefined) // the script ends it
}

if (import.meta.main) listen()
