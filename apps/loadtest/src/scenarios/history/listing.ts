/** Readers of a conversation: its newest page, the one before it, and who is there; twice as many of them in the end. */

import { HistoryFixture, readersOf } from '@sealpost/harness/members/history-fixture'
import type { HttpReader, Reading } from '@sealpost/harness/members/http-reader'
import { generateMesh } from '@sealpost/harness/members/mesh'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { Latencies } from '@sealpost/harness/report/latencies'
import { count, figure } from '@sealpost/harness/report/text'
import { clockMs } from '@sealpost/sdk'
import { Effort, generatorCheck } from '../effort.ts'
import { spectrumGraph } from '../latency.ts'
import { latencyCheck, samplesFor } from '../percentiles.ts'
import { type Findings, type Scenario, type ScenarioSetup, sizeOf } from '../scenario.ts'

const P95_MS_MAX = 200
/** Of a page: half a megabyte in base64, and what stands around it. */
const PAGE_BYTES_MAX = 800_000

export const listing: Scenario = {
  name: 'listing',
  summary: '30, then 60 readers of a conversation of 100 members: pages of 200, and the members',
  reported: 'p95 5,000 ms; 805 kB a page',
  bar: `p95 ≤ ${P95_MS_MAX} ms`,
  run,
}

const MEMBERS = 100
const PAGE = 200
const CONVERSATION = { messages: 20_000, bytes: 800 }
/** Of a reader, who looks at what came. */
const PAUSE_MS = 1_000
/** Behind every seq. */
const LAST = Number.MAX_SAFE_INTEGER

interface Tally {
  readonly latencies: Latencies
  pages: number
  broken: number
  bytesMax: number
}

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { target, display } = setup
  const { peers, seconds } = sizeOf(setup, { peers: 60, seconds: 60 }, { peers: 10, seconds: 4 })
  const effort = new Effort()
  const ground = await HistoryFixture.open(target.databaseUrl)
  const close = teardown.add({ end: () => ground.close() })
  const mesh = await generateMesh(Math.max(MEMBERS, peers))
  await target.databases.seed(mesh, 0)
  teardown.add({ end: () => (target.isDatabaseOurs ? Promise.resolve() : target.databases.forget(mesh.meshId)) })
  display.step(`${count(CONVERSATION.messages)} messages`)
  await ground.fillMessages(mesh, CONVERSATION)
  await close()
  const readers = await readersOf({ ...mesh, secrets: mesh.secrets.slice(0, peers) }, target.shards[0]!)
  const at = `/v1/meshes/${mesh.meshId}`
  const paths = [LAST, CONVERSATION.messages - PAGE].map(
    (before) => `${at}/history?space=${mesh.meshId}&limit=${PAGE}&before=${before}`,
  )
  const paged = [...paths, `${at}/spaces/${mesh.meshId}/members`]
  const tally: Tally = { latencies: new Latencies(), pages: 0, broken: 0, bytesMax: 0 }
  // A member that opens a conversation has seen the list before: the broker has not just started, and its connections stand.
  for (const reader of readers) for (const path of paged.slice(1)) await reader.read(path)
  display.step('all open it at once')
  const rounds = setup.options.isQuick ? 1 : Math.ceil(samplesFor(95) / readers.length)
  const opening = await openAtOnce(readers, { path: paths[0]!, rounds })
  for (const share of [0.5, 1]) {
    const some = readers.slice(0, Math.max(1, Math.round(peers * share)))
    display.step(`${some.length} readers for ${seconds / 2} s`)
    const untilMs = clockMs() + (seconds / 2) * 1000
    const all = Promise.all(some.map((reader, i) => readOn(reader, { paths: paged, first: i, untilMs, tally })))
    await Promise.race([all, target.failed])
  }
  return findingsOf({ peers, tally, opening, share: effort.share })
}

/** In rounds: there are fewer readers than samples that a percentile takes. */
async function openAtOnce(
  readers: readonly HttpReader[],
  { path, rounds }: { readonly path: string; readonly rounds: number },
): Promise<Latencies> {
  const latencies = new Latencies()
  for (let round = 0; round < rounds; round++)
    for (const { ms } of await Promise.all(readers.map((reader) => reader.read(path)))) latencies.note(ms)
  return latencies
}

interface Turn {
  readonly paths: readonly string[]
  readonly first: number
  readonly untilMs: number
  readonly tally: Tally
}

async function readOn(reader: HttpReader, { paths, first, untilMs, tally }: Turn): Promise<void> {
  for (let i = first; clockMs() < untilMs; i++) {
    note(tally, await reader.read(paths[i % paths.length]!))
    await Bun.sleep(PAUSE_MS * (0.5 + Math.random()))
  }
}

function note(tally: Tally, { status, bytes, ms }: Reading): void {
  tally.pages += 1
  tally.bytesMax = Math.max(tally.bytesMax, bytes)
  tally.latencies.note(ms)
  if (status !== 200) tally.broken += 1
}

interface Listed {
  readonly peers: number
  readonly tally: Tally
  readonly opening: Latencies
  readonly share: number
}

function findingsOf({ peers, tally, opening, share }: Listed): Findings {
  const { latencies, pages, broken, bytesMax } = tally
  const { p50, p95, p99 } = latencies.percentiles
  const openingP95 = opening.at(95)
  return {
    headline: `${count(pages)} pages for ${count(peers)} readers: p95 ${figure(p95)} ms, ${figure(bytesMax / 1000)} kB at most`,
    shown: `p95 ${figure(p95)} ms`,
    sheets: [
      {
        head: ['pages', 'p50', 'p95', 'p99 ms', 'largest kB'],
        rows: [[count(pages), figure(p50), figure(p95), figure(p99), figure(bytesMax / 1000)]],
      },
    ],
    facts: [
      ['opened at once', `by ${count(peers)}, ${count(opening.count)} pages in all: p95 ${figure(openingP95)} ms`],
    ],
    checks: [
      { about: 'mail', isMet: broken === 0, sentence: 'Every page came.' },
      {
        about: 'mail',
        isMet: bytesMax <= PAGE_BYTES_MAX,
        sentence: `No page is larger than ${PAGE_BYTES_MAX / 1000} kB.`,
      },
      latencyCheck(latencies, { percent: 95, maxMs: P95_MS_MAX, of: 'pages' }),
      latencyCheck(opening, { percent: 95, maxMs: P95_MS_MAX, of: 'pages opened by all at once' }),
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
