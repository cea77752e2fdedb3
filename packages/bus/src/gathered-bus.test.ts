/** What a bus does while its wire is away; the wire is that of one process, with a switch. */
import type { Hint } from '@sealpost/protocol/hints'
import { type MeshId, OperatingError, type PeerNo, type ShardId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { GatheredBus } from './gathered-bus.ts'
import { MemoryHub } from './memory.ts'
import type { Wire, WirePorts } from './wire.ts'

const MESH = 'a0'.repeat(16) as MeshId
const shardOf = (digits: string) => digits.repeat(16) as ShardId
const wake = (peer: number): Hint => ({ type: 'wake', meshId: MESH, peer: peer as PeerNo })

class SwitchedWire {
  isUp = true
  /** Sends that found it away. */
  refused = 0
  readonly hub = new MemoryHub()
  #ports: WirePorts | undefined

  readonly open = (ports: WirePorts): Wire => {
    this.#ports = ports
    const wire = this.hub.open(ports)
    const isUp = () => this.isUp
    return {
      get isUp() {
        return isUp()
      },
      answerMs: wire.answerMs,
      packetBytesMax: wire.packetBytesMax,
      topicOf: (meshId) => wire.topicOf(meshId),
      send: async (packets) => {
        if (this.isUp) return wire.send(packets)
        this.refused += 1
        throw new OperatingError('bus_away', 'away', { retryable: true })
      },
      follow: (topics) => wire.follow(topics),
      unfollow: (topic) => wire.unfollow(topic),
      close: () => wire.close(),
    }
  }

  comeBack(): void {
    this.isUp = true
    this.#ports?.up()
  }
}

interface Pair {
  readonly wire: SwitchedWire
  readonly bus: GatheredBus
  readonly heard: Hint[]
  /** Settles once the other shard has heard so many. */
  hears(count: number): Promise<void>
}

async function pair(): Promise<Pair> {
  const wire = new SwitchedWire()
  const bus = new GatheredBus({ shard: shardOf('01'), open: wire.open })
  const other = wire.hub.join(shardOf('02'))
  const heard: Hint[] = []
  let told = () => undefined as unknown
  const { promise, resolve } = Promise.withResolvers<void>()
  other.subscribe({
    heard: (_, hints) => {
      heard.push(...hints)
      told()
    },
    listening: () => resolve(),
  })
  other.follow(MESH)
  await promise
  const hears = (count: number) =>
    new Promise<void>((done) => {
      told = () => heard.length >= count && done()
      told()
    })
  return { wire, bus, heard, hears }
}

test('what was published while the wire was away is told when it is back, each once and the last last', async () => {
  const { wire, bus, heard, hears } = await pair()
  wire.isUp = false
  for (const peer of [1, 2, 1, 3]) bus.publish(wake(peer))
  wire.comeBack()
  await hears(3)
  expect(heard).toEqual([wake(2), wake(1), wake(3)])
  await bus.close()
  expect(bus.counters).toMatchObject({ published: 3, lost: 0 })
})

test('so is what was under way when it went', async () => {
  const { wire, bus, heard, hears } = await pair()
  bus.publish(wake(1))
  bus.publish({ type: 'whoIsThere', meshId: MESH })
  wire.isUp = false
  bus.publish(wake(2))
  await expect.poll(() => wire.refused).toBe(1)
  wire.comeBack()
  await hears(2)
  await bus.close() // so that the last send is counted
  expect(heard).toEqual([wake(1), wake(2)])
  expect(bus.counters).toMatchObject({ published: 2, lost: 1 })
})

test('what is about this moment alone is lost with it', async () => {
  const { wire, bus, heard, hears } = await pair()
  wire.isUp = false
  bus.publish({ type: 'whoIsThere', meshId: MESH })
  bus.publish(wake(1))
  wire.comeBack()
  await hears(1)
  expect(heard).toEqual([wake(1)])
  await bus.close()
  expect(bus.counters).toMatchObject({ published: 1, lost: 1 })
})
