/**
 * A program that is many silent peers: each with the real SDK, a key and a WebSocket of its own. It comes in steps, says
 * how long each connection took, lets some go and come again, and counts those that the broker dropped.
 */

import type { BrokerAddress, SecretKeys } from '@sealpost/harness/members/mesh'
import { identityOf } from '@sealpost/harness/members/mesh'
import { ready } from '@sealpost/identity'
import { clockMs, connect, type Peer } from '@sealpost/sdk'
import type { MeshId } from '@sealpost/std'

export interface CrowdShare {
  readonly place: BrokerAddress
  readonly meshId: MeshId
  readonly secrets: readonly SecretKeys[]
}

export type CrowdOrder =
  | ({ readonly do: 'prepare' } & CrowdShare)
  /** Come, until this number is there. */
  | { readonly do: 'grow'; readonly to: number }
  /** This number leaves, and comes again. */
  | { readonly do: 'churn'; readonly count: number }
  | { readonly do: 'look' }
  | { readonly do: 'leave' }

export type CrowdAnswer =
  | { readonly did: 'prepare' | 'leave' }
  /** Milliseconds from the call to the proven session, of each that came. */
  | { readonly did: 'grow' | 'churn'; readonly ms: readonly number[]; readonly failed: number }
  | { readonly did: 'look'; readonly online: number; readonly dropped: number }

const CONNECTING_AT_ONCE = 32
const CONNECT_WITHIN_MS = 60_000

class Crowd {
  readonly #share: CrowdShare
  readonly #peers: (Peer | undefined)[] = []
  #next = 0
  #dropped = 0

  constructor(share: CrowdShare) {
    this.#share = share
  }

  grow(to: number): Promise<CameIn> {
    const numbers = Array.from({ length: Math.max(0, to - this.#peers.length) }, (_, i) => this.#peers.length + i)
    return this.#come(numbers)
  }

  async churn(count: number): Promise<CameIn> {
    const numbers = Array.from({ length: Math.min(count, this.#peers.length) }, (_, i) => {
      return (this.#next + i) % this.#peers.length
    })
    this.#next += numbers.length
    await Promise.all(numbers.map((number) => this.#peers[number]?.close()))
    return this.#come(numbers)
  }

  get standing() {
    return { online: this.#peers.filter((peer) => peer?.isOnline).length, dropped: this.#dropped }
  }

  async leave(): Promise<void> {
    await Promise.all(this.#peers.map((peer) => peer?.close()))
  }

  async #come(numbers: number[]): Promise<CameIn> {
    const ms: number[] = []
    const due = numbers.toReversed()
    const comeNext = async (): Promise<void> => {
      for (let number = due.pop(); number !== undefined; number = due.pop()) {
        const calledAtMs = clockMs()
        this.#peers[number] = await this.#connectOne(number).catch(() => undefined) // counted below
        if (this.#peers[number]) ms.push(clockMs() - calledAtMs)
      }
    }
    await Promise.all(Array.from({ length: CONNECTING_AT_ONCE }, comeNext))
    return { ms, failed: numbers.length - ms.length }
  }

  #connectOne(number: number): Promise<Peer> {
    const { place, meshId, secrets } = this.#share
    const signal = AbortSignal.timeout(CONNECT_WITHIN_MS)
    const onEvent = ({ type }: { readonly type: string }) => {
      if (type === 'disconnected') this.#dropped += 1
    }
    return connect({ ...place, meshId, identity: identityOf(secrets[number]!), onEvent, signal })
  }
}

interface CameIn {
  readonly ms: number[]
  readonly failed: number
}

function listen(): void {
  let crowd: Crowd | undefined
  const answer = (words: CrowdAnswer) => void process.send?.(words)
  const obey = async (order: CrowdOrder): Promise<void> => {
    await ready()
    if (order.do === 'prepare') crowd = new Crowd(order)
    const own = crowd!
    if (order.do === 'grow') return answer({ did: 'grow', ...(await own.grow(order.to)) })
    if (order.do === 'churn') return answer({ did: 'churn', ...(await own.churn(order.count)) })
    if (order.do === 'look') return answer({ did: 'look', ...own.standing })
    if (order.do === 'leave') await own.leave()
    answer({ did: order.do })
  }
  process.on('message', (order: CrowdOrder) => void obey(order))
  process.on('disconnect', () => process.exit(0)) // the parent is gone
  for (const signal of ['SIGINT', 'SIGHUP'] as const) process.on(signal, () => undefined) // the script ends it
}

if (import.meta.main) listen()
