import type { PoolId } from '@sealpost/sdk'
import { expect, test } from 'vitest'
import { PoolSeats } from './pool-seats.ts'

const POOL = 'a'.repeat(64) as PoolId

function world() {
  const told: string[] = []
  const seats = new PoolSeats({
    join: async (_, credit) => void told.push(`join ${credit}`),
    leave: async () => void told.push('leave'),
  })
  return { told, seats }
}

test('the pool gives one message at a time for each command that holds it, and is left with the last one', async () => {
  const { told, seats } = world()
  const [first, second] = [new AbortController(), new AbortController()]
  await seats.join({ pool: POOL })
  const holds = [seats.hold({ pool: POOL }, first.signal), seats.hold({ pool: POOL }, second.signal)]
  await new Promise(setImmediate)
  first.abort()
  await holds[0]
  second.abort()
  await holds[1]
  expect(told).toEqual(['join 1', 'join 2', 'join 1', 'leave'])
})

test('a command that could not join does not count', async () => {
  const told: number[] = []
  let isRefused = true
  const seats = new PoolSeats({
    join: async (_, credit) => {
      told.push(credit)
      if (isRefused) throw new Error('not_in_pool')
    },
    leave: async () => undefined,
  })
  await expect(seats.join({ pool: POOL })).rejects.toThrow('not_in_pool')
  isRefused = false
  await seats.join({ pool: POOL })
  expect(told).toEqual([1, 1])
  seats.end()
})

test('each hold is reported as ended when its process stops to serve calls', async () => {
  const { seats } = world()
  const hold = seats.hold({ pool: POOL }, new AbortController().signal)
  seats.end()
  await expect(hold).rejects.toMatchObject({ code: 'unreachable' })
})
