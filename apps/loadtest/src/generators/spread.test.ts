import { expect, test } from 'vitest'
import { correspondents, type Plan, recipientOf, senderOf } from './plan.ts'
import { ALONE, cellOf, firstOf, meshOf, type Spread, shardOf } from './spread.ts'

const plan = (peers: number, spread: Partial<Spread>): Plan => {
  const base = { total: 600, rate: null, payloadBytes: 20, seed: 3, isOneWay: false }
  return { ...base, peers, spread: { ...ALONE, ...spread } }
}
const peersOf = ({ peers }: Plan) => Array.from({ length: peers }, (_, peer) => peer)

test.each([
  [10, 3],
  [7, 2],
  [100, 16],
])('%i peers are even shares of %i meshes, each of them together', (peers, meshes) => {
  const run = plan(peers, { meshes })
  const sizes = new Array<number>(meshes).fill(0)
  for (const peer of peersOf(run)) {
    const mesh = meshOf(run, peer)
    sizes[mesh]! += 1
    expect(peer).toBeGreaterThanOrEqual(firstOf(run, mesh))
    expect(peer).toBeLessThan(firstOf(run, mesh + 1))
  }
  expect(Math.max(...sizes) - Math.min(...sizes)).toBeLessThanOrEqual(1)
})

test('peers write to others of their mesh, and to no one else', () => {
  const run = plan(11, { meshes: 3 })
  for (let number = 0; number < run.total; number++) {
    const [sender, recipient] = [senderOf(run, number), recipientOf(run, number)]
    expect(recipient).not.toBe(sender)
    expect(meshOf(run, recipient)).toBe(meshOf(run, sender))
  }
  expect(correspondents(run).map(({ size }) => size)).toEqual([2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3])
})

test('meshes take cells and their shards in turns', () => {
  const run = plan(16, { meshes: 8, cells: 2, shards: 2 })
  const seats = Array.from({ length: 8 }, (_, mesh) => [cellOf(run.spread, mesh), shardOf(run, firstOf(run, mesh))])
  expect(seats).toEqual([0, 1, 0, 1, 0, 1, 0, 1].map((cell, mesh) => [cell, cell * 2 + ((mesh >> 1) & 1)]))
})

test.each([
  [0, 0, 0],
  [0.25, 0.25, 0.375],
  [0.5, 0.5, 0.5],
  [1, 1, 0],
])('of two shards, with --cross %d, %d of the peers are away and %d of the messages cross', (cross, away, crossing) => {
  const run = plan(400, { shards: 2, cross })
  const isAway = (peer: number) => shardOf(run, peer) !== 0
  expect(peersOf(run).filter(isAway).length / run.peers).toBe(away)
  let crossed = 0
  const total = 20_000
  for (let number = 0; number < total; number++)
    if (isAway(senderOf(run, number)) !== isAway(recipientOf(run, number))) crossed += 1
  expect(crossed / total).toBeCloseTo(crossing, 1)
})

test('those that are away take the other shards in turns', () => {
  const run = plan(8, { shards: 3, cross: 0.5 })
  expect(peersOf(run).map((peer) => shardOf(run, peer))).toEqual([0, 1, 0, 2, 0, 1, 0, 2])
})
