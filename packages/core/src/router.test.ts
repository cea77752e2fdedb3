import type { Append, ClientFrame, Member, ServerFrame } from '@sealpost/protocol'
import type { EnvelopeId, MeshId, PeerKey, PeerNo } from '@sealpost/std'
import { expect, test } from 'vitest'
import type { Effects } from './effects.ts'
import { Engine } from './engine.ts'
import { defaultLimits, type EngineLimits } from './limits.ts'

const MESH = 'a0'.repeat(16) as MeshId
const keyOf = (n: number) => n.toString(16).padStart(64, '0') as PeerKey
const idOf = (n: number) => n.toString(16).padStart(32, '0') as EnvelopeId
const memberOf = (n: number): Member => ({
  meshId: MESH,
  peer: n as PeerNo,
  peerKey: keyOf(n),
  isRevoked: false,
  sessionEpoch: 0,
})

type Send = Extract<ClientFrame, { type: 'send' }>['envelopes'][number]
const sendOf = (n: number, to: number, more: Partial<Send> = {}): Send => ({
  envelopeId: idOf(n),
  recipient: keyOf(to),
  priority: 'next',
  isHead: true,
  ttlSeconds: 0,
  envelope: new Uint8Array(50),
  ...more,
})

/** An engine with one live sender on socket 1, whose effects are written down. */
function world(limits: Partial<EngineLimits> = {}) {
  const appends: Append[] = []
  const asked: PeerKey[][] = []
  const sent: ServerFrame[] = []
  const ignored = () => undefined
  const effects: Effects = {
    send: (_, frames) => {
      sent.push(...frames)
      return 'sent'
    },
    append: (append) => void appends.push(append),
    resolve: (_, __, peers) => void asked.push([...peers]),
    close: ignored,
    ping: ignored,
    pause: ignored,
    resume: ignored,
    authenticate: ignored,
    open: ignored,
    fence: ignored,
    settle: ignored,
    retry: ignored,
    strike: ignored,
    claim: ignored,
    lookup: ignored,
    hint: ignored,
  }
  const engine = new Engine(effects, {
    limits: { ...defaultLimits, rate: null, ...limits },
    nowMs: 0,
    incarnation: '00'.repeat(16),
    durability: 'fsync',
  })
  const bytes = new Uint8Array(64)
  const hello = { type: 'hello', versions: [1], brokerKey: keyOf(9), connectionId: bytes, nonce: bytes } as const
  engine.connected(1, { ...hello, versions: [1], issuedAtMs: 0, authWithinMs: 1 })
  engine.received(1, {
    type: 'auth',
    version: 1,
    meshId: MESH,
    peerKey: keyOf(1),
    clientNonce: bytes,
    capabilities: [],
    signature: bytes,
    credit: 10,
  })
  engine.authenticated(1, { member: memberOf(1), isSignatureGood: true, proof: bytes })
  engine.opened(1, 2)
  const send = (...envelopes: Send[]) => engine.received(1, { type: 'send', envelopes })
  const nacks = () => sent.flatMap((frame) => (frame.type === 'nack' ? frame.items : []))
  return { engine, appends, asked, send, nacks }
}

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

test('who is no member is refused, and the rest goes on', () => {
  const { engine, appends, send, nacks } = world()
  send(sendOf(1, 2), sendOf(2, 3))
  engine.resolved(1, [keyOf(2), keyOf(3)], [memberOf(3)])
  expect(nacks()).toMatchObject([{ envelopeId: idOf(1), code: 'unknown_recipient' }])
  expect(appends.map((append) => append.envelopeId)).toEqual([idOf(2)])
})

test('when the database does not answer, what waits is refused, and so is what follows in its lane', () => {
  const { engine, appends, send, nacks } = world()
  send(sendOf(1, 2), sendOf(2, 2, { isHead: false }))
  engine.resolved(1, [keyOf(2)], null)
  send(sendOf(3, 2, { isHead: false }))
  expect(nacks().map((item) => item.code)).toEqual(['unavailable', 'out_of_sequence', 'out_of_sequence'])
  send(sendOf(1, 2))
  engine.resolved(1, [keyOf(2)], [memberOf(2)])
  expect(appends.map((append) => append.envelopeId)).toEqual([idOf(1)])
})

test('the head of a lane that was held up does not lift the bar of a later refusal', () => {
  const { engine, appends, send, nacks } = world({ rate: { perSecond: 1, burst: 1 } })
  send(sendOf(1, 2), sendOf(2, 2, { isHead: false }))
  engine.resolved(1, [keyOf(2)], [memberOf(2)])
  expect(nacks().map((item) => item.code)).toEqual(['rate_limited'])
  engine.advance(10_000)
  send(sendOf(3, 2, { isHead: false }))
  expect(nacks().map((item) => item.code)).toEqual(['rate_limited', 'out_of_sequence'])
  expect(appends.map((append) => append.envelopeId)).toEqual([idOf(1)])
})

test('what is held up behind another recipient heeds a bar that was set before it', () => {
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
