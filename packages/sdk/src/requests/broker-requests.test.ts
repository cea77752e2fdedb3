import type { FrameOf } from '@sealpost/protocol'
import type { InviteId, PeerKey } from '@sealpost/std'
import { expect, test } from 'vitest'
import { SealpostError } from '../errors.ts'
import { BrokerRequests, listMembers, type RequestBroker, revoke } from './requests.ts'

const ZERO = '0'.repeat(64) as PeerKey
const question = { type: 'members', after: ZERO } as const

function world() {
  const questions = new BrokerRequests()
  const heard: unknown[] = []
  const handler = {
    replied: (answer: FrameOf<'roster'>) => void heard.push(answer.ref),
    refused: ({ code }: SealpostError) => void heard.push(code),
  }
  const roster = (ref: number): FrameOf<'roster'> => ({ type: 'roster', ref, members: [], isLast: true })
  return { questions, heard, ask: () => questions.send(question, handler), roster }
}

test('a request is sent once, and its reply reaches each caller', () => {
  const { questions, heard, ask, roster } = world()
  ask()
  ask()
  expect(questions.takeFrames(0)).toEqual([1, 2].map((ref) => ({ ...question, ref })))
  expect(questions.takeFrames(1)).toEqual([])
  questions.replied(roster(2))
  questions.replied(roster(2))
  questions.replied(roster(9))
  expect(heard).toEqual([2])
})

test('a request is repeated after five seconds without a reply, under the same number', () => {
  const { questions, heard, ask, roster } = world()
  expect(questions.wakeAtMs).toBe(Infinity)
  ask()
  questions.takeFrames(1000)
  expect(questions.wakeAtMs).toBe(6000)
  expect(questions.takeFrames(5999)).toEqual([])
  expect(questions.takeFrames(6000).map(({ ref }) => ref)).toEqual([1])
  questions.replied(roster(1))
  expect(heard).toEqual([1])
  expect(questions.wakeAtMs).toBe(Infinity)
})

test('a request is repeated in the next session', () => {
  const { questions, ask } = world()
  ask()
  questions.takeFrames(0)
  questions.disconnected()
  expect(questions.takeFrames(1).map(({ ref }) => ref)).toEqual([1])
})

test('a reply of another type is ignored', () => {
  const { questions, heard, ask } = world()
  ask()
  questions.replied({ type: 'revoked', ref: 1, outcome: 'done', unknown: [] })
  expect(heard).toEqual([])
})

test('the end of the peer ends its requests', () => {
  const { questions, heard, ask } = world()
  ask()
  questions.close(new SealpostError('closed', ''))
  expect(heard).toEqual(['closed'])
  expect(questions.takeFrames(0)).toEqual([])
})

const keyOf = (n: number) => n.toString(16).padStart(64, '0') as PeerKey
const entry = (n: number) => ({ peer: keyOf(n), name: `peer ${n}`, role: 'member' as const })

function asking(answer: (question: { type: string; after?: PeerKey }) => Partial<FrameOf<'roster' | 'revoked'>>) {
  const asked: unknown[] = []
  const ask = (async (question: { type: string }) => {
    asked.push(question)
    return answer(question)
  }) as unknown as RequestBroker
  return { ask, asked }
}

test('pages are requested until the last one', async () => {
  const pages = new Map([
    [keyOf(0), { members: [entry(1), entry(2)], isLast: false }],
    [keyOf(2), { members: [entry(5)], isLast: true }],
  ])
  const { ask, asked } = asking(({ after }) => pages.get(after!)!)
  expect(await listMembers(ask)).toEqual([entry(1), entry(2), entry(5)])
  expect(asked).toEqual([0, 2].map((n) => ({ type: 'members', after: keyOf(n) })))
})

test.each([
  ['repeats a page', [entry(3)]],
  ['sends an empty page', []],
])('reading stops at a broker that %s', async (_, members) => {
  const { ask, asked } = asking(() => ({ members, isLast: false }))
  expect(await listMembers(ask)).toHaveLength(members.length * 2)
  expect(asked.length).toBeLessThan(3)
})

test('a revocation names its target, and its refusals are errors', async () => {
  const invite = 'ab'.repeat(16) as InviteId
  const done = asking(() => ({ outcome: 'done', unknown: [] }))
  await revoke(done.ask, { invites: [invite] })
  expect(done.asked).toEqual([{ type: 'revoke', members: [], invites: [invite] }])
  const refused = asking(() => ({ outcome: 'not_admin', unknown: [] }))
  await expect(revoke(refused.ask, { members: [keyOf(1)] })).rejects.toMatchObject({ code: 'not_admin' })
  const unknown = asking(() => ({ outcome: 'done', unknown: [keyOf(1)] }))
  await expect(revoke(unknown.ask, { members: [keyOf(1)] })).rejects.toMatchObject({ code: 'unknown_recipient' })
})
