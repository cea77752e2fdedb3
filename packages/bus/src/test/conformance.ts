/** Declares the tests that every bus must pass, with `busConformance('memory', makeWorld)`. */
import type { Hint } from '@sealpost/protocol/hints'
import type { MeshId, PeerNo, ShardId } from '@sealpost/std'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { Bus, BusListener, Topic } from '../bus.ts'

export interface BusWorld {
  join(shard: ShardId): Bus
  send(topic: Topic, bytes: Uint8Array): Promise<void>
  topicOf(meshId: MeshId): Topic
  /** Breaks the connections of all shards, which reconnect. */
  disconnect?(): Promise<void>
  end(): Promise<void>
}

const shardOf = (n: number) => n.toString(16).padStart(32, '0') as ShardId
const meshOf = (digits: string) => digits.repeat(16) as MeshId
const MESH = meshOf('a0')
/** A mesh with the same topic as `MESH`, on buses whose topics are shared. */
const NEIGHBOUR = `a0${'b1'.repeat(15)}` as MeshId
const wake = (peer: number, meshId = MESH): Hint => ({ type: 'wake', meshId, peer: peer as PeerNo })

class Recorder implements BusListener {
  readonly hints: Hint[] = []
  readonly senders = new Set<ShardId>()
  meshes: MeshId[] = []
  readonly #waiters = new Set<() => void>()

  onHints(from: ShardId, hints: readonly Hint[]): void {
    this.senders.add(from)
    this.hints.push(...hints)
    for (const notify of this.#waiters) notify()
  }

  onFollowing(meshes: readonly MeshId[]): void {
    this.meshes.push(...meshes)
    for (const notify of this.#waiters) notify()
  }

  async until(condition: () => boolean): Promise<void> {
    while (!condition()) {
      const { promise, resolve } = Promise.withResolvers<void>()
      this.#waiters.add(resolve)
      await promise
      this.#waiters.delete(resolve)
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

    /** Adds a shard, and waits until it follows these meshes. */
    async function shard(...meshes: MeshId[]): Promise<{ bus: Bus; recorder: Recorder }> {
      const recorder = new Recorder()
      const bus = world.join(shardOf(buses.length + 1))
      buses.push(bus)
      bus.subscribe(recorder)
      for (const meshId of meshes) bus.follow(meshId)
      await recorder.until(() => bus.isUp && meshes.every((meshId) => recorder.meshes.includes(meshId)))
      return { bus, recorder }
    }

    test('a hint reaches the other shards that follow its mesh, and not its sender', async () => {
      const [one, two, three] = [await shard(MESH), await shard(MESH), await shard(MESH)]
      one.bus.publish(wake(7))
      await Promise.all([two, three].map(({ recorder }) => recorder.until(() => recorder.hints.length > 0)))
      expect([two.recorder.hints, three.recorder.hints]).toEqual([[wake(7)], [wake(7)]])
      expect([...two.recorder.senders]).toEqual([shardOf(1)])
      two.bus.publish(wake(8))
      await one.recorder.until(() => one.recorder.hints.length > 0)
      expect(one.recorder.hints).toEqual([wake(8)])
    })

    test('no hints arrive about a mesh that is not followed, or no longer', async () => {
      const { bus } = await shard()
      const { bus: other, recorder } = await shard(MESH)
      bus.publish(wake(1, meshOf('c2')))
      bus.publish(wake(2, NEIGHBOUR))
      bus.publish(wake(3))
      await recorder.until(() => recorder.hints.length > 0)
      expect(recorder.hints).toEqual([wake(3)])
      other.follow(NEIGHBOUR)
      await recorder.until(
        () => recorder.meshes.includes(NEIGHBOUR) || world.topicOf(NEIGHBOUR) === world.topicOf(MESH),
      )
      other.unfollow(MESH)
      bus.publish(wake(4))
      bus.publish(wake(5, NEIGHBOUR))
      await recorder.until(() => recorder.hints.length > 1)
      expect(recorder.hints).toEqual([wake(3), wake(5, NEIGHBOUR)])
    })

    test('a hint that is published repeatedly arrives once', async () => {
      const { bus } = await shard()
      const { recorder } = await shard(MESH)
      for (let i = 0; i < 1000; i++) bus.publish(wake(1 + (i % 3)))
      bus.publish(wake(9))
      await recorder.until(() => recorder.hints.some((hint) => hint.type === 'wake' && hint.peer === 9))
      expect(recorder.hints).toEqual([wake(1 + (997 % 3)), wake(1 + (998 % 3)), wake(1 + (999 % 3)), wake(9)])
      await bus.close() // counts the last send too
      expect(bus.counters.published).toBe(4)
    })

    test('more hints than a packet holds arrive completely', async () => {
      const { bus } = await shard()
      const { recorder } = await shard(MESH)
      const hints = Array.from({ length: 3000 }, (_, i) => wake(i))
      for (const hint of hints) bus.publish(hint)
      await recorder.until(() => recorder.hints.length === hints.length)
      expect(recorder.hints).toEqual(hints)
    })

    test('hints about shards reach all shards', async () => {
      const [one, two] = [await shard(MESH), await shard()]
      const { bus } = await shard(meshOf('c2'))
      await Promise.all([one, two].map(({ recorder }) => received(bus, recorder)))
      expect(one.recorder.hints[0]).toEqual({ type: 'shards' })
    })

    test('H65: a malformed packet, or one under a wrong topic, is dropped and counted', async () => {
      const { bus, recorder } = await shard(MESH, meshOf('c2'))
      const { bus: publisher } = await shard()
      const foreign = packetOf(9, meshOf('c2'))
      const malformed = [[], [1], [...foreign.slice(0, -1)], [...foreign, 0], [2, ...foreign.slice(1)]]
      for (const bytes of malformed) await world.send(world.topicOf(MESH), new Uint8Array(bytes))
      await world.send(world.topicOf(MESH), foreign)
      await world.send(world.topicOf(MESH), packetOf(9, MESH))
      await recorder.until(() => recorder.hints.length > 0)
      expect(recorder.hints).toEqual([wake(9)])
      expect(bus.counters).toMatchObject({ invalid: malformed.length + 1, received: 1 })
      publisher.publish(wake(1))
      await recorder.until(() => recorder.hints.length > 1)
    })

    test('hints that were published before the close are sent, later ones are not', async () => {
      const { bus } = await shard()
      const { recorder } = await shard(MESH)
      await world.send(world.topicOf(MESH), packetOf(1, MESH)) // proves that the transport is connected
      bus.publish(wake(2))
      await bus.close()
      bus.publish(wake(3))
      await recorder.until(() => recorder.hints.length > 1)
      expect(recorder.hints).toEqual([wake(1), wake(2)])
      expect(bus.counters).toMatchObject({ published: 1, lost: 1 })
    })

    test('a bus reports its meshes again after a reconnect, and continues', async () => {
      const { bus } = await shard(MESH)
      const { recorder } = await shard(MESH, meshOf('c2'))
      if (world.disconnect) {
        recorder.meshes = []
        await world.disconnect()
      }
      await recorder.until(() => recorder.meshes.includes(MESH) && recorder.meshes.includes(meshOf('c2')))
      await received(bus, recorder)
    })
  })
}

/** Publishes the hint until it arrives, because a bus loses hints until it is connected. */
async function received(bus: Bus, recorder: Recorder): Promise<void> {
  const repeat = setInterval(() => bus.publish({ type: 'shards' }), 50)
  await recorder.until(() => recorder.hints.some(({ type }) => type === 'shards'))
  clearInterval(repeat)
}

function packetOf(peer: number, meshId: MeshId): Uint8Array {
  const hex = `01${'ee'.repeat(16)}01${meshId}${peer.toString(16).padStart(8, '0')}`
  return Uint8Array.from(hex.match(/../g)!, (digits) => Number.parseInt(digits, 16))
}
