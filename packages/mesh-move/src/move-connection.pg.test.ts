import { openDatabase } from '@sealpost/pg'
import { unhurried } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import type { MeshId } from '@sealpost/std'
import { createMesh } from '@sealpost/store'
import { expect, test } from 'vitest'
import { openLocked, readStalledMoves } from './copy.ts'
import { freeze, setPhase } from './steps.ts'

/** A mesh whose lock key is negative. */
const MESH = 'f3'.repeat(16) as MeshId

test('a move is stalled when its mover ended before the mesh was active again', async () => {
  const scratch = await scratchDatabase()
  const db = await openDatabase(scratch.url, { ...unhurried, connections: 1 })
  const counted = async () => (await readStalledMoves(db)).count
  await createMesh(db, { meshId: MESH, name: 'home' })
  const ref = { meshId: MESH, moveId: '1a'.repeat(16), cell: 'south' }
  const mover = await openLocked(scratch.url, MESH)
  await freeze(mover, ref)
  expect(await counted()).toBe(0)
  await mover.close()
  await expect.poll(counted).toBe(1)
  expect((await readStalledMoves(db)).oldestMs).toBeGreaterThan(0)
  const next = await openLocked(scratch.url, MESH)
  expect(await counted()).toBe(0)
  await setPhase(next, ref, { phase: 'arrived' })
  await next.close()
  expect(await readStalledMoves(db)).toMatchObject({ count: 0, oldestMs: 0 })
  await db.close()
  await scratch.drop()
})
