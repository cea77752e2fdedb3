/** Runs pairs of peers, of which one sends numbers to the other at a steady rate, whatever happens to the brokers. */
import type { BrokerProgram } from '@sealpost/broker-program'
import { enrolMesh, generateMesh, identityOf, type MeshMembers, type SecretKeys } from '@sealpost/harness/members/mesh'
import { wholeNumber } from '@sealpost/harness/programs/command'
import { atRate, waitUntil } from '@sealpost/harness/programs/pace'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { sum } from '@sealpost/harness/report/text'
import type { Database } from '@sealpost/pg'
import { clockMs, connect, type Peer, type PeerEvent } from '@sealpost/sdk'
import type { MeshId, Millis, PeerKey } from '@sealpost/std'
import type { Command } from 'commander'
import type { DrillCheck } from './drill.ts'

/** The options of drills with pairs of peers. */
export interface TrafficOptions {
  readonly brokers: number
  /** The number of peers, half of which send. */
  readonly peers: number
  /** Messages per second of all pairs. */
  readonly rate: number
}

interface TrafficDefaults extends TrafficOptions {
  readonly brokersMin: number
  readonly peersMin: number
}

export const trafficOptions = (command: Command, { brokersMin, peersMin, ...defaults }: TrafficDefaults): Command =>
  command
    .option('--brokers <n>', 'the number of brokers on one Postgres', wholeNumber(brokersMin, 100), defaults.brokers)
    .option('--peers <n>', 'the number of peers; half of them send', wholeNumber(peersMin, 100_000), defaults.peers)
    .option('--rate <n>', 'the number of messages per second', wholeNumber(1, 100_000), defaults.rate)

/** The fate of one sender's numbered messages. */
export interface DeliveryCounts {
  readonly lost: number
  /** The number of messages received twice. */
  readonly duplicates: number
  readonly misordered: number
}

/**
 * Counts the fates of a pair's messages. @param received - the numbers in the order of arrival; `sent` numbers from 0
 * were sent
 */
export function countDeliveries(received: readonly number[], sent: number): DeliveryCounts {
  const distinct = new Set(received).size
  const misordered = received.filter((number, i) => i > 0 && number < received[i - 1]!).length
  return { lost: sent - distinct, duplicates: received.length - distinct, misordered }
}

export const addCounts = (all: readonly DeliveryCounts[]): DeliveryCounts => ({
  lost: sum(all.map(({ lost }) => lost)),
  duplicates: sum(all.map(({ duplicates }) => duplicates)),
  misordered: sum(all.map(({ misordered }) => misordered)),
})

export function deliveryCheck(sent: number, { lost, duplicates, misordered }: DeliveryCounts): DrillCheck {
  const sentence = `of ${sent} messages ${lost} were lost, ${duplicates} duplicated, ${misordered} out of order`
  return [lost + duplicates + misordered === 0, sentence]
}

/** A period during which a peer had no session. */
interface Outage {
  readonly lostAtMs: Millis
  servedAtMs: Millis
}

export interface TrafficResult extends DeliveryCounts {
  readonly sent: number
  /** The longest delay that this program itself caused. */
  readonly lateMs: Millis
}

const PEERS_PER_MESH = 10

export class PairTraffic {
  readonly #pairs: readonly Pair[]
  #sending: Promise<unknown> = Promise.resolve()

  private constructor(pairs: readonly Pair[]) {
    this.#pairs = pairs
  }

  /** Assigns ten peers to each mesh, and meshes to brokers in turn. */
  static async open(
    peers: number,
    { brokers, database }: { brokers: readonly BrokerProgram[]; database: Database | string },
    teardown: Teardown,
  ): Promise<PairTraffic> {
    const pairs: Pair[] = []
    for (let no = 0; pairs.length * 2 < peers; no++) {
      const mesh = await generateMesh(Math.min(PEERS_PER_MESH, peers - pairs.length * 2))
      await enrolMesh(database, mesh, 'drill')
      pairs.push(...(await openPairs(mesh, brokers[no % brokers.length]!)))
    }
    teardown.add({ end: () => Promise.all(pairs.map((pair) => pair.close())) })
    return new PairTraffic(pairs)
  }

  /** Begins the traffic. @param perSecond - messages of all pairs */
  begin(perSecond: number): void {
    this.#sending = Promise.all(this.#pairs.map((pair) => pair.keepSending(perSecond / this.#pairs.length)))
    this.#sending.catch(() => undefined) // `finish` rejects with the error
  }

  async finish(): Promise<TrafficResult> {
    for (const pair of this.#pairs) pair.isOver = true
    await this.#sending
    await waitUntil('every message has arrived', () => this.#pairs.every((pair) => pair.hasAll))
    return {
      sent: this.total(({ sent }) => sent),
      lateMs: Math.round(Math.max(...this.#pairs.map(({ lateMs }) => lateMs))),
      ...addCounts(this.#pairs.map(({ counts }) => counts)),
    }
  }

  get areAllOnline(): boolean {
    return this.#pairs.every(({ isOnline }) => isOnline)
  }

  total(of: (pair: Pair) => number): number {
    return sum(this.#pairs.map(of))
  }

  /** Returns the longest times since the last call: from `send` to the ack, and to the recipient's application. */
  takeLongest(): { readonly sendMs: Millis; readonly receiveMs: Millis } {
    const all = this.#pairs.map((pair) => pair.takeLongest())
    const longest = (of: (each: (typeof all)[number]) => Millis) => Math.round(Math.max(...all.map(of)))
    return { sendMs: longest(({ sendMs }) => sendMs), receiveMs: longest(({ receiveMs }) => receiveMs) }
  }

  outagesSince(atMs: Millis): Outage[] {
    return this.#pairs.flatMap((pair) => pair.outages.flat().filter(({ lostAtMs }) => lostAtMs >= atMs))
  }

  /** Returns each pair's time from `atMs` to the next ack; Infinity without one. */
  firstAcksSince(atMs: Millis): Millis[] {
    return this.#pairs.map(({ ackedAtMs }) => Math.round((ackedAtMs.find((each) => each >= atMs) ?? Infinity) - atMs))
  }
}

async function openPairs({ meshId, secrets }: MeshMembers, { url, brokerKey }: BrokerProgram): Promise<Pair[]> {
  const halves = secrets.filter((_, i) => i % 2 === 0).slice(0, secrets.length >> 1)
  return Promise.all(halves.map((from, i) => Pair.open({ url, brokerKey, meshId }, { from, to: secrets[2 * i + 1]! })))
}

interface Target {
  readonly url: string
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
}

class Pair {
  isOver = false
  sent = 0
  lateMs: Millis = 0
  /** How often the sender was notified of a restored database. */
  restored = 0
  /** The number of messages that it resent because of that. */
  reoffered = 0
  readonly ackedAtMs: Millis[] = []
  readonly outages: Outage[][] = []
  #longestSendMs: Millis = 0
  #longestReceiveMs: Millis = 0
  readonly #calledAtMs: Millis[] = []
  readonly #received: number[] = []
  #sender!: Peer
  #recipient!: Peer

  static async open(target: Target, { from, to }: { from: SecretKeys; to: SecretKeys }): Promise<Pair> {
    const pair = new Pair()
    pair.#sender = await pair.#connect(target, from)
    pair.#recipient = await pair.#connect(target, to)
    pair.#recipient.onMessage((message) => pair.#take(Number(message.text())))
    return pair
  }

  get isOnline(): boolean {
    return this.#sender.isOnline && this.#recipient.isOnline
  }

  get hasAll(): boolean {
    return this.#received.length >= this.sent
  }

  get counts(): DeliveryCounts {
    return countDeliveries(this.#received, this.sent)
  }

  /** Sends at this rate. Resolves once every send is acked. */
  async keepSending(perSecond: number): Promise<void> {
    const startMs = clockMs() + (Math.random() * 1000) / perSecond
    await atRate({ startMs, perSecond, until: () => this.isOver }, (_, dueAtMs) => {
      this.lateMs = Math.max(this.lateMs, clockMs() - dueAtMs)
      return this.#sendOne()
    })
  }

  takeLongest(): { readonly sendMs: Millis; readonly receiveMs: Millis } {
    const longest = { sendMs: this.#longestSendMs, receiveMs: this.#longestReceiveMs }
    this.#longestSendMs = 0
    this.#longestReceiveMs = 0
    return longest
  }

  async close(): Promise<void> {
    this.isOver = true
    await Promise.all([this.#sender.close(), this.#recipient.close()])
  }

  #connect(target: Target, secret: SecretKeys): Promise<Peer> {
    const outages: Outage[] = []
    this.outages.push(outages)
    const onEvent = (event: PeerEvent) => {
      if (event.type === 'restored') {
        this.restored += 1
        this.reoffered += event.resent
      }
      const last = outages.at(-1)
      const isOut = last?.servedAtMs === Infinity
      if (event.type === 'disconnected' && !isOut) outages.push({ lostAtMs: clockMs(), servedAtMs: Infinity })
      if (event.type === 'connected' && isOut) last.servedAtMs = clockMs()
    }
    return connect({ ...target, identity: identityOf(secret), onEvent })
  }

  #take(number: number): void {
    this.#received.push(number)
    this.#longestReceiveMs = Math.max(this.#longestReceiveMs, clockMs() - this.#calledAtMs[number]!)
  }

  async #sendOne(): Promise<void> {
    const calledAtMs = clockMs()
    this.#calledAtMs.push(calledAtMs)
    await this.#sender.send(this.#recipient.key, String(this.sent++))
    const nowMs = clockMs()
    this.ackedAtMs.push(nowMs)
    this.#longestSendMs = Math.max(this.#longestSendMs, nowMs - calledAtMs)
  }
}
