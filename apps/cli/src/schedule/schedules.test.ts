/** Tests which tick is due, with a clock that jumps. */
import { OperatingError } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { dueTick, MissedTicks, parseCron } from './schedules.ts'

const at = (time: string) => new Date(`2026-11-28T${time}Z`).getTime()
const hourly = parseCron({ cron: '0 * * * *', timeZone: 'UTC' }, 0)
const due = (lastTime: string, time: string, missed: 'once' | 'skip' = 'once') => {
  const nowMs = at(time)
  const tickMs = dueTick(hourly, { lastMs: at(lastTime), nowMs, missedUntilMs: nowMs - 60_000, missed })
  return tickMs === null ? null : new Date(tickMs).toISOString().slice(11, 16)
}

test.each([
  ['before the tick', '11:00:00', '11:59:59', null],
  ['at the tick', '11:00:00', '12:00:00', '12:00'],
  ['after the tick was sent', '12:00:00', '12:00:00', null],
  ['after the clock was set back by an hour', '12:00:00', '11:00:30', null],
  ['after the clock was set forward by an hour', '12:00:00', '13:00:30', '13:00'],
  ['after hours without a process, the latest missed tick is due', '02:00:00', '11:30:00', '11:00'],
])('%s', (_claim, last, now, tick) => expect(due(last, now)).toBe(tick))

test('a skipped tick is more than a minute late, and a later tick is due', () => {
  expect(due('02:00:00', '11:30:00', 'skip')).toBeNull()
  expect(due('02:00:00', '11:00:30', 'skip')).toBe('11:00')
})

test('ticks of each second are due one after the other', () => {
  const cron = parseCron({ cron: '* * * * * *', timeZone: 'UTC' }, 0)
  const nowMs = at('11:00:05')
  const ticks: number[] = []
  const next = (lastMs: number) => dueTick(cron, { lastMs, nowMs, missedUntilMs: 0, missed: 'once' })
  for (let tickMs = next(at('11:00:00')); tickMs !== null; tickMs = next(tickMs)) ticks.push(tickMs)
  expect(ticks.map((ms) => (ms - at('11:00:00')) / 1000)).toEqual([1, 2, 3, 4, 5])
})

test('ticks are missed at the start and when the clock is set forward, and not by slow sends', () => {
  const missed = new MissedTicks({ wallMs: 1_000_000, steadyMs: 0 })
  const after = (wallMs: number, steadyMs: number) => {
    missed.look({ wallMs, steadyMs })
    return missed.untilMs
  }
  expect(missed.untilMs).toBe(940_000)
  expect(after(1_600_000, 600_000)).toBe(940_000) // the loop was slow
  expect(after(-2_000_000, 601_000)).toBe(940_000)
  expect(after(5_200_000, 602_000)).toBe(5_140_000)
})

describe('is refused with a code and a sentence:', () => {
  test.each([
    ['0 0 30 2 *', 'UTC', 'No time matches'],
    ['61 * * * *', 'UTC', 'is not a cron expression'],
    ['every day', 'UTC', 'is not a cron expression'],
    ['0 9 * * *', 'Mars/Olympus', 'is not a time zone'],
  ])('%s in %s', (cron, timeZone, sentence) => {
    const parse = () => parseCron({ cron, timeZone }, at('11:00:00'))
    expect(parse).toThrow(OperatingError)
    expect(parse).toThrow(
      expect.objectContaining({ code: 'schedule_malformed', message: expect.stringContaining(sentence) }),
    )
  })
})
