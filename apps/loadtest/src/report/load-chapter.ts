/** A run of messages between peers as a chapter of the page. */

import { count, figure, orDash, plural } from '@sealpost/harness/report/text'
import { isClean, type LoadResult } from '../run/result.ts'
import type { SpanLatencies } from '../run/verdict.ts'
import { generatorCheck } from '../scenarios/effort.ts'
import { spectrumGraph } from '../scenarios/latency.ts'
import type { Graph, HistogramChart, Sheet } from '../scenarios/scenario.ts'
import { usageGraphs } from '../scenarios/spent.ts'
import { clockNotes, deliveriesText, keysText, latencyRows, wholeLatency } from './clocks.ts'
import type { Chapter } from './page.ts'

/** @param spans - of each second; none of a run that was not watched by the second */
export function loadChapter(result: LoadResult, spans: readonly SpanLatencies[]): Chapter {
  const { total, peers, rate, messagesPerPeer, payloadBytes, messagesPerSecond, wallMs, delivered } = result
  const pace =
    rate === null ? `${count(messagesPerPeer)} each, as fast as the window admits` : `${count(rate)} a second in all`
  const whole = wholeLatency(result)
  const all = delivered === total ? 'nothing lost' : `${count(delivered)} arrived`
  return {
    title: rate === null ? 'burst' : 'open loop',
    summary: `${count(peers)} peers, ${pace}, ${plural(payloadBytes, 'byte')}: sealed, stored, opened and compared.`,
    reported: null,
    bar: null,
    isGood: isClean(result),
    headline: `${count(total)} messages, ${all}: ${count(messagesPerSecond)} a second over ${figure(wallMs / 1000)} s`,
    shown: `${count(messagesPerSecond)}/s, ${whole.name} p99 ${figure(whole.of.p99)} ms`,
    sheets: [latencySheet(result), costSheet(result), ...(result.shards.length > 1 ? [shardSheet(result)] : [])],
    facts: factsOf(result),
    checks: checksOf(result),
    graphs: [
      histogram(result),
      spectrumGraph([[`${rate === null ? 'send' : 'due'} → push`, result.e2eSpectrum]]),
      ...overTime(spans),
      ...usageGraphs(result.samples),
    ],
    figures: { generatorShare: result.loadgenCpuShareMax },
  }
}

function latencySheet(result: LoadResult): Sheet {
  return {
    head: ['milliseconds', 'p50', 'p95', 'p99', 'max'],
    rows: latencyRows(result).map(([name, of]) => [name, ...[of.p50, of.p95, of.p99, of.max].map(figure)]),
  }
}

function costSheet(result: LoadResult): Sheet {
  const { acked, wallMs, brokerCpuSeconds, brokerRssMbPeak, brokerFdMax } = result
  const row = (name: string, cpu: number | null, ...rest: string[]) => {
    const each = cpu === null ? null : (cpu * 1e6) / Math.max(1, acked)
    const cores = cpu === null ? null : (cpu * 1000) / Math.max(1, wallMs)
    return [name, ...[cpu, each, cores].map((value) => orDash(value)), ...rest]
  }
  return {
    head: ['CPU', 'seconds', 'µs a message', 'cores', 'peak RSS MB', 'descriptors'],
    rows: [
      row('broker', brokerCpuSeconds, orDash(brokerRssMbPeak), orDash(brokerFdMax, count)),
      row('Postgres', result.postgresCpuSeconds, orDash(result.postgresRssMbPeak), '–'),
      row('load generator', result.loadgenCpuSeconds, '–', '–'),
    ],
  }
}

function shardSheet({ shards, wallMs }: LoadResult): Sheet {
  const rows = shards.map(({ peers, accepted, pushed, cpuSeconds, rssMbPeak, fdMax }, i) => {
    const cores = cpuSeconds === null ? null : (cpuSeconds * 1000) / Math.max(1, wallMs)
    const counts = [peers, accepted ?? null, pushed ?? null].map((value) => orDash(value, count))
    return [String(i + 1), ...counts, orDash(cores), orDash(rssMbPeak), orDash(fdMax, count)]
  })
  return { head: ['shard', 'peers', 'accepted', 'pushed', 'cores', 'peak RSS MB', 'descriptors'], rows }
}

function checksOf(result: LoadResult): Chapter['checks'] {
  const { lost, timedOut, duplicates, misdelivered, outOfOrder, refused } = result
  const none = (n: number, words: string) => ({
    about: 'mail' as const,
    isMet: n === 0,
    sentence: `${words} (${count(n)}).`,
  })
  const refusals = Object.values(refused).reduce((a, b) => a + b, 0)
  return [
    none(lost + timedOut, 'No message was lost or late beyond the wait'),
    none(misdelivered + outOfOrder, 'None came to the wrong peer, damaged, or out of order'),
    none(refusals, 'No send was refused'),
    {
      about: 'mail',
      isMet: true,
      sentence: `${count(duplicates)} came twice; the SDK hid ${count(result.duplicatesHidden)} of them.`,
    },
    generatorCheck(result.loadgenCpuShareMax),
  ]
}

function factsOf(result: LoadResult): Chapter['facts'] {
  const { form, window, seed, generators, meshes, shards, cells, crossShare } = result
  const perMessage = [result.transactionsPerMessage, result.walBytesPerMessage].map((value) => orDash(value))
  const spread = `${plural(meshes, 'mesh', 'meshes')}, ${plural(shards.length, 'broker')}, ${plural(cells, 'database')}`
  return [
    ...clockNotes(result).map((note) => ['clock', note] as const),
    ['delivered', deliveriesText(result)],
    ['keys', keysText(result)],
    ['database', `${perMessage[0]} transactions and ${perMessage[1]} bytes of WAL a message`],
    ['spread', `${spread}; ${figure(crossShare * 100)} % of the messages went from shard to shard`],
    ['setting', `${form} frames, window ${window}, seed ${seed}, ${plural(generators, 'load generator')}`],
  ]
}

function histogram({ e2eBins, rate }: LoadResult): HistogramChart {
  const bars = e2eBins.map(([upToMs, messages]) => [figure(upToMs), messages] as const)
  return {
    title: 'Messages by latency',
    x: `${rate === null ? 'send' : 'due'} → push, in milliseconds, up to`,
    y: 'messages',
    bars,
  }
}

function overTime(spans: readonly SpanLatencies[]): Graph[] {
  if (spans.length < 2) return []
  const line = (name: 'p50' | 'p95' | 'p99') => ({
    name,
    points: spans.map(({ e2eMs }, second) => [second, e2eMs[name]] as const),
  })
  const sent = spans.map(({ delivered }, second) => [second, delivered] as const)
  return [
    {
      title: 'Latency of the messages of each second',
      x: 'seconds',
      y: 'ms',
      lines: [line('p50'), line('p95'), line('p99')],
    },
    { title: 'Messages of each second', x: 'seconds', y: 'messages', lines: [{ name: 'delivered', points: sent }] },
  ]
}
