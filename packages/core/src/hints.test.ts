/** What another shard says is a hint: it can make a session look into its own queue, and nothing else. */
import type { MeshId, PeerNo } from '@sealpost/std'
import { expect, test } from 'vitest'
import { MESH, world } from './testing-world.ts'

test('H65: a hint of an unknown mesh, or for a peer that is not here, does nothing', () => {
  const { engine, wants, sent } = world()
  wants.length = 0
  sent.length = 0
  engine.hints.wake('ff'.repeat(16) as MeshId, 1 as PeerNo)
  engine.hints.wake(MESH, 2 as PeerNo)
  engine.hints.wake(MESH, Number.NaN as PeerNo)
  expect([wants, sent]).toEqual([[], []])
})

test('H65: a hint that nobody sent costs one look, for the mail of that very peer', () => {
  const { engine, wants, sent } = world()
  engine.claimed(wants.splice(0).map((want) => ({ want, claimed: { status: 'claimed', deliveries: [] } })))
  sent.length = 0
  engine.hints.wake(MESH, 1 as PeerNo)
  engine.hints.wake(MESH, 1 as PeerNo)
  expect(wants.map(({ session }) => [session.meshId, session.peer])).toEqual([[MESH, 1]])
  expect(sent).toEqual([])
})
