/**
 * The state of a past moment, read whole, over 30 days of events: beside the time in which the same query's rows come out of
 * Postgres when nobody does anything with them. In its full form with a database of its own, restarted before each answer.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type EmbeddedPostgres, startEmbedded } from '@sealpost/db/embedded'
import { defaultSnapshotOptions, Snapshots } from '@sealpost/replay'
import type { Teardown } from '../../lib/teardown.ts'
import { type Environment, openEnvironment } from '../environment.ts'
import { type FilledSpace, HistoryGround, type SpaceSize } from '../history-ground.ts'
import type { Plan } from '../plan.ts'
import { resultOf } from '../result.ts'
import { newMeshes, runOnce } from '../run.ts'
import { ALONE } from '../spread.ts'
import { count, figure } from '../text.ts'
import { Effort, generatorCheck } from './effort.ts'
import { type Burst, copyBurst, type Form, MEMBERS, type Round, readBurst } from './replay-bursts.ts'
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
const SHORT: readonly SpaceSize[] = [{ entries: 5_000, bytes: 5 * MB, events: 20_000 }]
const WARM: SpaceSize = { entries: 100, bytes: 100_000, events: 300 }
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
  /** The same as lines of JSON; null: not asked. */
  readonly linesMs: number | null
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
  const warm = await ground.fill(WARM, MEMBERS, place.target)
  for (const size of place.sizes) {
    setup.display.step(`${count(size.events)} events of ${count(size.entries)} entries`)
    spaces.push(await ground.fill(size, MEMBERS, place.target))
  }
  await ground.checkpoint()
  const made = await refresh(ground, spaces.at(-1)!)
  await close()
  const rows: Row[] = []
  for (const space of spaces) rows.push(await measure(setup, place, { space, warm, atOnce: 1 }))
  for (const space of spaces.slice(1, 3))
    for (const atOnce of [5, 25]) rows.push(await measure(setup, place, { space, warm, atOnce }))
  const crowdAtOnce = setup.options.isQuick ? 10 : 50
  const ofCrowd = { space: spaces[Math.min(3, spaces.length - 1)]!, warm, atOnce: crowdAtOnce }
  const crowd = await crowded(setup, place, ofCrowd, teardown)
  return findingsOf({ rows, crowd, made, isQuick: setup.options.isQuick, share: effort.share })
}

const shortPlace = ({ target }: ScenarioSetup): Place => ({
  ...{ target, sizes: SHORT, rounds: ROUNDS, restart: () => Promise.resolve() },
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

interface Refresh {
  readonly seconds: number
  /** Every entry is in it. */
  readonly isWhole: boolean
}

/** A little before it is due, so that the broker has not made it already. */
async function refresh(ground: HistoryGround, { ref, entries }: FilledSpace): Promise<Refresh> {
  const startMs = performance.now()
  const options = { ...defaultSnapshotOptions, share: defaultSnapshotOptions.share * 0.9, eventsMin: 1 }
  const report = await new Snapshots(ground.db, options, 600_000).refresh(ref)
  const seconds = (performance.now() - startMs) / 1000
  if (report) await ground.forgetNewest(ref) // a replay from it would have nothing to catch up with
  return { seconds, isWhole: report?.rows === entries }
}

/** In turns, so that whatever else the machine does meets all. */
async function measure({ display }: ScenarioSetup, place: Place, round: Round): Promise<Row> {
  const { space, atOnce } = round
  const [ours, lines, copies]: [Burst[], Burst[], number[]] = [[], [], []]
  const read = async (form: Form): Promise<Burst> => {
    await place.restart()
    return readBurst(place.target, round, form)
  }
  for (let i = 0; i < place.rounds; i++) {
    display.step(`${count(space.entries)} entries, ${atOnce} at once: ${i + 1} of ${place.rounds}`)
    ours.push(await read('records'))
    await place.restart()
    copies.push(await copyBurst(place.target, round))
    if (atOnce === 1) lines.push(await read('lines'))
  }
  const all = [...ours, ...lines].flatMap(({ readings }) => readings)
  return {
    ...{ space, atOnce, oursMs: median(ours.map(({ ms }) => ms)), copyMs: median(copies) },
    linesMs: lines.length > 0 ? median(lines.map(({ ms }) => ms)) : null,
    firstByteMs: median(ours.map(({ readings }) => Math.min(...readings.map(({ firstByteMs }) => firstByteMs)))),
    bytes: ours[0]!.readings[0]!.bytes,
    rssGrowthMb: Math.max(...[...ours, ...lines].map(({ rssGrowthMb }) => rssGrowthMb)),
    isWhole: all.every(({ isWhole }) => isWhole),
  }
}

const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[values.length >> 1]!

interface Crowd {
  readonly atOnce: number
  readonly burst: Burst
  readonly singleMs: number
  readonly liveP99Ms: number
  readonly liveIsClean: boolean
}

/** As many as a published API could not serve, while others write to each other. */
async function crowded(setup: ScenarioSetup, place: Place, round: Round, teardown: Teardown): Promise<Crowd> {
  const { options, display } = setup
  const { target } = place
  const { atOnce } = round
  const singles: number[] = []
  for (let i = 0; i < place.rounds; i++) singles.push((await readBurst(target, { ...round, atOnce: 1 }, 'records')).ms)
  const singleMs = median(singles)
  const seconds = Math.max(2, Math.min(300, Math.ceil((singleMs * atOnce) / 1000)))
  const live = { peers: LIVE.peers, total: LIVE.rate * seconds, rate: LIVE.rate }
  const plan: Plan = { ...live, payloadBytes: options.payloadBytes, seed: options.seed, isOneWay: false, spread: ALONE }
  const meshes = await newMeshes({ plan, target, options }, teardown)
  let burst: Promise<Burst> | undefined
  const onStart = () => {
    display.step(`${atOnce} at once, and ${LIVE.rate} messages a second`)
    burst = readBurst(target, round, 'records')
  }
  const outcome = await runOnce({ plan, meshes, target, options, display, onStart }, teardown)
  const result = resultOf(outcome, target, options)
  const isClean = result.lost === 0 && result.delivered === result.total
  return { atOnce, burst: await burst!, singleMs, liveP99Ms: result.e2eMs.p99, liveIsClean: isClean }
}

interface Measured {
  readonly rows: readonly Row[]
  readonly crowd: Crowd
  readonly made: Refresh
  readonly isQuick: boolean
  readonly share: number
}

const ratioOf = ({ oursMs, copyMs }: Row): number => oursMs / copyMs

function findingsOf(measured: Measured): Findings {
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
      ['snapshot', `of ${count(largest.space.entries)} entries made anew in ${figure(made.seconds)} s`],
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

function checksOf({ rows, crowd, made, isQuick, share }: Measured, crowdRatio: number): Check[] {
  const wholes: Check[] = [
    { about: 'mail', isMet: rows.every(({ isWhole }) => isWhole), sentence: 'Every answer came to its end.' },
    {
      about: 'mail',
      isMet: crowd.burst.readings.every(({ isWhole }) => isWhole),
      sentence: 'So did all of the crowd.',
    },
    { about: 'mail', isMet: crowd.liveIsClean, sentence: 'Every message beside them arrived once.' },
    { about: 'mail', isMet: made.isWhole, sentence: 'A snapshot was made anew, with every entry in it.' },
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
    atMost('A snapshot of 200,000 entries takes seconds', made.seconds, REFRESH_SECONDS_MAX),
    generatorCheck(share),
  ]
}
