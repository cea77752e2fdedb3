/**
 * The state of a past moment, read whole, over 30 days of events: beside the time in which the same query's rows come out of
 * Postgres when nobody does anything with them. In its full form with a database of its own, restarted before each answer.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type EmbeddedPostgres, startEmbedded } from '@sealpost/db/embedded'
import { defaultSnapshotOptions, momentText, REPLAY_SESSION, Snapshots, stateAt } from '@sealpost/replay'
import postgres from 'postgres'
import type { Teardown } from '../../lib/teardown.ts'
import { type Environment, openEnvironment } from '../environment.ts'
import { type FilledSpace, HistoryGround, readerOf, type SpaceSize } from '../history-ground.ts'
import type { Reading } from '../http-reader.ts'
import type { Plan } from '../plan.ts'
import { factsOf } from '../proc.ts'
import { resultOf } from '../result.ts'
import { newMeshes, runOnce } from '../run.ts'
import { ALONE } from '../spread.ts'
import { count, figure } from '../text.ts'
import { Effort, generatorCheck } from './effort.ts'
import type { Check, Findings, Scenario, ScenarioSetup } from './scenario.ts'

const RATIO_MAX = 1.5

export const replay: Scenario = {
  name: 'replay',
  summary: 'the state at a moment, up to 200,000 entries over 3.6 M events, alone and 50 at once',
  reported: '100,000 entries: 5 s; 50 at once: 76 % came, in 42 s',
  bar: `≤ ${RATIO_MAX} × COPY of the same query`,
  run,
}

const MB = 1_000_000
/** Bytes of the entries as they are sealed. */
const SIZES: readonly SpaceSize[] = [
  { entries: 11_000, bytes: 12 * MB, events: 300_000 },
  { entries: 22_000, bytes: 24 * MB, events: 400_000 },
  { entries: 60_000, bytes: 65 * MB, events: 700_000 },
  { entries: 100_000, bytes: 108 * MB, events: 1_000_000 },
  { entries: 200_000, bytes: 173 * MB, events: 1_200_000 },
]
const SHORT: readonly SpaceSize[] = [{ entries: 500, bytes: 500_000, events: 2_000 }]
/** Of one member no more wait in line than this. */
const MEMBERS = 10
const ROUNDS = 3
const FIRST_BYTE_MS_MAX = 200
const RSS_MB_MAX = 64
const CROWD_RSS_MB_MAX = 256
const LIVE = { peers: 10, rate: 200 }
const LIVE_P99_MS_MAX = 100
const REFRESH_SECONDS_MAX = 6

/** Where it is played, and how to bring its database to a fresh start. */
interface Place {
  readonly target: Environment
  readonly sizes: readonly SpaceSize[]
  readonly rounds: number
  readonly restart: () => Promise<void>
}

interface Row {
  readonly space: FilledSpace
  readonly atOnce: number
  readonly oursMs: number
  readonly copyMs: number
  readonly firstByteMs: number
  readonly bytes: number
  readonly rssGrowthMb: number
  readonly isWhole: boolean
}

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const effort = new Effort()
  const place = setup.options.isQuick ? shortPlace(setup) : await longPlace(setup, teardown)
  const ground = await HistoryGround.open(place.target.databaseUrl)
  const close = teardown.add({ end: () => ground.close() })
  await ground.makeDays()
  const spaces: FilledSpace[] = []
  for (const size of place.sizes) {
    setup.display.step(`${count(size.events)} events of ${count(size.entries)} entries`)
    spaces.push(await ground.fill(size, MEMBERS, place.target))
  }
  await ground.checkpoint()
  const refreshSeconds = await refresh(ground, spaces.at(-1)!)
  await close()
  const rows: Row[] = []
  for (const space of spaces) rows.push(await measure(setup, place, { space, atOnce: 1 }))
  for (const space of spaces.slice(1, 3))
    for (const atOnce of [5, 25]) rows.push(await measure(setup, place, { space, atOnce }))
  const crowd = await crowded(setup, place, spaces[Math.min(3, spaces.length - 1)]!, teardown)
  return findingsOf({ rows, crowd, refreshSeconds, isQuick: setup.options.isQuick, share: effort.share })
}

const shortPlace = ({ target }: ScenarioSetup): Place => ({
  ...{ target, sizes: SHORT, rounds: 1, restart: () => Promise.resolve() },
})

async function longPlace({ options, display }: ScenarioSetup, teardown: Teardown): Promise<Place> {
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-replay-'))
  teardown.add({ end: () => rm(folder, { recursive: true, force: true }) })
  const dataDir = join(folder, 'data')
  const start = (port?: number) => startEmbedded({ dataDir, ...(port && { port }), settings: { max_wal_size: '8GB' } })
  let server: EmbeddedPostgres = await start()
  teardown.add({ end: () => server.stop(), kill: () => server.kill() })
  const tell = (step: string) => display.step(step)
  const words = { words: [], tell, databaseUrl: server.url }
  const target = await openEnvironment({ ...options, ...options.spread, ...words }, teardown)
  const restart = async () => {
    await server.stop()
    server = await start(server.port)
  }
  return { target, sizes: SIZES, rounds: ROUNDS, restart }
}

async function refresh(ground: HistoryGround, space: FilledSpace): Promise<number> {
  const startMs = performance.now()
  await new Snapshots(ground.db, { ...defaultSnapshotOptions, eventsMin: 1 }, 600_000).refresh(space.ref)
  const seconds = (performance.now() - startMs) / 1000
  await ground.forgetNewest(space.ref) // a replay from it would have nothing to catch up with
  return seconds
}

interface Round {
  readonly space: FilledSpace
  readonly atOnce: number
}

/** In turns, so that whatever else the machine does meets both. */
async function measure({ display }: ScenarioSetup, place: Place, round: Round): Promise<Row> {
  const { space, atOnce } = round
  const [ours, copies]: [Burst[], number[]] = [[], []]
  for (let i = 0; i < place.rounds; i++) {
    display.step(`${count(space.entries)} entries, ${atOnce} at once: ${i + 1} of ${place.rounds}`)
    await place.restart()
    ours.push(await readBurst(place.target, round))
    await place.restart()
    copies.push(await copyBurst(place.target, round))
  }
  const middle = ours.toSorted((a, b) => a.ms - b.ms)[ours.length >> 1]!
  return {
    ...{ space, atOnce, oursMs: middle.ms, copyMs: median(copies) },
    firstByteMs: median(ours.map(({ readings }) => Math.min(...readings.map(({ firstByteMs }) => firstByteMs)))),
    bytes: middle.readings[0]!.bytes,
    rssGrowthMb: Math.max(...ours.map(({ rssGrowthMb }) => rssGrowthMb)),
    isWhole: ours.every(({ readings }) => readings.every(({ isWhole }) => isWhole)),
  }
}

interface Burst {
  readonly ms: number
  readonly readings: readonly Reading[]
  readonly rssGrowthMb: number
}

async function readBurst(target: Environment, { space, atOnce }: Round): Promise<Burst> {
  const members = Array.from({ length: Math.min(MEMBERS, atOnce) }, (_, member) => readerOf(space, { target, member }))
  const readers = await Promise.all(members)
  await readers[0]!.read(pathOf(space, 1)) // whoever comes first pays for connections and code
  const pid = target.shards[0]!.pid
  const memory = () => (pid === null ? 0 : (factsOf(pid)?.rssMb ?? 0))
  const before = memory()
  let most = before
  const watch = setInterval(() => (most = Math.max(most, memory())), 50)
  const startMs = performance.now()
  const all = Array.from({ length: atOnce }, (_, i) => readers[i % readers.length]!.read(pathOf(space)))
  const readings = await Promise.race([Promise.all(all), target.failed])
  const ms = performance.now() - startMs
  clearInterval(watch)
  return { ms, readings, rssGrowthMb: most - before }
}

/** With `behind`, hardly anything: what lies behind all seqs. */
function pathOf({ ref, at, events }: FilledSpace, behind = 0): string {
  const query = new URLSearchParams({ space: ref.spaceId, at: momentText(at), after: String(behind * events) })
  return `/v1/meshes/${ref.meshId}/state?${query}`
}

/** The same rows, read by as many connections as the broker uses, and thrown away. */
async function copyBurst({ databaseUrl }: Environment, { space, atOnce }: Round): Promise<number> {
  const sql = postgres(databaseUrl, { max: Math.min(2, atOnce), connection: REPLAY_SESSION, onnotice: () => undefined })
  try {
    await Promise.all(Array.from({ length: Math.min(2, atOnce) }, () => sql`select 1`))
    const query = stateAt({ space: space.ref, at: space.at, after: 0, base: space.base })
    let left = atOnce
    const startMs = performance.now()
    const lane = async () => {
      while (left-- > 0) await discard(await sql.unsafe(`copy (${query}) to stdout (format binary)`).readable())
    }
    await Promise.all(Array.from({ length: Math.min(2, atOnce) }, lane))
    return performance.now() - startMs
  } finally {
    await sql.end({ timeout: 5 })
  }
}

/** By its events: reading it in a loop hangs. */
const discard = (stream: NodeJS.ReadableStream): Promise<void> =>
  new Promise((resolve, reject) => {
    stream.on('data', () => undefined)
    stream.on('end', () => resolve())
    stream.on('error', reject)
  })

const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[values.length >> 1]!

interface Crowd {
  readonly atOnce: number
  readonly burst: Burst
  readonly singleMs: number
  readonly liveP99Ms: number
  readonly liveIsClean: boolean
}

/** As many as a published API could not serve, while others write to each other. */
async function crowded(setup: ScenarioSetup, place: Place, space: FilledSpace, teardown: Teardown): Promise<Crowd> {
  const { options, display } = setup
  const { target } = place
  const atOnce = options.isQuick ? 10 : 50
  const singleMs = (await readBurst(target, { space, atOnce: 1 })).ms
  const seconds = Math.max(2, Math.min(300, Math.ceil((singleMs * atOnce) / 1000)))
  const live = { peers: LIVE.peers, total: LIVE.rate * seconds, rate: LIVE.rate }
  const plan: Plan = { ...live, payloadBytes: options.payloadBytes, seed: options.seed, isOneWay: false, spread: ALONE }
  const meshes = await newMeshes({ plan, target, options }, teardown)
  let burst: Promise<Burst> | undefined
  const onStart = () => {
    display.step(`${atOnce} at once, and ${LIVE.rate} messages a second`)
    burst = readBurst(target, { space, atOnce })
  }
  const outcome = await runOnce({ plan, meshes, target, options, display, onStart }, teardown)
  const result = resultOf(outcome, target, options)
  const isClean = result.lost === 0 && result.delivered === result.total
  return { atOnce, burst: await burst!, singleMs, liveP99Ms: result.e2eMs.p99, liveIsClean: isClean }
}

interface Measured {
  readonly rows: readonly Row[]
  readonly crowd: Crowd
  readonly refreshSeconds: number
  readonly isQuick: boolean
  readonly share: number
}

const ratioOf = ({ oursMs, copyMs }: Row): number => oursMs / copyMs

function findingsOf(measured: Measured): Findings {
  const { rows, crowd, refreshSeconds, share } = measured
  const worst = Math.max(...rows.map(ratioOf))
  const largest = rows.filter(({ atOnce }) => atOnce === 1).at(-1)!
  const crowdRatio = crowd.burst.ms / (crowd.atOnce * crowd.singleMs)
  return {
    headline: `${count(largest.space.entries)} entries in ${figure(largest.oursMs / 1000)} s, ${figure(ratioOf(largest))} × COPY`,
    shown: `${figure(worst)} ×`,
    sheets: [
      {
        head: ['entries', 'MB', 'at once', 'answer s', 'COPY s', 'ratio', 'first byte ms', 'RSS + MB'],
        rows: rows.map((row) => [
          ...[count(row.space.entries), figure(row.bytes / MB), count(row.atOnce), figure(row.oursMs / 1000)],
          ...[row.copyMs / 1000, ratioOf(row), row.firstByteMs, row.rssGrowthMb].map(figure),
        ]),
      },
    ],
    facts: [
      ['snapshot', `of ${count(largest.space.entries)} entries made anew in ${figure(refreshSeconds)} s`],
      [
        'crowd',
        `${crowd.atOnce} at once in ${figure(crowd.burst.ms / 1000)} s, ${figure(crowdRatio)} × as many alone; RSS + ${figure(crowd.burst.rssGrowthMb)} MB; live p99 ${figure(crowd.liveP99Ms)} ms`,
      ],
    ],
    checks: checksOf(measured, crowdRatio),
    graphs: [],
    figures: {
      ratioMax: worst,
      ...Object.fromEntries(rows.map((row) => [`ratio${row.space.entries}x${row.atOnce}`, ratioOf(row)])),
      ...Object.fromEntries(rows.map((row) => [`ms${row.space.entries}x${row.atOnce}`, row.oursMs])),
      firstByteMs: Math.max(...rows.filter(({ atOnce }) => atOnce === 1).map(({ firstByteMs }) => firstByteMs)),
      rssGrowthMb: largest.rssGrowthMb,
      crowdRatio,
      crowdRssGrowthMb: crowd.burst.rssGrowthMb,
      crowdWhole: crowd.burst.readings.filter(({ isWhole }) => isWhole).length,
      liveP99Ms: crowd.liveP99Ms,
      refreshSeconds,
      generatorShare: share,
    },
  }
}

function checksOf({ rows, crowd, refreshSeconds, isQuick, share }: Measured, crowdRatio: number): Check[] {
  const wholes: Check[] = [
    { about: 'mail', isMet: rows.every(({ isWhole }) => isWhole), sentence: 'Every answer came to its end.' },
    {
      about: 'mail',
      isMet: crowd.burst.readings.every(({ isWhole }) => isWhole),
      sentence: 'So did all of the crowd.',
    },
    { about: 'mail', isMet: crowd.liveIsClean, sentence: 'Every message beside them arrived once.' },
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
    atMost('Live messages have a p99 of ms', crowd.liveP99Ms, LIVE_P99_MS_MAX),
    atMost('A snapshot of 200,000 entries takes seconds', refreshSeconds, REFRESH_SECONDS_MAX),
    generatorCheck(share),
  ]
}
