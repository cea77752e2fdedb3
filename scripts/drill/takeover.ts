/**
 * One identity that moves between two brokers under mail. Most connections open while the former one still receives and
 * settles; every third one comes after a pause, so that more waits than a claim brings. Is each sender's mail handed out
 * in its order, by all connections together and by each one alone?
 */
import { setTimeout as delay } from 'node:timers/promises'
import { connect, type Message, type Peer, type PeerEvent } from '@sealpost/sdk'
import type { MeshId, PeerKey } from '@sealpost/std'
import type { Teardown } from '../lib/teardown.ts'
import type { SecretKeys } from '../load/orders.ts'
import { identityOf, inventMesh } from '../load/seed.ts'
import { Cluster, until } from './cluster.ts'

export interface TakeoverDrillOptions {
  /** Each with a mesh of its own. */
  readonly runs: number
  /** Of the identity, in each run. */
  readonly takeovers: number
  /** Messages a second of all senders together. */
  readonly rate: number
}

export interface TakeoverResult {
  readonly sent: number
  readonly lost: number
  /** Messages first handed out at another place than their own, or by one connection behind a later one. */
  readonly misordered: number
  /** Messages that a connection's SDK missed: another connection had settled them. */
  readonly gaps: number
  /** Messages handed out again to a later connection, whose SDK has no store. */
  readonly repeated: number
}

const SENDERS = 4
/** A connection holds the identity for so long before the next one takes it over. */
const STAY_MS_MIN = 20
const STAY_MS_MAX = 120
const PAUSE_EVERY = 3
const PAUSE_MS = 500
/** How long an application is at work on each message. */
const WORK_MS = 5
const CREDIT = 32

/** Returns a result for each run; `report` gets each as soon as its run has ended. */
export async function drillTakeover(
  { runs, ...options }: TakeoverDrillOptions,
  teardown: Teardown,
  report: (result: TakeoverResult) => void = () => undefined,
): Promise<TakeoverResult[]> {
  const cluster = await Cluster.open(2, teardown, { PLACEMENT: 'any', MOVE_SESSIONS: 'off' })
  const results: TakeoverResult[] = []
  for (let no = 0; no < runs; no++) {
    const result = await runIn(cluster, options)
    report(result)
    results.push(result)
  }
  return results
}

async function runIn(cluster: Cluster, options: Omit<TakeoverDrillOptions, 'runs'>): Promise<TakeoverResult> {
  const mesh = await inventMesh(SENDERS + 1)
  await cluster.enrol(mesh)
  const places = cluster.brokers.map(({ url, brokerKey }) => ({ url, brokerKey, meshId: mesh.meshId }))
  const [own, ...others] = mesh.secrets
  const recipient = new MovingRecipient(places, own!)
  await recipient.move()
  // Where the senders are, the recipient's mail is leased on insert once its queue is empty.
  const senders = await Promise.all(others.map((secret) => connect({ ...places[0]!, identity: identityOf(secret) })))
  const traffic = new Traffic(senders, mesh.peerKeys[0]!)
  const sending = traffic.keepSending(options.rate)
  for (let i = 0; i < options.takeovers; i++) {
    await delay(STAY_MS_MIN + Math.random() * (STAY_MS_MAX - STAY_MS_MIN))
    if (i % PAUSE_EVERY === PAUSE_EVERY - 1) {
      await recipient.leave()
      await delay(PAUSE_MS)
    }
    await recipient.move()
  }
  traffic.isOver = true
  await sending
  await until('all messages are handed out', () => recipient.count >= traffic.sent)
  await Promise.all([recipient.close(), ...senders.map((sender) => sender.close())])
  return { sent: traffic.sent, lost: traffic.sent - recipient.count, ...recipient.counts }
}

interface Place {
  readonly url: string
  readonly brokerKey: PeerKey
  readonly meshId: MeshId
}

class MovingRecipient {
  readonly counts = { misordered: 0, gaps: 0, repeated: 0 }
  readonly #places: readonly Place[]
  readonly #secret: SecretKeys
  readonly #seen = new Map<PeerKey, Set<number>>()
  readonly #peers: Peer[] = []

  constructor(places: readonly Place[], secret: SecretKeys) {
    this.#places = places
    this.#secret = secret
  }

  /** Distinct messages. */
  get count(): number {
    return [...this.#seen.values()].reduce((sum, { size }) => sum + size, 0)
  }

  /** Opens the next connection, at the other broker. The former one stays until that broker supersedes it. */
  async move(): Promise<void> {
    const place = this.#places[this.#peers.length % this.#places.length]!
    const onEvent = (event: PeerEvent) => {
      if (event.type === 'gap') this.counts.gaps += event.missing
    }
    const peer = await connect({ ...place, identity: identityOf(this.#secret), credit: CREDIT, onEvent })
    this.#peers.push(peer)
    const last = new Map<PeerKey, number>()
    peer.onMessage((message) => this.#take(message, last))
  }

  async leave(): Promise<void> {
    await this.#peers.at(-1)!.close()
  }

  async close(): Promise<void> {
    await Promise.all(this.#peers.map((peer) => peer.close()))
  }

  /** `last`: by sender, the highest number that this connection was handed out. */
  async #take(message: Message, last: Map<PeerKey, number>): Promise<void> {
    const { sender } = message
    const no = Number(message.text())
    const seen = this.#seen.get(sender) ?? new Set()
    const isNew = !seen.has(no)
    const isInPlace = (!isNew || no === seen.size) && no > (last.get(sender) ?? -1)
    this.#seen.set(sender, seen.add(no))
    last.set(sender, Math.max(no, last.get(sender) ?? -1))
    if (!isNew) this.counts.repeated += 1
    if (!isInPlace) this.counts.misordered += 1
    await delay(WORK_MS)
  }
}

class Traffic {
  isOver = false
  readonly #senders: readonly Peer[]
  readonly #to: PeerKey
  readonly #sent: number[]

  constructor(senders: readonly Peer[], to: PeerKey) {
    this.#senders = senders
    this.#to = to
    this.#sent = senders.map(() => 0)
  }

  get sent(): number {
    return this.#sent.reduce((sum, count) => sum + count, 0)
  }

  /** Resolves when all is acked. */
  async keepSending(perSecond: number): Promise<void> {
    const acked: Promise<unknown>[] = []
    for (let dueAtMs = performance.now(), i = 0; !this.isOver; dueAtMs += 1000 / perSecond, i++) {
      await delay(Math.max(0, dueAtMs - performance.now()))
      const no = i % this.#senders.length
      acked.push(this.#senders[no]!.send(this.#to, String(this.#sent[no]!++)))
    }
    await Promise.all(acked)
  }
}
