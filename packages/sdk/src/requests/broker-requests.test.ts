import type { FrameOf } from '@sealpost/protocol'
import type { PeerKey } from '@sealpost/std'
import { expect, test } from 'vitest'
import { SealpostError } from '../errors.ts'
import { BrokerRequests } from './broker-requests.ts'

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

test('a question goes out once, and its answer reaches whoever asked', () => {
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

test('it is said again after five seconds of silence, under the same number', () => {
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

test('it is said again in the next session', () => {
  const { questions, ask } = world()
  ask()
  questions.takeFrames(0)
  questions.disconnected()
  expect(questions.takeFrames(1).map(({ ref }) => ref)).toEqual([1])
})

test('an answer of another kind answers nothing', () => {
  const { questions, heard, ask } = world()
  ask()
  questions.replied({ type: 'revoked', ref: 1, outcome: 'done', unknown: [] })
  expect(heard).toEqual([])
})

test('the end of the peer is the end of its questions', () => {
  const { questions, heard, ask } = world()
  ask()
  questions.close(new SealpostError('closed', ''))
  expect(heard).toEqual(['closed'])
  expect(questions.takeFrames(0)).toEqual([])
})
