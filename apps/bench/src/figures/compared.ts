/** The README's table: v0.1.0 of the earlier project, as published and as rerun, beside what was measured here. */

import { markdownTable } from '@sealpost/harness/report/markdown'
import { count, figure } from '@sealpost/harness/report/text'
import type { LoadResult } from '@sealpost/loadtest/run/result'
import { type EarlierRun, PUBLISHED, RERUN, RERUN_PER_SECOND } from '@sealpost/loadtest/scenarios/messages/burst'
import type { ScenarioFigures } from '@sealpost/loadtest/scenarios/scenario'
import type { Measured, Results } from './results.ts'

/** Peers of the small bursts, as far as both sources have figures. */
const SIZES = [10, 50, 100]

type Row = readonly [name: string, published: string, rerun: string, own: string | null]

export function comparedTable(results: Results): string | null {
  const burst = loadOf(results.burst?.burst)
  if (!burst) return null
  const rows = [...burstRows(burst, loadOf(results['burst-800k']?.['burst-800k'])), ...otherRows(results)]
  const measured = rows.flatMap(([name, published, rerun, own]) =>
    own === null ? [] : [[name, published, rerun, own]],
  )
  return markdownTable(['', 'v0.1.0, published', 'v0.1.0, our rerun', 'Sealpost'], measured)
}

function burstRows(burst: LoadResult, long: LoadResult | null): Row[] {
  const { total, delivered, wallMs, messagesPerSecond, callToPushMs, e2eMs, brokerRssMbPeak } = burst
  const { lost, timedOut, outOfOrder, duplicates } = burst
  const share = (of: EarlierRun) => `${count(of.burst.delivered)} in ${figure(of.burst.seconds)} s`
  const speed = `${count(delivered)} in ${figure(wallMs / 1000)} s, ${count(messagesPerSecond)}/s`
  const longer = long ? `; ${count(long.total)} at ${count(long.messagesPerSecond)}/s` : ''
  const faults = [lost + timedOut, duplicates, outOfOrder].map(count).join(' / ')
  const earlier = (of: EarlierRun) => both({ p50: of.burst.p50Ms, p99: of.burst.p99Ms })
  const order = (of: EarlierRun) => (of.burst.outOfOrder === null ? '–' : `0 / – / ${count(of.burst.outOfOrder)}`)
  const memory = (of: EarlierRun) => `${count(of.burst.brokerRssMb)} MB`
  const name = `${count(burst.peers)} peers × ${count(total / burst.peers)} messages, all called at once: delivered`
  return [
    [name, share(PUBLISHED), `${share(RERUN)}, ${count(RERUN_PER_SECOND)}/s`, `**${speed}**${longer}`],
    ['call → push, p50 / p99', earlier(PUBLISHED), earlier(RERUN), callToPushMs ? `**${both(callToPushMs)}**` : '–'],
    ['send → push (from the window on), p50 / p99', '–', '–', `**${both(e2eMs)}**`],
    ['lost / twice / out of order', order(PUBLISHED), order(RERUN), `**${faults}**`],
    ['peak memory of the broker', memory(PUBLISHED), memory(RERUN), `**${figure(brokerRssMbPeak ?? 0)} MB**`],
  ]
}

function otherRows(results: Results): Row[] {
  const sizes = SIZES.join(', ')
  const kill = RERUN.lostInKill!
  return [
    ['acknowledged and lost when the broker is killed', '–', `${count(kill.lost)} of ${count(kill.of)}`, '**0**'],
    [`${sizes} peers × 100, call → push p99`, smallCell(PUBLISHED), smallCell(RERUN), ownSmallCell(results)],
    ['100 peers × 100 with the key exchange inside the clock (`--cold`)', '–', '–', coldCell(results)],
    ['1,000 messages/s, due → push p50 / p99', '–', '–', pacedCell(results)],
    ['1,000/s beside 10,000 connections, p99; memory of each', '–', '–', crowdCell(results)],
    ['the same burst and client through a relay that stores nothing', '–', '–', relayCell(results)],
  ]
}

const smallCell = ({ sweepP99Ms }: EarlierRun): string => inOne(SIZES.map((size) => sweepP99Ms[size]!))

function ownSmallCell(results: Results): string | null {
  const sweep = results.small?.small?.result.sweep ?? []
  const found = SIZES.map((size) => sweep.find(({ peers }) => peers === size)?.callToPushMs?.p99)
  return found.every((ms) => ms !== undefined) ? `**${inOne(found)}**` : null
}

function coldCell(results: Results): string | null {
  const cold = loadOf(results.cold?.cold)
  return cold && `**${figure(cold.wallMs / 1000)} s, ${count(cold.messagesPerSecond)}/s**`
}

function pacedCell(results: Results): string | null {
  const paced = loadOf(results.paced?.['1000'])
  return paced && `**${both(paced.e2eMs)}**`
}

function crowdCell(results: Results): string | null {
  const [scenario] = results.connections?.connections?.result.scenarios ?? []
  const { e2eMsP99, kbPerSession }: Partial<ScenarioFigures> = scenario?.figures ?? {}
  return e2eMsP99 === undefined || kbPerSession === undefined
    ? null
    : `**${figure(e2eMsP99)} ms**; ${figure(kbPerSession)} kB`
}

function relayCell(results: Results): string | null {
  const burst = loadOf(results.burst?.burst)
  const { baselineMessagesPerSecond, baselineRatio } = burst ?? {}
  if (baselineMessagesPerSecond === undefined || baselineRatio === undefined) return null
  return `${count(baselineMessagesPerSecond)}/s: storing costs ${count((1 - baselineRatio) * 100)} %`
}

const loadOf = (measured: Measured | undefined): LoadResult | null =>
  (measured?.result as LoadResult | undefined) ?? null

/** In seconds as soon as one of them is longer than one. */
function inOne(times: readonly number[]): string {
  const isLong = times.some((ms) => ms >= 1000)
  return `${times.map((ms) => figure(isLong ? ms / 1000 : ms)).join(' / ')} ${isLong ? 's' : 'ms'}`
}

const both = ({ p50, p99 }: { readonly p50: number; readonly p99: number }): string => inOne([p50, p99])
