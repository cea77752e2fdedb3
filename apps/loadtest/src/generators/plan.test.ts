import { expect, test } from 'vitest'
import {
  ALONE,
  Bodies,
  cellOf,
  correspondents,
  expectedOf,
  firstOf,
  meshOf,
  ownOf,
  type Plan,
  planOf,
  recipientOf,
  type Spread,
  senderOf,
  shardOf,
  sharesOf,
} from './plan.ts'

const plan = (peers: number, spread: Partial<Spread> = {}): Plan =>
  planOf({ peers, total: 600, payloadBytes: 20, seed: 3, spread: { ...ALONE, ...spread } })
const peersOf = ({ peers }: Plan) => Array.from({ length: peers }, (_, peer) => peer)

test.each([
  [10, 3],
  [7, 2],
  [100, 16],
])('%i peers are divided into equal, contiguous shares of %i meshes', (peers, meshes) => {
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

test('peers write only to others of their mesh', () => {
  const run = plan(11, { meshes: 3 })
  for (let number = 0; number < run.total; number++) {
    const [sender, recipient] = [senderOf(run, number), recipientOf(run, number)]
    expect(recipient).not.toBe(sender)
    expect(meshOf(run, recipient)).toBe(meshOf(run, sender))
  }
  expect(correspondents(run).map(({ size }) => size)).toEqual([2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3])
})

test('meshes alternate between cells and their shards', () => {
  const run = plan(16, { meshes: 8, cells: 2, shards: 2 })
  const seats = Array.from({ length: 8 }, (_, mesh) => [cellOf(run.spread, mesh), shardOf(run, firstOf(run, mesh))])
  expect(seats).toEqual([0, 1, 0, 1, 0, 1, 0, 1].map((cell, mesh) => [cell, cell * 2 + ((mesh >> 1) & 1)]))
})

test.each([
  [0, 0, 0],
  [0.25, 0.25, 0.375],
  [0.5, 0.5, 0.5],
  [1, 1, 0],
])(
  'with --cross %d over two shards, %d of the peers are on the other one and %d of the messages cross',
  (cross, crossing, crossingMessages) => {
    const run = plan(400, { shards: 2, cross })
    const isCrossing = (peer: number) => shardOf(run, peer) !== 0
    expect(peersOf(run).filter(isCrossing).length / run.peers).toBe(crossing)
    let crossed = 0
    const total = 20_000
    for (let number = 0; number < total; number++)
      if (isCrossing(senderOf(run, number)) !== isCrossing(recipientOf(run, number))) crossed += 1
    expect(crossed / total).toBeCloseTo(crossingMessages, 1)
  },
)

test('peers on other shards alternate between these shards', () => {
  const run = plan(8, { shards: 3, cross: 0.5 })
  expect(peersOf(run).map((peer) => shardOf(run, peer))).toEqual([0, 1, 0, 2, 0, 1, 0, 2])
})

test('the shares of several generators cover every message once', () => {
  const wide = { ...plan(10), total: 1003 }
  for (const generators of [1, 3, 10]) {
    const shares = sharesOf({ first: 0, end: wide.peers }, generators)
    expect(shares.reduce((sum, share) => sum + expectedOf(wide, share), 0)).toBe(wide.total)
    expect(shares.reduce((sum, share) => sum + ownOf(wide, share), 0)).toBe(wide.total)
  }
  for (let number = 0; number < wide.total; number++) expect(recipientOf(wide, number)).not.toBe(senderOf(wide, number))
})

test('a changed byte of a body is detected, and so is the body of another message', () => {
  const bodies = new Bodies(plan(3))
  const body = new Bodies(plan(3)).make(12)
  expect(bodies.numberOf(body)).toBe(12)
  expect(bodies.isIntact(body, 12)).toBe(true)
  for (let at = 4; at < body.length; at++) {
    const changed = body.slice()
    changed[at]! ^= 1
    expect(bodies.isIntact(changed, 12)).toBe(false)
  }
  expect(bodies.isIntact(bodies.make(13), 12)).toBe(false)
  expect(bodies.isIntact(body.subarray(1), 12)).toBe(false)
})

test('in one-way mode the first half of the peers writes to the second half', () => {
  const halves = { ...plan(6), isOneWay: true }
  const numbers = Array.from({ length: halves.total }, (_, number) => number)
  expect(new Set(numbers.map((number) => senderOf(halves, number)))).toEqual(new Set([0, 1, 2]))
  expect(new Set(numbers.map((number) => recipientOf(halves, number)))).toEqual(new Set([3, 4, 5]))
  expect(ownOf(halves, { first: 3, end: 6 })).toBe(0)
  expect(expectedOf(halves, { first: 3, end: 6 })).toBe(halves.total)
})
