/** Tests when a block may be collected from, and where the next collect begins. */
import type { Delivery } from '@sealpost/protocol'
import { type DeliveryId, ID_BLOCK } from '@sealpost/std'
import { expect, test } from 'vitest'
import { RemoteLeaseCursor } from './remote-lease-cursor.ts'

const idIn = (block: number, n: number) => (block * ID_BLOCK + n) as DeliveryId
const found = (...ids: DeliveryId[]) => ids.map((id) => ({ id }) as Delivery)
const at = (isComplete: boolean, nowMs = 0) => ({ isComplete, nowMs, staleMs: 100 })

/** Returns a cursor whose block was announced and completely scanned, with these results. */
function knowing(...ids: DeliveryId[]): RemoteLeaseCursor {
  const collects = new RemoteLeaseCursor()
  for (const id of ids) collects.announced(id)
  collects.scanned(found(...ids), at(true))
  return collects
}

test('a block is collected from after a complete scan has returned a delivery of it', () => {
  const collects = new RemoteLeaseCursor()
  expect(collects.announced(idIn(7, 1))).toBe(false)
  collects.scanned([], at(true))
  expect(collects.announced(idIn(7, 1))).toBe(false)
  collects.scanned(found(idIn(7, 3)), at(false))
  expect(collects.announced(idIn(7, 4))).toBe(false)
  collects.scanned([], at(true))
  expect([collects.announced(idIn(7, 4)), collects.readyBlocks.size > 0, collects.lastIds]).toEqual([
    true,
    true,
    [idIn(7, 3)],
  ])
})

test('a block that was not announced is left to claims', () => {
  const collects = new RemoteLeaseCursor()
  collects.scanned(found(idIn(7, 3)), at(true))
  expect(collects.announced(idIn(7, 4))).toBe(false)
})

test('a collect begins behind the last delivery, ends with the block, and is started once', () => {
  const collects = knowing(idIn(7, 3), idIn(8, 5))
  expect(collects.announced(idIn(7, 3))).toBe(true)
  expect(collects.takeReady()).toBe(null)
  collects.announced(idIn(7, 9))
  collects.announced(idIn(7, 6))
  const ids = collects.takeReady()!
  expect(ids).toEqual({ from: idIn(7, 4), to: idIn(8, 0) - 1 })
  expect(collects.takeReady()).toBe(null)
  collects.collectedOf(ids, found(idIn(7, 6), idIn(7, 9)), 0)
  collects.announced(idIn(7, 9))
  expect([collects.readyBlocks.size > 0, collects.lastIds]).toEqual([false, [idIn(7, 9), idIn(8, 5)]])
})

test('a scan covers everything announced before it, and advances the cursor', () => {
  const collects = knowing(idIn(7, 3))
  collects.announced(idIn(7, 9))
  collects.scanBegins()
  expect(collects.readyBlocks.size > 0).toBe(false)
  collects.scanned(found(idIn(7, 9)), at(true))
  expect(collects.lastIds).toEqual([idIn(7, 9)])
})

test('a new epoch clears the cursor', () => {
  const collects = knowing(idIn(7, 3))
  collects.reset()
  expect([collects.lastIds, collects.announced(idIn(7, 4))]).toEqual([[], false])
})

test('one block is tracked for each possible shard, and stays while its leases may be valid', () => {
  const collects = new RemoteLeaseCursor()
  const take = (block: number, nowMs: number) => {
    collects.announced(idIn(block, 1))
    collects.scanned(found(idIn(block, 1)), at(true, nowMs))
  }
  for (let block = 1; block <= 40; block++) take(block, 0)
  expect(collects.lastIds).toHaveLength(32)
  expect(collects.announced(idIn(40, 2))).toBe(false)
  take(41, 50)
  expect(collects.lastIds).toHaveLength(32)
  take(42, 101)
  expect(collects.lastIds).toEqual([idIn(42, 1)])
})
