/** Tests the decisions about messages, and the budgets of senders. */
import type { PeerKey } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { budgetRenewsAtMs, nextStep, type TurnLimits, type TurnMessage, type TurnRecord, Turns } from './turns.ts'

const ALICE = 'a'.repeat(64) as PeerKey
const CAROL = 'c'.repeat(64) as PeerKey
const NOW_MS = 1_800_000_000_000
const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS

const message = (more: Partial<TurnMessage> = {}): TurnMessage => ({
  ...{ id: 'a 1', thread: 't', sender: ALICE, hops: 0, isError: false, isRedriven: false },
  ...more,
})
const limits = (more: Partial<TurnLimits> = {}): TurnLimits => ({
  ...{ attemptsMax: 3, hopsMax: 8, budget: {}, isRejectedOverBudget: false, canResume: false },
  ...more,
})

function begun(turn: string, more: Partial<Extract<TurnRecord, { kind: 'begun' }>> = {}): TurnRecord {
  const process = { pid: 1, startedAt: '1' }
  return {
    ...{ kind: 'begun', turn, thread: 't', sender: ALICE, messages: ['a 1'], attempt: 1, process },
    ...{ atMs: NOW_MS, cost: 0 },
    ...more,
  }
}

const failed = (turn: string, atMs = NOW_MS, isCut = false): TurnRecord => ({
  ...{ kind: 'failed', turn, why: 'it exited with code 1', isCut, cost: 0, atMs },
})
const replied = (turn: string, replyTo: readonly string[], atMs = NOW_MS): TurnRecord => ({
  ...{ kind: 'replied', turn, reply: 'aGk=', replyTo, cost: 0, atMs },
})

function turnsOf(...records: readonly TurnRecord[]): Turns {
  const turns = new Turns()
  for (const record of records) turns.apply(record)
  return turns
}

const decide = (turns: Turns, more: Partial<TurnLimits> = {}, facts: Partial<TurnMessage> = {}, nowMs = NOW_MS) =>
  nextStep(turns, message(facts), limits(more), { nowMs, waiting: 0 })

describe('a message', () => {
  test('that is new starts a turn', () => {
    expect(decide(turnsOf())).toEqual({ do: 'start', attempt: 1, isResumed: false })
  })

  test('whose turn failed waits longer after each attempt, and is rejected after the last one', () => {
    const turns = turnsOf(begun('1'), failed('1'))
    expect(decide(turns)).toEqual({ do: 'wait', atMs: NOW_MS + 1_000 })
    expect(decide(turns, {}, {}, NOW_MS + 1_000)).toEqual({ do: 'start', attempt: 2, isResumed: false })
    turns.apply(begun('2', { attempt: 2 }))
    turns.apply(failed('2'))
    expect(decide(turns)).toEqual({ do: 'wait', atMs: NOW_MS + 2_000 })
    turns.apply(begun('3', { attempt: 3 }))
    turns.apply(failed('3'))
    expect(decide(turns)).toMatchObject({ do: 'reject', reason: 'agent_failed', untilMs: 0 })
  })

  test('whose turn was cut is resumed if the agent can do that, otherwise rejected', () => {
    const turns = turnsOf(begun('1'), failed('1', NOW_MS, true))
    expect(decide(turns)).toMatchObject({ do: 'reject', reason: 'turn_cut' })
    expect(decide(turns, { canResume: true })).toEqual({ do: 'start', attempt: 2, isResumed: true })
    const elsewhere = decide(turns, { canResume: true }, { thread: 't as reviewer' })
    expect(elsewhere).toMatchObject({ do: 'reject', reason: 'turn_cut' })
  })

  test('whose turns are cut again and again is rejected after the last attempt', () => {
    const turns = turnsOf(begun('1', { attempt: 3 }), failed('1', NOW_MS, true))
    expect(decide(turns, { canResume: true })).toMatchObject({ do: 'reject', reason: 'agent_failed' })
  })

  test('whose conversation no longer existed gets the attempt back', () => {
    const turns = turnsOf(begun('1'), { ...failed('1'), isUncounted: true } as TurnRecord)
    expect(turns.recordOf('a 1')!.attempts).toBe(0)
  })

  test('whose turn has ended gets the stored reply, or none if the turn answered another message', () => {
    const turns = turnsOf(begun('1', { messages: ['a 1', 'a 2'] }), replied('1', ['a 2']))
    expect(decide(turns, {}, { id: 'a 2' })).toEqual({ do: 'deliver', reply: 'aGk=' })
    expect(decide(turns)).toEqual({ do: 'deliver', reply: '' })
  })

  test('that was ended is ended again, and starts again only if an operator redrove it', () => {
    const ended = (reason: string | null): TurnRecord => ({ kind: 'ended', messages: ['a 1'], reason, atMs: NOW_MS })
    expect(decide(turnsOf(ended(null)))).toEqual({ do: 'settle', why: null })
    expect(decide(turnsOf(ended('agent_failed')))).toMatchObject({ do: 'reject', reason: 'agent_failed', text: null })
    const redriven = decide(turnsOf(ended('agent_failed')), {}, { isRedriven: true })
    expect(redriven).toEqual({ do: 'start', attempt: 1, isResumed: false })
  })

  test('that reports a failure or has passed between agents too often costs no turn', () => {
    expect(decide(turnsOf(), {}, { isError: true })).toMatchObject({ do: 'settle' })
    expect(decide(turnsOf(), {}, { hops: 8 })).toMatchObject({ do: 'reject', reason: 'too_many_hops', text: null })
  })

  test('of a sender without budget is returned until the budget renews, or rejected', () => {
    const turns = turnsOf(begun('1', { messages: ['a 0'], atMs: NOW_MS - MINUTE_MS }), replied('1', []))
    const untilMs = NOW_MS + 59 * MINUTE_MS
    expect(decide(turns, { budget: { turnsPerHour: 1 } })).toMatchObject({ do: 'defer', untilMs })
    const rejecting = { budget: { turnsPerHour: 1 }, isRejectedOverBudget: true }
    expect(decide(turns, rejecting)).toMatchObject({ do: 'reject', reason: 'over_budget', untilMs })
    expect(decide(turns, rejecting, { sender: CAROL })).toMatchObject({ do: 'start' })
  })
})

describe('a budget', () => {
  const uses = (...minutesAgo: readonly number[]) =>
    turnsOf(...minutesAgo.map((ago, i) => begun(`${i}`, { atMs: NOW_MS - ago * MINUTE_MS, cost: 0.5 })))
  const renewal = (turns: Turns, budget: TurnLimits['budget'], waiting = 0) =>
    budgetRenewsAtMs(turns, budget, { sender: ALICE, nowMs: NOW_MS, waiting })

  test('in turns renews when the oldest turn leaves the window, and in order for messages that wait', () => {
    const turns = uses(50, 30, 10)
    expect(renewal(turns, { turnsPerHour: 4 })).toBe(0)
    expect(renewal(turns, { turnsPerHour: 3 })).toBe(NOW_MS + 10 * MINUTE_MS)
    expect(renewal(turns, { turnsPerHour: 3 }, 1)).toBe(NOW_MS + 30 * MINUTE_MS)
    expect(renewal(turns, { turnsPerHour: 3 }, 3)).toBe(NOW_MS + 10 * MINUTE_MS + HOUR_MS)
    expect(renewal(turns, { turnsPerHour: 1 })).toBe(NOW_MS + 50 * MINUTE_MS) // the budget was larger before
    expect(renewal(turns, { turnsPerHour: 1 }, 1)).toBe(NOW_MS + 50 * MINUTE_MS + HOUR_MS)
    expect(renewal(turns, { turnsPerDay: 3 })).toBe(NOW_MS + 23 * HOUR_MS + 10 * MINUTE_MS)
  })

  test('in minutes counts the turns that still run', () => {
    expect(renewal(uses(50), { minutesPerDay: 51 })).toBe(0)
    expect(renewal(uses(50), { minutesPerDay: 50 })).toBe(NOW_MS - 50 * MINUTE_MS + 24 * HOUR_MS)
  })

  test('in money counts what the agents reported', () => {
    const turns = uses(50, 30)
    turns.apply({ kind: 'replied', turn: '0', reply: '', replyTo: [], cost: 2, atMs: NOW_MS })
    expect(renewal(turns, { moneyPerDay: 2.6 })).toBe(0)
    expect(renewal(uses(), { moneyPerDay: 0 })).toBe(NOW_MS + 24 * HOUR_MS)
    expect(renewal(turns, { moneyPerDay: 2.5 })).toBe(NOW_MS - 50 * MINUTE_MS + 24 * HOUR_MS)
  })
})

describe('a snapshot', () => {
  const records: readonly TurnRecord[] = [
    begun('1'),
    { kind: 'conversed', thread: 't', conversation: 'c1', atMs: NOW_MS },
    replied('1', ['a 1']),
    begun('2', { messages: ['a 2'] }),
    failed('2', NOW_MS, true),
    begun('3', { messages: ['a 3'] }),
    { kind: 'ended', messages: ['a 4'], reason: null, atMs: NOW_MS },
    { kind: 'notified', sender: ALICE, untilMs: NOW_MS + HOUR_MS },
  ]

  test('replaces the records that it was made of', () => {
    const turns = turnsOf(...records)
    const again = turnsOf(JSON.parse(JSON.stringify(turns.snapshot())))
    expect(again.snapshot()).toEqual(turns.snapshot())
    expect(again.open.map(({ turn }) => turn)).toEqual(['3'])
    expect([again.conversationOf('t'), again.isNotified(ALICE, NOW_MS)]).toEqual(['c1', true])
    for (const id of ['a 1', 'a 2', 'a 4']) expect(decide(again, {}, { id })).toEqual(decide(turns, {}, { id }))
  })

  test('drops ended messages after two days of other records, and open ones after 31 days', () => {
    const later = (days: number) =>
      turnsOf(...records, begun('9', { messages: ['a 9'], atMs: NOW_MS + days * 24 * HOUR_MS }))
    const idsAfter = (days: number) =>
      later(days)
        .snapshot()
        .messages.map(([id]) => id)
    expect(idsAfter(1)).toEqual(['a 1', 'a 2', 'a 3', 'a 4', 'a 9'])
    expect(idsAfter(3)).toEqual(['a 1', 'a 2', 'a 3', 'a 9'])
    expect(idsAfter(32)).toEqual(['a 9'])
  })
})
