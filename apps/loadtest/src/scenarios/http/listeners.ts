/** Peers of this process, each with the real SDK: they open what comes and look at every byte of it. */

import type { BrokerAddress, SecretKeys } from '@sealpost/harness/members/mesh'
import { identityOf } from '@sealpost/harness/members/mesh'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { ready } from '@sealpost/identity'
import { clockMs, connect, type Peer } from '@sealpost/sdk'
import type { MeshId } from '@sealpost/std'
import type { Bodies } from '../../generators/body.ts'

export interface ListenersSetup {
  readonly place: BrokerAddress
  readonly meshId: MeshId
  readonly secrets: readonly SecretKeys[]
  readonly bodies: Bodies
  /** A body that is whole, with its number, -1 for one that is not; and which of the listeners has it. */
  readonly take: (number: number, atMs: number, listener: number) => void
}

export class Listeners {
  readonly #peers: Peer[] = []
  #dropped = 0

  /** They end with the script. */
  static async open(setup: ListenersSetup, teardown: Teardown): Promise<Listeners> {
    await ready()
    const listeners = new Listeners()
    teardown.add({ end: () => listeners.close() })
    for (const [i, secret] of setup.secrets.entries()) listeners.#peers.push(await listeners.#listen(i, secret, setup))
    return listeners
  }

  get count(): number {
    return this.#peers.length
  }

  /** Connections that ended by themselves. */
  get dropped(): number {
    return this.#dropped
  }

  async close(): Promise<void> {
    await Promise.all(this.#peers.map((peer) => peer.close()))
  }

  async #listen(listener: number, secret: SecretKeys, { place, meshId, bodies, take }: ListenersSetup): Promise<Peer> {
    const onEvent = ({ type }: { readonly type: string }) => {
      if (type === 'disconnected') this.#dropped += 1
    }
    const peer = await connect({ ...place, meshId, identity: identityOf(secret), onEvent })
    peer.onMessage(({ body }) => {
      const number = bodies.numberOf(body)
      take(bodies.isIntact(body, number) ? number : -1, clockMs(), listener)
    })
    return peer
  }
}
