/** What every view is built from. */
import type { Flow, MeshState, Sample } from '@sealpost/operator'
import type { ComponentChildren } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import { deadCount, type Fetched, short, whyOf } from './api.ts'

/** Loading, failed, empty or there. */
export function Shown<T>({
  asked,
  isEmpty,
  empty,
  children,
}: {
  asked: Fetched<T>
  isEmpty?: (value: T) => boolean
  empty?: string
  children: (value: T) => ComponentChildren
}) {
  // biome-ignore format: one thing
  if (asked.state === 'loading') return <p class="quiet pulse" role="status">Loading…</p> // biome-ignore format: one thing
  if (asked.state === 'failed') return <Problem>{asked.why}</Problem>
  return (
    <>
      {asked.why && <Problem>{asked.why} What you see is from before.</Problem>}
      {isEmpty?.(asked.value) ? <Empty>{empty}</Empty> : children(asked.value)}
    </>
  )
}

export const Problem = ({ children }: { children: ComponentChildren }) => (
  <p class="problem" role="alert">
    {children}
  </p>
)
export const Empty = ({ children }: { children: ComponentChildren }) => <p class="empty">{children}</p>

const FLOW_WORDS: Readonly<Record<Flow, string>> = {
  flowing: 'Flowing',
  waiting: 'Waiting',
  behind: 'Behind',
  unknown: 'Unknown',
}
/** A shape and a word beside the colour: not everybody tells red from green. */
const FLOW_SHAPES: Readonly<Record<Flow, string>> = {
  flowing: 'M4 10.5 8 14.5 16 6',
  waiting: 'M10 3a7 7 0 1 1 0 14 7 7 0 0 1 0-14m0 3.5V10l2.5 1.5',
  behind: 'M10 3 18 17H2zm0 5v4m0 2.4v.1',
  unknown: 'M7 7.5a3 3 0 1 1 4 3c-.8.4-1 .9-1 2M10 15v.5',
}

function FlowBadge({ flow }: { flow: Flow }) {
  return (
    <span class={`badge ${flow}`}>
      <FlowIcon flow={flow} />
      {FLOW_WORDS[flow]}
    </span>
  )
}

/** What was given up is nobody's flow, and still wants someone. */
export function MeshBadges({ mesh }: { mesh: MeshState }) {
  const isQuiet = mesh.flow === 'flowing' && mesh.deadLetters > 0
  return (
    <>
      {!isQuiet && <FlowBadge flow={mesh.flow} />}{' '}
      {mesh.deadLetters > 0 && (
        <span class="badge waiting">
          <FlowIcon flow="behind" />
          {deadCount(mesh)} dead letters
        </span>
      )}
    </>
  )
}

/** Of a row or a card. */
export const toneOf = ({ flow, deadLetters }: MeshState): Flow =>
  flow === 'flowing' && deadLetters > 0 ? 'waiting' : flow

export const FlowIcon = ({ flow }: { flow: Flow }) => (
  <svg viewBox="0 0 20 20" class="flow-icon" aria-hidden="true">
    <path d={FLOW_SHAPES[flow]} />
  </svg>
)

export function Tile({ label, value, hint }: { label: string; value: string; hint?: string }) {
  return (
    <div class="tile">
      <dt>{label}</dt>
      <dd>
        <strong>{value}</strong>
        {hint && <span class="quiet">{hint}</span>}
      </dd>
    </div>
  )
}

/** A table that scrolls by itself, also by keys, so that the page never does sideways. */
export function Table({
  label,
  head,
  children,
}: {
  label: string
  head: readonly string[]
  children: ComponentChildren
}) {
  // biome-ignore format: one thing
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keys
    <section class="scroll" aria-label={label} tabIndex={0}>
      <table>
        <thead>
          <tr>
            {head.map((name) => (
              <th key={name} scope="col" class={name.startsWith('#') ? 'number' : undefined}>
                {name.replace('#', '') || <span class="unseen">Actions</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </section>
  )
}

export const Num = ({ children }: { children: ComponentChildren }) => <td class="number">{children}</td>

/** A key, cut short; a click copies the whole of it. */
export function Key({ value }: { value: string }) {
  const [isCopied, setCopied] = useState(false)
  const copy = async () => {
    await navigator.clipboard?.writeText(value)
    setCopied(true)
    setTimeout(() => setCopied(false), 1500)
  }
  return (
    <button type="button" class="key" title={value} aria-label={`Copy ${short(value)}`} onClick={() => void copy()}>
      {isCopied ? 'copied' : short(value)}
    </button>
  )
}

interface Question {
  readonly title: string
  readonly text: string
  readonly action: string
  readonly act: () => Promise<unknown>
}

/** Asks before anything that can't be taken back. */
function Confirm({ question, close }: { question: Question | null; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null)
  const [why, setWhy] = useState<string | null>(null)
  const [isActing, setActing] = useState(false)
  useEffect(() => {
    setWhy(null)
    if (question) dialog.current?.showModal()
    else dialog.current?.close()
  }, [question])
  const act = async () => {
    setActing(true)
    await question!.act().then(close, (error) => setWhy(whyOf(error)))
    setActing(false)
  }
  return (
    <dialog ref={dialog} onClose={close} aria-labelledby="question">
      {question && (
        <>
          <h2 id="question">{question.title}</h2>
          <p>{question.text}</p>
          {why && <Problem>{why}</Problem>}
          <div class="row end">
            <button type="button" class="plain" onClick={close}>
              Cancel
            </button>
            <button type="button" class="danger" disabled={isActing} onClick={() => void act()}>
              {question.action}
            </button>
          </div>
        </>
      )}
    </dialog>
  )
}

/** A question that a view may ask. */
export function useConfirm() {
  const [question, setQuestion] = useState<Question | null>(null)
  return { ask: setQuestion, dialog: <Confirm question={question} close={() => setQuestion(null)} /> }
}

interface PagerProps {
  /** Behind what each page began, but for the first. */
  readonly pages: readonly string[]
  readonly turn: (pages: readonly string[]) => void
  /** Behind what the next one begins; null: this is the last. */
  readonly next: string | null
}

export function Pager({ pages, turn, next }: PagerProps) {
  if (pages.length === 0 && next === null) return null
  return (
    <div class="row">
      <button type="button" class="plain" disabled={pages.length === 0} onClick={() => turn(pages.slice(0, -1))}>
        Back
      </button>
      <button type="button" class="plain" disabled={next === null} onClick={() => turn([...pages, next!])}>
        More
      </button>
    </div>
  )
}

/** A line for each series over the last half hour, drawn by uPlot in the colours of the page. */
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
