/** Tests sessions that only send, alongside a session that receives. */
import type { PeerNo } from '@sealpost/std'
import { expect, test } from 'vitest'
import { idOf, keyOf, MESH, memberOf, sendOf, world } from '../test/testing-world.ts'

test('a session that only sends ends no other session of its peer, and gets no pushes', () => {
  const { engine, appends, wants } = world()
  const before = wants.length
  engine.provenSender(7, memberOf(1))
  engine.provenSender(8, memberOf(1))
  expect(engine.sessionCount).toBe(3)
  expect(wants).toHaveLength(before)
  engine.received(7, { type: 'send', envelopes: [sendOf(1, 1)] })
  engine.received(8, { type: 'send', envelopes: [sendOf(2, 1)] })
  expect(appends.map(({ sender }) => sender)).toEqual([1, 1])
  engine.closed(7)
  engine.closed(8)
  expect(engine.sessionCount).toBe(1)
  expect(engine.presence.isServed(MESH, keyOf(1))).toBe(true)
})

test('a peer that only sends gets no mail', () => {
  const { engine } = world()
  engine.provenSender(7, memberOf(2))
  expect(engine.presence.isServed(MESH, keyOf(2))).toBe(false)
})

test('a refusal bars the lane of its own session only', () => {
  const { engine, appends, nacks } = world({ waitingMax: 1 })
  engine.provenSender(7, memberOf(1))
  engine.received(7, { type: 'send', envelopes: [sendOf(1, 1), sendOf(2, 1, { isHead: false })] })
  expect(nacks().map(({ code }) => code)).toEqual(['busy'])
  engine.commitFailed(appends.splice(0))
  engine.provenSender(8, memberOf(1))
  engine.received(8, { type: 'send', envelopes: [sendOf(3, 1, { isHead: false })] })
  expect(appends).toHaveLength(1)
})

test('all sessions of a peer share its rate, and a new session brings no new burst', () => {
  const { engine, appends, send, nacks } = world({ rate: { perSecond: 1, burst: 3 } })
  send(sendOf(1, 1), sendOf(2, 1))
  engine.provenSender(7, memberOf(1))
  engine.received(7, { type: 'send', envelopes: [sendOf(3, 1)] })
  engine.closed(7)
  engine.provenSender(8, memberOf(1))
  engine.received(8, { type: 'send', envelopes: [sendOf(4, 1)] })
  expect(appends).toHaveLength(3)
  expect(nacks()).toMatchObject([{ code: 'rate_limited' }])
  engine.advance(10_000)
  engine.tick()
  engine.received(8, { type: 'send', envelopes: [sendOf(5, 1)] })
  expect(appends).toHaveLength(4)
})

test("the bytes in flight of all sessions of a peer are bounded together, and those of others don't count", () => {
  const { engine, appends, enter, nacks } = world({ inFlightBytesPerUserMax: 100_000 })
  enter(2)
  const sendAs = (socket: number, n: number) => {
    engine.provenSender(socket, memberOf(1))
    const envelope = new Uint8Array(50_000)
    engine.received(socket, { type: 'send', envelopes: [sendOf(n, 1, { envelope })] })
  }
  for (let n = 1; n <= 3; n++) sendAs(6 + n, n)
  expect(nacks()).toMatchObject([{ envelopeId: idOf(3), code: 'busy', retryAfterMs: 200 }])
  engine.received(2, { type: 'send', envelopes: [sendOf(4, 1)] })
  expect(appends.map(({ envelopeId }) => envelopeId)).toEqual([idOf(1), idOf(2), idOf(4)])
  engine.commitFailed(appends.splice(0, 1))
  sendAs(10, 5)
  expect(appends.at(-1)!.envelopeId).toBe(idOf(5))
})

/**
 * Makes peer 3 a device of peer 1. Returns functions that send to peer 2 as the device, as the user and as another
 * peer.
 */
function withDevice(limits: Parameters<typeof world>[0]) {
  const made = world(limits)
  const { engine, connect } = made
  connect(3)
  engine.provenSender(33, { ...memberOf(3), user: memberOf(1).user })
  const envelope = new Uint8Array(50_000)
  let n = 0
  const sendAs = (socket: number) => {
    n += 1
    engine.received(socket, { type: 'send', envelopes: [sendOf(n, 2, { envelope })] })
  }
  made.enter(2)
  return { ...made, device: () => sendAs(33), user: () => sendAs(1), other: () => sendAs(2) }
}

test.each<[string, Parameters<typeof world>[0], string]>([
  ['messages per second', { rate: { perSecond: 1, burst: 2 } }, 'rate_limited'],
  ['bytes per second', { byteRate: { perSecond: 1, burst: 100_000 } }, 'rate_limited'],
  ['bytes in flight', { inFlightBytesPerUserMax: 100_000 }, 'busy'],
])('a user and its devices share %s, and others have their own', (_, limits, code) => {
  const { appends, nacks, device, user, other } = withDevice(limits)
  device()
  user()
  expect([appends.length, nacks()]).toEqual([2, []])
  device()
  user()
  expect(nacks()).toMatchObject([{ code }, { code }])
  other()
  expect(appends).toHaveLength(3)
})

test('a user and its devices share one quota of a mailbox and of a mesh', () => {
  const many = { countMax: 100, bytesMax: 1e9, perSenderMax: 100, bytesPerSenderMax: 1e9 }
  for (const limits of [
    { mailbox: { ...many, perSenderMax: 2 }, mesh: many },
    { mailbox: many, mesh: { ...many, perSenderMax: 2 } },
  ]) {
    const { appends, nacks, device, user, other, engine } = withDevice(limits)
    user()
    user()
    device()
    expect(nacks()).toMatchObject([{ code: 'mailbox_full' }])
    other()
    expect(appends).toHaveLength(3)
    engine.commitFailed(appends.splice(0))
  }
})

test('a full mailbox stays full when its mesh has no session here between two sends', () => {
  const { engine, appends, nacks } = world({
    mailbox: { countMax: 2, bytesMax: 1000, perSenderMax: 2, bytesPerSenderMax: 1000 },
  })
  engine.closed(1)
  const sendOnce = (n: number) => {
    engine.provenSender(n, memberOf(1))
    engine.received(n, { type: 'send', envelopes: [sendOf(n, 2)] })
    engine.resolved(n, [keyOf(2)], [memberOf(2)])
    engine.committed(appends.splice(0), { outcomes: [{ status: 'duplicate' }], enqueuedAtMs: 0 })
    engine.closed(n)
  }
  sendOnce(7)
  engine.measured(MESH, 2 as PeerNo, [{ sender: 1 as PeerNo, count: 2, bytes: 100 }])
  const sendAt = (n: number, nowMs: number) => {
    engine.advance(nowMs)
    engine.tick()
    sendOnce(n)
  }
  sendAt(8, 500)
  sendAt(9, 30_000)
  expect(nacks().map(({ code }) => code)).toEqual(['mailbox_full', 'mailbox_full'])
  sendAt(10, 11 * 60_000) // without a session for ten minutes, the mesh was forgotten
  expect(nacks()).toHaveLength(2)
})

test('a key that was proven without a handshake gets its `welcome` once its session is open', () => {
  const { engine, sent } = world()
  engine.proven(7, { ...memberOf(2), sessionEpoch: 4 }, 10)
  expect(engine.presence.isServed(MESH, keyOf(2))).toBe(false)
  engine.opened(7, 5)
  expect(engine.presence.isServed(MESH, keyOf(2))).toBe(true)
  expect(sent.at(-1)).toMatchObject({ type: 'welcome', epoch: 5 })
})

test('a revoked peer is refused', () => {
  const { engine } = world()
  engine.proven(7, { ...memberOf(2), isRevoked: true }, 10)
  engine.opened(7, 5)
  expect(engine.presence.isServed(MESH, keyOf(2))).toBe(false)
})
