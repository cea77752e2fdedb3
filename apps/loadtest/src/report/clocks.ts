/** What a report's latencies count from, and what happens before they count: for the terminal and for the page. */
import type { Percentiles } from '@sealpost/harness/report/latencies'
import { count, figure, plural } from '@sealpost/harness/report/text'
import { CALLS_OPEN_MAX } from '../generators/pace.ts'
import type { LoadResult } from '../run/result.ts'

type Timed = Pick<LoadResult, 'rate' | 'ackMs' | 'e2eMs' | 'sendCallMs' | 'callToPushMs' | 'callLateMs'>

/** A burst has two clocks; the open loop has one, which starts when a message is due. */
export function latencyRows({ rate, ackMs, e2eMs, sendCallMs, callToPushMs, callLateMs }: Timed) {
  const rows: [name: string, of: Percentiles][] =
    rate === null
      ? [
          ['call → ack', sendCallMs],
          ['call → push', callToPushMs],
          ['send → ack', ackMs],
          ['send → push', e2eMs],
        ]
      : [
          ['due → ack', ackMs],
          ['due → push', e2eMs],
        ]
  if (rate !== null && callLateMs) rows.push(['due → call', callLateMs])
  return rows
}

/** What an application sees: from its call, or from the time at which a message was due. */
export function wholeLatency({ rate, callToPushMs, e2eMs }: Pick<LoadResult, 'rate' | 'callToPushMs' | 'e2eMs'>) {
  return rate === null ? { name: 'call → push', of: callToPushMs } : { name: 'due → push', of: e2eMs }
}

/** One sentence for each clock. */
export function clockNotes({ rate, window, messagesPerPeer }: Pick<LoadResult, 'rate' | 'window' | 'messagesPerPeer'>) {
  if (rate !== null)
    return ['"due" counts from the time at which a message was to be sent, even if its call came later.']
  const all = messagesPerPeer <= CALLS_OPEN_MAX
  const calls = all
    ? `makes all ${plural(messagesPerPeer, 'call')} at once`
    : `keeps ${count(CALLS_OPEN_MAX)} calls open`
  return [
    `"call" counts from the application's call of send(), with the wait for the window; each peer ${calls}.`,
    `"send" counts from the moment at which the window of ${count(window)} admits a message, before it is sealed.`,
  ]
}

export function keysText({ keyExchange }: Pick<LoadResult, 'keyExchange'>): string {
  if (!keyExchange) return 'not exchanged before the clock starts (--cold): the first message of each pair pays for it'
  const { messages, ms } = keyExchange
  return `exchanged before the clock starts: ${plural(messages, 'message')} in ${figure(ms / 1000)} s, not counted; --cold counts it`
}

export function deliveriesText({ deliveries }: Pick<LoadResult, 'deliveries'>): string {
  if (!deliveries) return "unknown: no access to the broker's /metrics"
  const { leasedOnInsert, claimed, collected } = deliveries
  return `${count(leasedOnInsert)} leased on insert, ${count(claimed)} claimed, ${count(collected)} collected from another broker`
}
