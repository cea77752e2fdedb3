/**
 * Runs silent peers in a few programs, each with the real SDK, a key and a WebSocket. They connect in steps, and some
 * reconnect. Reports the duration of connections, and those that the broker dropped.
 */

import { type BrokerAddress, identityOf, type MeshMembers, type SecretKeys } from '@sealpost/harness/members/mesh'
import { Child, serveParent } from '@sealpost/harness/programs/child'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { Latencies } from '@sealpost/harness/report/latencies'
import { ready } from '@sealpost/identity'
import { clockMs, connect, type Peer } from '@sealpost/sdk'
import type { MeshId } from '@sealpost/std'
import { sharesOf } from './plan.ts'

export interface IdlePeersSetup {
  /** The mesh of the peers. */
  readonly mesh: MeshMembers
  readonly broker: BrokerAddress
  readonly programs: number
  /** Arguments for Bun. */
  readonly runtimeArgs: readonly string[]
  /** Rejects when the broker has ended. */
  readonly failed: Promise<never>
}

export interface ConnectResult {
  readonly connectMs: Latencies
  readonly failed: number
}

interface PeerShare {
  readonly broker: BrokerAddress
  readonly meshId: MeshId
  readonly secrets: readonly SecretKeys[]
}

type IdleOrder =
  | ({ readonly do: 'prepare' } & PeerShare)
  /** Connects peers, up to `to`. */
  | { readonly do: 'grow'; readonly to: number }
  /** Reconnects this number of peers. */
  | { readonly do: 'churn'; readonly count: number }
  | { readonly do: 'look' | 'leave' }

type IdleReply =
  | { readonly did: 'prepare' | 'leave' }
  | ({ readonly did: 'grow' | 'churn' } & Connected)
  | { readonly did: 'look'; readonly online: number; readonly dropped: number }

interface Connected {
  /** The duration of each `connect()` in ms. */
  readonly ms: readonly number[]
  readonly failed: number
}

export class IdlePeers {
  readonly #programs: readonly Child<IdleOrder, IdleReply>[]
  readonly #failed: Promise<never>

  static async open(setup: IdlePeersSetup, teardown: Teardown): Promise<IdlePeers> {
    const peers = new IdlePeers(setup)
    teardown.addProgram(peers)
    const { mesh, broker, programs } = setup
    const shares = sharesOf({ first: 0, end: mesh.secrets.length }, programs)
    await peers.#each('prepare', (i) => {
      const { first, end } = shares[i]!
      return { do: 'prepare', broker, meshId: mesh.meshId, secrets: mesh.secrets.slice(first, end) }
    })
    return peers
  }

  private constructor({ programs, runtimeArgs, failed }: IdlePeersSetup) {
    this.#failed = failed
    this.#programs = Array.from(
      { length: programs },
      (_, i) => new Child(`Crowd ${i + 1}`, import.meta.filename, runtimeArgs),
    )
  }

  async grow(to: number): Promise<ConnectResult> {
    const shares = this.#sharesOf(to)
    return resultOf(await this.#each('grow', (i) => ({ do: 'grow', to: shares[i]! })))
  }

  async churn(count: number): Promise<ConnectResult> {
    const shares = this.#sharesOf(count)
    return resultOf(await this.#each('churn', (i) => ({ do: 'churn', count: shares[i]! })))
  }

  async look(): Promise<{ readonly online: number; readonly dropped: number }> {
    const all = await this.#each('look', () => ({ do: 'look' }))
    return all.reduce((a, b) => ({ did: 'look', online: a.online + b.online, dropped: a.dropped + b.dropped }))
  }

  async leave(): Promise<void> {
    await this.#each('leave', () => ({ do: 'leave' }))
    await this.stop()
  }

  async stop(): Promise<void> {
    await Promise.all(this.#programs.map((program) => program.stop()))
  }

  kill(): void {
    for (const program of this.#programs) program.kill()
  }

  #sharesOf(count: number): number[] {
    return sharesOf({ first: 0, end: count }, this.#programs.length).map(({ first, end }) => end - first)
  }

  #each<Did extends IdleReply['did']>(did: Did, orderOf: (i: number) => IdleOrder) {
    type Wanted = Extract<IdleReply, { did: Did }>
    const replies = this.#programs.map((program, i) => {
      const reply = program.nextReply((each): each is Wanted => each.did === did)
      program.send(orderOf(i))
      return reply
    })
    return Promise.race([Promise.all(replies), this.#failed])
  }
}

function resultOf(replies: readonly Connected[]): ConnectResult {
  const connectMs = new Latencies()
  for (const ms of replies.flatMap((reply) => reply.ms)) connectMs.note(ms)
  return { connectMs, failed: replies.reduce((sum, { failed }) => sum + failed, 0) }
}

const CONNECTING_AT_ONCE = 32
const CONNECT_WITHIN_MS = 60_000

class IdleShare {
  readonly #share: PeerShare
  readonly #peers: (Peer | undefined)[] = []
  #next = 0
  #dropped = 0

  constructor(share: PeerShare) {
    this.#share = share
  }

  grow(to: number): Promise<Connected> {
    const connected = this.#peers.length
    return this.#connectAll(Array.from({ length: Math.max(0, to - connected) }, (_, i) => connected + i))
  }

  async churn(count: number): Promise<Connected> {
    const all = this.#peers.length
    const numbers = Array.from({ length: Math.min(count, all) }, (_, i) => (this.#next + i) % all)
    this.#next += numbers.length
    await Promise.all(numbers.map((number) => this.#peers[number]?.close()))
    return this.#connectAll(numbers)
  }

  get status() {
    return { online: this.#peers.filter((peer) => peer?.isOnline).length, dropped: this.#dropped }
  }

  async leave(): Promise<void> {
    await Promise.all(this.#peers.map((peer) => peer?.close()))
  }

  async #connectAll(numbers: number[]): Promise<Connected> {
    const ms: number[] = []
    const due = numbers.toReversed()
    const connectNext = async (): Promise<void> => {
      for (let number = due.pop(); number !== undefined; number = due.pop()) {
        const calledAtMs = clockMs()
        this.#peers[number] = await this.#connectOne(number).catch(() => undefined) // a failed connection is counted below
        if (this.#peers[number]) ms.push(clockMs() - calledAtMs)
      }
    }
    await Promise.all(Array.from({ length: CONNECTING_AT_ONCE }, connectNext))
    return { ms, failed: numbers.length - ms.length }
  }

  #connectOne(number: number): Promise<Peer> {
    const { broker, meshId, secrets } = this.#share
    const signal = AbortSignal.timeout(CONNECT_WITHIN_MS)
    const onEvent = ({ type }: { readonly type: string }) => {
      if (type === 'disconnected') this.#dropped += 1
    }
    return connect({ ...broker, meshId, identity: identityOf(secrets[number]!), onEvent, signal })
  }
}

function serve(): void {
  let share: IdleShare | undefined
  serveParent<IdleOrder, IdleReply>(async (order, reply) => {
    await ready()
    if (order.do === 'prepare') share = new IdleShare(order)
    const own = share!
    if (order.do === 'grow') return reply({ did: 'grow', ...(await own.grow(order.to)) })
    if (order.do === 'churn') return reply({ did: 'churn', ...(await own.churn(order.count)) })
    if (order.do === 'look') return reply({ did: 'look', ...own.status })
    if (order.do === 'leave') await own.leave()
    reply({ did: order.do })
  })
}

if (import.meta.main) serve()
