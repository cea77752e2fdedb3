import type { ShardId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { keyOf, MESH, memberOf, sendOf, world } from '../test/testing-world.ts'
import { homeOf, type LiveShard, type Placement } from './homes.ts'

const NAMES = ['a', 'b']
const HOME = homeOf(MESH, NAMES)!
const HERE = NAMES.find((name) => name !== HOME)!
const shardOf = (name: string, life = name): LiveShard => ({
  name,
  shardId: life.padStart(32, '0') as ShardId,
  url: `wss://${name}.example`,
  certificate: new Uint8Array(),
})
const placement = (names: readonly string[], rules: Partial<Placement> = {}): Placement => ({
  self: shardOf(HERE).shardId,
  servesAll: false,
  movesSessions: true,
  shards: names.map((name) => shardOf(name)),
  pins: new Map(),
  ...rules,
})

type World = ReturnType<typeof world>
const after = ({ engine }: World, ms: number) => {
  engine.advance(ms)
  engine.tick()
}
const goaways = ({ sent }: World) => sent.filter(({ type }) => type === 'goaway').length

test('a session moves to the home of its mesh once that shard has been up for a while', () => {
  const its = world()
  its.engine.placed(placement([HERE]))
  after(its, 20_000)
  its.engine.placed(placement(NAMES))
  after(its, 29_000)
  expect(its.closes).toEqual([])
  after(its, 30_000)
  expect([goaways(its), its.closes]).toEqual([1, [[1, 'moved']]])
})

test('its accepted sends are acked first, and nothing more is accepted', () => {
  const its = world()
  its.engine.resolved(1, [keyOf(2)], [memberOf(2)])
  its.send(sendOf(1, 2))
  its.engine.resolved(1, [keyOf(2)], [memberOf(2)])
  its.engine.placed(placement(NAMES))
  after(its, 10_000)
  expect([goaways(its), its.closes]).toEqual([1, []])
  its.send(sendOf(2, 2))
  expect(its.nacks()).toMatchObject([{ code: 'busy' }])
  its.engine.committed(its.appends, {
    outcomes: its.appends.map(() => ({ status: 'unknown_recipient' })),
    enqueuedAtMs: 0,
  } as never)
  expect(its.sent.at(-1)?.type).toBe('nack')
  expect(its.closes).toEqual([[1, 'moved']])
})

test('a session whose sends get no acks moves after five seconds', () => {
  const its = world()
  its.send(sendOf(1, 2))
  its.engine.resolved(1, [keyOf(2)], [memberOf(2)])
  its.engine.placed(placement(NAMES))
  after(its, 10_000)
  after(its, 14_000)
  expect(its.closes).toEqual([])
  after(its, 15_000)
  expect(its.closes).toEqual([[1, 'moved']])
})

test("sessions don't all move at once", () => {
  const its = world()
  for (let n = 2; n <= 25; n++) its.enter(n)
  its.engine.placed(placement(NAMES))
  after(its, 10_000)
  expect(its.closes).toHaveLength(10)
  after(its, 11_000)
  expect(its.closes).toHaveLength(20)
  after(its, 12_000)
  expect(its.closes).toHaveLength(25)
})

test.each([
  ['with rebalancing switched off', { movesSessions: false }],
  ['from a shard that serves all meshes', { servesAll: true }],
])('no session moves %s', (_, rules) => {
  const its = world()
  its.engine.placed(placement(NAMES, rules))
  after(its, 60_000)
  expect(its.closes).toEqual([])
})

test('a session that could not reach the home is redirected there no more, but to another home', () => {
  const its = world()
  its.engine.placed(placement(NAMES))
  its.engine.closed(1)
  const bytes = new Uint8Array(64)
  its.connect(2)
  const auth = { version: 1, meshId: MESH, peerKey: keyOf(2), clientNonce: bytes, signature: bytes, credit: 10 }
  its.engine.received(2, { type: 'auth', capabilities: ['home_unreachable'], ...auth })
  its.engine.authenticated(2, { member: memberOf(2), isSignatureGood: true, proof: bytes })
  its.engine.opened(2, 2)
  after(its, 60_000)
  expect(its.closes).toEqual([])
  its.engine.placed({ ...placement([HERE]), shards: [shardOf(HERE), shardOf(HOME, 'ee')] })
  after(its, 70_000)
  expect(its.closes).toEqual([[2, 'moved']])
})

test('peers of a stopping shard reconnect to others sooner than to a shard that is alone', () => {
  const its = world()
  const alone = its.engine.rebalancing.spreadMs
  its.engine.placed(placement(NAMES))
  expect(its.engine.rebalancing.spreadMs).toBeLessThan(alone)
})
