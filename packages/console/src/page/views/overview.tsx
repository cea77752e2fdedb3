/** Shows whether, where and why mail does not flow, and the list of shards. */
import type { MeshState, Overview, Sample, Shards } from '@sealpost/operator'
import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'
import {
  type Api,
  age,
  bytes,
  count,
  Empty,
  FlowIcon,
  Key,
  type Live,
  MeshBadges,
  millis,
  Num,
  rate,
  Shown,
  short,
  Table,
  Tile,
  toneOf,
  useAsked,
} from '../parts.tsx'

const RATES: readonly Series[] = [
  { label: 'accepted', colour: 'one', read: (sample) => sample.acceptedPerSecond },
  { label: 'pushed', colour: 'two', read: (sample) => sample.pushedPerSecond },
  { label: 'settled', colour: 'three', read: (sample) => sample.settledPerSecond },
]
const TIMES: readonly Series[] = [
  { label: 'ack p50', colour: 'one', read: (sample) => sample.ackP50Ms },
  { label: 'ack p99', colour: 'two', read: (sample) => sample.ackP99Ms },
  { label: 'push p99', colour: 'three', read: (sample) => sample.pushP99Ms },
]
const DEPTH: readonly Series[] = [{ label: 'deliveries', colour: 'one', read: (sample) => sample.depth }]
const SESSIONS: readonly Series[] = [{ label: 'sessions', colour: 'two', read: (sample) => sample.sessions }]

export function OverviewView({ live: { overview, samples } }: { live: Live }) {
  if (!overview) return <p class="quiet pulse" role="status">Loading…</p> // biome-ignore format: one thing
  return (
    <>
      <Verdict overview={overview} />
      <Behind meshes={overview.meshes} />
      <Tiles overview={overview} />
      <h2 class="unseen">The last half hour</h2>
      <div class="charts">
        <Chart title="Messages per second" series={RATES} samples={samples} format={rate} />
        <Chart title="Latency from send to ack and push" series={TIMES} samples={samples} format={millis} />
        <Chart title="Waiting" series={DEPTH} samples={samples} format={count} />
        <Chart title="Sessions" series={SESSIONS} samples={samples} format={count} />
      </div>
      <Health overview={overview} />
    </>
  )
}

const HEADLINES: Readonly<Record<Overview['flow'], string>> = {
  flowing: 'Messages are flowing',
  waiting: 'Messages are flowing; some wait for offline peers',
  behind: 'Messages are delayed',
  unknown: 'The message flow is unknown',
}

function Verdict({ overview: { flow, causes, meshes, queue } }: { overview: Overview }) {
  const isIll = flow === 'flowing' && causes.length > 0
  const behind = meshes.filter((mesh) => mesh.flow === 'behind')
  const headline =
    behind.length > 0 ? `${namesOf(behind)} ${behind.length === 1 ? 'is' : 'are'} behind` : HEADLINES[flow]
  const counted = queue.seenAgoMs === null ? 'The queue is being counted for the first time.' : null
  return (
    <section class={`verdict ${isIll ? 'waiting' : flow}`} aria-labelledby="verdict">
      <FlowIcon flow={isIll ? 'waiting' : flow} />
      <div role="status">
        <h1 id="verdict">{headline}</h1>
        {behind[0] && <p>{behind[0].why}</p>}
        {causes.map(({ code, sentence }) => (
          <p key={code}>
            <strong>{code.replaceAll('_', ' ')}:</strong> {sentence}
          </p>
        ))}
        {behind.length === 0 && causes.length === 0 && <p>{counted ?? meshes[0]?.why ?? 'No messages are waiting.'}</p>}
      </div>
    </section>
  )
}

const NAMED_MAX = 3
function namesOf(meshes: readonly MeshState[]): string {
  const names = meshes.slice(0, NAMED_MAX).map(({ name, meshId }) => name || short(meshId))
  const more = meshes.length - names.length
  return [...names, ...(more > 0 ? [`${more} more`] : [])].join(', ')
}

function Behind({ meshes }: { meshes: readonly MeshState[] }) {
  if (meshes.length === 0) return <Empty>No mesh has waiting messages or dead letters.</Empty>
  return (
    <section class="stack" aria-labelledby="waiting-meshes">
      <h2 id="waiting-meshes">Meshes with waiting messages or dead letters</h2>
      <ul class="meshes">
        {meshes.map((mesh) => (
          <li key={mesh.meshId}>
            <a class={`card mesh ${toneOf(mesh)}`} href={`#/meshes/${mesh.meshId}`}>
              <span class="mesh-head">
                <strong>{mesh.name || short(mesh.meshId)}</strong>
                <span>
                  <MeshBadges mesh={mesh} />
                </span>
              </span>
              <span class="why">{mesh.why}</span>
              <span class="quiet">
                {count(mesh.depth)} waiting{mesh.depth > 0 && ` · oldest ${age(mesh.oldestAgeMs)}`} ·{' '}
                {count(mesh.sessions)} in session
              </span>
            </a>
          </li>
        ))}
      </ul>
    </section>
  )
}

function Tiles({ overview }: { overview: Overview }) {
  const { now, queue, database } = overview
  return (
    <dl class="tiles eight">
      <Tile
        label="Accepted"
        value={`${rate(now.acceptedPerSecond)}/s`}
        hint={`${rate(now.refusedPerSecond)}/s refused`}
      />
      <Tile label="Pushed" value={`${rate(now.pushedPerSecond)}/s`} hint={`p99 ${millis(now.pushP99Ms)}`} />
      <Tile
        label="Settled"
        value={`${rate(now.settledPerSecond)}/s`}
        hint={`${rate(now.lostPerSecond)}/s dead letters`}
      />
      <Tile label="Send to ack" value={millis(now.ackP50Ms)} hint={`p99 ${millis(now.ackP99Ms)}`} />
      <Tile
        label="Waiting"
        value={count(queue.depth)}
        hint={queue.depth > 0 ? `oldest ${age(queue.oldestAgeMs)}` : 'nothing'}
      />
      <Tile
        label="Sessions"
        value={count(now.sessions)}
        hint={overview.connections === 1 ? '1 connection' : `${count(overview.connections)} connections`}
      />
      <Tile label="Memory" value={bytes(now.memoryBytes)} hint="of this broker" />
      <Tile
        label="Dead letters"
        value={database.deadLetters === null ? '–' : count(database.deadLetters)}
        hint="estimated by Postgres"
      />
    </dl>
  )
}

function Health({ overview }: { overview: Overview }) {
  const { database, shard, version, postgres, durability, limits } = overview
  return (
    <section class="card" aria-labelledby="health">
      <h2 id="health">This broker and its database</h2>
      <dl class="facts">
        <Fact name="Oldest snapshot" value={`${count(database.snapshotSeconds)} s`} />
        <Fact name="Dead rows" value={count(database.deadRows)} />
        <Fact
          name="Write-ahead log"
          value={database.walBytesPerSecond === null ? '–' : `${bytes(database.walBytesPerSecond)}/s`}
        />
        <Fact name="Waiting statements" value={count(database.statementsWaiting)} />
        <Fact name="Durability" value={durability} />
        <Fact name="Limits" value={limits} />
        <Fact name="Version" value={`${version}, Postgres ${postgres}`} />
        <Fact name="Shard" value={short(shard)} />
      </dl>
    </section>
  )
}

const Fact = ({ name, value }: { name: string; value: string }) => (
  <div>
    <dt>{name}</dt>
    <dd>{value}</dd>
  </div>
)

/** A line of the chart. */
interface Series {
  readonly label: string
  readonly colour: 'one' | 'two' | 'three'
  readonly read: (sample: Sample) => number | null
}

interface ChartProps {
  readonly title: string
  readonly series: readonly Series[]
  readonly samples: readonly Sample[]
  readonly format: (value: number) => string
}

const HEIGHT = 180
const AXIS_WIDTH = 58
const NARROW = 26 * 16
const SPAN_MIN_SECONDS = 120
/** The increments of the grid, whole numbers. */
const INCREMENTS = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7].flatMap((power) => [power, 2 * power, 5 * power])

function Chart({ title, series, samples, format }: ChartProps) {
  const place = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot | null>(null)
  const data = dataOf(samples, series)
  useEffect(() => {
    const element = place.current!
    const dark = matchMedia('(prefers-color-scheme: dark)')
    const draw = () => {
      plot.current?.destroy()
      plot.current = new uPlot(optionsOf({ title, series, format, width: element.clientWidth }), data, element)
    }
    draw()
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }))
    resized.observe(element)
    dark.addEventListener('change', draw)
    return () => {
      resized.disconnect()
      dark.removeEventListener('change', draw)
      plot.current?.destroy()
      plot.current = null
    }
  }, [])
  useEffect(() => plot.current?.setData(data), [samples])
  const last = samples.at(-1)
  return (
    <figure class="card chart">
      <figcaption>
        <h3>{title}</h3>
        <ul class="legend">
          {series.map(({ label, colour, read }) => {
            const value = last ? read(last) : null
            return (
              <li key={label}>
                <span class={`swatch ${colour}`} aria-hidden="true" />
                {label} <strong>{value === null ? '–' : format(value)}</strong>
              </li>
            )
          })}
        </ul>
      </figcaption>
      <div ref={place} class="plot" aria-hidden="true" />
    </figure>
  )
}

function dataOf(samples: readonly Sample[], series: readonly Series[]): uPlot.AlignedData {
  return [samples.map(({ atMs }) => atMs / 1000), ...series.map(({ read }) => samples.map(read))]
}

type Drawn = Pick<ChartProps, 'title' | 'series' | 'format'> & { readonly width: number }

function optionsOf({ series, format, width }: Drawn): uPlot.Options {
  const style = getComputedStyle(document.documentElement)
  const colour = (name: string) => style.getPropertyValue(`--${name}`).trim()
  const axis = { stroke: colour('faint'), grid: { stroke: colour('rule'), width: 1 }, ticks: { show: false } }
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 6 } },
    scales: { x: { range: spanOf }, y: { range: (_, __, max) => [0, Math.max(1, max * 1.1)] } },
    axes: [
      { ...axis, size: 26, space: width < NARROW ? 70 : 90, values: (_, splits) => splits.map(clock) },
      { ...axis, size: AXIS_WIDTH, incrs: INCREMENTS, values: (_, splits) => splits.map(format) },
    ],
    series: [
      {},
      ...series.map(({ label, colour: name }) => ({
        label,
        stroke: colour(`line-${name}`),
        width: 1.75,
        spanGaps: false, // minutes without samples leave a gap
        points: { show: true, filter: isolated, size: 6 },
      })),
    ],
  }
}

/** Returns the samples' time span, by default until now. */
function spanOf({ data: [times] }: uPlot): [number, number] {
  const last = times.at(-1) ?? Date.now() / 1000
  return [Math.min(times[0] ?? last, last - SPAN_MIN_SECONDS), last]
}

/** Returns the samples without neighbours, which a line would not show. */
function isolated({ data }: uPlot, series: number): number[] {
  const values = data[series]!
  const isGap = (at: number) => (values[at] ?? null) === null
  return Array.from(values, (_, at) => at).filter((at) => !isGap(at) && isGap(at - 1) && isGap(at + 1))
}

const clock = (seconds: number): string => new Date(seconds * 1000).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' }) // biome-ignore format: one thing

export function ShardsView({ api }: { api: Api }) {
  const [asked] = useAsked('shards', () => api.get<Shards>('/shards'), 3000)
  return (
    <>
      <h1>Shards</h1>
      <Shown asked={asked} isEmpty={({ shards }) => shards.length === 0} empty="There are no brokers.">
        {({ shards }) => (
          <Table label="Shards" head={['Name', 'Status', 'URL', '# Epoch', '# Lease', 'Shard', 'Key']}>
            {shards.map((shard) => (
              <tr key={shard.name}>
                <th scope="row">
                  {shard.name} {shard.isSelf && <span class="quiet">this broker</span>}
                </th>
                <td>
                  <span class={`status ${shard.isAlive ? 'idle' : 'revoked'}`}>{shard.isAlive ? 'alive' : 'gone'}</span>
                </td>
                <td>{shard.url ?? 'not the home of any mesh'}</td>
                <Num>{count(shard.epoch)}</Num>
                <Num>{shard.isAlive ? `${(shard.leaseMs / 1000).toFixed(1)} s` : '–'}</Num>
                <td>
                  <Key value={shard.shardId} />
                </td>
                <td>
                  <Key value={shard.brokerKey} />
                </td>
              </tr>
            ))}
          </Table>
        )}
      </Shown>
    </>
  )
}
