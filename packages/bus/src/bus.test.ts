/** Tests a bus while its transport is down, with an in-process transport that has a switch. */
import type { Hint } from '@sealpost/protocol/hints'
import { type MeshId, OperatingError, type PeerNo, type ShardId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { BatchingBus, type BusTransport, type BusTransportEvents, MemoryHub } from './bus.ts'
import { busConformance } from './test/conformance.ts'

const MESH = 'a0'.repeat(16) as MeshId
const shardOf = (digits: string) => digits.repeat(16) as ShardId
const wake = (peer: number): Hint => ({ type: 'wake', meshId: MESH, peer: peer as PeerNo })

class SwitchedTransport {
  isUp = true
  /** The number of sends while the transport was down. */
  refused = 0
  readonly hub = new MemoryHub()
  #events: BusTransportEvents | undefined

  readonly open = (events: BusTransportEvents): BusTransport => {
    this.#events = events
    const transport = this.hub.open(events)
    const isUp = () => this.isUp
    return {
      get isUp() {
        return isUp()
      },
      replyMs: transport.replyMs,
      packetBytesMax: transport.packetBytesMax,
      topicOf: (meshId) => transport.topicOf(meshId),
      send: async (packets) => {
        if (this.isUp) return transport.send(packets)
        this.refused += 1
        throw new OperatingError('bus_down', 'down', { retryable: true })
      },
      follow: (topics) => transport.follow(topics),
      unfollow: (topic) => transport.unfollow(topic),
      close: () => transport.close(),
    }
  }

  restore(): void {
    this.isUp = true
    this.#events?.onUp()
  }
}

interface Pair {
  readonly transport: SwitchedTransport
  readonly bus: BatchingBus
  readonly received: Hint[]
  /** Resolves once the other shard has received this many hints. */
  receives(count: number): Promise<void>
}

async function pair(): Promise<Pair> {
  const transport = new SwitchedTransport()
  const bus = new BatchingBus({ shard: shardOf('01'), open: transport.open })
  const other = transport.hub.join(shardOf('02'))
  const received: Hint[] = []
  let check = () => undefined as unknown
  const { promise, resolve } = Promise.withResolvers<void>()
  other.subscribe({
    onHints: (_, hints) => {
      received.push(...hints)
      check()
    },
    onFollowing: () => resolve(),
  })
  other.follow(MESH)
  await promise
  const receives = (count: number) =>
    new Promise<void>((done) => {
      check = () => received.length >= count && done()
      check()
    })
  return { transport, bus, received, receives }
}

test('hints that were published while the transport was down are sent afterwards, each once, in order of the last publish', async () => {
  const { transport, bus, received, receives } = await pair()
  transport.isUp = false
  for (const peer of [1, 2, 1, 3]) bus.publish(wake(peer))
  transport.restore()
  await receives(3)
  expect(received).toEqual([wake(2), wake(1), wake(3)])
  await bus.close()
  expect(bus.counters).toMatchObject({ published: 3, lost: 0 })
})

test('hints whose send failed are sent again', async () => {
  const { transport, bus, received, receives } = await pair()
  bus.publish(wake(1))
  bus.publish({ type: 'whoIsThere', meshId: MESH })
  transport.isUp = false
  bus.publish(wake(2))
  await expect.poll(() => transport.refused).toBe(1)
  transport.restore()
  await receives(2)
  await bus.close() // counts the last send too
  expect(received).toEqual([wake(1), wake(2)])
  expect(bus.counters).toMatchObject({ published: 2, lost: 1 })
})

test('hints about the present are lost with the transport', async () => {
  const { transport, bus, received, receives } = await pair()
  transport.isUp = false
  bus.publish({ type: 'whoIsThere', meshId: MESH })
  bus.publish(wake(1))
  transport.restore()
  await receives(1)
  expect(received).toEqual([wake(1)])
  await bus.close()
  expect(bus.counters).toMatchObject({ published: 1, lost: 1 })
})

busConformance('memory', async () => {
  const hub = new MemoryHub()
  return {
    join: (shard) => hub.join(shard),
    send: async (topic, bytes) => hub.deliver(topic, bytes),
    topicOf: (meshId) => meshId,
    end: async () => undefined,
  }
})
