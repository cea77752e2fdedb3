/**
 * Draws charts as SVG, with their own background, because an image can't know the page's. The colors are Okabe and
 * Ito's, for color-blind readers.
 */
import { BarChart, type BarSeriesOption, LineChart, type LineSeriesOption } from 'echarts/charts'
import {
  GridComponent,
  type GridComponentOption,
  LegendComponent,
  type LegendComponentOption,
  MarkAreaComponent,
  TitleComponent,
  type TitleComponentOption,
} from 'echarts/components'
import { type ComposeOption, init, use } from 'echarts/core'
import { SVGRenderer } from 'echarts/renderers'

use([BarChart, LineChart, GridComponent, LegendComponent, MarkAreaComponent, TitleComponent, SVGRenderer])

export type ChartOption = ComposeOption<
  BarSeriesOption | LineSeriesOption | GridComponentOption | LegendComponentOption | TitleComponentOption
>

export interface Line {
  readonly name: string
  readonly points: readonly (readonly [x: number, y: number])[]
  /** The range with a tinted background. */
  readonly tinted?: readonly [from: number, to: number] | undefined
}

export interface Axis {
  readonly name: string
  readonly isLog?: boolean
  readonly min?: number
  readonly max?: number
  /** The axis labels; by default, the chart chooses them. */
  readonly labels?: readonly (readonly [at: number, text: string])[]
}

export interface Chart {
  readonly title: string
  readonly x: Axis
  readonly y: Axis
  readonly lines: readonly Line[]
}

/** Returns a percentile's position: each additional nine is equally wide. */
const positionOf = (percent: number): number => -Math.log10(1 - percent / 100)

const PERCENTILES = [50, 75, 90, 95, 99, 99.5, 99.9]
export const PERCENTILE_AXIS: Axis = {
  name: 'percentile',
  min: positionOf(50),
  max: positionOf(99.9),
  labels: PERCENTILES.map((percent) => [positionOf(percent), `p${percent}`] as const),
}

export const spectrumLine = (name: string, spectrum: readonly (readonly [percent: number, ms: number])[]): Line => ({
  name,
  points: spectrum.map(([percent, ms]) => [positionOf(percent), ms] as const),
})

const SIZE = { width: 760, height: 400 }
const CARD = '#fbfbf9'
const INK = '#24292f'
const FAINT = '#d8dade'
const TINT = '#e9ecf1'
const COLORS = ['#0072b2', '#d55e00', '#009e73', '#cc79a7']
/** A font without quotes, which the library does not escape in attributes. */
const FONT = 'system-ui, sans-serif'

export const drawChart = (chart: Chart): string => render(optionOf(chart))

function render(option: ChartOption): string {
  const drawing = init(null, null, { renderer: 'svg', ssr: true, ...SIZE })
  drawing.setOption(option)
  const svg = drawing.renderToSVGString()
  drawing.dispose()
  return `${svg.replace(POINTER_RULES, '').replace(COUNTER, 'chart-')}\n`
}

export interface Bars {
  readonly title: string
  readonly x: string
  readonly y: string
  readonly bars: readonly (readonly [label: string, value: number])[]
}

export function drawBars({ title, x, y, bars }: Bars): string {
  const { xAxis, yAxis, ...option } = optionOf({ title, x: { name: x }, y: { name: y, min: 0 }, lines: [] })
  const data = bars.map(([label]) => label)
  const { axisLine, nameTextStyle } = axisOf({ name: x })
  return render({
    ...option,
    xAxis: {
      type: 'category',
      data,
      name: x,
      nameLocation: 'middle',
      nameGap: 32,
      axisLine,
      nameTextStyle,
      axisLabel: { color: INK, fontSize: 12 },
    },
    yAxis,
    series: [{ type: 'bar', data: bars.map(([, value]) => value), barCategoryGap: '6%' }],
  } as ChartOption)
}

/** A wide gap, because the labels' widths are unknown. */
const LEGEND = {
  right: 20,
  top: 14,
  itemGap: 28,
  itemHeight: 8,
  selectedMode: false,
  textStyle: { color: INK, fontSize: 12 },
}

/** Matches style rules for pointers, which images lack. */
const POINTER_RULES = /<style[\s\S]*?<\/style>| class="[^"]*"/g
/** Matches a counter in element names, which would make equal charts differ. */
const COUNTER = /zr\d+-/g

function optionOf({ title, x, y, lines }: Chart): ChartOption {
  return {
    animation: false,
    backgroundColor: CARD,
    color: COLORS,
    textStyle: { fontFamily: FONT, color: INK },
    title: { text: title, left: 11, top: 12, textStyle: { fontSize: 15, fontWeight: 600, color: INK } },
    legend: { show: lines.length > 1, ...LEGEND },
    grid: { left: 64, right: 32, top: 84, bottom: 56 },
    xAxis: { ...axisOf(x), nameLocation: 'middle', nameGap: 32, splitLine: { show: false } },
    yAxis: { ...axisOf(y), nameLocation: 'end', nameTextStyle: { color: INK, align: 'left', padding: [0, 0, 0, -48] } },
    series: lines.map(seriesOf),
  }
}

function axisOf({ name, isLog, min, max, labels }: Axis) {
  const texts = new Map(labels)
  const places = labels?.map(([at]) => at)
  const formatter = (value: number) => texts.get(value) ?? (labels ? '' : value.toLocaleString('en'))
  return {
    name,
    type: isLog ? ('log' as const) : ('value' as const),
    ...(min === undefined ? {} : { min }),
    ...(max === undefined ? {} : { max }),
    axisLine: { show: true, lineStyle: { color: INK } },
    axisTick: { show: true, ...(places && { customValues: places }) },
    axisLabel: { color: INK, fontSize: 12, formatter, ...(places && { customValues: places }) },
    splitLine: { lineStyle: { color: FAINT } },
    nameTextStyle: { color: INK },
  }
}

function seriesOf({ name, points, tinted }: Line): LineSeriesOption {
  const area = tinted && { silent: true, itemStyle: { color: TINT }, data: [tinted.map((xAxis) => ({ xAxis }))] }
  return {
    type: 'line',
    name,
    data: points.map(([x, y]) => [x, y]),
    symbol: 'circle',
    symbolSize: 6,
    lineStyle: { width: 2.5 },
    ...(area && { markArea: area as NonNullable<LineSeriesOption['markArea']> }),
  }
}
