/** Tests several brokers on one database, which redirect peers and lose no message. */

import { connect, type PeerEvent } from '@sealpost/sdk'
import { pinMesh } from '@sealpost/store'
import { beforeAll, describe, expect, test } from 'vitest'
import { Cluster, placeAt } from './cluster.ts'
import { until } from './process.ts'
import { authFrame, WireClient } from './wire.ts'

describe('three brokers', () => {
  let cluster: Cluster
  beforeAll(async () => {
    cluster = await Cluster.open(3)
    return () => cluster[Symbol.asyncDispose]()
  })

  test('lead peers of one mesh to one home, whichever broker they dial', async () => {
    const { world, brokers } = cluster
    const meshId = await world.mesh()
    const home = await cluster.homeOf(meshId)
    const moved: string[] = []
    const onEvent = (event: PeerEvent) => event.type === 'moved' && moved.push(event.url)
    const peers = await Promise.all(
      brokers.map(async (via) => connect({ ...placeAt(via, await world.enrol(meshId)), onEvent })),
    )
    expect(moved).toEqual([home.shardUrl, home.shardUrl])
    await until('all are there', async () => (await home.metric('sealpost_sessions')) === 3)
    const [first, , last] = peers
    const heard = new Promise((resolve) => last!.onMessage((message) => resolve(message.text())))
    await first!.send(last!.key, 'hello')
    expect(await heard).toBe('hello')
    await Promise.all(peers.map((peer) => peer.close()))
  })

  test('distribute meshes among themselves', async () => {
    const homes = await Promise.all(Array.from({ length: 12 }, async () => cluster.homeOf(await cluster.world.mesh())))
    expect(new Set(homes).size).toBeGreaterThan(1)
  })

  test('redirect a client with a code and an address, even one that does not follow', async () => {
    const { world, brokers } = cluster
    const meshId = await world.mesh()
    const home = await cluster.homeOf(meshId)
    const via = brokers.find((broker) => broker !== home)!
    const place = placeAt(via, await world.enrol(meshId))
    const client = await WireClient.open(place.url)
    client.send(authFrame(place, await client.next('hello')))
    expect(await client.next('moved')).toMatchObject({ url: home.shardUrl })
    expect(await client.closed).toEqual({ code: 4421, reason: 'moved' })
    // A client that can't follow the redirect is served where it dialled.
    const other = await WireClient.open(place.url)
    const capabilities = ['home_unreachable']
    other.send(authFrame(place, await other.next('hello'), { capabilities, signed: { capabilities } }))
    await other.next('welcome')
    expect((await other.next('shards')).urls[0]).toBe(home.shardUrl)
    other.destroy()
  })

  test("follow an operator's pin, at once for new sessions and after a while for existing ones", async () => {
    const { world, brokers } = cluster
    const meshId = await world.mesh()
    const home = await cluster.homeOf(meshId)
    const other = brokers.find((broker) => broker !== home)!
    const seen: PeerEvent[] = []
    const place = placeAt(home, await world.enrol(meshId))
    await using peer = await connect({ ...place, onEvent: (event) => void seen.push(event) })
    expect(await pinMesh(world.db, meshId, other.authority)).toBe(true)
    await until('it is known', async () => (await cluster.homeOf(meshId)) === other)
    await until('the session is there', () => seen.filter(({ type }) => type === 'connected').length === 2)
    expect(seen).toContainEqual({ type: 'moved', url: other.shardUrl })
    expect(peer.isOnline).toBe(true)
  })
})

test('when a home is killed, its peers are served by another broker, and messages in flight arrive', async () => {
  await using cluster = await Cluster.open(2, { POLL_MS: '300' })
  const { world } = cluster
  const meshId = await world.mesh()
  const home = await cluster.homeOf(meshId)
  const [alice, bob] = await Promise.all([1, 2].map(async () => connect(placeAt(home, await world.enrol(meshId)))))
  const heard: string[] = []
  bob!.onMessage((message) => void heard.push(message.text()))
  const said: string[] = []
  const send = () => {
    const text = `message ${said.length}`
    said.push(text)
    return alice!.send(bob!.key, text)
  }
  await send()
  const underWay = Array.from({ length: 50 }, send)
  home.signal('SIGKILL')
  underWay.push(...Array.from({ length: 50 }, send))
  await Promise.all(underWay)
  await until('all came', () => heard.length >= said.length)
  expect(heard).toEqual(said)
  await Promise.all([alice!.close(), bob!.close()])
})
