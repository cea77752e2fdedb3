/**
 * Moves an identity repeatedly between two brokers under load, mostly while the former connection still receives. Each
 * sender's messages must arrive in order, on each connection and over all.
 */

import {
  type BrokerAddress,
  enrolMesh,
  generateMesh,
  identityOf,
  type SecretKeys,
} from '@sealpost/harness/members/mesh'
import { wholeNumber } from '@sealpost/harness/programs/command'
import { atRate, waitUntil } from '@sealpost/harness/programs/pace'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { sum } from '@sealpost/harness/report/text'
import { connect, type Message, type Peer, type PeerEvent } from '@sealpost/sdk'
import type { MeshId, PeerKey } from '@sealpost/std'
import { Cluster } from './cluster.ts'
import type { Drill } from './drill.ts'

interface TakeoverOptions {
  /** The number of identities, each in its own mesh. */
  readonly runs: number
  readonly takeovers: number
  /** Messages per second of all senders. */
  readonly rate: number
}

interface TakeoverResult {
  readonly sent: number
  readonly lost: number
  /** The number of messages out of order. */
  readonly misordered: number
  /** The number of messages that a connection missed because another had settled them. */
  readonly gaps: number
  /** The number of messages delivered again to a later connection. */
  readonly repeated: number
}

const SENDERS = 4
/** The minimum time before the next connection takes over. */
const STAY_MS_MIN = 20
const STAY_MS_MAX = 120
const PAUSE_EVERY = 3
const PAUSE_MS = 500
const WORK_MS = 5
const CREDIT = 32

export const takeoverDrill: Drill<TakeoverOptions> = {
  name: 'takeover',
  description: 'Move one identity between two brokers under load and count the messages out of order.',
  configure: (command) =>
    command
      .option('--runs <n>', 'the number of runs, each with its own mesh', wholeNumber(1, 100_000), 20)
      .option('--takeovers <n>', 'the number of takeovers in each run', wholeNumber(1, 100_000), 40)
      .option('--rate <n>', 'the number of messages per second', wholeNumber(1, 100_000), 600),
  run: async (options, teardown) => {
    const result = await drillTakeover(options, teardown)
    const checks = result.map(({ sent, lost, misordered, gaps, repeated }) => {
      const counts = `${misordered} were out of order, ${lost} lost, ${repeated} delivered again, ${gaps} settled by another connection`
      return [lost + misordered === 0, `of ${sent} messages ${counts}`] as const
    })
    return { result, checks }
  },
}

/** @returns a result for each run */
export async function drillTakeover(
  { runs, ...options }: TakeoverOptions,
  teardown: Teardown,
): Promise<TakeoverResult[]> {
  const cluster = await Cluster.open(2, teardown, { PLACEMENT: 'any', REBALANCE: 'off' })
  const results: TakeoverResult[] = []
  for (let no = 0; no < runs; no++) results.push(await runIn(cluster, options))
  return results
}

async function runIn(cluster: Cluster, options: Omit<TakeoverOptions, 'runs'>): Promise<TakeoverResult> {
  const mesh = await generateMesh(SENDERS + 1)
  await enrolMesh(cluster.database, mesh, 'drill')
  const brokers = cluster.brokers.map(({ url, brokerKey }) => ({ url, brokerKey, meshId: mesh.meshId }))
  const [own, ...others] = mesh.secrets
  const recipient = new MovingRecipient(brokers, own!)
  await recipient.move()
  // The senders' broker leases messages on insert once the recipient's queue is empty.
  const senders = await Promise.all(others.map((secret) => connect({ ...brokers[0]!, identity: identityOf(secret) })))
  let isOver = false
  const sending = sendUntil(() => isOver, { senders, to: mesh.peerKeys[0]!, perSecond: options.rate })
  for (let i = 0; i < options.takeovers; i++) {
    await Bun.sleep(STAY_MS_MIN + Math.random() * (STAY_MS_MAX - STAY_MS_MIN))
    if (i % PAUSE_EVERY === PAUSE_EVERY - 1) {
      await recipient.leave()
      await Bun.sleep(PAUSE_MS)
    }
    await recipient.move()
  }
  isOver = true
  const sent = await sending
  await waitUntil('every message is delivered', () => recipient.count >= sent)
  await Promise.all([recipient.close(), ...senders.map((sender) => sender.close())])
  return { sent, lost: sent - recipient.count, ...recipient.counts }
}

interface Sending {
  readonly senders: readonly Peer[]
  readonly to: PeerKey
  readonly perSecond: number
}

/** Sends numbered messages. @returns how many, once all are acked */
function sendUntil(isOver: () => boolean, { senders, to, perSecond }: Sending): Promise<number> {
  return atRate({ perSecond, until: isOver }, (turn) =>
    senders[turn % senders.length]!.send(to, String(Math.floor(turn / senders.length))),
  )
}

class MovingRecipient {
  readonly counts = { misordered: 0, gaps: 0, repeated: 0 }
  readonly #brokers: readonly (BrokerAddress & { readonly meshId: MeshId })[]
  readonly #secret: SecretKeys
  readonly #seen = new Map<PeerKey, Set<number>>()
  readonly #peers: Peer[] = []

  constructor(brokers: readonly (BrokerAddress & { readonly meshId: MeshId })[], secret: SecretKeys) {
    this.#brokers = brokers
    this.#secret = secret
  }

  get count(): number {
    return sum([...this.#seen.values()].map(({ size }) => size))
  }

  /** Opens the next connection at the other broker, which supersedes the former one. */
  async move(): Promise<void> {
    const broker = this.#brokers[this.#peers.length % this.#brokers.length]!
    const onEvent = (event: PeerEvent) => {
      if (event.type === 'gap') this.counts.gaps += event.missing
    }
    const peer = await connect({ ...broker, identity: identityOf(this.#secret), credit: CREDIT, onEvent })
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

  /** Records a message. @param last - this connection's highest number by sender */
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
    await Bun.sleep(WORK_MS)
  }
}
