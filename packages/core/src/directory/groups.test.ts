import type { FrameOf, ServerFrame } from '@sealpost/protocol'
import { GROUP_EPOCH_LAST, type GroupId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { idOf, sendOf, world } from '../test/testing-world.ts'

const GROUP = 'c0'.repeat(16) as GroupId
const entry = (epoch: number) => ({ groupId: GROUP, epoch, statement: Uint8Array.of(epoch) })
const setGroup: FrameOf<'setGroup'> = { type: 'setGroup', ref: 5, statement: Uint8Array.of(1) }
const listed = (sent: readonly ServerFrame[]) => sent.filter((frame) => frame.type === 'groupList')

function shared(rosterEpoch: number, group = GROUP): FrameOf<'broadcast'> {
  const terms = { receipts: 'none', thread: '00'.repeat(16), hops: 0, noAutoReply: false } as const
  const body = { bodyId: 'b0'.repeat(32), body: new Uint8Array(60) }
  return { type: 'broadcast', group, rosterEpoch, ...body, terms, envelopes: [sendOf(1, 1), sendOf(2, 1)] }
}

test('the sender of a statement gets its outcome, the other sessions the new statement', () => {
  const { enter, reply, sent } = world()
  enter(2)
  enter(3)
  sent.length = 0
  reply<'setGroup'>(1, setGroup, { outcome: 'done', group: entry(1) })
  const news = { type: 'groupList', ref: 0, statements: [Uint8Array.of(1)], isLast: true }
  expect(sent).toEqual([{ type: 'groupSet', ref: 5, outcome: 'done' }, news, news])
  sent.length = 0
  reply<'setGroup'>(1, setGroup, { outcome: 'done', group: entry(1) })
  reply<'setGroup'>(1, setGroup, { outcome: 'stale' })
  expect(sent.map(({ type }) => type)).toEqual(['groupSet', 'groupSet'])
})

test('the other sessions get it even if its sender has left', () => {
  const { engine, enter, reply, sent } = world()
  enter(2)
  engine.closed(1)
  sent.length = 0
  reply<'setGroup'>(1, setGroup, { outcome: 'done', group: entry(1) })
  expect(listed(sent)).toHaveLength(1)
})

test.each<[string, (its: ReturnType<typeof world>) => void]>([
  ['was changed', ({ reply }) => reply<'setGroup'>(1, setGroup, { outcome: 'done', group: entry(3) })],
  ['was listed', ({ reply }) =>
    reply<'groups'>(1, { type: 'groups', ref: 1, after: GROUP }, { groups: [entry(3)], isLast: true })],
  ['was looked up', ({ engine }) => engine.resolved(1, [], [], new Map([[GROUP, entry(3)]]))],
])('once a group %s here, mail sealed for former members is refused', (_, learn) => {
  const its = world()
  const { engine, nacks, appends } = its
  learn(its)
  engine.received(1, shared(2))
  expect(nacks()).toEqual([1, 2].map((n) => ({ envelopeId: idOf(n), code: 'stale_roster', retryAfterMs: 0 })))
  engine.received(1, shared(3))
  expect(appends).toHaveLength(2)
}) // biome-ignore format: a table

test('an older reply of the database reverts nothing', () => {
  const { engine, nacks } = world()
  for (const found of [entry(3), entry(2), null]) engine.resolved(1, [], [], new Map([[GROUP, found]]))
  engine.received(1, shared(2))
  expect(nacks()).toHaveLength(2)
})

test('nothing is stored for a group before it was looked up recently', () => {
  const { engine, groupsSought, appends, nacks, send } = world()
  const answer = (epoch: number) => engine.resolved(1, [], [], new Map([[GROUP, entry(epoch)]]))
  engine.received(1, shared(1))
  send(sendOf(7, 1)) // waits behind the previous envelope
  expect([groupsSought, appends]).toEqual([[GROUP], []])
  answer(1)
  expect(appends.map(({ envelopeId }) => envelopeId)).toEqual([1, 2, 7].map(idOf))
  engine.received(1, shared(1))
  expect([groupsSought.length, appends.length]).toEqual([1, 5])
  engine.advance(15_000)
  engine.received(1, shared(1))
  expect(groupsSought).toEqual([GROUP, GROUP])
  answer(2)
  expect(nacks().map(({ code }) => code)).toEqual(['stale_roster', 'stale_roster'])
})

test('a body without a group causes no lookup', () => {
  const { engine, groupsSought, appends } = world()
  engine.received(1, shared(1, '0'.repeat(32) as GroupId))
  expect([groupsSought.length, appends.length]).toEqual([0, 2])
})

test.each<[string, ReturnType<typeof entry> | null]>([
  ['never created, or whose deletion was forgotten', null],
  ['deleted', entry(GROUP_EPOCH_LAST)],
])('for a group that was %s all mail is refused, whatever epoch it names', (_, found) => {
  const { engine, nacks, appends, send } = world()
  engine.received(1, shared(1))
  engine.resolved(1, [], [], new Map([[GROUP, found]]))
  engine.received(1, shared(GROUP_EPOCH_LAST))
  expect(nacks().map(({ code }) => code)).toEqual(Array.from({ length: 4 }, () => 'unknown_group'))
  send(sendOf(7, 1)) // the refusal does not bar the lane
  expect(appends.map(({ envelopeId }) => envelopeId)).toEqual([idOf(7)])
})

test('a group that is created after a failed lookup can receive messages at once', () => {
  const { engine, reply, appends } = world()
  engine.resolved(1, [], [], new Map([[GROUP, null]]))
  reply<'setGroup'>(1, setGroup, { outcome: 'done', group: entry(1) })
  engine.received(1, shared(1))
  expect(appends).toHaveLength(2)
})

test('members learn of a deletion that another shard accepted, and it is final', () => {
  const { engine, enter, sent, nacks } = world()
  enter(2)
  for (const found of [entry(3), entry(GROUP_EPOCH_LAST), null, entry(3)])
    engine.resolved(1, [], [], new Map([[GROUP, found]]))
  expect(listed(sent)).toHaveLength(2)
  engine.received(1, shared(3))
  expect(nacks().map(({ code }) => code)).toEqual(['unknown_group', 'unknown_group'])
})

test('if a lookup fails, the envelopes that waited for it may be resent', () => {
  const { engine, nacks } = world()
  engine.received(1, shared(1))
  engine.resolved(1, [], null)
  expect(nacks().map(({ code }) => code)).toEqual(['unavailable', 'out_of_sequence'])
})

test('a statement from another shard is sent when it is found, unless its group is new to this shard', () => {
  const { engine, enter, sent } = world()
  enter(2)
  sent.length = 0
  const found = (epoch: number) => engine.resolved(1, [], [], new Map([[GROUP, entry(epoch)]]))
  found(3)
  expect(listed(sent)).toEqual([])
  found(4)
  found(4)
  expect(listed(sent)).toHaveLength(2)
})
