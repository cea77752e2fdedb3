import type { Append } from '@sealpost/protocol'
import { expect, test } from 'vitest'
import { restAfter } from './commit-rest.ts'

const batchOf = (count: number, epochElsewhere: number) => ({
  appends: Array.from({ length: count }, (_, i) => ({ epochElsewhere: i === 0 ? epochElsewhere : 0 }) as Append),
})

test('a commit of many with mail for another shard is followed after as long as it took, and at most 15 ms', () => {
  expect([restAfter(batchOf(64, 2), 8), restAfter(batchOf(999, 2), 40)]).toEqual([8, 15])
})

test('every other one is followed at once', () => {
  expect([restAfter(batchOf(63, 2), 8), restAfter(batchOf(1_000, 2), 8), restAfter(batchOf(500, 0), 8)]).toEqual([
    0, 0, 0,
  ])
})
