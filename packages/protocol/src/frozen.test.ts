/** Numbers never change their meaning. Add a row here for each new row of a table. */
import { expect, test } from 'vitest'
import {
  chooseSubprotocol,
  clientFrames,
  closeNumber,
  PRIORITIES,
  PROTOCOL_VERSIONS,
  refusal,
  refusals,
  SUBPROTOCOLS,
  serverFrames,
} from './index.ts'

test('frame numbers', () => {
  expect([...serverFrames, ...clientFrames].map(({ number, type }) => `${number} ${type}`)).toEqual([
    '1 hello', '2 welcome', '3 ack', '4 nack', '5 push', '6 directory', '7 refused', '8 goaway', '9 pong',
    '10 recovered', '11 enrolled', '12 roster', '13 revoked', '14 pushWith', '15 receipts', '36 pushBody', '32 pushEphemeral', '33 ephemeralFailed',
    '34 presence', '39 groupSet', '40 groupList', '49 consented', '51 bound', '53 keyHistory', '54 rebound',
    '62 deviceList', '64 deviceRemoved', '66 succeeded', '67 successions',
    '68 moved', '69 certificate', '70 shards', '58 poolJoined',
    '16 auth', '17 send', '18 settle', '19 retry', '20 credit', '21 lookup', '22 ping',
    '23 reject', '24 enrol', '25 extend', '26 members', '27 revoke', '28 status', '29 sendWith', '30 sendEphemeral', '31 watch', '35 broadcast', '71 broadcastKept',
    '37 setGroup', '38 groups', '48 consent', '50 bind', '52 lookupHistory',
    '60 enrolDevice', '61 devices', '63 removeDevice', '65 succeed', '55 setPool', '56 pools', '57 joinPool', '59 sendPool',
  ]) // biome-ignore format: a table
})

test('numbers, close codes and retryability of refusals', () => {
  expect(refusals.map(({ code, close, isRetryable }, number) => `${number} ${code} ${close ?? '-'} ${isRetryable}`)).toEqual([
    '0 busy - true', '1 unavailable - true', '2 rate_limited - true', '3 out_of_sequence - true', '4 unknown_recipient - false',
    '5 id_reused - false', '6 ttl_too_long - false', '7 envelope_too_large - false', '8 frame_malformed 4400 false',
    '9 frame_unexpected 4400 false', '10 wrong_form 1003 false', '11 auth_failed 4401 false', '12 revoked 4403 false',
    '13 version_unsupported 4406 false', '14 auth_timeout 4408 true', '15 superseded 4409 false', '16 rate_exceeded 4429 true',
    '17 heartbeat_missed 4440 true', '18 slow_consumer 4441 true', '19 internal 1011 true', '20 restarting 1012 true',
    '21 try_later 1013 true', '22 invite_refused 4410 false', '23 already_member 4411 false', '24 name_taken 4412 false',
    '25 no_responder - false', '26 too_many_hops - false', '27 thread_exhausted - false', '28 delay_too_long - false', '29 stale_roster - false',
    '30 not_allowed - false', '31 too_many_devices 4413 false', '32 mailbox_full - true', '33 unknown_group - false',
    '34 moved 4421 true', '35 not_kept - false', '36 history_full - true', '37 frame_too_large 1009 false',
    '38 name_malformed 4414 false', '39 too_many_members 4415 false',
  ]) // biome-ignore format: a table
})

test('close codes are valid for WebSockets, and reasons fit a close frame', () => {
  for (const { code, close } of refusals) {
    if (close === undefined) continue
    expect([1003, 1009, 1011, 1012, 1013].includes(close) || (close >= 4000 && close < 5000)).toBe(true)
    expect(code.length).toBeLessThan(123)
  }
  expect(closeNumber('superseded')).toBe(4409)
  expect(refusal('superseded').code).toBe('superseded')
})

test('priorities, versions and subprotocols', () => {
  expect(PRIORITIES).toEqual(['now', 'next', 'low'])
  expect(PROTOCOL_VERSIONS).toEqual([1])
  expect(SUBPROTOCOLS).toEqual({ 'sealpost.v1': 'binary', 'sealpost.v1.json': 'json' })
})

test("a subprotocol is chosen by exact name, in the client's order", () => {
  expect(chooseSubprotocol(['evil', 'sealpost.v1.json', 'sealpost.v1'])).toBe('sealpost.v1.json')
  for (const offered of [[], [''], ['Sealpost.v1'], ['sealpost.v2'], ['toString'], ['__proto__']])
    expect(chooseSubprotocol(offered)).toBeUndefined()
})
