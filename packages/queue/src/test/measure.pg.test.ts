/** Tests measurements by user, for which the database must find each device's user. */
import { makeDevice } from '@sealpost/store/testing'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { MESH, Stage } from './conformance-world.ts'
import { type PostgresWorlds, postgresWorlds } from './postgres-world.ts'

let worlds: PostgresWorlds
beforeAll(async () => {
  worlds = await postgresWorlds()
})
afterAll(() => worlds.close())

test('envelopes from a device count for its user, in a mailbox and in a mesh', async () => {
  const stage = await Stage.open(await worlds.next())
  const { here, ann, bob, cat } = stage
  await makeDevice(worlds.admin, MESH, cat, ann)
  const appends = [stage.append('a'), stage.append('bb', { sender: cat }), stage.append('c', { sender: bob })]
  await stage.store(...appends)
  const bytesOf = (...of: typeof appends) => of.reduce((sum, { envelope }) => sum + envelope.length, 0)
  const counted = [
    { sender: ann, count: 2, bytes: bytesOf(appends[0]!, appends[1]!) },
    { sender: bob, count: 1, bytes: bytesOf(appends[2]!) },
  ]
  const bySender = (a: { sender: number }, b: { sender: number }) => a.sender - b.sender
  const [found] = await here.measure([{ meshId: MESH, peer: bob }], 100)
  expect(found!.toSorted(bySender)).toEqual(counted)
  expect((await here.measureMesh(MESH, 100)).toSorted(bySender)).toEqual(counted)
})
