/**
 * In this scenario, readers fetch the newest page of a conversation, the page before it, and its members. Then twice as
 * many readers do the same.
 */

import { HistoryFixture, readersOf } from '@sealpost/harness/members/history-fixture'
import type { HttpReader, Reading } from '@sealpost/harness/members/http-peers'
import { generateMesh, sliceOf } from '@sealpost/harness/members/mesh'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { Latencies } from '@sealpost/harness/report/latencies'
import { count, figure } from '@sealpost/harness/report/text'
import { clockMs } from '@sealpost/sdk'
import type { RunContext } from '../../run/run.ts'
import {
  Effort,
  type Findings,
  generatorCheck,
  latencyCheck,
  mailCheck,
  type Scenario,
  samplesFor,
  sizeOf,
  spectrumGraph,
} from '../scenario.ts'

const P95_MS_MAX = 200
/** The maximum size of a page: half a megabyte in base64, with JSON. */
const PAGE_BYTES_MAX = 800_000

export const listing: Scenario = {
  name: 'listing',
  summary: '30, then 60 readers read a conversation of 100 members in pages of 200, and its members',
  reported: 'p95 5,000 ms; 805 kB a page',
  bar: `p95 ≤ ${P95_MS_MAX} ms`,
  run,
}

const MEMBERS = 100
const PAGE = 200
const CONVERSATION = { messages: 20_000, bytes: 800 }
/** A reader's pause between two pages. */
const PAUSE_MS = 1_000
/** A seq above that of any event. */
const LAST = Number.MAX_SAFE_INTEGER

interface ReadTally {
  readonly latencies: Latencies
  pages: number
  broken: number
  bytesMax: number
}

async function run(context: RunContext, teardown: Teardown): Promise<Findings> {
  const { target, display, options } = context
  const { peers, seconds } = sizeOf(context, { peers: 60, seconds: 60 }, { peers: 10, seconds: 4 })
  const effort = new Effort()
  const fixture = await HistoryFixture.open(target.databaseUrl)
  const close = teardown.add({ end: () => fixture.close() })
  const mesh = await generateMesh(Math.max(MEMBERS, peers))
  await target.databases.first.seed(mesh)
  if (!target.isDatabaseOurs) teardown.add({ end: () => target.databases.forget(mesh.meshId) })
  display.step(`${count(CONVERSATION.messages)} messages`)
  await fixture.fillMessages(mesh, CONVERSATION)
  await close()
  const readers = await readersOf(sliceOf(mesh, 0, peers), target.shards[0]!)
  const paths = pathsOf(mesh.meshId)
  const tally: ReadTally = { latencies: new Latencies(), pages: 0, broken: 0, bytesMax: 0 }
  // Warm up with one request, like a member that opens a conversation again.
  for (const reader of readers) for (const path of paths.slice(1)) await reader.read(path)
  display.step('all open it at once')
  const rounds = options.isQuick ? 1 : Math.ceil(samplesFor(95) / readers.length)
  const opening = await openAtOnce(readers, { path: paths[0]!, rounds })
  for (const share of [0.5, 1]) {
    const some = readers.slice(0, Math.max(1, Math.round(peers * share)))
    display.step(`${some.length} readers for ${seconds / 2} s`)
    const untilMs = clockMs() + (seconds / 2) * 1000
    const all = Promise.all(some.map((reader, i) => readUntil(reader, { paths, first: i, untilMs, tally })))
    await Promise.race([all, target.failed])
  }
  return findingsOf({ peers, tally, opening, share: effort.share })
}

function pathsOf(meshId: string): string[] {
  const mesh = `/v1/meshes/${meshId}`
  const pageBefore = (seq: number) => `${mesh}/history?space=${meshId}&limit=${PAGE}&before=${seq}`
  return [pageBefore(LAST), pageBefore(CONVERSATION.messages - PAGE), `${mesh}/spaces/${meshId}/members`]
}

/** Measures in rounds, because a percentile needs more samples than readers. */
async function openAtOnce(
  readers: readonly HttpReader[],
  { path, rounds }: { readonly path: string; readonly rounds: number },
): Promise<Latencies> {
  const latencies = new Latencies()
  for (let round = 0; round < rounds; round++)
    for (const { ms } of await Promise.all(readers.map((reader) => reader.read(path)))) latencies.note(ms)
  return latencies
}

interface ReadTurn {
  readonly paths: readonly string[]
  readonly first: number
  readonly untilMs: number
  readonly tally: ReadTally
}

async function readUntil(reader: HttpReader, { paths, first, untilMs, tally }: ReadTurn): Promise<void> {
  for (let i = first; clockMs() < untilMs; i++) {
    note(tally, await reader.read(paths[i % paths.length]!))
    await Bun.sleep(PAUSE_MS * (0.5 + Math.random()))
  }
}

function note(tally: ReadTally, { status, bytes, ms }: Reading): void {
  tally.pages += 1
  tally.bytesMax = Math.max(tally.bytesMax, bytes)
  tally.latencies.note(ms)
  if (status !== 200) tally.broken += 1
}

interface ListingFigures {
  readonly peers: number
  readonly tally: ReadTally
  readonly opening: Latencies
  readonly share: number
}

function findingsOf({ peers, tally, opening, share }: ListingFigures): Findings {
  const { latencies, pages, broken, bytesMax } = tally
  const { p50, p95, p99 } = latencies.percentiles
  const openingP95 = opening.at(95)
  const largest = figure(bytesMax / 1000)
  const bound = { percent: 95, maxMs: P95_MS_MAX }
  return {
    headline: `${count(pages)} pages for ${count(peers)} readers: p95 ${figure(p95)} ms, ${largest} kB at most`,
    shown: `p95 ${figure(p95)} ms`,
    sheets: [
      {
        head: ['pages', 'p50', 'p95', 'p99 ms', 'largest kB'],
        rows: [[count(pages), ...[p50, p95, p99].map(figure), largest]],
      },
    ],
    facts: [
      ['opened at once', `by ${count(peers)}, ${count(opening.count)} pages in all: p95 ${figure(openingP95)} ms`],
    ],
    checks: [
      mailCheck(broken === 0, 'Every page arrived.'),
      mailCheck(bytesMax <= PAGE_BYTES_MAX, `No page is larger than ${PAGE_BYTES_MAX / 1000} kB.`),
      latencyCheck(latencies, { ...bound, of: 'pages' }),
      latencyCheck(opening, { ...bound, of: 'pages opened by all at once' }),
      generatorCheck(share),
    ],
    graphs: [
      spectrumGraph([
        ['one after the other', latencies.spectrum],
        ['all at once', opening.spectrum],
      ]),
    ],
    figures: { pages, broken, p95Ms: p95, openingP95Ms: openingP95, bytesMax, generatorShare: share },
  }
}
