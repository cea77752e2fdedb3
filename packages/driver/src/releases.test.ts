import type { Released } from '@sealpost/queue'
import { OperatingError } from '@sealpost/std'
import { beforeEach, expect, test } from 'vitest'
import { BackgroundTimers, Failures } from './background.ts'
import { Releases } from './releases.ts'
import { ManualClock } from './test/manual-clock.ts'

let clock: ManualClock
let timers: BackgroundTimers
let askedAtMs: number[]
let answer: () => Promise<Released>
let releases: Releases
beforeEach(() => {
  clock = new ManualClock()
  timers = new BackgroundTimers(clock)
  askedAtMs = []
  answer = async () => ({ recipients: [], nextInMs: null })
  releases = new Releases({
    ...{ clock, timers, failures: new Failures(clock, { failed: () => undefined, fault: () => undefined }) },
    queue: {
      releaseDue: () => {
        askedAtMs.push(clock.nowMs())
        return answer()
      },
    },
    released: () => undefined,
  })
})

test('releases every quarter of a minute when nothing is known to be due', async () => {
  await clock.advance(31_000)
  expect(askedAtMs).toEqual([100, 15_100, 30_100])
})

test('releases at the time that an envelope named, and at the time that the last release named', async () => {
  await clock.advance(100)
  releases.by(clock.wallMs() + 5_000)
  releases.by(clock.wallMs() + 9_000)
  answer = async () => ({ recipients: [], nextInMs: 700 })
  await clock.advance(5_000)
  answer = async () => ({ recipients: [], nextInMs: null })
  await clock.advance(700)
  expect(askedAtMs).toEqual([100, 5_100, 5_800])
})

test('a time set during a release gets its own release, at least a tenth of a second later', async () => {
  const late = Promise.withResolvers<Released>()
  answer = () => late.promise
  await clock.advance(200)
  releases.by(clock.wallMs() + 10)
  await clock.advance(3_000)
  late.resolve({ recipients: [], nextInMs: null })
  await clock.advance(100)
  expect(askedAtMs).toEqual([100, 3_300])
})

test('a failed release is repeated, and none begins after shutdown', async () => {
  answer = () => Promise.reject(new OperatingError('away', 'The database is away.'))
  await clock.advance(15_100)
  expect(askedAtMs).toEqual([100, 15_100])
  timers.stop()
  await clock.advance(60_000)
  expect(askedAtMs).toHaveLength(2)
})
