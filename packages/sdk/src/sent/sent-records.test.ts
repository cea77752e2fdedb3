/** Tests how the log groups, finds and forgets its records. */
import type { EnvelopeId, PeerKey } from '@sealpost/std'
import { expect, test } from 'vitest'
import type { SentRecord } from '../stores/records.ts'
import { type NewRecord, SentRecords, sentMessagesIn } from './sent-records.ts'

const peer = (no: number) => no.toString(16).padStart(64, '0') as PeerKey
const id = (no: number) => no.toString(16).padStart(32, '0') as EnvelopeId
const FACTS: NewRecord = {
  ...{ to: peer(1), sendNo: 0, bodyBytes: 1, contentHash: 'ab', asksReceipts: false, asksConfirmation: false },
  ...{ audience: null, isRequest: false, inReplyTo: null },
}

test('a log forgets the oldest sends first, each with all of its recipients', () => {
  const records = new SentRecords([], null)
  const first = records.add(FACTS)
  const { sendNo } = first.record
  for (let no = 2; no <= 300; no++) records.add({ ...FACTS, to: peer(no), sendNo })
  expect(records.siblings(first)).toHaveLength(300)
  for (let send = 0; send < 17; send++) {
    const next = records.add(FACTS)
    for (let no = 2; no <= 100; no++) records.add({ ...FACTS, to: peer(no), sendNo: next.record.sendNo })
  }
  expect(records.all()).toHaveLength(2_000)
  records.add(FACTS)
  expect(records.siblings(first)).toEqual([])
  expect(records.all()).toHaveLength(1_701)
  for (let send = 0; send < 600; send++) records.add(FACTS)
  expect(records.all()).toHaveLength(500)
})

test('a send with more recipients than a log keeps has all of them until the next send', () => {
  const records = new SentRecords([], null)
  const first = records.add(FACTS)
  for (let no = 2; no <= 2_500; no++) records.add({ ...FACTS, to: peer(no), sendNo: first.record.sendNo })
  expect(records.all()).toHaveLength(2_500)
  records.add(FACTS)
  expect(records.all()).toHaveLength(1)
})

test('a message that is sealed again is found by its new id only', () => {
  const records = new SentRecords([], null)
  const entry = records.add(FACTS)
  records.change(entry, { envelopeId: id(1) })
  records.change(entry, { envelopeId: id(2) })
  expect([records.find(id(1)), records.find(id(2))]).toEqual([undefined, entry])
  records.remove(entry)
  expect(records.find(id(2))).toBe(undefined)
})

test('records of earlier versions are sends of their own', () => {
  const old: SentRecord = {
    ...{ kind: 'sent', no: 7, outboxNo: 3, envelopeId: id(1), contentHash: 'ab', sentAtMs: 5, atMs: 6 },
    ...{ to: peer(1), user: peer(1), deviceLabel: null, bodyBytes: 2, state: 'stored', isSigned: false, reason: '' },
    ...{ signer: null, asksReceipts: true, asksConfirmation: false },
  }
  const [message] = sentMessagesIn([old])
  expect(message).toMatchObject({ sendNo: 7, audience: null, isRequest: false, inReplyTo: null, reply: null })
  expect(message).not.toHaveProperty('outboxNo')
  expect(new SentRecords([old], null).find(id(1))!.record).toMatchObject({ sendNo: 7, state: 'stored' })
})
