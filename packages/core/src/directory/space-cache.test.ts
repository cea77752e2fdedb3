/** Tests that a shard caches whether a space records messages, until the space or its members may have changed. */
import type { FrameOf } from '@sealpost/protocol'
import { fromHex, type GroupId, type ShardId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { keyOf, MESH, memberOf, sendOf, world } from '../test/testing-world.ts'

const OTHER = '0f'.repeat(16) as ShardId
const GROUP = 'c0'.repeat(16) as GroupId
const BODY_ID = 'b0'.repeat(32)
const RECORD = fromHex(`${'00'.repeat(5)}${MESH}${GROUP}${keyOf(1)}${BODY_ID}${'00'.repeat(12)}`)
const entry = { groupId: GROUP, epoch: 2, statement: Uint8Array.of(2) }
const setGroup: FrameOf<'setGroup'> = { type: 'setGroup', ref: 1, statement: Uint8Array.of(2) }

/** Returns a recorded message without a group, such as a resend. */
function kept(n: number): FrameOf<'broadcastKept'> {
  const terms = { receipts: 'none', thread: '00'.repeat(16), hops: 0, noAutoReply: false } as const
  const body = { bodyId: BODY_ID, body: new Uint8Array(60), record: RECORD }
  const pin = { group: '0'.repeat(32) as GroupId, rosterEpoch: 0 }
  return { type: 'broadcastKept', ...pin, ...body, terms, envelopes: [sendOf(n, 1)] }
}

function spaced() {
  const its = world()
  const answer = (keepsMessages: boolean) =>
    its.engine.resolved(1, [], [], new Map(), new Map(), [], [{ spaceId: GROUP, keepsMessages, isFull: false }])
  its.engine.received(1, kept(1))
  answer(true)
  its.engine.received(1, kept(2))
  return { ...its, answer }
}

test('a space is looked up periodically', () => {
  const { engine, appends, spacesSought } = spaced()
  expect(appends).toHaveLength(2)
  engine.advance(15_000)
  engine.received(1, kept(3))
  expect(spacesSought).toEqual(Array(2).fill({ peer: memberOf(1).peer, spaceId: GROUP }))
})

test.each<[string, (its: ReturnType<typeof world>) => void]>([
  ['the group was changed here', ({ reply }) => reply<'setGroup'>(2, setGroup, { outcome: 'done', group: entry })],
  ['another shard changed the group', ({ engine }) => engine.hints.received(OTHER, [{ type: 'staleGroup', meshId: MESH, group: GROUP }])],
  ['another shard accepted other terms', ({ engine }) => engine.hints.received(OTHER, [{ type: 'staleSpace', meshId: MESH, space: GROUP }])],
])('when %s the next message waits for another lookup', (_, change) => {
  const its = spaced()
  const { engine, appends, nacks, spacesSought, answer } = its
  change(its)
  engine.received(1, kept(3))
  expect([appends.length, spacesSought.length]).toEqual([2, 2])
  answer(false)
  expect(nacks().map(({ code }) => code)).toEqual(['not_kept'])
}) // biome-ignore format: a table
