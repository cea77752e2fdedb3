/**
 * Measures a broadcast's cost per member against direct messages, in alternation. Compares CPU times, because other
 * programs distort wall times.
 */

import { type BrokerAddress, identityOf, type MeshMembers } from '@sealpost/harness/members/mesh'
import { postgresFacts, processFacts } from '@sealpost/harness/programs/machine'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { Latencies } from '@sealpost/harness/report/latencies'
import { count, figure, orDash, tableText } from '@sealpost/harness/report/text'
import { ready } from '@sealpost/identity'
import { clientForms, type Form } from '@sealpost/protocol'
import { clockMs, connect, type Peer } from '@sealpost/sdk'
import { type Group, groupsOf } from '@sealpost/sdk/groups'
import { OperatingError } from '@sealpost/std'
import { createColors } from 'picocolors'
import type { Environment } from '../environment/environment.ts'
import { Bits, Bodies, type Plan } from '../generators/plan.ts'
import { newMesh, type RunContext } from './run.ts'

/** The cost per delivery in microseconds. */
interface GroupCost {
  readonly wallUs: number
  readonly clientUs: number
  /** Null if unknown. */
  readonly brokerUs: number | null
  readonly postgresUs: number | null
}

/** The costs of the same deliveries, once sent to the group and once as direct messages. */
interface CostPair {
  readonly inGroup: GroupCost
  readonly direct: GroupCost
}

/** The pair with the median CPU cost. */
export interface GroupResult extends CostPair {
  readonly members: number
  readonly senders: number
  readonly deliveries: number
  readonly pairs: number
  /** Direct cost divided by group cost, the pairs' median. */
  readonly throughputRatio: number
  readonly cpuRatio: number
  readonly gitSha: string
}

const PAIRS = 6

export async function runGroup(context: RunContext, plan: Plan, teardown: Teardown): Promise<GroupResult> {
  const { target, options, display } = context
  const mesh = await newMesh(plan, target, teardown)
  const crew = new GroupCrew({ plan, mesh, broker: target.shards[0]!, form: options.form, sends: options.group! })
  teardown.add({ end: () => crew.close() })
  display.step(`connecting ${plan.peers} peers`)
  await Promise.race([crew.open(), target.failed])
  const pairs: CostPair[] = []
  for (let i = 0; i < PAIRS; i++) {
    display.step(`pair ${i + 1} of ${PAIRS}`)
    pairs.push(await Promise.race([onePair(crew, target, i % 2 === 0), target.failed]))
  }
  const ratios = (costOf: (cost: GroupCost) => number) =>
    pairs.map(({ inGroup, direct }) => costOf(direct) / costOf(inGroup))
  const cpuRatios = ratios(cpuOf)
  const cpuRatio = lowerMedian(cpuRatios)
  return {
    ...pairs[cpuRatios.indexOf(cpuRatio)]!,
    members: plan.peers,
    senders: crew.senderCount,
    deliveries: crew.deliveryCount,
    pairs: PAIRS,
    throughputRatio: lowerMedian(ratios(({ wallUs }) => wallUs)),
    cpuRatio,
    gitSha: target.version.gitSha,
  }
}

/** Measures a pair. The order alternates, because the first turn warms caches and leaves a queue. */
async function onePair(crew: GroupCrew, target: Environment, isGroupFirst: boolean): Promise<CostPair> {
  const group = () => costOf(crew, target, (sender) => crew.inGroup(sender))
  const direct = () => costOf(crew, target, (sender) => crew.direct(sender))
  if (isGroupFirst) return { inGroup: await group(), direct: await direct() }
  const cost = await direct()
  return { inGroup: await group(), direct: cost }
}

async function costOf(
  crew: GroupCrew,
  { shards: [shard], postmasterPids: [postmaster] }: Environment,
  send: (sender: number) => Promise<unknown>,
): Promise<GroupCost> {
  const look = () => ({
    wallUs: clockMs() * 1000,
    client: process.cpuUsage(),
    broker: (shard?.pid == null ? null : processFacts(shard.pid))?.cpuSeconds ?? null,
    postgres: (postmaster === undefined ? null : postgresFacts(postmaster))?.cpuSeconds ?? null,
  })
  Bun.gc(true)
  const before = look()
  await crew.turn(send)
  const after = look()
  const each = (us: number) => us / crew.deliveryCount
  const spent = (last: number | null, first: number | null) =>
    last === null || first === null ? null : each((last - first) * 1e6)
  const { user, system } = process.cpuUsage(before.client)
  return {
    wallUs: each(after.wallUs - before.wallUs),
    clientUs: each(user + system),
    brokerUs: spent(after.broker, before.broker),
    postgresUs: spent(after.postgres, before.postgres),
  }
}

const cpuOf = ({ clientUs, brokerUs, postgresUs }: GroupCost): number => clientUs + (brokerUs ?? 0) + (postgresUs ?? 0)

/** Returns the lower middle value, an actual one. */
const lowerMedian = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[(values.length - 1) >> 1]!

export function printGroup(result: GroupResult, { isColored }: { readonly isColored: boolean }): string {
  const paint = createColors(isColored)
  const { members, senders, deliveries, pairs, inGroup, direct, throughputRatio, cpuRatio } = result
  const row = (name: string, cost: GroupCost) => {
    const cells = [cost.wallUs, cpuOf(cost), cost.clientUs].map(figure)
    return [name, ...cells, orDash(cost.brokerUs), orDash(cost.postgresUs)]
  }
  const rows = [row('to the group', inGroup), row('directly', direct)]
  const table = tableText(['µs a delivery', 'wall', 'CPU', 'client', 'broker', 'Postgres'], rows, paint)
  const shape = `${count(senders)} senders to one group of ${count(members)}: ${count(deliveries)} deliveries a turn, ${count(pairs)} pairs of turns`
  const ratios = `${figure(throughputRatio)} of the throughput of direct sends, ${figure(cpuRatio)} by CPU`
  return `\n  ${paint.bold(ratios)}\n  ${paint.dim(shape)}\n\n${table}\n`
}

interface CrewSetup {
  readonly plan: Plan
  readonly mesh: MeshMembers
  readonly broker: BrokerAddress
  readonly form: Form
  /** The number of messages per sender. */
  readonly sends: number
  /** The number of groups of all members, between which senders alternate. Default: 1. */
  readonly groups?: number
}

/**
 * This process's peers, with two ways to write to all others. A sender waits for each message, because the outbox would
 * otherwise pack direct ones by recipient.
 */
export class GroupCrew {
  readonly senderCount: number
  readonly deliveryCount: number
  readonly #setup: CrewSetup
  readonly #bodies: Bodies
  readonly #peers: Peer[] = []
  #groups: Group[] = []
  #turn: Turn | null = null

  constructor(setup: CrewSetup) {
    const { plan, sends } = setup
    this.#setup = setup
    this.#bodies = new Bodies(plan)
    this.senderCount = Math.ceil(plan.peers / 2)
    this.deliveryCount = this.senderCount * sends * (plan.peers - 1)
  }

  /** Connects all peers and sends along every pair, to exclude the cost of first messages. */
  async open(): Promise<void> {
    await ready()
    const { plan, mesh, groups = 1 } = this.#setup
    for (let i = 0; i < plan.peers; i++) this.#peers.push(await this.#connectOne(i))
    const [owner] = this.#peers as [Peer]
    const names = Array.from({ length: groups }, (_, i) => `load test ${i + 1}`)
    const made = await Promise.all(names.map((name) => groupsOf(owner).create(name, mesh.peerKeys)))
    const senders = this.#peers.slice(0, this.senderCount)
    this.#groups = await Promise.all(senders.map((peer, i) => groupsOf(peer).find(made[i % made.length]!.id)))
    await this.turn((sender) => this.inGroup(sender))
  }

  async close(): Promise<void> {
    await Promise.all(this.#peers.map((peer) => peer.close()))
  }

  /** Runs a turn. Resolves once everything is acked and delivered. */
  async turn(send: (sender: number) => Promise<unknown>): Promise<void> {
    const turn = new Turn(this.#setup, this.deliveryCount)
    this.#turn = turn
    const senders = Array.from({ length: this.senderCount }, (_, sender) => send(sender))
    await Promise.race([Promise.all([...senders, turn.complete]), turn.failed])
  }

  /** Sends one sender's messages to its groups. @param latencies - until each was stored for all members */
  async inGroup(sender: number, latencies = new Latencies()): Promise<void> {
    for (const body of this.#bodiesOf(sender)) {
      const startMs = performance.now()
      const { stored } = await this.#groups[sender]!.send(body)
      for (const { error } of await stored) if (error) throw error
      latencies.note(performance.now() - startMs)
    }
  }

  async direct(sender: number): Promise<void> {
    const others = this.#setup.mesh.peerKeys.filter((_, i) => i !== sender)
    const peer = this.#peers[sender]!
    for (const body of this.#bodiesOf(sender)) await Promise.all(others.map((to) => peer.send(to, body)))
  }

  #bodiesOf(sender: number): Uint8Array[] {
    const { sends } = this.#setup
    return Array.from({ length: sends }, (_, n) => this.#bodies.make(sender * sends + n))
  }

  async #connectOne(i: number): Promise<Peer> {
    const { mesh, broker, form, sends } = this.#setup
    const identity = identityOf(mesh.secrets[i]!)
    const { url, brokerKey } = broker
    const peer = await connect({ url, brokerKey, meshId: mesh.meshId, identity, form: clientForms[form] })
    peer.onMessage(({ body, sender }) => {
      const number = this.#bodies.numberOf(body)
      const isIntact = this.#bodies.isIntact(body, number) && sender === mesh.peerKeys[Math.floor(number / sends)]
      this.#turn!.received(i, isIntact ? number : null)
    })
    return peer
  }
}

/** Each member's messages in a turn. */
class Turn {
  readonly complete: Promise<void>
  readonly failed: Promise<never>
  readonly #messages: number
  readonly #seen: Bits
  readonly #isComplete = Promise.withResolvers<void>()
  readonly #hasFailed = Promise.withResolvers<never>()
  #due: number

  constructor({ plan, sends }: CrewSetup, due: number) {
    this.#messages = Math.ceil(plan.peers / 2) * sends
    this.#seen = new Bits(this.#messages * plan.peers)
    this.#due = due
    this.complete = this.#isComplete.promise
    this.failed = this.#hasFailed.promise
    this.failed.catch(() => undefined) // `turn` reports the error
  }

  /** Records a message. @param number - null if it differs from what was sent */
  received(member: number, number: number | null): void {
    const place = number === null ? 0 : member * this.#messages + number
    if (number === null || number >= this.#messages || this.#seen.has(place)) {
      const sentence = 'A message arrived twice or damaged.'
      return this.#hasFailed.reject(new OperatingError('wrong_delivery', sentence))
    }
    this.#seen.add(place)
    this.#due -= 1
    if (this.#due === 0) this.#isComplete.resolve()
  }
}
