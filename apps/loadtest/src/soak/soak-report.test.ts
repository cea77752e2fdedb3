import { expect, test } from 'vitest'
import {
  type Hold,
  rowsOf,
  type SoakRow,
  type SoakSample,
  soakVerdicts,
  spanSecondsOf,
  tenthsOf,
} from './soak-report.ts'

const MB = 1024 * 1024
const rss = 100

function row(fromSeconds: number, of: Partial<SoakRow> = {}): SoakRow {
  const bytes = { message_queue: 10 * MB, message_queue_pkey: 4 * MB, dedupe_ledger: fromSeconds * MB }
  const latency = { p50: 2, p99: 10 }
  return { fromSeconds, delivered: 120_000, ...latency, bytes, dead: 50_000, queued: 20, brokerRssMb: rss, ...of }
}

const minutes = (last: Partial<SoakRow> = {}, between: Partial<SoakRow> = {}) => [
  row(0),
  row(60),
  row(120, between),
  row(180, between),
  row(240, last),
]

const unmet = (rows: SoakRow[], hold: Hold | null = null) =>
  soakVerdicts(rows, hold)
    .filter(({ isMet }) => !isMet)
    .map(({ sentence }) => sentence)

test('a soak whose last minute is like the second is steady, although the ledger grows', () => {
  expect(unmet(minutes())).toEqual([])
})

test('a p99 above 1.5 times fails, and so does a last minute without messages', () => {
  expect(unmet(minutes({ p99: 14.9 }))).toEqual([])
  expect(unmet(minutes({ p99: 15.1 }))).toEqual([expect.stringContaining('p99 of the last minute 15.1 ms')])
  expect(unmet(minutes({ p99: 0, delivered: 0 }))).toHaveLength(1)
})

test('a table or index that grew is named', () => {
  const bytes = { ...row(240).bytes, message_queue_pkey: 8 * MB }
  expect(unmet(minutes({ bytes }))).toEqual(['grew: message_queue_pkey 4.19 MB → 8.39 MB'])
})

test('a broker whose memory grows fails', () => {
  expect(unmet(minutes({ brokerRssMb: 157 }))).toEqual([])
  expect(unmet(minutes({ brokerRssMb: 158 }))).toEqual([expect.stringContaining('the broker took 158 MB')])
})

test('a soak of seconds may leave dead rows for a later vacuum, up to a limit', () => {
  const brief = (last: Partial<SoakRow>) =>
    [0, 5, 10, 15, 20].map((from) => row(from, { delivered: 1_000, ...(from === 20 && last) }))
  const grownBy = (bytes: number) => ({ bytes: { ...row(20).bytes, message_queue: 12.5 * MB + bytes } })
  expect(unmet(brief({ p99: 65, dead: 124_000, ...grownBy(7_000_000) }))).toEqual([])
  expect(unmet(brief({ p99: 66 }))).toHaveLength(1)
  expect(unmet(brief({ dead: 126_000 }))).toHaveLength(1)
  expect(unmet(brief(grownBy(8_000_000)))).toHaveLength(1)
})

test('dead rows that accumulate fail', () => {
  expect(unmet(minutes({ dead: 200_000 }))).toEqual([expect.stringContaining('dead rows')])
})

test('growth during a held snapshot may remain, but must not continue', () => {
  const hold = { fromSeconds: 100, toSeconds: 170 }
  const larger = { ...row(180).bytes, message_queue: 80 * MB }
  expect(unmet(minutes({ bytes: larger }, { bytes: larger }))).toHaveLength(1)
  expect(unmet(minutes({ bytes: larger }, { bytes: larger }), hold)).toEqual([])
  const largerStill = { ...larger, message_queue: 160 * MB }
  expect(unmet(minutes({ bytes: largerStill }, { bytes: larger }), hold)).toHaveLength(1)
})

test('a row has the maximum of its span, and an incomplete span has no row', () => {
  const relation = { table: 'session', bytesInAll: null, rows: 0 }
  const sample = (atMs: number, bytes: number, dead: number): SoakSample => ({
    atMs,
    relations: [
      { ...relation, name: 'session', bytes, dead },
      { ...relation, name: 'session_pkey', bytes: 1, dead: 0 },
    ],
    queued: dead,
    brokerRssMb: bytes,
  })
  const samples = [sample(500, 9, 9), sample(1000, 5, 1), sample(60_900, 7, 2), sample(61_000, 6, 3)]
  const spans = [60, 60, 60, 60, 60, 30].map((delivered, i) => ({
    delivered,
    e2eMs: { p50: i, p95: i, p99: i, max: i },
  }))
  const rows = rowsOf({ seconds: 330, startMs: 1000, samples, spans })
  expect(rows).toHaveLength(5)
  expect(rows[0]).toMatchObject({ delivered: 60, dead: 2, queued: 2, brokerRssMb: 7, bytes: { session: 7 } })
  expect(rows[1]).toMatchObject({ dead: 3, p99: 1, bytes: { session: 6, session_pkey: 1 } })
})

test('a short soak has five spans, and a long one has a span per minute', () => {
  expect([10, 300, 1200].map(spanSecondsOf)).toEqual([2, 60, 60])
})

test('a drain is judged by its slowest and fastest tenth, unless these are too short', () => {
  const times = { warmUp: { messages: 5_000, ms: 900 }, tenthMessages: 2_000, tenthsMs: [50, 40, 80] }
  expect(tenthsOf(times)).toMatchObject({ perSecond: [40_000, 50_000, 25_000], ratio: 0.5 })
  expect(tenthsOf({ ...times, tenthMessages: 999 })).toBeNull()
})
