import { encodeJson, FRAME_BYTES_MAX, type FrameOf } from '@sealpost/protocol'
import { type GroupId, toHex } from '@sealpost/std'
import { expect, test } from 'vitest'
import { groupPeer } from '../test/groups.ts'
import { LIMITS, World } from '../test/outbox.ts'
import type { GroupMessage } from './lane.ts'

const GROUP = 'c0'.repeat(16) as GroupId
const NONE = '0'.repeat(32)
const members = (count: number) => Array.from({ length: count }, (_, n) => groupPeer(n + 1))

function messageTo(count: number, bodyBytes = 100): GroupMessage {
  const terms = { priority: 'next', ttlSeconds: 0 } as const
  const sealed = {
    bodyId: toHex(crypto.getRandomValues(new Uint8Array(32))),
    bytes: new Uint8Array(bodyBytes),
    ticket: new Uint8Array(64),
  }
  return { ...sealed, groupId: GROUP, epoch: 3, terms, members: members(count), isSecond: false, owed: new Set() }
}

function world(window = 64) {
  const its = new World({ window })
  const codes: string[] = []
  const post = (message: GroupMessage) => {
    for (const to of message.members)
      its.outbox.post(
        {
          ...{ to, priority: 'next', ttlSeconds: 0, body: message.ticket, message },
          accepted: () => codes.push('stored'),
          refused: ({ code }) => codes.push(code),
        },
        0,
      )
  }
  const frames = () => its.outbox.takeFrames(0) as FrameOf<'broadcast'>[]
  const shape = (all: FrameOf<'broadcast'>[]) =>
    all.map(({ type, group, envelopes }) => [type, group, envelopes.length])
  const connect = () => its.outbox.connected(LIMITS, 0)
  connect()
  return { its, connect, codes, post, frames, shape }
}

test('begins as a whole, beyond the window, so that its body is sent once', () => {
  const { post, frames, shape } = world(8)
  const [one, two] = [messageTo(30), messageTo(30)]
  post(one)
  post(two)
  const sent = frames()
  expect(shape(sent)).toEqual([['broadcast', GROUP, 30]])
  expect(sent[0]).toMatchObject({ rosterEpoch: 3, bodyId: one.bodyId })
  expect(sent[0]!.envelopes.every(({ isHead }) => isHead)).toBe(true)
})

test('with a history record is sent in a frame of its type', () => {
  const { post, frames } = world()
  const record = new Uint8Array(200)
  post({ ...messageTo(2), record })
  post(messageTo(2))
  expect(frames().map((frame) => [frame.type, 'record' in frame && frame.record])).toEqual([
    ['broadcastKept', record],
    ['broadcast', false],
  ])
})

test('keeps the order of several messages, with a frame for each', () => {
  const { post, frames } = world()
  const [one, two] = [messageTo(3), messageTo(3)]
  post(one)
  post(two)
  expect(frames().map(({ bodyId }) => bodyId)).toEqual([one.bodyId, two.bodyId])
})

test('uses further frames for envelopes that do not fit beside the body', () => {
  const { post, frames } = world()
  post(messageTo(256, 65_576))
  const sent = frames()
  expect(sent.length).toBeGreaterThan(1)
  for (const frame of sent) expect(encodeJson(frame).length).toBeLessThan(FRAME_BYTES_MAX)
  expect(sent.reduce((sum, { envelopes }) => sum + envelopes.length, 0)).toBe(256)
})

test('names no group when it is resent after a lost reply, because the broker may have it', () => {
  const { its, connect, post, frames, shape } = world()
  post(messageTo(3))
  expect(shape(frames())).toEqual([['broadcast', GROUP, 3]])
  its.outbox.disconnected()
  connect()
  expect(shape(frames())).toEqual([['broadcast', NONE, 3]])
})

test('still names its epoch if the broker certainly did not store it', () => {
  const { its, post, frames, shape } = world()
  post(messageTo(1))
  its.nack([frames()[0]!.envelopes[0]!], 'busy')
  expect(shape(its.outbox.takeFrames(10_000) as FrameOf<'broadcast'>[])).toEqual([['broadcast', GROUP, 1]])
})

test('is not resent to a member that has left the group', () => {
  const { its, connect, post, frames, shape, codes } = world()
  post(messageTo(2))
  frames()
  its.outbox.disconnected()
  its.leavers.add(groupPeer(2))
  connect()
  expect(shape(frames())).toEqual([['broadcast', NONE, 1]])
  expect(codes).toEqual(['maybe_sent'])
})
