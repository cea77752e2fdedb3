import type { LivePeer } from '@sealpost/core'
import type { WaitingPeer } from '@sealpost/operator'
import type { PeerNo } from '@sealpost/std'
import { expect, test } from 'vitest'
import { compareMeshes, compareWaiting, flowOf, type Ranked, reasonOf, sentenceOf, worstFlow } from './mesh-states.ts'

const live = (other: Partial<LivePeer> = {}): LivePeer => ({
  peer: 1 as PeerNo,
  availability: 'idle',
  unsettled: 0,
  isCongested: false,
  ...other,
})
const waiting = (other: Partial<WaitingPeer> = {}): WaitingPeer => ({
  peerKey: 'ab'.repeat(32),
  name: 'bob',
  depth: 412,
  oldestAgeMs: 200_000,
  reason: 'not_settling',
  unsettled: 412,
  ...other,
})

test.each([
  ['away', { live: undefined }],
  ['pool_unserved', { live: undefined, isPool: true }],
  ['do_not_disturb', { live: live({ availability: 'dnd', unsettled: 3 }) }],
  ['not_reading', { live: live({ isCongested: true, unsettled: 3 }) }],
  ['not_settling', { live: live({ unsettled: 3 }) }],
  ['not_settling', { live: live(), held: 3 }],
  ['catching_up', { live: live() }],
  ['on_its_way', { live: live({ unsettled: 3 }), oldestAgeMs: 29_999 }],
  ['on_its_way', { live: undefined, isPool: true, oldestAgeMs: 1000 }],
  ['away', { live: undefined, oldestAgeMs: 1000 }],
] as const)('deliveries wait because: %s', (reason, given) => {
  expect(reasonOf({ isPool: false, held: 0, oldestAgeMs: 30_000, ...given })).toBe(reason)
})

test('a connected peer with deliveries older than a lease is behind; an absent peer is only waiting', () => {
  expect(flowOf({ reason: 'on_its_way' })).toBe('flowing')
  expect(flowOf({ reason: 'not_settling' })).toBe('behind')
  expect(flowOf({ reason: 'away' })).toBe('waiting')
  expect(worstFlow(['flowing', 'behind', 'waiting'])).toBe('behind')
  expect(worstFlow([])).toBe('flowing')
})

test('a peer that is behind precedes an absent one, however long that one waits', () => {
  const away = waiting({ reason: 'away', oldestAgeMs: 864_000_000 })
  expect([away, waiting()].sort(compareWaiting)).toEqual([waiting(), away])
})

test('meshes are ordered by need: behind, dead letters, longest wait, most deliveries', () => {
  const quiet: Ranked = { flow: 'flowing', deadLetters: 0, oldestAgeMs: 0, depth: 0 }
  const ranked = [
    { ...quiet, flow: 'behind', oldestAgeMs: 60_000, deadLetters: 1 },
    { ...quiet, flow: 'behind', oldestAgeMs: 600_000 },
    { ...quiet, deadLetters: 3 },
    { ...quiet, flow: 'unknown' },
    { ...quiet, flow: 'waiting', oldestAgeMs: 90_000, depth: 1 },
    { ...quiet, flow: 'waiting', oldestAgeMs: 80_000, depth: 9 },
    { ...quiet, flow: 'waiting', oldestAgeMs: 80_000, depth: 1 },
    quiet,
  ] as const satisfies Ranked[]
  expect(ranked.toReversed().sort(compareMeshes)).toEqual(ranked)
})

const alone = { others: 0, dead: undefined }

test('the sentence names the worst peer', () => {
  expect(sentenceOf('behind', waiting(), { ...alone, others: 2 })).toBe(
    'bob is connected but does not settle: 412 messages are waiting, the oldest for 3 min; messages wait for 2 more peers.',
  )
  expect(sentenceOf('waiting', waiting({ name: null, reason: 'away', depth: 1 }), alone)).toBe(
    'abababab… is offline: 1 message is waiting, the oldest for 3 min.',
  )
  expect(sentenceOf('flowing', undefined, alone)).toBe('No messages are waiting.')
})

test('the sentence counts dead letters', () => {
  const dead = { count: 1200, latestAgeMs: 300_000 }
  expect(sentenceOf('flowing', undefined, { ...alone, dead })).toBe(
    'No messages are waiting. 1,200 dead letters, the latest 5 min ago.',
  )
  expect(sentenceOf('flowing', undefined, { ...alone, dead: { ...dead, count: 1 } })).toBe(
    'No messages are waiting. 1 dead letter, 5 min ago.',
  )
})
