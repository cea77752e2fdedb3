import type { Append } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, MeshId, PeerNo } from '@sealpost/std'
import { expect, test } from 'vitest'
import type { StatementOutcome } from './commit-batch.ts'
import { LastAcknowledged } from './shard-memory.ts'

const STORED: StatementOutcome = { status: 'stored', id: 1 as DeliveryId, isLeased: false, isExpected: true }
const RESENT: StatementOutcome = { status: 'duplicate' }
const REFUSED: StatementOutcome = { status: 'unknown_recipient' }

const append = (no: number) =>
  ({
    meshId: '11'.repeat(16) as MeshId,
    sender: no as PeerNo,
    envelopeId: no.toString(16).padStart(32, '0') as EnvelopeId,
  }) as Append
const sendersOf = (last: LastAcknowledged) => last.envelopes?.map(({ sender }) => sender) ?? null

test('the last stored envelope represents all earlier ones', () => {
  const last = new LastAcknowledged()
  last.stored(append(1))
  last.stored(append(2))
  expect(sendersOf(last)).toEqual([2])
})

test('a resend may have been stored later by another shard, so it is remembered with the stored envelope', () => {
  const last = new LastAcknowledged()
  last.stored(append(1))
  last.decided([append(2), append(3)], [RESENT, REFUSED])
  last.decided([append(4)], [RESENT])
  expect(sendersOf(last)).toEqual([1, 2, 4])
})

test('an envelope that a checked statement stores follows the duplicates that it saw', () => {
  const last = new LastAcknowledged()
  last.decided([append(1)], [RESENT])
  last.decided([append(2), append(3)], [RESENT, STORED])
  expect(sendersOf(last)).toEqual([3])
})

test('a commit that stored nothing and met no resend changes nothing', () => {
  const last = new LastAcknowledged()
  last.stored(append(1))
  const { version } = last
  last.decided([append(2)], [REFUSED])
  expect(sendersOf(last)).toEqual([1])
  expect(last.version).toBe(version)
})

test('too many consecutive resends prove nothing, until an envelope is stored', () => {
  const last = new LastAcknowledged()
  const many = Array.from({ length: 1_001 }, (_, no) => append(no))
  last.decided(
    many,
    many.map(() => RESENT),
  )
  expect(sendersOf(last)).toBeNull()
  last.decided([append(1)], [RESENT])
  expect(sendersOf(last)).toBeNull()
  last.stored(append(2))
  expect(sendersOf(last)).toEqual([2])
})

test('remembered envelopes are dropped for a later commit, unless an envelope was acknowledged since', () => {
  const last = new LastAcknowledged()
  last.stored(append(1))
  const { version } = last
  last.stored(append(2))
  last.forget(version)
  expect(sendersOf(last)).toEqual([2])
  last.forget(last.version)
  expect(sendersOf(last)).toEqual([])
})
