import { type Consent, type FrameOf, OPEN } from '@sealpost/protocol'
import type { PeerNo } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { idOf, keyOf, memberOf, sendOf, world } from '../test/testing-world.ts'
import { ruleOf } from './permissions.ts'
import type { ConsentReply } from './request-types.ts'

const no = (n: number) => n as PeerNo
const contacts = (version: number, ...named: number[]): Consent => ({
  policy: 'contacts',
  named: named.map(no),
  version,
})
const blocking = (version: number, ...named: number[]): Consent => ({ policy: 'open', named: named.map(no), version })
const ANSWER: Omit<ConsentReply, 'consent'> = { outcome: 'done', peers: [], unknown: [] }
const asking = (policy: FrameOf<'consent'>['policy']): FrameOf<'consent'> => ({
  ...{ type: 'consent', ref: 5, policy, changes: [] },
})

test('most peers have no rule; a rule admits only allowed peers, or all but blocked ones', () => {
  expect(ruleOf(no(1), OPEN)).toBe(null)
  const allowing = ruleOf(no(1), contacts(1, 2))!
  expect([1, 2, 3].map((n) => allowing.admits(no(n)))).toEqual([true, true, false])
  const refusing = ruleOf(no(1), blocking(1, 2))!
  expect([1, 2, 3].map((n) => refusing.admits(no(n)))).toEqual([true, false, true])
})

/** Returns a world in which peer 1 sends to peer 2, whose lookup returns this consent. */
function writing(consent: Consent | null = OPEN) {
  const its = world()
  let sent = 0
  const send = (more: Parameters<typeof sendOf>[2] = {}) => {
    sent += 1
    its.send(sendOf(sent, 2, more))
  }
  const answer = (found = consent) => its.engine.resolved(1, [keyOf(2)], [{ ...memberOf(2), consent: found }])
  return { ...its, send, answer, codes: () => its.nacks().map(({ code }) => code) }
}

test("an envelope is refused by its recipient's rule only", () => {
  const { send, answer, codes, appends } = writing(contacts(1))
  send()
  answer()
  send()
  expect(codes()).toEqual(['not_allowed', 'not_allowed'])
  expect(appends).toEqual([])
})

test('a refusal bars nothing in its lane, and the newer of two consents applies', () => {
  const { reply, answer, codes, appends, send } = writing(blocking(1, 1))
  const stands = (consent: Consent) => reply<'consent'>(2, asking('keep'), { ...ANSWER, consent })
  send()
  answer()
  stands(OPEN) // the consent was read before the block
  send({ isHead: false })
  expect([codes(), appends]).toEqual([['not_allowed', 'not_allowed'], []])
  stands(blocking(2))
  send({ isHead: false })
  expect(appends.map(({ envelopeId }) => envelopeId)).toEqual([idOf(3)])
})

describe('a consent that another shard changed', () => {
  test('is looked up again after 15 seconds, and envelopes sent meanwhile keep their order', () => {
    const { engine, send, answer, codes, appends, asked } = writing()
    send()
    answer()
    engine.advance(14_999)
    send()
    expect([appends.length, asked.length]).toEqual([2, 1])
    engine.advance(15_000)
    send()
    send()
    expect([appends.length, asked.length]).toEqual([2, 2])
    answer(contacts(1))
    expect(codes()).toEqual(['not_allowed', 'not_allowed'])
  })

  test('needs no lookup while the recipient is live here', () => {
    const { engine, enter, send, asked, appends } = writing()
    enter(2)
    engine.advance(1e6)
    send()
    expect([appends.length, asked.length]).toEqual([1, 0])
  })
})

test('of a peer that only sends is looked up when it gets a message', () => {
  const { engine, send, answer, codes, asked } = writing(contacts(1))
  engine.provenSender(7, { ...memberOf(2), consent: null })
  send()
  expect(asked).toEqual([[keyOf(2)]])
  answer()
  expect(codes()).toEqual(['not_allowed'])
})

test('of a peer revoked since its lookup is unknown', () => {
  const { engine, send, answer, codes } = writing()
  send()
  answer()
  engine.advance(15_000)
  send()
  engine.resolved(1, [keyOf(2)], [{ ...memberOf(2), isRevoked: true }])
  expect(codes()).toEqual(['unknown_recipient'])
})

test('an ephemeral message that the consent refuses is not pushed', () => {
  const { engine, enter, reply, sent } = writing()
  enter(2)
  reply<'consent'>(2, asking('contacts'), { ...ANSWER, consent: contacts(1) })
  expect(sent.at(-1)).toEqual({ type: 'consented', ref: 5, policy: 'contacts', ...ANSWER })
  const item = { envelopeId: idOf(1), recipient: keyOf(2), envelope: new Uint8Array(40) }
  engine.received(1, { type: 'sendEphemeral', items: [item] })
  expect(sent.at(-1)).toEqual({ type: 'ephemeralFailed', items: [{ envelopeId: idOf(1), code: 'not_allowed' }] })
})

test('a new key is sent to sessions that asked for it lately, and not to its owner', () => {
  const { engine, enter, reply, sent } = writing()
  for (const n of [2, 3]) enter(n)
  engine.received(1, { type: 'lookup', ref: 1, peers: [keyOf(2)] })
  engine.received(2, { type: 'lookup', ref: 1, peers: [keyOf(2)] })
  const bytes = new Uint8Array(64)
  const bind = { type: 'bind', ref: 1, boxKey: bytes, boxEpoch: 2, notAfterMs: 1, signature: bytes } as const
  reply<'bind'>(2, bind, 'stale_epoch')
  reply<'bind'>(2, bind, 'done')
  expect(sent.filter(({ type }) => type === 'rebound')).toEqual([{ type: 'rebound', peers: [keyOf(2)] }])
  const others = Array.from({ length: 128 }, (_, i) => keyOf(100 + i))
  engine.received(1, { type: 'lookup', ref: 2, peers: others })
  reply<'bind'>(2, bind, 'done')
  expect(sent.filter(({ type }) => type === 'rebound')).toHaveLength(1)
})
