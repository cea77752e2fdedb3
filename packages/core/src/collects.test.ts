/** When a block may be collected from, and where that goes on. */
import type { Delivery } from '@sealpost/protocol'
import { type DeliveryId, ID_BLOCK } from '@sealpost/std'
import { expect, test } from 'vitest'
import { Collects } from './collects.ts'

const idIn = (block: number, n: number) => (block * ID_BLOCK + n) as DeliveryId
const found = (...ids: DeliveryId[]) => ids.map((id) => ({ id }) as Delivery)
const at = (isComplete: boolean, nowMs = 0) => ({ isComplete, nowMs, staleMs: 100 })

/** It was heard of, and a complete look brought these of it. */
function knowing(...ids: DeliveryId[]): Collects {
  const collects = new Collects()
  for (const id of ids) collects.heard(id)
  collects.looked(found(...ids), at(true))
  return collects
}

test('a block is collected from after a complete look has brought something of it', () => {
  const collects = new Collects()
  expect(collects.heard(idIn(7, 1))).toBe(false)
  collects.looked([], at(true))
  expect(collects.heard(idIn(7, 1))).toBe(false)
  collects.looked(found(idIn(7, 3)), at(false))
  expect(collects.heard(idIn(7, 4))).toBe(false)
  collects.looked([], at(true))
  expect([collects.heard(idIn(7, 4)), collects.hasNews, collects.last]).toEqual([true, true, [idIn(7, 3)]])
})

test('a block that nobody spoke of is left to claims', () => {
  const collects = new Collects()
  collects.looked(found(idIn(7, 3)), at(true))
  expect(collects.heard(idIn(7, 4))).toBe(false)
})

test('what is collected begins behind the last, ends with its block, and is asked for once', () => {
  const collects = knowing(idIn(7, 3), idIn(8, 5))
  expect(collects.heard(idIn(7, 3))).toBe(true)
  expect(collects.takeNews()).toBe(null)
  collects.heard(idIn(7, 9))
  collects.heard(idIn(7, 6))
  const ids = collects.takeNews()!
  expect(ids).toEqual({ from: idIn(7, 4), to: idIn(8, 0) - 1 })
  expect(collects.takeNews()).toBe(null)
  collects.collectedOf(ids, found(idIn(7, 6), idIn(7, 9)), 0)
  collects.heard(idIn(7, 9))
  expect([collects.hasNews, collects.last]).toEqual([false, [idIn(7, 9), idIn(8, 5)]])
})

test('a look finds all that was heard of before it, and raises what is known', () => {
  const collects = knowing(idIn(7, 3))
  collects.heard(idIn(7, 9))
  collects.lookBegins()
  expect(collects.hasNews).toBe(false)
  collects.looked(found(idIn(7, 9)), at(true))
  expect(collects.last).toEqual([idIn(7, 9)])
})

test('under another epoch nothing is known', () => {
  const collects = knowing(idIn(7, 3))
  collects.reset()
  expect([collects.last, collects.heard(idIn(7, 4))]).toEqual([[], false])
})

test('as many blocks are kept as there may be shards, and none is forgotten while leases of it may hold', () => {
  const collects = new Collects()
  const take = (block: number, nowMs: number) => {
    collects.heard(idIn(block, 1))
    collects.looked(found(idIn(block, 1)), at(true, nowMs))
  }
  for (let block = 1; block <= 40; block++) take(block, 0)
  expect(collects.last).toHaveLength(32)
  expect(collects.heard(idIn(40, 2))).toBe(false)
  take(41, 50)
  expect(collects.last).toHaveLength(32)
  take(42, 101)
  expect(collects.last).toEqual([idIn(42, 1)])
})
