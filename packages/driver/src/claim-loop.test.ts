import { OperatingError } from '@sealpost/std'
import { beforeEach, expect, test } from 'vitest'
import { Failures } from './background.ts'
import { ClaimLoop } from './claim-loop.ts'
import { ManualClock } from './test/manual-clock.ts'

let clock: ManualClock
let statements: { readonly wants: readonly number[]; readonly answer: PromiseWithResolvers<string[]> }[]
let outcomes: string[]
let loop: ClaimLoop<number, string>
let perWant: number

beforeEach(() => {
  clock = new ManualClock()
  statements = []
  outcomes = []
  perWant = 1
  const fault = (error: unknown) => outcomes.push(`fault: ${error}`)
  loop = new ClaimLoop(
    {
      clock,
      failures: new Failures(clock, { failed: () => undefined, fault }),
      ask: (wants) => {
        const answer = Promise.withResolvers<string[]>()
        statements.push({ wants, answer })
        return answer.promise
      },
      countOf: () => perWant,
      found: (results) => outcomes.push(`found ${results.join()}`),
      failed: (wants) => outcomes.push(`failed ${wants.join()}`),
    },
    { tickMs: 5, wantsMax: 3, deliveriesAim: 10 },
  )
})

function want(...wants: number[]): void {
  for (const each of wants) {
    loop.want(each)
    loop.pull()
  }
}

async function answer(): Promise<void> {
  const { wants, answer } = statements.at(-1)!
  answer.resolve(wants.map((each) => `of ${each}`))
  await clock.turn()
}

const asked = () => statements.map(({ wants }) => wants)

test('an idle loop starts a statement at once', () => {
  want(1)
  expect(asked()).toEqual([[1]])
  expect(clock.waitsMs).toEqual([])
})

test('a pull without a want does nothing', () => {
  loop.pull()
  expect(asked()).toEqual([])
  expect(clock.waitsMs).toEqual([])
})

test('one statement is in flight at a time, and wants that arrive meanwhile share the next one', async () => {
  want(1)
  want(2, 3)
  expect(asked()).toEqual([[1]])
  await clock.advance(9)
  await answer()
  expect(asked()).toEqual([[1], [2, 3]])
  expect(outcomes).toEqual(['found of 1'])
})

test('statements begin a tick apart, and all pulls share one scheduled tick', async () => {
  want(1)
  await clock.advance(2)
  await answer()
  want(2, 3)
  expect(asked()).toEqual([[1]])
  expect(clock.waitsMs).toEqual([3])
  await clock.advance(3)
  expect(asked()).toEqual([[1], [2, 3]])
})

test('a statement takes at most its limit of wants, and the rest waits for the next tick', async () => {
  for (const each of [1, 2, 3, 4]) loop.want(each)
  loop.pull()
  expect(asked()).toEqual([[1, 2, 3]])
  await answer()
  expect(asked()).toHaveLength(1)
  await clock.advance(5)
  expect(asked()).toEqual([[1, 2, 3], [4]])
})

test('a statement takes fewer wants after one that returned many deliveries for each', async () => {
  perWant = 4
  want(1, 2, 3, 4, 5, 6, 7)
  await answer()
  await clock.advance(5)
  expect(asked()).toEqual([[1], [2, 3]])
  perWant = 50
  await answer()
  await clock.advance(5)
  perWant = 0
  await answer()
  await clock.advance(5)
  expect(asked()).toEqual([[1], [2, 3], [4], [5, 6, 7]])
})

test('after a failure the loop continues with the next wants', async () => {
  want(1)
  want(2)
  statements[0]!.answer.reject(new OperatingError('away', 'The database is away.'))
  await clock.advance(5)
  expect(outcomes).toEqual(['failed 1'])
  expect(asked()).toEqual([[1], [2]])
})
