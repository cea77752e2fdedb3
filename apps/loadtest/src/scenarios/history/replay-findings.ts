/** What replays cost, as tables, graphs and checks. */

import type { FilledSpace } from '@sealpost/harness/members/history-fixture'
import { Latencies } from '@sealpost/harness/report/latencies'
import { count, figure } from '@sealpost/harness/report/text'
import { generatorCheck } from '../effort.ts'
import { spectrumGraph } from '../latency.ts'
import { percentileCheck } from '../percentiles.ts'
import type { Check, Findings, Graph } from '../scenario.ts'
import type { Burst } from './replay-bursts.ts'

export const RATIO_MAX = 1.5
const MB = 1_000_000
const FIRST_BYTE_MS_MAX = 200
const RSS_MB_MAX = 64
const CROWD_RSS_MB_MAX = 256
const LIVE_P99_MS_MAX = 100
const REFRESH_SECONDS_MAX = 6

export interface Row {
  readonly space: FilledSpace
  readonly atOnce: number
  readonly oursMs: number
  /** The same as lines of JSON; null: not asked. */
  readonly linesMs: number | null
  readonly copyMs: number
  readonly firstByteMs: number
  readonly bytes: number
  readonly rssGrowthMb: number
  readonly isWhole: boolean
}

export interface Refresh {
  readonly seconds: number
  /** Every entry is in it. */
  readonly isWhole: boolean
}

export interface Crowd {
  readonly atOnce: number
  readonly burst: Burst
  readonly singleMs: number
  readonly liveMessages: number
  readonly liveP99Ms: number
  readonly liveIsClean: boolean
}

export interface ReplayMeasurements {
  readonly rows: readonly Row[]
  readonly crowd: Crowd
  readonly made: Refresh
  readonly isQuick: boolean
  readonly share: number
}

const ratioOf = ({ oursMs, copyMs }: Row): number => oursMs / copyMs

export function findingsOf(measured: ReplayMeasurements): Findings {
  const { rows, crowd, made, isQuick, share } = measured
  const worst = Math.max(...rows.map(ratioOf))
  const largest = rows.filter(({ atOnce }) => atOnce === 1).at(-1)!
  const crowdRatio = crowd.burst.ms / (crowd.atOnce * crowd.singleMs)
  return {
    headline: `${count(largest.space.entries)} entries in ${figure(largest.oursMs / 1000)} s, ${figure(ratioOf(largest))} × COPY`,
    // An answer of a few milliseconds is the time of its question: the bar is for those that take longer.
    shown: isQuick ? `${figure(worst)} × of a short one` : `${figure(worst)} ×`,
    isBarJudged: !isQuick,
    sheets: [
      {
        head: ['entries', 'MB', 'at once', 'answer s', 'COPY s', 'ratio', 'as lines', 'first byte ms', 'RSS + MB'],
        rows: rows.map((row) => [
          ...[count(row.space.entries), figure(row.bytes / MB), count(row.atOnce), figure(row.oursMs / 1000)],
          ...[row.copyMs / 1000, ratioOf(row)].map(figure),
          row.linesMs === null ? '–' : figure(row.linesMs / row.copyMs),
          ...[row.firstByteMs, row.rssGrowthMb].map(figure),
        ]),
      },
    ],
    facts: [
      ['snapshot', `of ${count(largest.space.entries)} entries made again in ${figure(made.seconds)} s`],
      [
        'crowd',
        `${crowd.atOnce} at once in ${figure(crowd.burst.ms / 1000)} s, ${figure(crowdRatio)} × as many alone; RSS + ${figure(crowd.burst.rssGrowthMb)} MB; live p99 ${figure(crowd.liveP99Ms)} ms`,
      ],
    ],
    checks: checksOf(measured, crowdRatio),
    graphs: graphsOf(rows, crowd),
    figures: {
      ratioMax: worst,
      ...Object.fromEntries(rows.map((row) => [`ratio${row.space.entries}x${row.atOnce}`, ratioOf(row)])),
      linesRatioMax: Math.max(...rows.map(({ linesMs, copyMs }) => (linesMs ?? 0) / copyMs)),
      ...Object.fromEntries(rows.map((row) => [`ms${row.space.entries}x${row.atOnce}`, row.oursMs])),
      firstByteMs: Math.max(...rows.filter(({ atOnce }) => atOnce === 1).map(({ firstByteMs }) => firstByteMs)),
      rssGrowthMb: largest.rssGrowthMb,
      crowdRatio,
      crowdRssGrowthMb: crowd.burst.rssGrowthMb,
      crowdWhole: crowd.burst.readings.filter(({ isWhole }) => isWhole).length,
      liveP99Ms: crowd.liveP99Ms,
      refreshSeconds: made.seconds,
      generatorShare: share,
    },
  }
}

function graphsOf(rows: readonly Row[], { burst, atOnce }: Crowd): Graph[] {
  const latencies = new Latencies()
  for (const { ms } of burst.readings) latencies.note(ms)
  const crowd = spectrumGraph([[`${atOnce} answers at once`, latencies.spectrum]])
  const alone = rows.filter((row) => row.atOnce === 1)
  if (alone.length < 2) return [crowd]
  const line = (name: string, pick: (row: Row) => number) => ({
    ...{ name, points: alone.map((row) => [row.space.entries, pick(row) / 1000] as const) },
  })
  const lines = [line('answer', ({ oursMs }) => oursMs), line('COPY', ({ copyMs }) => copyMs)]
  return [{ title: 'One answer alone', x: 'entries', y: 'seconds', lines }, crowd]
}

function checksOf({ rows, crowd, made, isQuick, share }: ReplayMeasurements, crowdRatio: number): Check[] {
  const wholes: Check[] = [
    { about: 'mail', isMet: rows.every(({ isWhole }) => isWhole), sentence: 'Every answer came to its end.' },
    {
      about: 'mail',
      isMet: crowd.burst.readings.every(({ isWhole }) => isWhole),
      sentence: 'So did all of the crowd.',
    },
    { about: 'mail', isMet: crowd.liveIsClean, sentence: 'Every message beside them arrived once.' },
    { about: 'mail', isMet: made.isWhole, sentence: 'A snapshot was made again, with every entry in it.' },
  ]
  if (isQuick) return [...wholes, generatorCheck(share)]
  const atMost = (sentence: string, value: number, max: number): Check => ({
    ...{ about: 'cost', isMet: value <= max, sentence: `${sentence} at most ${max} (${figure(value)}).` },
  })
  const alone = rows.filter(({ atOnce }) => atOnce === 1)
  const hundred = alone.find(({ space }) => space.entries === 100_000)!
  return [
    ...wholes,
    ...rows.map((row) =>
      atMost(`${count(row.space.entries)} entries, ${row.atOnce} at once: times COPY`, ratioOf(row), RATIO_MAX),
    ),
    atMost('First byte of 100,000 entries: ms', hundred.firstByteMs, FIRST_BYTE_MS_MAX),
    atMost('The broker grows by MB with 200,000 entries:', alone.at(-1)!.rssGrowthMb, RSS_MB_MAX),
    atMost('With the crowd:', crowd.burst.rssGrowthMb, CROWD_RSS_MB_MAX),
    atMost('The crowd takes, times as many alone,', crowdRatio, RATIO_MAX),
    percentileCheck({
      ...{ percent: 99, samples: crowd.liveMessages, ms: crowd.liveP99Ms, maxMs: LIVE_P99_MS_MAX },
      of: 'live messages',
    }),
    atMost('A snapshot of 200,000 entries takes seconds', made.seconds, REFRESH_SECONDS_MAX),
    generatorCheck(share),
  ]
}
