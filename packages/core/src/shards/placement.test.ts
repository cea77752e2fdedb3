import { type MeshId, seededRandom } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { homeOf } from './homes.ts'

const MESHES = 20_000
const meshIds = seededIds(MESHES)

test('the homes of some meshes are fixed: shards of different versions must agree', () => {
  const names = ['broker-a:7450', 'broker-b:7450', 'broker-c:7450', 'schlüssel.example:443']
  const homes = [0, 1, 2, 3, 4, 5].map((digit) => names.indexOf(homeOf(`${digit}`.repeat(32) as MeshId, names) ?? ''))
  expect(homes).toEqual([3, 3, 0, 0, 2, 0])
})

test.each([2, 3, 10, 100])('%i shards share the meshes evenly', (count) => {
  const share = MESHES / count
  const homes = Map.groupBy(meshIds, (meshId) => homeOf(meshId, namesOf(count)) ?? '')
  expect(homes.size).toBe(count)
  const chiSquare = [...homes.values()].reduce((sum, { length }) => sum + (length - share) ** 2 / share, 0)
  expect(chiSquare).toBeLessThan(count - 1 + 4 * Math.sqrt(2 * count))
})

test('consecutive ids are shared evenly, too', () => {
  const inOrder = Array.from({ length: MESHES }, (_, i) => i.toString(16).padStart(32, '0') as MeshId)
  const homes = Map.groupBy(inOrder, (meshId) => homeOf(meshId, namesOf(4)) ?? '')
  for (const { length } of homes.values()) expect(Math.abs(length - MESHES / 4)).toBeLessThan(MESHES * 0.02)
})

describe('a shard that joins', () => {
  const before = namesOf(9)
  const moved = meshIds.filter((meshId) => homeOf(meshId, before) !== homeOf(meshId, [...before, 'new:7450']))

  test('gets its share, and no mesh moves between other shards', () => {
    expect(moved.every((meshId) => homeOf(meshId, [...before, 'new:7450']) === 'new:7450')).toBe(true)
    expect(Math.abs(moved.length - MESHES / 10)).toBeLessThan(MESHES * 0.01)
  })

  test('gets about the same number from each of the others', () => {
    const losses = Map.groupBy(moved, (meshId) => homeOf(meshId, before))
    for (const { length } of losses.values()) expect(Math.abs(length - MESHES / 90)).toBeLessThan(MESHES * 0.005)
  })
})

test('the meshes of a shard that leaves spread over those that remain', () => {
  const homeless = meshIds.filter((meshId) => homeOf(meshId, namesOf(5)) === namesOf(5)[2])
  const left = namesOf(5).toSpliced(2, 1)
  const heirs = Map.groupBy(homeless, (meshId) => homeOf(meshId, left))
  for (const { length } of heirs.values()) expect(Math.abs(length - MESHES / 20)).toBeLessThan(MESHES * 0.01)
  for (const meshId of meshIds) {
    const home = homeOf(meshId, namesOf(5))
    if (home !== namesOf(5)[2]) expect(homeOf(meshId, left)).toBe(home)
  }
})

test('the order of the names, and a repeated name, change nothing', () => {
  const names = namesOf(7)
  for (const meshId of meshIds.slice(0, 500)) {
    const home = homeOf(meshId, names)
    expect(homeOf(meshId, names.toReversed())).toBe(home)
    expect(homeOf(meshId, new Set([...names, ...names]))).toBe(home)
  }
})

test('a pin applies while its shard is alive', () => {
  for (const meshId of meshIds.slice(0, 100)) {
    expect(homeOf(meshId, namesOf(3), 'shard-1:7450')).toBe('shard-1:7450')
    expect(homeOf(meshId, namesOf(3), 'gone:7450')).toBe(homeOf(meshId, namesOf(3)))
  }
})

test('without shards there is no home', () => {
  expect(homeOf(seededIds(1)[0] as MeshId, [])).toBeUndefined()
})

function namesOf(count: number): string[] {
  return Array.from({ length: count }, (_, i) => `shard-${i}:7450`)
}

function seededIds(count: number): MeshId[] {
  const random = seededRandom(6)
  const word = () =>
    random
      .below(2 ** 32)
      .toString(16)
      .padStart(8, '0')
  return Array.from({ length: count }, () => [word(), word(), word(), word()].join('') as MeshId)
}
