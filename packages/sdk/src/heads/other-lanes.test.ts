/** Tests heads of other lanes, whose messages may wait behind others, with a clock of the test. */
import type { GroupStatement, Note, PoolStatement, StreamId } from '@sealpost/identity'
import type { EnvelopeId, GroupId, PeerKey, PoolId } from '@sealpost/std'
import { expect, test } from 'vitest'
import type { StatementCache } from '../groups/member-lists.ts'
import type { Message } from '../inbox/message.ts'
import type { OutgoingMessage } from '../outbox/lane.ts'
import type { PeerEvent } from '../ports.ts'
import type { SentHooks } from '../sent/hooks.ts'
import { seenStoreOf } from '../stores/store.ts'
import { HeadExchange } from './heads.ts'

const BOB = 'b'.repeat(64) as PeerKey
const NO_GROUPS = { all: [] } as unknown as StatementCache<GroupId, GroupStatement>
const NO_POOLS = { all: [] } as unknown as StatementCache<PoolId, PoolStatement>

/** A sender and a recipient that knows `missing` of each stream, at the same time. */
function pair() {
  const clock = { nowMs: 1_000_000 }
  const parts = {
    hasStore: true,
    seen: seenStoreOf(null),
    groups: NO_GROUPS,
    pools: NO_POOLS,
    nowMs: () => clock.nowMs,
  }
  const [alice, bob]: SentHooks[] = [{}, {}]
  const events: PeerEvent[] = []
  const received = new Map<StreamId, number>()
  new HeadExchange({ hooks: bob!, ...parts })
  clock.nowMs += 1
  new HeadExchange({ hooks: alice!, ...parts })
  let sentCount = 0
  /** Returns the note of a message that the broker acknowledges. It is sent a second after the last one. */
  const sends = (priority: OutgoingMessage['priority'], streamId: string, seq: number): Note | undefined => {
    clock.nowMs += 1_000
    const envelopeId = `${++sentCount}` as EnvelopeId
    const stream = { streamId: streamId.repeat(32) as StreamId, seq, prev: new Uint8Array(16) }
    const post = {
      to: BOB,
      priority,
      ttlSeconds: 0,
      body: new Uint8Array(),
      accepted: () => undefined,
      refused: () => undefined,
    }
    const note = alice!.noting!(post, envelopeId, stream)
    alice!.acked!(envelopeId)
    return note
  }
  const inbox = {
    missingUpTo: (_: PeerKey, streamId: StreamId, seq: number) => seq - (received.get(streamId) ?? 0),
  }
  const arrives = (note: Note | undefined) =>
    bob!.noted!({ sender: 'a'.repeat(64), envelopeId: 'e', note } as Message, inbox, (event) => events.push(event))
  return { clock, sends, arrives, events, received }
}

test('a message of another lane may be missing for half a minute', () => {
  const { clock, sends, arrives, events } = pair()
  sends('low', '1', 1)
  arrives(sends('next', '2', 1))
  clock.nowMs += 29_999
  arrives({ isRequest: true })
  expect(events).toEqual([])
  clock.nowMs += 1
  arrives({ isRequest: true })
  expect(events).toMatchObject([{ type: 'message_withheld', streamId: '1'.repeat(32), missing: 1 }])
  arrives({ isRequest: true })
  expect(events).toHaveLength(1)
})

test('a message of another lane that arrives in time is not reported', () => {
  const { clock, sends, arrives, events, received } = pair()
  sends('low', '1', 1)
  arrives(sends('next', '2', 1))
  received.set('1'.repeat(32) as StreamId, 1)
  clock.nowMs += 60_000
  arrives({ isRequest: true })
  expect(events).toEqual([])
})

test('heads that have not changed are not sent again, and changed ones at most once a minute', () => {
  const { clock, sends } = pair()
  sends('low', '1', 1)
  expect(sends('next', '2', 1)?.heads).toBeDefined()
  clock.nowMs += 60_000
  expect(sends('next', '2', 2)).toBeUndefined()
  expect(sends('low', '1', 2)?.heads, 'the other lane has changed').toBeDefined()
  clock.nowMs += 58_999
  expect(sends('next', '2', 3)).toBeUndefined()
  expect(sends('next', '2', 4)?.heads).toBeDefined()
})
