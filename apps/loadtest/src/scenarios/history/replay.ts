/**
 * This scenario replays the whole state as of a past time, from 30 days of events. Compares it with Postgres' time for
 * the same rows. The full form restarts its own database before each response.
 */
import { join } from 'node:path'
import type { Readable } from 'node:stream'
import { type EmbeddedPostgres, startEmbedded } from '@sealpost/embedded-pg'
import { type FilledSpace, HistoryFixture, type SpaceSize } from '@sealpost/harness/members/history-fixture'
import type { Reading } from '@sealpost/harness/members/http-peers'
import { MemoryGrowth } from '@sealpost/harness/programs/machine'
import { type Teardown, temporaryFolder } from '@sealpost/harness/programs/teardown'
import { Latencies } from '@sealpost/harness/report/latencies'
import { count, figure, median } from '@sealpost/harness/report/text'
import { openPostgresJs } from '@sealpost/pg'
import { defaultSnapshotOptions, formatTimestamp, REPLAY_SESSION, Snapshots, stateAt } from '@sealpost/replay'
import { type Environment, openEnvironment } from '../../environment/environment.ts'
import { planOf } from '../../generators/plan.ts'
import { type RunContext, runPlan } from '../../run/run.ts'
import {
  type Check,
  costCheck,
  Effort,
  type Findings,
  type Graph,
  generatorCheck,
  mailCheck,
  percentileCheck,
  type Scenario,
  secondsFor,
  spectrumGraph,
} from '../scenario.ts'

const RATIO_MAX = 1.5

export const replay: Scenario = {
  name: 'replay',
  summary: 'replay the state at a given time, with up to 200,000 entries over 3.6 M events, alone and 50 at once',
  reported: '100,000 entries: 5 s; 50 at once: 76 % came, in 42 s',
  bar: `≤ ${RATIO_MAX} × COPY of the same query`,
  run,
}

const MB = 1_000_000
/** `bytes` is the size of the sealed entries. */
const SIZES: readonly SpaceSize[] = [
  { entries: 11_000, bytes: 12 * MB, events: 300_000 },
  { entries: 22_000, bytes: 24 * MB, events: 400_000 },
  { entries: 60_000, bytes: 65 * MB, events: 700_000 },
  { entries: 100_000, bytes: 108 * MB, events: 1_000_000 },
  { entries: 200_000, bytes: 173 * MB, events: 1_200_000 },
]
const SHORT: readonly SpaceSize[] = [{ entries: 5_000, bytes: 5 * MB, events: 20_000 }]
const WARM: SpaceSize = { entries: 100, bytes: 100_000, events: 300 }
/** The number of members, because each may queue only a few requests. */
const MEMBERS = 10
const ROUNDS = 3
const LIVE = { peers: 10, rate: 200 }

interface ReplayPlace {
  readonly target: Environment
  readonly sizes: readonly SpaceSize[]
  readonly restart: () => Promise<void>
}

async function run(context: RunContext, teardown: Teardown): Promise<Findings> {
  const { target, options, display } = context
  const { isQuick } = options
  const effort = new Effort()
  const place = isQuick
    ? { target, sizes: SHORT, restart: () => Promise.resolve() }
    : await longPlace(context, teardown)
  const broker = place.target.shards[0]!
  const fixture = await HistoryFixture.open(place.target.databaseUrl)
  const close = teardown.add({ end: () => fixture.close() })
  await fixture.createPartitions()
  const spaces: FilledSpace[] = []
  const warm = await fixture.fill(WARM, MEMBERS, broker)
  for (const size of place.sizes) {
    display.step(`${count(size.events)} events of ${count(size.entries)} entries`)
    spaces.push(await fixture.fill(size, MEMBERS, broker))
  }
  await fixture.checkpoint()
  const refresh = await refreshSnapshot(fixture, spaces.at(-1)!)
  await close()
  const rows: ReplayRow[] = []
  for (const space of spaces) rows.push(await measure(context, place, { space, warm, atOnce: 1 }))
  for (const space of spaces.slice(1, 3))
    for (const atOnce of [5, 25]) rows.push(await measure(context, place, { space, warm, atOnce }))
  const crowdRound = { space: spaces[Math.min(3, spaces.length - 1)]!, warm, atOnce: isQuick ? 10 : 50 }
  const crowd = await measureCrowd({ ...context, target: place.target }, crowdRound, teardown)
  return findingsOf({ rows, crowd, refresh, isQuick, share: effort.share })
}

async function longPlace({ options, display }: RunContext, teardown: Teardown): Promise<ReplayPlace> {
  const dataDir = join(await temporaryFolder('replay', teardown), 'data')
  const start = (port?: number) => startEmbedded({ dataDir, ...(port && { port }), settings: { max_wal_size: '8GB' } })
  let server: EmbeddedPostgres = await start()
  teardown.add({ end: () => server.stop(), kill: () => server.kill() })
  const tell = (step: string) => display.step(step)
  const own = { runtimeArgs: [], tell, databaseUrl: server.url }
  const target = await openEnvironment({ ...options, ...options.spread, ...own }, teardown)
  const restart = async () => {
    await server.stop()
    server = await start(server.port)
  }
  return { target, sizes: SIZES, restart }
}

interface RefreshResult {
  readonly seconds: number
  /** Whether the snapshot contains every entry. */
  readonly isComplete: boolean
}

/** Creates a snapshot before it is due, so that the broker does not. */
async function refreshSnapshot(fixture: HistoryFixture, { ref, entries }: FilledSpace): Promise<RefreshResult> {
  const startMs = performance.now()
  const options = { ...defaultSnapshotOptions, share: defaultSnapshotOptions.share * 0.9, eventsMin: 1 }
  const report = await new Snapshots(fixture.db, options, 600_000).refresh(ref)
  const seconds = (performance.now() - startMs) / 1000
  if (report) await fixture.deleteNewestSnapshot(ref) // without this, a replay would have no events to apply
  return { seconds, isComplete: report?.rows === entries }
}

/** The number of database connections that a broker uses for reads. */
const CONNECTIONS = 2

interface ReplayRound {
  readonly space: FilledSpace
  readonly atOnce: number
  /** A small space to read first, which opens connections and loads code. */
  readonly warm: FilledSpace
}

interface ReadBurst {
  readonly ms: number
  readonly readings: readonly Reading[]
  readonly rssGrowthMb: number
}

const ACCEPT = { records: 'application/octet-stream', lines: 'application/x-ndjson' } as const
type HistoryForm = keyof typeof ACCEPT

/** Reads the space with concurrent HTTP requests. */
async function readBurst(
  target: Environment,
  { space, atOnce, warm }: ReplayRound,
  form: HistoryForm,
): Promise<ReadBurst> {
  const read = (from: FilledSpace, i: number) => from.readers[i % MEMBERS]!.read(pathOf(from), ACCEPT[form])
  await Promise.all(Array.from({ length: CONNECTIONS }, (_, i) => read(warm, i)))
  const memory = new MemoryGrowth(target.shards[0]!.pid, 50)
  const startMs = performance.now()
  const all = Array.from({ length: atOnce }, (_, i) => read(space, i))
  const readings = await Promise.race([Promise.all(all), target.failed])
  return { ms: performance.now() - startMs, readings, rssGrowthMb: memory.stop() }
}

function pathOf({ ref, at }: FilledSpace): string {
  const query = new URLSearchParams({ space: ref.spaceId, at: formatTimestamp(at) })
  return `/v1/meshes/${ref.meshId}/state?${query}`
}

/** Reads the same rows from Postgres with the broker's number of connections. @returns milliseconds */
async function copyBurst({ databaseUrl }: Environment, { space, atOnce, warm }: ReplayRound): Promise<number> {
  const connections = Math.min(CONNECTIONS, atOnce)
  const sql = await openPostgresJs(databaseUrl, { connections, connection: REPLAY_SESSION })
  try {
    const copy = async (from: FilledSpace) => discard(await sql.unsafe(copyOf(from)).readable())
    await Promise.all(Array.from({ length: connections }, () => copy(warm)))
    let left = atOnce
    const startMs = performance.now()
    const copyNext = async () => {
      while (left-- > 0) await copy(space)
    }
    await Promise.all(Array.from({ length: connections }, copyNext))
    return performance.now() - startMs
  } finally {
    await sql.end({ timeout: 5 })
  }
}

const copyOf = ({ ref, at, base }: FilledSpace): string =>
  `copy (${stateAt({ space: ref, at, after: 0, base })}) to stdout (format binary)`

/**
 * Reads a stream and discards its rows. Replaces `push`, because the driver may never resume a full stream's
 * connection.
 */
const discard = (stream: Readable): Promise<void> =>
  new Promise((resolve, reject) => {
    stream.push = (chunk) => {
      if (chunk === null) resolve()
      return true
    }
    stream.on('end', resolve) // if a short stream has already arrived
    stream.on('error', reject)
    stream.resume()
    stream._read(0) // if earlier rows have paused the connection
  })

interface ReplayRow {
  readonly space: FilledSpace
  readonly atOnce: number
  readonly oursMs: number
  /** The duration as JSON lines, if measured. */
  readonly linesMs: number | null
  readonly copyMs: number
  readonly firstByteMs: number
  readonly bytes: number
  readonly rssGrowthMb: number
  readonly isWhole: boolean
}

/** Measures the kinds of reads in alternation, under the same conditions. */
async function measure({ display }: RunContext, place: ReplayPlace, round: ReplayRound): Promise<ReplayRow> {
  const { space, atOnce } = round
  const [ours, lines, copies]: [ReadBurst[], ReadBurst[], number[]] = [[], [], []]
  const read = async (form: HistoryForm): Promise<ReadBurst> => {
    await place.restart()
    return readBurst(place.target, round, form)
  }
  for (let i = 0; i < ROUNDS; i++) {
    display.step(`${count(space.entries)} entries, ${atOnce} at once: ${i + 1} of ${ROUNDS}`)
    ours.push(await read('records'))
    await place.restart()
    copies.push(await copyBurst(place.target, round))
    if (atOnce === 1) lines.push(await read('lines'))
  }
  const all = [...ours, ...lines]
  return {
    ...{ space, atOnce, oursMs: median(ours.map(({ ms }) => ms)), copyMs: median(copies) },
    linesMs: lines.length > 0 ? median(lines.map(({ ms }) => ms)) : null,
    firstByteMs: median(ours.map(({ readings }) => Math.min(...readings.map(({ firstByteMs }) => firstByteMs)))),
    bytes: ours[0]!.readings[0]!.bytes,
    rssGrowthMb: Math.max(...all.map(({ rssGrowthMb }) => rssGrowthMb)),
    isWhole: all.every(({ readings }) => readings.every(({ isWhole }) => isWhole)),
  }
}

interface ReplayCrowd {
  readonly atOnce: number
  readonly burst: ReadBurst
  readonly singleMs: number
  readonly liveMessages: number
  readonly liveP99Ms: number
  readonly isLiveClean: boolean
}

/** Measures with many readers, while peers send to each other. */
async function measureCrowd(context: RunContext, round: ReplayRound, teardown: Teardown): Promise<ReplayCrowd> {
  const { target, options, display } = context
  const { atOnce } = round
  const singles: number[] = []
  for (let i = 0; i < ROUNDS; i++) singles.push((await readBurst(target, { ...round, atOnce: 1 }, 'records')).ms)
  const singleMs = median(singles)
  const least = options.isQuick ? 2 : secondsFor(99, LIVE.rate)
  const seconds = Math.max(least, Math.min(300, Math.ceil((singleMs * atOnce) / 1000)))
  const plan = planOf({ ...LIVE, total: LIVE.rate * seconds })
  let burst: Promise<ReadBurst> | undefined
  const onStart = () => {
    display.step(`${atOnce} at once, and ${LIVE.rate} messages per second`)
    burst = readBurst(target, round, 'records')
  }
  const { result } = await runPlan(context, { plan, onStart }, teardown)
  const isLiveClean = result.lost === 0 && result.delivered === result.total
  const live = { liveMessages: result.delivered, liveP99Ms: result.e2eMs.p99, isLiveClean }
  return { atOnce, burst: await burst!, singleMs, ...live }
}

const FIRST_BYTE_MS_MAX = 200
const RSS_MB_MAX = 64
const CROWD_RSS_MB_MAX = 256
const LIVE_P99_MS_MAX = 100
const REFRESH_SECONDS_MAX = 6

interface ReplayFigures {
  readonly rows: readonly ReplayRow[]
  readonly crowd: ReplayCrowd
  readonly refresh: RefreshResult
  readonly isQuick: boolean
  readonly share: number
}

const ratioOf = ({ oursMs, copyMs }: ReplayRow): number => oursMs / copyMs

function findingsOf(measured: ReplayFigures): Findings {
  const { rows, crowd, refresh, isQuick, share } = measured
  const worst = Math.max(...rows.map(ratioOf))
  const alone = rows.filter(({ atOnce }) => atOnce === 1)
  const largest = alone.at(-1)!
  const { burst, atOnce, singleMs, liveP99Ms } = crowd
  const crowdRatio = burst.ms / (atOnce * singleMs)
  const crowdTime = `${atOnce} at once in ${figure(burst.ms / 1000)} s, ${figure(crowdRatio)} × the time of as many one by one`
  const entries = count(largest.space.entries)
  const each = (name: string, pick: (row: ReplayRow) => number) =>
    Object.fromEntries(rows.map((row) => [`${name}${row.space.entries}x${row.atOnce}`, pick(row)]))
  return {
    headline: `${entries} entries in ${figure(largest.oursMs / 1000)} s, ${figure(ratioOf(largest))} × COPY`,
    // A short response is mostly overhead, so the requirement applies to longer ones.
    shown: isQuick ? `${figure(worst)} × of a short one` : `${figure(worst)} ×`,
    isBarJudged: !isQuick,
    sheets: [
      {
        head: ['entries', 'MB', 'at once', 'response s', 'COPY s', 'ratio', 'as lines', 'first byte ms', 'RSS + MB'],
        rows: rows.map((row) => [
          ...[count(row.space.entries), figure(row.bytes / MB), count(row.atOnce), figure(row.oursMs / 1000)],
          ...[row.copyMs / 1000, ratioOf(row)].map(figure),
          row.linesMs === null ? '–' : figure(row.linesMs / row.copyMs),
          ...[row.firstByteMs, row.rssGrowthMb].map(figure),
        ]),
      },
    ],
    facts: [
      ['snapshot', `of ${entries} entries created in ${figure(refresh.seconds)} s`],
      ['crowd', `${crowdTime}; RSS + ${figure(burst.rssGrowthMb)} MB; live p99 ${figure(liveP99Ms)} ms`],
    ],
    checks: checksOf(measured, crowdRatio),
    graphs: graphsOf(alone, crowd),
    figures: {
      ratioMax: worst,
      ...each('ratio', ratioOf),
      linesRatioMax: Math.max(...rows.map(({ linesMs, copyMs }) => (linesMs ?? 0) / copyMs)),
      ...each('ms', ({ oursMs }) => oursMs),
      firstByteMs: Math.max(...alone.map(({ firstByteMs }) => firstByteMs)),
      ...{ rssGrowthMb: largest.rssGrowthMb, crowdRatio, crowdRssGrowthMb: burst.rssGrowthMb },
      crowdWhole: burst.readings.filter(({ isWhole }) => isWhole).length,
      ...{ liveP99Ms, refreshSeconds: refresh.seconds, generatorShare: share },
    },
  }
}

function graphsOf(alone: readonly ReplayRow[], { burst, atOnce }: ReplayCrowd): Graph[] {
  const latencies = new Latencies()
  for (const { ms } of burst.readings) latencies.note(ms)
  const crowd = spectrumGraph([[`${atOnce} responses at once`, latencies.spectrum]])
  if (alone.length < 2) return [crowd]
  const line = (name: string, pick: (row: ReplayRow) => number) => ({
    ...{ name, points: alone.map((row) => [row.space.entries, pick(row) / 1000] as const) },
  })
  const lines = [line('answer', ({ oursMs }) => oursMs), line('COPY', ({ copyMs }) => copyMs)]
  return [{ title: 'One response alone', x: 'entries', y: 'seconds', lines }, crowd]
}

function checksOf({ rows, crowd, refresh, isQuick, share }: ReplayFigures, crowdRatio: number): Check[] {
  const { burst, liveMessages, liveP99Ms } = crowd
  const complete = [
    mailCheck(
      rows.every(({ isWhole }) => isWhole),
      'Every response was complete.',
    ),
    mailCheck(
      burst.readings.every(({ isWhole }) => isWhole),
      'Every concurrent response was complete.',
    ),
    mailCheck(crowd.isLiveClean, 'Every message sent meanwhile arrived once.'),
    mailCheck(refresh.isComplete, 'A new snapshot was created with every entry.'),
  ]
  if (isQuick) return [...complete, generatorCheck(share)]
  const atMost = (claim: string, value: number, max: number) =>
    costCheck(value <= max, `${claim} at most ${max} (${figure(value)}).`)
  const alone = rows.filter(({ atOnce }) => atOnce === 1)
  const hundred = alone.find(({ space }) => space.entries === 100_000)!
  const bound = { percent: 99, samples: liveMessages, ms: liveP99Ms, maxMs: LIVE_P99_MS_MAX }
  return [
    ...complete,
    ...rows.map((row) =>
      atMost(`${count(row.space.entries)} entries, ${row.atOnce} at once: times COPY`, ratioOf(row), RATIO_MAX),
    ),
    atMost('First byte of 100,000 entries: ms', hundred.firstByteMs, FIRST_BYTE_MS_MAX),
    atMost('The broker grows by MB with 200,000 entries:', alone.at(-1)!.rssGrowthMb, RSS_MB_MAX),
    atMost('With the concurrent responses:', burst.rssGrowthMb, CROWD_RSS_MB_MAX),
    atMost('The concurrent responses take, times as many one by one,', crowdRatio, RATIO_MAX),
    percentileCheck({ ...bound, of: 'live messages' }),
    atMost('A snapshot of 200,000 entries takes seconds', refresh.seconds, REFRESH_SECONDS_MAX),
    generatorCheck(share),
  ]
}
