/** One suite for every bus: `busConformance('memory', makeWorld)` declares its tests. */
import type { Hint } from '@sealpost/protocol/hints'
import type { MeshId, PeerNo, ShardId } from '@sealpost/std'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { Bus, BusListener } from './bus.ts'
import type { Topic } from './wire.ts'

export interface BusWorld {
  join(shard: ShardId): Bus
  /** Says anything under a topic, as no shard would. */
  say(topic: Topic, bytes: Uint8Array): Promise<void>
  topicOf(meshId: MeshId): Topic
  /** Cuts what all shards are connected by; it comes back by itself. */
  cut?(): Promise<void>
  end(): Promise<void>
}

const shardOf = (n: number) => n.toString(16).padStart(32, '0') as ShardId
const meshOf = (digits: string) => digits.repeat(16) as MeshId
const MESH = meshOf('a0')
/** On a bus whose meshes share topics it has that of `MESH`. */
const NEIGHBOUR = `a0${'b1'.repeat(15)}` as MeshId
const wake = (peer: number, meshId = MESH): Hint => ({ type: 'wake', meshId, peer: peer as PeerNo })

/** Writes down what a shard hears, and tells when it is enough. */
class Ear implements BusListener {
  readonly hints: Hint[] = []
  readonly speakers = new Set<ShardId>()
  meshes: MeshId[] = []
  private readonly waiters = new Set<() => void>()

  heard(from: ShardId, hints: readonly Hint[]): void {
    this.speakers.add(from)
    this.hints.push(...hints)
    for (const wakeUp of this.waiters) wakeUp()
  }

  listening(meshes: readonly MeshId[]): void {
    this.meshes.push(...meshes)
    for (const wakeUp of this.waiters) wakeUp()
  }

  async until(isSo: () => boolean): Promise<void> {
    while (!isSo()) {
      const { promise, resolve } = Promise.withResolvers<void>()
      this.waiters.add(resolve)
      await promise
      this.waiters.delete(resolve)
    }
  }
}

export function busConformance(name: string, makeWorld: () => Promise<BusWorld>): void {
  describe(`a bus (${name})`, () => {
    let world: BusWorld
    let buses: Bus[]
    beforeEach(async () => {
      world = await makeWorld()
      buses = []
    })
    afterEach(async () => {
      await Promise.all(buses.map((bus) => bus.close()))
      await world.end()
    })

    /** A shard that follows these meshes, once it really does. */
    async function shard(...meshes: MeshId[]): Promise<{ bus: Bus; ear: Ear }> {
      const ear = new Ear()
      const bus = world.join(shardOf(buses.length + 1))
      buses.push(bus)
      bus.subscribe(ear)
      for (const meshId of meshes) bus.follow(meshId)
      await ear.until(() => bus.isUp && meshes.every((meshId) => ear.meshes.includes(meshId)))
      return { bus, ear }
    }

    test('a hint reaches the other shards that follow its mesh, and not the one that says it', async () => {
      const [one, two, three] = [await shard(MESH), await shard(MESH), await shard(MESH)]
      one.bus.publish(wake(7))
      await Promise.all([two, three].map(({ ear }) => ear.until(() => ear.hints.length > 0)))
      expect([two.ear.hints, three.ear.hints]).toEqual([[wake(7)], [wake(7)]])
      expect([...two.ear.speakers]).toEqual([shardOf(1)])
      two.bus.publish(wake(8))
      await one.ear.until(() => one.ear.hints.length > 0)
      expect(one.ear.hints).toEqual([wake(8)])
    })

    test('of a mesh that is not followed, or not any more, nothing is heard', async () => {
      const { bus } = await shard()
      const { bus: other, ear } = await shard(MESH)
      bus.publish(wake(1, meshOf('c2')))
      bus.publish(wake(2, NEIGHBOUR))
      bus.publish(wake(3))
      await ear.until(() => ear.hints.length > 0)
      expect(ear.hints).toEqual([wake(3)])
      other.follow(NEIGHBOUR)
      await ear.until(() => ear.meshes.includes(NEIGHBOUR) || world.topicOf(NEIGHBOUR) === world.topicOf(MESH))
      other.unfollow(MESH)
      bus.publish(wake(4))
      bus.publish(wake(5, NEIGHBOUR))
      await ear.until(() => ear.hints.length > 1)
      expect(ear.hints).toEqual([wake(3), wake(5, NEIGHBOUR)])
    })

    test('what is said many times in a moment is heard once', async () => {
      const { bus } = await shard()
      const { ear } = await shard(MESH)
      for (let i = 0; i < 1000; i++) bus.publish(wake(1 + (i % 3)))
      bus.publish(wake(9))
      await ear.until(() => ear.hints.some((hint) => hint.type === 'wake' && hint.peer === 9))
      expect(ear.hints).toEqual([wake(1 + (997 % 3)), wake(1 + (998 % 3)), wake(1 + (999 % 3)), wake(9)])
      await bus.close() // so that the last send is counted
      expect(bus.counters.published).toBe(4)
    })

    test('more than one packet holds arrives whole', async () => {
      const { bus } = await shard()
      const { ear } = await shard(MESH)
      const hints = Array.from({ length: 3000 }, (_, i) => wake(i))
      for (const hint of hints) bus.publish(hint)
      await ear.until(() => ear.hints.length === hints.length)
      expect(ear.hints).toEqual(hints)
    })

    test('news of shards reach all, whatever they follow', async () => {
      const [one, two] = [await shard(MESH), await shard()]
      const { bus } = await shard(meshOf('c2'))
      await Promise.all([one, two].map(({ ear }) => heardOnce(bus, ear)))
      expect(one.ear.hints[0]).toEqual({ type: 'shards' })
    })

    test('H65: what is no packet, or comes under a topic that is not its own, is dropped and counted', async () => {
      const { bus, ear } = await shard(MESH, meshOf('c2'))
      const { bus: speaker } = await shard()
      const foreign = packetOf(9, meshOf('c2'))
      const malformed = [[], [1], [...foreign.slice(0, -1)], [...foreign, 0], [2, ...foreign.slice(1)]]
      for (const bytes of malformed) await world.say(world.topicOf(MESH), new Uint8Array(bytes))
      await world.say(world.topicOf(MESH), foreign)
      await world.say(world.topicOf(MESH), packetOf(9, MESH))
      await ear.until(() => ear.hints.length > 0)
      expect(ear.hints).toEqual([wake(9)])
      expect(bus.counters).toMatchObject({ dropped: malformed.length + 1, heard: 1 })
      speaker.publish(wake(1))
      await ear.until(() => ear.hints.length > 1)
    })

    test('what was said before the end still goes out, and nothing after it', async () => {
      const { bus } = await shard()
      const { ear } = await shard(MESH)
      await world.say(world.topicOf(MESH), packetOf(1, MESH)) // the wire is there
      bus.publish(wake(2))
      await bus.close()
      bus.publish(wake(3))
      await ear.until(() => ear.hints.length > 1)
      expect(ear.hints).toEqual([wake(1), wake(2)])
      expect(bus.counters).toMatchObject({ published: 1, lost: 1 })
    })

    test('a bus that was cut, where it can be, says so when it is back, and goes on', async () => {
      const { bus } = await shard(MESH)
      const { ear } = await shard(MESH, meshOf('c2'))
      if (world.cut) {
        ear.meshes = []
        await world.cut()
      }
      await ear.until(() => ear.meshes.includes(MESH) && ear.meshes.includes(meshOf('c2')))
      await heardOnce(bus, ear)
    })
  })
}

/** Says it until it is heard: a bus that is not up yet loses it. */
async function heardOnce(bus: Bus, ear: Ear): Promise<void> {
  const again = setInterval(() => bus.publish({ type: 'shards' }), 50)
  await ear.until(() => ear.hints.some(({ type }) => type === 'shards'))
  clearInterval(again)
}

/** A `wake` of a shard that is not there. */
function packetOf(peer: number, meshId: MeshId): Uint8Array {
  const hex = `01${'ee'.repeat(16)}01${meshId}${peer.toString(16).padStart(8, '0')}`
  return Uint8Array.from(hex.match(/../g)!, (digits) => Number.parseInt(digits, 16))
}
