/** Tests which reports change the state of a sent message. */
import type { PeerKey } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { changeBy, hasReached, type SentMessage, type SentReport, type SentState, WAIT_GOALS } from './sent-states.ts'

const BOB = '0b'.repeat(32) as PeerKey
const SENT: SentMessage = {
  ...{
    envelopeId: null,
    to: BOB,
    user: BOB,
    deviceLabel: null,
    bodyBytes: 1,
    state: 'sending',
    isSigned: false,
    reason: '',
    signer: null,
  },
  ...{ asksReceipts: true, asksConfirmation: true, sentAtMs: 1, atMs: 1 },
  ...{ sendNo: 1, audience: null, isRequest: false, inReplyTo: null, reply: null },
}

/** Applies reports, written as `state`, or `state!` with the recipient's signature. */
function after(...reports: readonly string[]): string {
  let [sent, atMs] = [SENT, 1]
  for (const word of reports) {
    atMs += 1
    const state = word.replace('!', '') as SentState
    const report: SentReport = word.endsWith('!') ? { state, atMs, signer: BOB } : { state, atMs }
    sent = { ...sent, ...changeBy(sent, report) }
  }
  return `${sent.state}${sent.isSigned ? '!' : ''}`
}

describe('a report', () => {
  const rows: readonly (readonly [about: string, reports: readonly string[], state: string])[] = [
    ['moves a message forward only', ['stored', 'pushed', 'stored'], 'pushed'],
    ['of the broker is not a signature', ['stored', 'settled'], 'settled'],
    ['of the recipient outweighs the word of the broker', ['stored', 'expired', 'confirmed!'], 'confirmed!'],
    ['of the broker does not change what the recipient signed', ['confirmed!', 'expired'], 'confirmed!'],
    ['of the broker does not change a signed rejection', ['rejected!', 'settled'], 'rejected!'],
    ['signs a rejection that the broker reported', ['rejected', 'rejected!'], 'rejected!'],
    ['follows a redriven message that is settled after all', ['rejected!', 'confirmed!'], 'confirmed!'],
    ['follows a redriven dead letter', ['struck_out', 'settled'], 'settled'],
    ['that a message was read does not hide that it was settled', ['settled', 'read!'], 'settled'],
    ['that a message was read is followed by the end', ['stored', 'read!', 'settled', 'confirmed!'], 'confirmed!'],
    ['of a push does not revive an expired message', ['expired', 'pushed'], 'expired'],
    ['of an expiry does not follow a settle', ['settled', 'expired'], 'settled'],
  ]
  for (const [about, reports, state] of rows) test(about, () => expect(after(...reports)).toBe(state))
})

test('an older statement of the recipient does not replace a newer one', () => {
  const settled = { ...SENT, ...changeBy(SENT, { state: 'confirmed', atMs: 9, signer: BOB }) }
  expect(changeBy(settled, { state: 'rejected', atMs: 5, signer: BOB })).toBe(null)
})

test('each goal includes the later states, but not an end without it', () => {
  const reachedIn = (state: SentState) => WAIT_GOALS.filter((goal) => hasReached({ state }, goal))
  expect(reachedIn('sending')).toEqual([])
  expect(reachedIn('read')).toEqual(['stored', 'pushed'])
  expect(reachedIn('settled')).toEqual(['stored', 'pushed', 'settled'])
  expect(reachedIn('confirmed')).toEqual(['stored', 'pushed', 'settled', 'confirmed'])
  expect(reachedIn('rejected')).toEqual(['stored', 'pushed'])
  expect(reachedIn('expired')).toEqual(['stored'])
  expect(reachedIn('refused')).toEqual([])
})
