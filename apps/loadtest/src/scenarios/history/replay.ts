/**
 * The state of a past moment, read whole, over 30 days of events: beside the time in which the same query's rows come out of
 * Postgres when nobody does anything with them. In its full form with a database of its own, restarted before each answer.
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type EmbeddedPostgres, startEmbedded } from '@sealpost/embedded-pg'
import { type FilledSpace, HistoryFixture, type SpaceSize } from '@sealpost/harness/members/history-fixture'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count } from '@sealpost/harness/report/text'
import { defaultSnapshotOptions, Snapshots } from '@sealpost/replay'
import { type Environment, openEnvironment } from '../../environment/environment.ts'
import type { Plan } from '../../generators/plan.ts'
import { ALONE } from '../../generators/spread.ts'
import { resultOf } from '../../run/result.ts'
import { newMeshes, runOnce } from '../../run/run.ts'
import { Effort } from '../effort.ts'
import { secondsFor } from '../percentiles.ts'
import type { Findings, Scenario, ScenarioSetup } from '../scenario.ts'
import { type Burst, copyBurst, type HistoryForm, type Round, readBurst } from './replay-bursts.ts'
import { type Crowd, findingsOf, RATIO_MAX, type Refresh, type Row } from './replay-findings.ts'

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
/** Of one member no more than a few wait in line. */
const MEMBERS = 10
const ROUNDS = 3
const LIVE = { peers: 10, rate: 200 }

/** Where it is played, and how to bring its database to a fresh start. */
interface Place {
  readonly target: Environment
  readonly sizes: readonly SpaceSize[]
  readonly rounds: number
  readonly restart: () => Promise<void>
}

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const effort = new Effort()
  const place = setup.options.isQuick ? shortPlace(setup) : await longPlace(setup, teardown)
  const ground = await HistoryFixture.open(place.target.databaseUrl)
  const close = teardown.add({ end: () => ground.close() })
  await ground.createPartitions()
  const spaces: FilledSpace[] = []
  const warm = await ground.fill(WARM, MEMBERS, place.target.shards[0]!)
  for (const size of place.sizes) {
    setup.display.step(`${count(size.events)} events of ${count(size.entries)} entries`)
    spaces.push(await ground.fill(size, MEMBERS, place.target.shards[0]!))
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

/** A little before it is due, so that the broker has not made it already. */
async function refresh(ground: HistoryFixture, { ref, entries }: FilledSpace): Promise<Refresh> {
  const startMs = performance.now()
  const options = { ...defaultSnapshotOptions, share: defaultSnapshotOptions.share * 0.9, eventsMin: 1 }
  const report = await new Snapshots(ground.db, options, 600_000).refresh(ref)
  const seconds = (performance.now() - startMs) / 1000
  if (report) await ground.deleteNewestSnapshot(ref) // a replay from it would have nothing to catch up with
  return { seconds, isWhole: report?.rows === entries }
}

/** In turns, so that whatever else the machine does meets all. */
async function measure({ display }: ScenarioSetup, place: Place, round: Round): Promise<Row> {
  const { space, atOnce } = round
  const [ours, lines, copies]: [Burst[], Burst[], number[]] = [[], [], []]
  const read = async (form: HistoryForm): Promise<Burst> => {
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

/** As many as a published API could not serve, while others write to each other. */
async function crowded(setup: ScenarioSetup, place: Place, round: Round, teardown: Teardown): Promise<Crowd> {
  const { options, display } = setup
  const { target } = place
  const { atOnce } = round
  const singles: number[] = []
  for (let i = 0; i < place.rounds; i++) singles.push((await readBurst(target, { ...round, atOnce: 1 }, 'records')).ms)
  const singleMs = median(singles)
  const seconds = Math.max(
    options.isQuick ? 2 : secondsFor(99, LIVE.rate),
    Math.min(300, Math.ceil((singleMs * atOnce) / 1000)),
  )
  const live = { peers: LIVE.peers, total: LIVE.rate * seconds, rate: LIVE.rate }
  const plan: Plan = { ...live, payloadBytes: options.payloadBytes, seed: options.seed, isOneWay: false, spread: ALONE }
  const meshes = await newMeshes({ plan, target }, teardown)
  let burst: Promise<Burst> | undefined
  const onStart = () => {
    display.step(`${atOnce} at once, and ${LIVE.rate} messages a second`)
    burst = readBurst(target, round, 'records')
  }
  const outcome = await runOnce({ plan, meshes, target, options, display, onStart }, teardown)
  const result = resultOf(outcome, target, options)
  const isClean = result.lost === 0 && result.delivered === result.total
  return {
    atOnce,
    burst: await burst!,
    singleMs,
    liveMessages: result.delivered,
    liveP99Ms: result.e2eMs.p99,
    liveIsClean: isClean,
  }
}
