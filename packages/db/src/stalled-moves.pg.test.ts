import type { MeshId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { createMesh } from './admin.ts'
import { openDatabase } from './connect.ts'
import { freeze, setPhase } from './mesh-move-steps.ts'
import { MoverLink } from './mover-link.ts'
import { lookAtStalledMoves } from './stalled-moves.ts'
import { scratchDatabase, unhurried } from './testing.ts'

/** Its upper half is negative as a number, as a lock's may be. */
const MESH = 'f3'.repeat(16) as MeshId

test('a move is stalled when its mover is gone before the mesh is active again', async () => {
  const scratch = await scratchDatabase()
  const db = await openDatabase(scratch.url, { ...unhurried, connections: 1 })
  const counted = async () => (await lookAtStalledMoves(db)).count
  await createMesh(db, { meshId: MESH, name: 'home' })
  const ref = { meshId: MESH, moveId: '1a'.repeat(16), cell: 'south' }
  const mover = await MoverLink.openFor(scratch.url, MESH)
  await freeze(mover, ref)
  expect(await counted()).toBe(0)
  await mover.close()
  await expect.poll(counted).toBe(1)
  expect((await lookAtStalledMoves(db)).oldestMs).toBeGreaterThan(0)
  const next = await MoverLink.openFor(scratch.url, MESH)
  expect(await counted()).toBe(0)
  await setPhase(next, ref, { phase: 'arrived' })
  await next.close()
  expect(await lookAtStalledMoves(db)).toMatchObject({ count: 0, oldestMs: 0 })
  await db.close()
  await scratch.drop()
})
