/** A line for each series over the last half hour, drawn by uPlot in the colours of the page. */
import type { Sample } from '@sealpost/operator'
import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'

export interface Series {
  readonly label: string
  /** Of the page's colours for lines: `one`, `two` or `three`. */
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
/** Less time than this is not stretched over a whole chart. */
const SPAN_MIN_SECONDS = 120
/** Between two lines of the grid, of figures that people read as whole ones. */
const INCREMENTS = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7].flatMap((power) => [power, 2 * power, 5 * power])

export function Chart({ title, series, samples, format }: ChartProps) {
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
        spanGaps: false, // minutes without samples have no latency
        points: { show: true, filter: isolated, size: 6 },
      })),
    ],
  }
}

/** Before there is anything: of now. */
function spanOf({ data: [times] }: uPlot): [number, number] {
  const last = times.at(-1) ?? Date.now() / 1000
  return [Math.min(times[0] ?? last, last - SPAN_MIN_SECONDS), last]
}

/** The places of figures without a neighbour, which no line shows. */
function isolated({ data }: uPlot, series: number): number[] {
  const values = data[series]!
  const isGap = (at: number) => (values[at] ?? null) === null
  return Array.from(values, (_, at) => at).filter((at) => !isGap(at) && isGap(at - 1) && isGap(at + 1))
}

const clock = (seconds: number): string => new Date(seconds * 1000).toLocaleTimeString('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' }) // biome-ignore format: one thing
