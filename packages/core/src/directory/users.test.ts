import { DEVICE_PAGE_MAX, type FrameOf } from '@sealpost/protocol'
import type { PeerNo } from '@sealpost/std'
import { expect, test } from 'vitest'
import { keyOf, MESH, memberOf, sendOf, world } from '../test/testing-world.ts'
import type { ConsentReply } from './request-types.ts'

const bytes = (n: number) => new Uint8Array(4).fill(n)
const NOBODY = { statements: [], removals: [], successions: [] }
const remove: FrameOf<'removeDevice'> = { type: 'removeDevice', ref: 3, removal: bytes(1) }
const succeed = { type: 'succeed', ref: 4 } as FrameOf<'succeed'>
const lookup = (...peers: number[]): FrameOf<'lookup'> => ({ type: 'lookup', ref: 8, peers: peers.map(keyOf) })

/** Returns a world with live peers 1 to 4. Peer 2 is a device of peer 1, and peer 3 has requested its key. */
function people() {
  const place = world()
  for (const n of [2, 3, 4]) place.enter(n)
  place.engine.received(3, lookup(2))
  place.sent.length = 0
  return place
}

test('signed records about users are sent before the requested keys', () => {
  const { reply, sent } = people()
  const users = { statements: [bytes(1)], removals: [bytes(2)], successions: [bytes(3)] }
  reply<'lookup'>(3, lookup(2), { bindings: [], users })
  expect(sent).toEqual([
    { type: 'successions', statements: [bytes(3)] },
    { type: 'deviceList', ref: 0, statements: [bytes(1)], removals: [bytes(2)] },
    { type: 'directory', ref: 8, bindings: [], unknown: [keyOf(2)] },
  ])
  sent.length = 0
  reply<'lookup'>(3, lookup(2), { bindings: [], users: NOBODY })
  expect(sent).toMatchObject([{ type: 'directory' }])
})

test('a reply about devices carries the ref of its request', () => {
  const { reply, sent } = people()
  reply<'devices'>(3, { type: 'devices', ref: 9, peers: [keyOf(2)] }, { ...NOBODY, statements: [bytes(1)] })
  expect(sent).toEqual([{ type: 'deviceList', ref: 9, statements: [bytes(1)], removals: [] }])
})

test('a long reply about devices is sent in several frames, of which the last carries the ref', () => {
  const { reply, sent } = people()
  const statements = Array.from({ length: 2 * DEVICE_PAGE_MAX + 1 }, (_, n) => bytes(n))
  reply<'devices'>(3, { type: 'devices', ref: 9, peers: [keyOf(2)] }, { ...NOBODY, statements, removals: [bytes(7)] })
  expect(sent).toEqual([
    { type: 'deviceList', ref: 0, statements: statements.slice(0, DEVICE_PAGE_MAX), removals: [bytes(7)] },
    { type: 'deviceList', ref: 0, statements: statements.slice(DEVICE_PAGE_MAX, 2 * DEVICE_PAGE_MAX), removals: [] },
    { type: 'deviceList', ref: 9, statements: statements.slice(2 * DEVICE_PAGE_MAX), removals: [] },
  ])
})

test('a new device is reported to its user and to sessions that asked for it, and to nobody else', () => {
  const { engine, connect, sent } = people()
  engine.received(4, lookup(1))
  connect(5)
  engine.received(5, { type: 'enrolDevice', version: 1 } as FrameOf<'enrolDevice'>)
  sent.length = 0
  const device = { meshId: MESH, user: keyOf(1), voucher: keyOf(1), statement: bytes(6) }
  engine.enrolled(5, { status: 'enrolled', name: 'a/b', proof: bytes(0), device })
  // peers 1 and 4 receive the new device, then its reply follows
  expect(sent.map(({ type }) => type)).toEqual(['deviceList', 'deviceList', 'enrolled'])
})

test('a removed device is disconnected and sessions that asked for it are notified; a refusal is only a reply', () => {
  const { reply, sent, closes } = people()
  const ended = [{ meshId: MESH, peer: 2 as PeerNo, peerKey: keyOf(2) }]
  reply<'removeDevice'>(1, remove, { outcome: 'unknown_device' })
  expect([sent, closes]).toEqual([[{ type: 'deviceRemoved', ref: 3, outcome: 'unknown_device' }], []])
  sent.length = 0
  reply<'removeDevice'>(1, remove, { outcome: 'done', user: keyOf(1), ended, removal: bytes(1) })
  expect(sent.map(({ type }) => type)).toEqual(['deviceRemoved', 'deviceList', 'deviceList', 'deviceList'])
  expect(closes).toEqual([[2, 'revoked']])
})

test('a member that rotated its key reconnects with the new one, and gets mail to the former one', () => {
  const { engine, reply, appends, asked, closes } = people()
  reply<'succeed'>(2, succeed, { outcome: 'key_taken' })
  expect(closes).toEqual([])
  reply<'succeed'>(2, succeed, { outcome: 'done', successor: keyOf(9), statement: bytes(1) })
  expect(closes).toEqual([[2, 'superseded']])
  engine.received(1, { type: 'send', envelopes: [sendOf(1, 2)] })
  expect(asked).toEqual([[keyOf(2)]])
  const turned = { ...memberOf(2), peerKey: keyOf(9) }
  engine.resolved(1, [keyOf(2)], [turned], new Map(), new Map([[keyOf(2), keyOf(9)]]))
  expect(appends).toMatchObject([{ recipient: 2 }])
  engine.received(1, { type: 'send', envelopes: [sendOf(2, 2), sendOf(3, 9)] })
  expect([asked.length, appends.length]).toEqual([1, 3])
})

test("consent applies to a sender's user, and a user's consent applies to all its devices", () => {
  const { engine, appends, sent } = world()
  const owned = (n: number, user: number) => ({ ...memberOf(n), user: user as PeerNo })
  const rule = { policy: 'contacts', named: [7 as PeerNo], version: 1 } as const
  engine.received(1, { type: 'send', envelopes: [sendOf(1, 2), sendOf(2, 3)] })
  engine.resolved(1, [keyOf(2), keyOf(3)], [owned(2, 2), owned(3, 2)])
  expect(appends).toHaveLength(2)
  const reply: ConsentReply = { outcome: 'done', peers: [], unknown: [], consent: rule }
  const requester = { meshId: MESH, peer: 3 as PeerNo, user: 2 as PeerNo, peerKey: keyOf(3) }
  const frame: FrameOf<'consent'> = { type: 'consent', ref: 1, policy: 'keep', changes: [] }
  engine.replied({ socket: 2, requester, frame }, reply)
  engine.received(1, { type: 'send', envelopes: [sendOf(3, 2), sendOf(4, 3)] })
  expect(sent.flatMap((frame) => (frame.type === 'nack' ? frame.items.map(({ code }) => code) : []))).toEqual([
    'not_allowed',
    'not_allowed',
  ])
  engine.proven(8, owned(8, 7), 10)
  engine.opened(8, 2)
  engine.received(8, { type: 'send', envelopes: [sendOf(5, 2), sendOf(6, 3)] })
  expect(appends).toHaveLength(4)
})
