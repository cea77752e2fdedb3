import type { Reject, Settle } from '@sealpost/protocol'
import type { DeliveryId, MeshId, PeerKey, PeerNo } from '@sealpost/std'
import { beforeEach, expect, test } from 'vitest'
import { Rejections } from './rejections.ts'

const MESH = 'a0'.repeat(16) as MeshId
const deliveryOf = (no: number) => ({
  meshId: MESH,
  recipient: 1 as PeerNo,
  priority: 1,
  id: no as DeliveryId,
})
const rejectOf = (no: number): Reject => ({ delivery: deliveryOf(no), epoch: 2, reason: 'no' })
const toldOf = (no: number): Settle => ({ ...deliveryOf(no), toldTo: 'bb'.repeat(32) as PeerKey })
const idsOf = (rejects: readonly Reject[]) => rejects.map(({ delivery }) => Number(delivery.id))
const upTo = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i)

let statements: { readonly ids: number[]; readonly answer: PromiseWithResolvers<void> }[]
let told: number[]
let failures: unknown[]
let rejections: Rejections
beforeEach(() => {
  statements = []
  told = []
  failures = []
  rejections = new Rejections({
    reject: (rejects) => {
      const answer = Promise.withResolvers<void>()
      statements.push({ ids: idsOf(rejects), answer })
      return answer.promise
    },
    told: (all) => told.push(...all.map(({ id }) => Number(id))),
    failed: (error) => failures.push(error),
  })
})

/** Ends the statement under way, and lets the next one begin. */
async function answered(): Promise<void> {
  statements.at(-1)!.answer.resolve()
  await new Promise((resolve) => setImmediate(resolve))
}

test('one statement at a time takes what was rejected meanwhile, and few of it', async () => {
  const done = rejections.add([rejectOf(1)], [])
  for (const no of upTo(2, 40)) void rejections.add([rejectOf(no)], [])
  expect(statements.map(({ ids }) => ids)).toEqual([[1]])
  for (let i = 0; i < 4; i++) await answered()
  expect(statements.map(({ ids }) => ids)).toEqual([[1], upTo(2, 17), upTo(18, 33), upTo(34, 40)])
  expect(await done).toBe(true)
})

test('senders are told when all of their frame is committed', async () => {
  void rejections.add(upTo(1, 20).map(rejectOf), [toldOf(3)])
  await answered()
  expect(told).toEqual([])
  await answered()
  expect(told).toEqual([3])
})

test('a failed statement notifies no sender, stops no other statement, and is reported to its caller', async () => {
  const done = rejections.add(upTo(1, 20).map(rejectOf), [toldOf(20)])
  statements[0]!.answer.reject(new Error('cut'))
  await new Promise((resolve) => setImmediate(resolve))
  await answered()
  expect(await done).toBe(false)
  expect(failures).toHaveLength(1)
  expect(statements.map(({ ids }) => ids.length)).toEqual([16, 4])
  expect(told).toEqual([20])
})
