import type { FrameOf, ServerFrame } from '@sealpost/protocol'
import type { GroupId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { idOf, keyOf, MESH, memberOf, sendOf, world } from './testing-world.ts'

const GROUP = 'c0'.repeat(16) as GroupId
const entry = (epoch: number) => ({ groupId: GROUP, epoch, statement: Uint8Array.of(epoch) })
const asker = { meshId: MESH, peer: memberOf(1).peer, peerKey: keyOf(1) }
const setGroup: FrameOf<'setGroup'> = { type: 'setGroup', ref: 5, statement: Uint8Array.of(1) }
const listed = (sent: readonly ServerFrame[]) => sent.filter((frame) => frame.type === 'groupList')

function shared(rosterEpoch: number, group = GROUP): FrameOf<'broadcast'> {
  const terms = { receipts: 'none', thread: '00'.repeat(16), hops: 0, noAutoReply: false } as const
  const body = { bodyId: 'b0'.repeat(32), body: new Uint8Array(60) }
  return { type: 'broadcast', group, rosterEpoch, ...body, terms, envelopes: [sendOf(1, 1), sendOf(2, 1)] }
}

test('who said a statement hears what became of it, the others that the group is another one', () => {
  const { engine, enter, sent } = world()
  enter(2)
  enter(3)
  sent.length = 0
  engine.groupSet(1, asker, setGroup, { outcome: 'done', group: entry(1) })
  const news = { type: 'groupList', ref: 0, statements: [Uint8Array.of(1)], isLast: true }
  expect(sent).toEqual([{ type: 'groupSet', ref: 5, outcome: 'done' }, news, news])
  sent.length = 0
  engine.groupSet(1, asker, setGroup, { outcome: 'done', group: entry(1) })
  engine.groupSet(1, asker, setGroup, { outcome: 'stale' })
  expect(sent.map(({ type }) => type)).toEqual(['groupSet', 'groupSet'])
})

test('the others hear of it also when who said it has left', () => {
  const { engine, enter, sent } = world()
  enter(2)
  engine.closed(1)
  sent.length = 0
  engine.groupSet(1, asker, setGroup, { outcome: 'done', group: entry(1) })
  expect(listed(sent)).toHaveLength(1)
})

test.each<[string, (engine: ReturnType<typeof world>['engine']) => void]>([
  ['was changed', (engine) => engine.groupSet(1, asker, setGroup, { outcome: 'done', group: entry(3) })],
  ['was listed', (engine) =>
    engine.groupsListed(1, { type: 'groups', ref: 1, after: GROUP }, { groups: [entry(3)], isLast: true })],
  ['was looked up', (engine) => engine.groupFound(MESH, entry(3))],
])('once it %s here, what is sealed for former members is refused', (_, learn) => {
  const { engine, nacks, appends } = world()
  learn(engine)
  engine.received(1, shared(2))
  expect(nacks()).toEqual([1, 2].map((n) => ({ envelopeId: idOf(n), code: 'stale_roster', retryAfterMs: 0 })))
  engine.received(1, shared(3))
  expect(appends).toHaveLength(2)
}) // biome-ignore format: a table

test('an older answer of the database takes nothing back', () => {
  const { engine, nacks } = world()
  engine.groupFound(MESH, entry(3))
  engine.groupFound(MESH, entry(2))
  engine.groupFound(MESH, null)
  engine.received(1, shared(2))
  expect(nacks()).toHaveLength(2)
})

test('a group that is written to is looked up once in a while, and none is for a body without a group', () => {
  const { engine, groupsSought } = world()
  engine.received(1, shared(1))
  engine.received(1, shared(1))
  expect(groupsSought).toEqual([GROUP])
  engine.advance(15_000)
  engine.received(1, shared(1))
  expect(groupsSought).toEqual([GROUP, GROUP])
  engine.received(1, shared(1, '0'.repeat(32) as GroupId))
  expect(groupsSought).toHaveLength(2)
})

test('what another shard took is told here when it is found', () => {
  const { engine, enter, sent } = world()
  enter(2)
  sent.length = 0
  engine.groupFound(MESH, entry(4))
  engine.groupFound(MESH, entry(4))
  expect(listed(sent)).toHaveLength(2)
})
