import type { FrameOf } from '@sealpost/protocol'
import type { InviteId, PeerKey } from '@sealpost/std'
import { expect, test } from 'vitest'
import { listMembers, type RequestBroker, revoke } from './members.ts'

const keyOf = (n: number) => n.toString(16).padStart(64, '0') as PeerKey
const entry = (n: number) => ({ peer: keyOf(n), name: `peer ${n}`, role: 'member' as const })

/** Answers each question as `answer` says, and writes the questions down. */
function asking(answer: (question: { type: string; after?: PeerKey }) => Partial<FrameOf<'roster' | 'revoked'>>) {
  const asked: unknown[] = []
  const ask = (async (question: { type: string }) => {
    asked.push(question)
    return answer(question)
  }) as unknown as RequestBroker
  return { ask, asked }
}

test('pages are asked for until the last', async () => {
  const pages = new Map([
    [keyOf(0), { members: [entry(1), entry(2)], isLast: false }],
    [keyOf(2), { members: [entry(5)], isLast: true }],
  ])
  const { ask, asked } = asking(({ after }) => pages.get(after!)!)
  expect(await listMembers(ask)).toEqual([entry(1), entry(2), entry(5)])
  expect(asked).toEqual([0, 2].map((n) => ({ type: 'members', after: keyOf(n) })))
})

test.each([
  ['goes round in a circle', [entry(3)]],
  ['never comes to the end', []],
])('a broker that %s is not followed', async (_, members) => {
  const { ask, asked } = asking(() => ({ members, isLast: false }))
  expect(await listMembers(ask)).toHaveLength(members.length * 2)
  expect(asked.length).toBeLessThan(3)
})

test('a revocation names what it revokes, and its refusals are errors', async () => {
  const invite = 'ab'.repeat(16) as InviteId
  const done = asking(() => ({ outcome: 'done', unknown: [] }))
  await revoke(done.ask, { invites: [invite] })
  expect(done.asked).toEqual([{ type: 'revoke', members: [], invites: [invite] }])
  const refused = asking(() => ({ outcome: 'not_admin', unknown: [] }))
  await expect(revoke(refused.ask, { members: [keyOf(1)] })).rejects.toMatchObject({ code: 'not_admin' })
  const unknown = asking(() => ({ outcome: 'done', unknown: [keyOf(1)] }))
  await expect(revoke(unknown.ask, { members: [keyOf(1)] })).rejects.toMatchObject({ code: 'unknown_recipient' })
})
