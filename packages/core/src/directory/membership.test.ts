import type { FrameOf } from '@sealpost/protocol'
import type { InviteId } from '@sealpost/std'
import { expect, test } from 'vitest'
import { defaultLimits } from '../limits.ts'
import type { Enrolment } from '../session/session.ts'
import { keyOf, memberOf, world } from '../test/testing-world.ts'

const bytes = new Uint8Array(64)
const enrol: FrameOf<'enrol'> = {
  type: 'enrol',
  version: 1,
  clientNonce: bytes,
  invite: bytes,
  peerKey: keyOf(2),
  name: 'two',
  boxKey: bytes,
  boxEpoch: 1,
  bindingNotAfterMs: 0,
  bindingSignature: bytes,
  signature: bytes,
}
const revoke: FrameOf<'revoke'> = { type: 'revoke', ref: 7, members: [keyOf(2), keyOf(5)], invites: [] }

function asked() {
  const its = world()
  its.connect(2)
  its.engine.received(2, enrol)
  return its
}

test('an enrolled peer gets a confirmation, and its connection closes without a refusal', () => {
  const { engine, sent, closes } = asked()
  engine.enrolled(2, { status: 'enrolled', name: 'two', proof: bytes })
  expect(sent.at(-1)).toEqual({ type: 'enrolled', name: 'two', proof: bytes })
  expect(closes).toEqual([[2, 'done']])
  expect(engine.sessionCount).toBe(1)
})

test.each<[Enrolment | null, string]>([
  [{ status: 'invite_refused' }, 'invite_refused'],
  [{ status: 'already_member' }, 'already_member'],
  [{ status: 'name_taken' }, 'name_taken'],
  [{ status: 'revoked' }, 'revoked'],
  [null, 'try_later'],
])('an enrolment with the outcome %j is refused', (outcome, code) => {
  const { engine, closes } = asked()
  engine.enrolled(2, outcome)
  expect(closes).toEqual([[2, code]])
})

test('a peer whose invite is for a mesh of another cell is redirected there', () => {
  const { engine, sent, closes } = asked()
  const cell = { url: 'wss://south.example', certificate: new Uint8Array() }
  engine.enrolled(2, { status: 'moved', cell, proof: bytes })
  expect(sent.at(-1)).toEqual({ type: 'moved', ...cell, proof: bytes })
  expect(closes).toEqual([[2, 'moved']])
})

test('a reply that comes too late has no effect', () => {
  const { engine, sent, closes } = asked()
  engine.advance(defaultLimits.authWithinMs)
  engine.tick()
  expect(closes).toEqual([[2, 'auth_timeout']])
  const before = sent.length
  engine.enrolled(2, { status: 'enrolled', name: 'two', proof: bytes })
  expect([sent.length, closes.length]).toEqual([before, 1])
})

test('one connection enrols once, and has no session', () => {
  const { engine, closes } = asked()
  engine.received(2, enrol)
  expect(closes).toEqual([[2, 'frame_unexpected']])
  const live = world()
  live.engine.received(1, enrol)
  expect(live.closes).toEqual([[1, 'frame_unexpected']])
})

test('a version that was not offered is refused', () => {
  const { engine, connect, closes } = world()
  connect(2)
  engine.received(2, { ...enrol, version: 2 })
  expect(closes).toEqual([[2, 'version_unsupported']])
})

test('a revocation is checked for the session that sends it', () => {
  const { engine, enter, requests } = world()
  enter(3)
  engine.received(3, { ...revoke, invites: ['ab'.repeat(16) as InviteId] })
  expect(requests.at(-1)).toMatchObject({ socket: 3, requester: { peer: 3 }, frame: { type: 'revoke' } })
})

test('a revoked member is disconnected at once, also during its opening, and nobody else', () => {
  const { engine, enter, reply, sent, closes } = world()
  for (const n of [2, 3]) enter(n)
  const opening = { ...memberOf(4), sessionEpoch: 2 }
  engine.proven(4, opening, 10)
  const frame = { ...revoke, members: [keyOf(2), keyOf(4), keyOf(5)] }
  reply<'revoke'>(1, frame, { outcome: 'done', ended: [memberOf(2), memberOf(4)] })
  expect(sent.at(-1)).toEqual({ type: 'revoked', ref: 7, outcome: 'done', unknown: [keyOf(5)] })
  expect(closes).toEqual([[2, 'revoked'], [4, 'revoked']]) // biome-ignore format: pairs
  engine.opened(4, 2)
  expect(engine.sessionCount).toBe(2)
})

test('the time to open its session does not count as silence of a peer', () => {
  const { engine, closes } = world({ heartbeatMs: 1000 })
  engine.proven(4, { ...memberOf(4), sessionEpoch: 2 }, 10)
  const passTo = (endMs: number) => {
    for (let atMs = endMs - 3900; atMs <= endMs; atMs += 100) {
      engine.advance(atMs)
      engine.tick()
    }
  }
  passTo(4000)
  engine.opened(4, 2)
  engine.tick()
  expect(closes.filter(([socket]) => socket === 4)).toEqual([])
  passTo(8000)
  expect(closes.filter(([socket]) => socket === 4)).toEqual([[4, 'heartbeat_missed']])
})

test('revoked members are disconnected even if the requester has left, and one that revokes itself gets its reply first', () => {
  const left = world()
  left.enter(2)
  left.engine.closed(1)
  left.reply<'revoke'>(1, revoke, { outcome: 'done', ended: [memberOf(2)] })
  expect(left.closes).toEqual([[2, 'revoked']])
  const self = world()
  self.reply<'revoke'>(1, { ...revoke, members: [keyOf(1)] }, { outcome: 'done', ended: [memberOf(1)] })
  expect(self.sent.at(-1)).toMatchObject({ type: 'revoked', outcome: 'done', unknown: [] })
  expect(self.closes).toEqual([[1, 'revoked']])
})

test('a requester that is no admin is refused', () => {
  const { reply, sent, closes } = world()
  reply<'revoke'>(1, revoke, { outcome: 'not_admin' })
  expect(sent.at(-1)).toEqual({ type: 'revoked', ref: 7, outcome: 'not_admin', unknown: [] })
  expect(closes).toEqual([])
})

test('a page of members is sent as it was found', () => {
  const { reply, sent } = world()
  const members = [{ peer: keyOf(1), name: 'one', role: 'admin' as const }]
  reply<'members'>(1, { type: 'members', ref: 3, after: keyOf(0) }, { members, isLast: true })
  expect(sent.at(-1)).toEqual({ type: 'roster', ref: 3, members, isLast: true })
})
