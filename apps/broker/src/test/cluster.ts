/** Provides tests with several brokers on one database, each with its own address. */
import type { MeshId } from '@sealpost/std'
import { listShards } from '@sealpost/store'
import { type BrokerProcess, type Environment, until } from './process.ts'
import { authFrame, WireClient } from './wire.ts'
import { type Place, World } from './world.ts'

/** A public URL whose port the broker replaces with its own. */
const DIALABLE: Environment = { PUBLIC_URL: 'ws://127.0.0.1:0' }

export const placeAt = (broker: BrokerProcess, place: Place): Place => ({ ...place, url: broker.shardUrl })

export class Cluster implements AsyncDisposable {
  readonly world: World
  readonly brokers: BrokerProcess[]
  private readonly env: Environment

  private constructor(world: World, brokers: BrokerProcess[], env: Environment) {
    this.world = world
    this.brokers = brokers
    this.env = env
  }

  static async open(count: number, changed: Environment = {}): Promise<Cluster> {
    const env = { ...DIALABLE, ...changed }
    const world = await World.open(env)
    try {
      const others = await Promise.all(Array.from({ length: count - 1 }, () => world.secondShard(env)))
      const cluster = new Cluster(world, [world.broker, ...others], env)
      await until('all know one another', () => cluster.know(count))
      return cluster
    } catch (error) {
      await world[Symbol.asyncDispose]()
      throw error
    }
  }

  /** Starts another process in place of one that has ended. */
  async replace(broker: BrokerProcess): Promise<BrokerProcess> {
    await broker.exited
    const next = await this.world.secondShard({ ...this.env, PORT: String(broker.port), PUBLIC_URL: broker.shardUrl })
    this.brokers[this.brokers.indexOf(broker)] = next
    return next
  }

  /** Returns the mesh's home, whichever broker its peers dial. */
  async homeOf(meshId: MeshId): Promise<BrokerProcess> {
    const [first] = this.brokers
    const place = placeAt(first!, await this.world.enrol(meshId))
    const client = await WireClient.open(place.url)
    client.send(authFrame(place, await client.next('hello')))
    const answer = await client.next('welcome', 'moved')
    client.destroy()
    return answer.type === 'moved' ? this.brokers.find(({ shardUrl }) => shardUrl === answer.url)! : first!
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.world[Symbol.asyncDispose]()
  }

  /** Returns whether every broker knows `count` brokers, which takes up to two seconds. */
  private async know(count: number): Promise<boolean> {
    const live = (await listShards(this.world.db)).filter(({ leaseMs }) => leaseMs > 0)
    if (live.length !== count) return false
    const known = await Promise.all(this.brokers.map((broker) => broker.metric('sealpost_shards')))
    return known.every((number) => number === count)
  }
}
