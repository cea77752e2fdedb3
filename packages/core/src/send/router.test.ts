import { expect, test } from 'vitest'
import { idOf, keyOf, memberOf, sendOf, world } from '../test/testing-world.ts'

test('envelopes behind one with an unknown recipient wait for it, and keep their order', () => {
  const { engine, appends, asked, send } = world()
  send(sendOf(1, 2), sendOf(2, 1), sendOf(3, 2, { isHead: false }))
  expect(appends).toEqual([])
  expect(asked).toEqual([[keyOf(2)]])
  engine.resolved(1, [keyOf(2)], [memberOf(2)])
  expect(appends.map((append) => append.envelopeId)).toEqual([idOf(1), idOf(2), idOf(3)])
})

test('an envelope is charged to the rate once, whether its recipient was known or not', () => {
  const { engine, appends, send, nacks } = world({ rate: { perSecond: 1, burst: 3 } })
  send(sendOf(1, 2), sendOf(2, 3), sendOf(3, 4))
  engine.resolved(1, [keyOf(2), keyOf(3), keyOf(4)], [memberOf(2), memberOf(3), memberOf(4)])
  expect(appends).toHaveLength(3)
  send(sendOf(4, 2))
  expect(nacks()).toMatchObject([{ envelopeId: idOf(4), code: 'rate_limited' }])
})

test('bytes have a rate of their own, and one envelope of any size passes a full bucket', () => {
  const { engine, appends, send, nacks } = world({ byteRate: { perSecond: 100, burst: 100 } })
  send(sendOf(1, 1, { envelope: new Uint8Array(1000) }), sendOf(2, 1))
  expect(nacks()).toMatchObject([{ envelopeId: idOf(2), code: 'rate_limited', retryAfterMs: 500 }])
  engine.advance(500)
  send(sendOf(2, 1))
  expect(appends.map((append) => append.envelopeId)).toEqual([idOf(1), idOf(2)])
})

test("a socket is not read while much of its peer's mail waits for a commit, and is read again when half of it is acked", () => {
  const reading: string[] = []
  const { engine, effects, appends, send, nacks } = world()
  effects.pause = (socket) => reading.push(`pause ${socket}`)
  effects.resume = (socket) => reading.push(`resume ${socket}`)
  for (let n = 1; n <= 5; n++) send(sendOf(n, 1, { envelope: new Uint8Array(60_000) }))
  expect(reading).toEqual(['pause 1'])
  engine.commitFailed(appends.splice(0, 2))
  expect(reading).toEqual(['pause 1'])
  engine.commitFailed(appends.splice(0, 1))
  expect(reading).toEqual(['pause 1', 'resume 1'])
  expect(nacks().map(({ code }) => code)).toEqual(['unavailable', 'unavailable', 'unavailable'])
})

test('an envelope to an unknown recipient is refused, and the rest continues', () => {
  const { engine, appends, send, nacks } = world()
  send(sendOf(1, 2), sendOf(2, 3))
  engine.resolved(1, [keyOf(2), keyOf(3)], [memberOf(3)])
  expect(nacks()).toMatchObject([{ envelopeId: idOf(1), code: 'unknown_recipient' }])
  expect(appends.map((append) => append.envelopeId)).toEqual([idOf(2)])
})

test('when a lookup fails, the envelopes that wait for it are refused, and so are later ones in their lanes', () => {
  const { engine, appends, send, nacks } = world()
  send(sendOf(1, 2), sendOf(2, 2, { isHead: false }))
  engine.resolved(1, [keyOf(2)], null)
  send(sendOf(3, 2, { isHead: false }))
  expect(nacks().map((item) => item.code)).toEqual(['unavailable', 'out_of_sequence', 'out_of_sequence'])
  send(sendOf(1, 2))
  engine.resolved(1, [keyOf(2)], [memberOf(2)])
  expect(appends.map((append) => append.envelopeId)).toEqual([idOf(1)])
})

test('the head of a held lane does not lift the bar of a later refusal', () => {
  const { engine, appends, send, nacks } = world({ rate: { perSecond: 1, burst: 1 } })
  send(sendOf(1, 2), sendOf(2, 2, { isHead: false }))
  engine.resolved(1, [keyOf(2)], [memberOf(2)])
  expect(nacks().map((item) => item.code)).toEqual(['rate_limited'])
  engine.advance(10_000)
  send(sendOf(3, 2, { isHead: false }))
  expect(nacks().map((item) => item.code)).toEqual(['rate_limited', 'out_of_sequence'])
  expect(appends.map((append) => append.envelopeId)).toEqual([idOf(1)])
})

test('an envelope held behind another recipient respects a bar that was set before it', () => {
  const { engine, appends, send, nacks } = world()
  send(sendOf(1, 1))
  send(sendOf(2, 2), sendOf(3, 1, { isHead: false }))
  engine.commitFailed(appends.splice(0))
  engine.resolved(1, [keyOf(2)], [memberOf(2)])
  expect(nacks().map(({ envelopeId, code }) => [envelopeId, code])).toEqual([
    [idOf(1), 'unavailable'],
    [idOf(3), 'out_of_sequence'],
  ])
  expect(appends.map((append) => append.envelopeId)).toEqual([idOf(2)])
})

test('a sender that keeps ignoring `rate_limited` is disconnected', () => {
  const { engine, closes, send, nacks } = world({ rate: { perSecond: 1, burst: 1 } })
  for (let n = 0; n < 2_000; n++) send(sendOf(n + 1, 2))
  expect(closes).toEqual([])
  expect(nacks().filter(({ code }) => code === 'rate_limited').length).toBeGreaterThan(1_900)
  for (let n = 0; n < 10; n++) send(sendOf(n + 3_000, 2))
  expect(closes).toEqual([[1, 'rate_exceeded']])
  expect(engine.sessionCount).toBe(0)
})

test('an envelope of a moving mesh ends the session, which is redirected when it reconnects', () => {
  const { engine, appends, send, closes } = world()
  send(sendOf(1, 1), sendOf(2, 1, { isHead: false }))
  engine.committed(appends.splice(0), { outcomes: [{ status: 'away' }, { status: 'away' }], enqueuedAtMs: 0 })
  expect(closes).toEqual([[1, 'try_later']])
})
