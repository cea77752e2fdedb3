import { expect, test } from 'vitest'
import { planOf } from './plan.ts'
import { sendAtOnce, sendOnePerTurn } from './senders.ts'

const plan = planOf({ peers: 3, total: 30 })
const share = { first: 0, end: 2 }

/** Returns a `send` that resolves a few turns later, and counts each peer's open and simultaneous sends. */
function counting() {
  const numbers: number[] = []
  const open = [0, 0, 0]
  const inTurn = [0, 0, 0]
  let [openMost, inTurnMost] = [0, 0]
  const send = async (number: number): Promise<void> => {
    const peer = number % 3
    numbers.push(number)
    open[peer]! += 1
    inTurn[peer]! += 1
    openMost = Math.max(openMost, open[peer]!)
    inTurnMost = Math.max(inTurnMost, inTurn[peer]!)
    if (inTurn[peer] === 1) setImmediate(() => (inTurn[peer] = 0))
    for (let turn = 0; turn < 5; turn++) await new Promise((resolve) => setImmediate(resolve))
    open[peer]! -= 1
  }
  return { send, numbers, most: () => ({ open: openMost, inTurn: inTurnMost }) }
}

const own = Array.from({ length: 30 }, (_, number) => number).filter((number) => number % 3 < 2)
const ascending = (numbers: readonly number[]) => numbers.toSorted((a, b) => a - b)

test('at most one send per turn starts, and no more are open than the window, until all have replies', async () => {
  const { send, numbers, most } = counting()
  await sendOnePerTurn(plan, { share, window: 2 }, send)
  expect(ascending(numbers)).toEqual(own)
  expect(most()).toEqual({ open: 2, inTurn: 1 })
})

test('all sends of a peer start at once', async () => {
  const { send, numbers, most } = counting()
  await sendAtOnce(plan, share, send)
  expect(ascending(numbers)).toEqual(own)
  expect(most()).toEqual({ open: 10, inTurn: 10 })
})

test('peers without messages finish at once', async () => {
  await sendOnePerTurn(planOf({ peers: 3, total: 1 }), { share: { first: 1, end: 3 }, window: 1 }, () => {
    throw new Error('nothing is to be sent')
  })
})
