/** Tests that hints from other shards only cause claims from the own queue. */
import type { SessionStatus } from '@sealpost/protocol'
import type { Hint } from '@sealpost/protocol/hints'
import type { MeshId, PeerNo, ShardId } from '@sealpost/std'
import { expect, test } from 'vitest'
import type { SessionCheck } from '../effects.ts'
import { keyOf, MESH, memberOf, world } from '../test/testing-world.ts'

const OTHER = '0f'.repeat(16) as ShardId
const NO = 1 as PeerNo
const GOOD: SessionStatus = { peerKey: keyOf(1), isRevoked: false, isElsewhere: false }

/** Returns a world that records its statements and hints. */
function hearing() {
  const its = world()
  const checks: (readonly SessionCheck[])[] = []
  const hints: Hint[] = []
  Object.assign(its.effects, {
    checkSessions: (all: readonly SessionCheck[]) => void checks.push(all),
    hint: (hint: Hint) => void hints.push(hint),
  })
  const answer = (standing: Partial<SessionStatus>) =>
    its.engine.validity.checked(checks.pop()!, [{ ...GOOD, ...standing }])
  return { ...its, checks, hints, answer }
}

test('H65: a hint of an unknown mesh, or for a peer that is not here, does nothing', () => {
  const { engine, wants, sent } = world()
  wants.length = 0
  sent.length = 0
  engine.hints.wake('ff'.repeat(16) as MeshId, 1 as PeerNo)
  engine.hints.wake(MESH, 2 as PeerNo)
  engine.hints.wake(MESH, Number.NaN as PeerNo)
  expect([wants, sent]).toEqual([[], []])
})

test('H65: a forged hint costs one claim, for the mail of that peer', () => {
  const { engine, wants, sent } = world()
  engine.claimed(
    wants.splice(0).map((want) => ({ want, claimed: { status: 'claimed', deliveries: [], hasMore: false } })),
  )
  sent.length = 0
  engine.hints.wake(MESH, 1 as PeerNo)
  engine.hints.wake(MESH, 1 as PeerNo)
  expect(wants.map(({ session }) => [session.meshId, session.peer])).toEqual([[MESH, 1]])
  expect(sent).toEqual([])
})

const superseded = (epoch: number): Hint => ({ type: 'superseded', meshId: MESH, peer: NO, epoch })
const revoked: Hint = { type: 'revoked', meshId: MESH, peer: NO }

test.each<[string, Hint, Partial<SessionStatus>, string]>([
  ['a newer session elsewhere', superseded(3), { isElsewhere: true }, 'superseded'],
  ['a revocation', revoked, { isRevoked: true }, 'revoked'],
  ['a rotated key', revoked, { peerKey: keyOf(7) }, 'superseded'],
  ['a deleted member', revoked, { peerKey: null }, 'revoked'],
  ['a moved mesh', revoked, { peerKey: null, isAway: true }, 'try_later'],
])('a hint of %s ends the session if the database confirms it', (_, hint, standing, code) => {
  const { engine, checks, closes, answer } = hearing()
  engine.hints.received(OTHER, [hint])
  expect(checks.map((all) => all.map(({ session }) => session))).toEqual([[{ meshId: MESH, peer: 1, epoch: 2 }]])
  expect(closes).toEqual([])
  answer(standing)
  expect(closes).toEqual([[1, code]])
})

test.each([superseded(3), revoked])('H65: a false hint $type ends nothing', (hint) => {
  const { engine, closes, answer } = hearing()
  engine.hints.received(OTHER, [hint])
  answer({})
  expect(closes).toEqual([])
})

test('a hint about a former epoch, another mesh or a peer that is not here causes no check', () => {
  const { engine, checks } = hearing()
  const elsewhere = { ...revoked, meshId: 'ff'.repeat(16) as MeshId }
  engine.hints.received(OTHER, [superseded(2), elsewhere, { ...revoked, peer: 2 as PeerNo }])
  expect(checks).toEqual([])
})

test('every session is checked periodically, without a hint', () => {
  const { engine, checks, closes, answer, enter } = hearing()
  enter(2)
  for (let atMs = 1_000; atMs <= 10_000; atMs += 1_000) {
    engine.advance(atMs)
    engine.tick()
  }
  expect(checks.map((all) => all.map(({ session }) => session.peer))).toEqual([[1, 2]])
  engine.closed(2)
  engine.validity.checked(checks[0]!, [
    { ...GOOD, isRevoked: true },
    { ...GOOD, peerKey: null },
  ])
  expect(closes).toEqual([[1, 'revoked']])
  expect(() => answer({ isRevoked: true })).not.toThrow()
})

test('an opening is published to other shards unless this shard issued the last epoch', () => {
  const { engine, hints } = hearing()
  const open = (socket: number, sessionEpoch: number, epoch: number) => {
    engine.proven(socket, { ...memberOf(5), sessionEpoch }, 10)
    engine.opened(socket, epoch)
  }
  open(5, 0, 1) // opens the peer's first session
  open(6, 1, 2) // supersedes the session here
  engine.closed(6)
  open(7, 2, 3)
  expect(hints).toEqual([])
  engine.closed(7)
  open(8, 4, 5)
  expect(hints).toEqual([{ type: 'superseded', meshId: MESH, peer: 5, epoch: 5 }])
})

test('a revocation is published to other shards', () => {
  const { reply, hints } = hearing()
  const frame = { type: 'revoke' as const, ref: 1, members: [keyOf(2)], invites: [] }
  reply<'revoke'>(1, frame, { outcome: 'done', ended: [memberOf(2)] })
  expect(hints).toEqual([{ type: 'revoked', meshId: MESH, peer: 2 }])
})
