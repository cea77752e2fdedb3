/**
 * The peers of a run against a group, all in this process, and its two ways to write to everybody. In both a sender goes
 * from message to message, the next when the one before is stored: sent all at once, direct ones would leave the outbox
 * sorted by recipient, and come to each in one frame where a broadcast comes to all.
 */

import type { BrokerAddress } from '@sealpost/harness/members/mesh'
import { identityOf, type MeshMembers } from '@sealpost/harness/members/mesh'
import { Latencies } from '@sealpost/harness/report/latencies'
import { ready } from '@sealpost/identity'
import type { Form } from '@sealpost/protocol'
import { connect, type Group, type Peer } from '@sealpost/sdk'
import { OperatingError } from '@sealpost/std'
import { Bits } from '../generators/bits.ts'
import { Bodies } from '../generators/body.ts'
import type { Plan } from '../generators/plan.ts'

export interface CrewSetup {
  readonly plan: Plan
  readonly mesh: MeshMembers
  readonly place: BrokerAddress
  readonly form: Form
  /** Of each sender in a turn. */
  readonly sends: number
  /** Groups of everybody; the senders take them in turns. Default 1. */
  readonly groups?: number
}

export class GroupCrew {
  readonly senderCount: number
  /** Of one turn. */
  readonly deliveryCount: number
  readonly #setup: CrewSetup
  readonly #bodies: Bodies
  readonly #peers: Peer[] = []
  /** Of each sender. */
  #groups: Group[] = []
  #turn: Turn | null = null

  constructor(setup: CrewSetup) {
    const { plan, sends } = setup
    this.#setup = setup
    this.#bodies = new Bodies(plan)
    this.senderCount = Math.ceil(plan.peers / 2)
    this.deliveryCount = this.senderCount * sends * (plan.peers - 1)
  }

  /** Everybody is there, and every pair that will write has written: what a first message costs is no part of a turn. */
  async open(): Promise<void> {
    await ready()
    const { plan, mesh } = this.#setup
    for (let i = 0; i < plan.peers; i++) this.#peers.push(await this.#connectOne(i))
    const [owner] = this.#peers as [Peer]
    const names = Array.from({ length: this.#setup.groups ?? 1 }, (_, i) => `load test ${i + 1}`)
    const made = await Promise.all(names.map((name) => owner.groups.create(name, mesh.peerKeys)))
    const senders = this.#peers.slice(0, this.senderCount)
    this.#groups = await Promise.all(senders.map((peer, i) => peer.groups.find(made[i % made.length]!.id)))
    await this.turn((sender) => this.inGroup(sender))
  }

  async close(): Promise<void> {
    await Promise.all(this.#peers.map((peer) => peer.close()))
  }

  /** Resolves when every send is acked and every delivery has come, each to whom it was for, once. */
  async turn(send: (sender: number) => Promise<unknown>): Promise<void> {
    const turn = new Turn(this.#setup, this.deliveryCount)
    this.#turn = turn
    const senders = Array.from({ length: this.senderCount }, (_, sender) => send(sender))
    await Promise.race([Promise.all([...senders, turn.whole]), turn.failed])
  }

  /** @param latencies - takes note of how long each message took until it was stored for all */
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
    const { mesh, place, form } = this.#setup
    const identity = identityOf(mesh.secrets[i]!)
    const { url, brokerKey } = place
    const peer = await connect({ url, brokerKey, meshId: mesh.meshId, identity, form })
    peer.onMessage(({ body, sender }) => {
      const number = this.#bodies.numberOf(body)
      const isIntact = this.#bodies.isIntact(body, number)
      this.#turn!.received(i, isIntact && sender === mesh.peerKeys[this.#senderOf(number)] ? number : null)
    })
    return peer
  }

  #senderOf(number: number): number {
    return Math.floor(number / this.#setup.sends)
  }
}

/** Who has received what. */
class Turn {
  readonly whole: Promise<void>
  readonly failed: Promise<never>
  readonly #messages: number
  readonly #seen: Bits
  readonly #isWhole = Promise.withResolvers<void>()
  readonly #hasFailed = Promise.withResolvers<never>()
  #due: number

  constructor({ plan, sends }: CrewSetup, due: number) {
    this.#messages = Math.ceil(plan.peers / 2) * sends
    this.#seen = new Bits(this.#messages * plan.peers)
    this.#due = due
    this.whole = this.#isWhole.promise
    this.failed = this.#hasFailed.promise
    this.failed.catch(() => undefined) // told to who waits for the turn
  }

  /** `null`: it was not what its sender sent. */
  received(member: number, number: number | null): void {
    const place = number === null ? 0 : member * this.#messages + number
    if (number === null || number >= this.#messages || this.#seen.has(place))
      return this.#hasFailed.reject(
        new OperatingError('wrong_delivery', 'A message came twice, or not as it was sent.'),
      )
    this.#seen.add(place)
    this.#due -= 1
    if (this.#due === 0) this.#isWhole.resolve()
  }
}
