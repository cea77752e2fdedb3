import type { ShardId } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { keyOf, MESH, memberOf, world } from '../test/testing-world.ts'
import { homeOf, type LiveShard, MeshPlacement, type Placement } from './homes.ts'

const NONE = new Uint8Array()
const shardOf = (name: string, life = name): LiveShard => ({
  name,
  shardId: life.padStart(32, '0') as ShardId,
  url: `wss://${name}.example`,
  certificate: NONE,
})
const placementOf = (self: string, names: readonly string[], pins: Placement['pins'] = new Map()): Placement => ({
  self: shardOf(self).shardId,
  servesAll: false,
  movesSessions: true,
  shards: names.map((name) => shardOf(name)),
  pins,
})
const NAMES = ['a', 'b', 'c', 'd']
const HOME = homeOf(MESH, NAMES)!
const OTHER = NAMES.find((name) => name !== HOME)!
const HEIR = homeOf(MESH, NAMES.filter((name) => name !== HOME))! // biome-ignore format: short
const urlOf = (name: string) => shardOf(name).url

describe('homes', () => {
  test('without a placement, and on a single shard, a mesh is at home here', () => {
    const homes = new MeshPlacement()
    expect(homes.otherHome(MESH)).toBe(null)
    homes.placed(placementOf('a', ['a']), 0)
    expect(homes.otherHome(MESH)).toBe(null)
    expect(homes.alternativesFor(MESH)).toEqual([])
  })

  test('every other shard names the same home, and the home itself names none', () => {
    for (const self of NAMES) {
      const homes = new MeshPlacement()
      homes.placed(placementOf(self, NAMES), 0)
      expect(homes.otherHome(MESH)?.name).toBe(self === HOME ? undefined : HOME)
    }
  })

  test('a shard without a public address redirects everybody', () => {
    const homes = new MeshPlacement()
    homes.placed(placementOf('hidden', NAMES), 0)
    expect(homes.otherHome(MESH)?.name).toBe(HOME)
  })

  test('a change applies at once, and a pin takes precedence', () => {
    const homes = new MeshPlacement()
    homes.placed(placementOf(OTHER, NAMES), 0)
    expect(homes.otherHome(MESH)?.name).toBe(HOME)
    homes.placed(placementOf(OTHER, NAMES, new Map([[MESH, OTHER]])), 0)
    expect(homes.otherHome(MESH)).toBe(null)
    homes.placed(placementOf(OTHER, NAMES.filter((name) => name !== HOME)), 0) // biome-ignore format: short
    expect(homes.otherHome(MESH)?.name).toBe(HEIR === OTHER ? undefined : HEIR)
  })

  test('a shard that serves all meshes redirects nobody', () => {
    const homes = new MeshPlacement()
    homes.placed({ ...placementOf(OTHER, NAMES), servesAll: true }, 0)
    expect(homes.otherHome(MESH)).toBe(null)
    expect(homes.alternativesFor(MESH)[0]).toBe(urlOf(HOME))
  })

  test('alternatives come in the order in which they would be the home', () => {
    const homes = new MeshPlacement()
    homes.placed(placementOf(HOME, NAMES), 0)
    expect(homes.alternativesFor(MESH)[0]).toBe(urlOf(HEIR))
    expect(new Set(homes.alternativesFor(MESH))).toEqual(new Set(NAMES.filter((name) => name !== HOME).map(urlOf)))
    homes.placed(placementOf(OTHER, NAMES), 0)
    expect(homes.alternativesFor(MESH)[0]).toBe(urlOf(HOME))
  })

  test('a process is known from the time it was first seen; a restart under its name is a new process', () => {
    const homes = new MeshPlacement()
    homes.placed(placementOf(OTHER, NAMES), 100)
    homes.placed(placementOf(OTHER, NAMES), 200)
    expect(homes.knownSince(shardOf(HOME))).toBe(100)
    homes.placed({ ...placementOf(OTHER, NAMES), shards: [shardOf(HOME, 'ee')] }, 300)
    expect(homes.knownSince(shardOf(HOME, 'ee'))).toBe(300)
  })
})

describe('a peer that proves its key', () => {
  const bytes = new Uint8Array(64)
  const proof = bytes.fill(7)
  function arrived(self: string, capabilities: string[] = []) {
    const its = world()
    its.engine.placed(placementOf(self, NAMES))
    its.sent.length = 0
    its.connect(2)
    const auth = { version: 1, meshId: MESH, peerKey: keyOf(2), clientNonce: bytes, signature: bytes, credit: 10 }
    its.engine.received(2, { type: 'auth', capabilities, ...auth })
    its.engine.authenticated(2, { member: memberOf(2), isSignatureGood: true, proof })
    return its
  }

  test('is redirected to the home of its mesh', () => {
    const { sent, closes, engine } = arrived(OTHER)
    expect(sent.at(-1)).toEqual({ type: 'moved', url: urlOf(HOME), certificate: NONE, proof })
    expect(closes).toEqual([[2, 'moved']])
    expect(engine.sessionCount).toBe(1)
  })

  test('is served at home, and gets the alternatives', () => {
    const { sent, engine } = arrived(HOME)
    engine.opened(2, 1)
    expect(sent.map(({ type }) => type)).toEqual(['hello', 'welcome', 'shards'])
  })

  test("is served on any shard if it can't reach the home", () => {
    const { sent, engine, closes } = arrived(OTHER, ['home_unreachable'])
    engine.opened(2, 1)
    expect(sent.map(({ type }) => type)).toContain('welcome')
    expect(closes).toEqual([])
  })

  test('learns nothing about shards if its signature is bad', () => {
    const its = world()
    its.engine.placed(placementOf(OTHER, NAMES))
    its.connect(2)
    its.engine.received(2, {
      type: 'auth', version: 1, meshId: MESH, peerKey: keyOf(2), clientNonce: bytes, capabilities: [], signature: bytes, credit: 10,
    }) // biome-ignore format: short
    its.engine.authenticated(2, { member: memberOf(2), isSignatureGood: false, proof })
    expect(its.closes).toEqual([[2, 'auth_failed']])
    expect(its.sent.some(({ type }) => type === 'moved')).toBe(false)
  })
})
