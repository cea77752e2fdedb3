/**
 * A result as one page that needs nothing else: no script, no file beside it, nothing from the network. The charts are
 * drawn here, as SVG.
 */
import { drawBars, drawChart } from '@sealpost/harness/report/chart'
import { type Machine, thisMachine } from '@sealpost/harness/report/machine'
import { type Check, type Findings, type Graph, isJudged, type Sheet } from '../scenarios/scenario.ts'
import { STYLE } from './style.ts'

export interface Chapter extends Findings {
  readonly title: string
  /** A sentence about the workload. */
  readonly summary: string
  /** What is asked of the figure it shows; null: nothing in particular. */
  readonly bar: string | null
  /** What a published report measured with it; null: none. */
  readonly reported: string | null
  readonly isGood: boolean
}

export interface Page {
  /** The command, complete. */
  readonly command: string
  readonly chapters: readonly Chapter[]
  readonly surroundings: RunConditions
}

export interface RunConditions {
  readonly postgresVersion: string
  readonly durability: { readonly fsync: string; readonly synchronousCommit: string }
  readonly gitSha: string
  readonly limits: 'on' | 'off'
}

export function renderPage({ command, chapters, surroundings }: Page): string {
  const isGood = chapters.every((chapter) => chapter.isGood)
  const failed = chapters.filter((chapter) => !chapter.isGood).length
  const some = chapters.length === 1 ? 'It' : `${failed} of ${chapters.length}`
  const verdict = isGood ? 'Everything held.' : `${some} did not hold.`
  const machine = thisMachine()
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sealpost load test, ${escaped(machine.date)}</title>
<style>${STYLE}</style>
</head>
<body>
<header>
<h1>Sealpost load test</h1>
<p class="verdict ${isGood ? 'good' : 'bad'}">${verdict}</p>
<p><code>${escaped(command)}</code></p>
</header>
<main>
${chapters.length > 1 ? summaryOf(chapters) : ''}
${chapters.map(chapterOf).join('\n')}
${machineOf(machine, surroundings)}
</main>
</body>
</html>
`
}

const escaped = (text: string): string => Bun.escapeHTML(text)

function summaryOf(chapters: readonly Chapter[]): string {
  const rows = chapters.map(({ title, isGood, shown, bar, reported }) => {
    const name = `<a href="#${escaped(title)}">${escaped(title)}</a>`
    const cells = [shown, bar ?? '–', reported ?? '–'].map((cell) => `<td>${escaped(cell)}</td>`)
    return `<tr><td>${name}</td>${cells.join('')}<td>${markOf(isGood)}</td></tr>`
  })
  const head = ['scenario', 'shown here', 'bar', 'a published report, of another system', '']
  return `<section><h2>Summary</h2>
<div class="wide"><table class="words"><thead><tr>${cellsOf(head, 'th')}</tr></thead><tbody>${rows.join('')}</tbody></table></div>
</section>`
}

function chapterOf(chapter: Chapter): string {
  const { title, summary, headline, checks, sheets, graphs, facts, bar, reported } = chapter
  const told = checks.map((check) => `<li>${markOfCheck(check)} ${escaped(check.sentence)}</li>`)
  const all = [...facts]
  if (bar) all.push(['asked', bar])
  if (reported) all.push(['reported', `${reported}, of another system`])
  return `<section id="${escaped(title)}">
<h2>${markOf(chapter.isGood)} ${escaped(title)}</h2>
<p class="headline">${escaped(headline)}</p>
<p class="faint">${escaped(summary)}</p>
<ul class="checks">${told.join('')}</ul>
${sheets.map(tableOf).join('\n')}
<div class="charts">${graphs.map(chartOf).join('\n')}</div>
${listOf(all)}
</section>`
}

/** Told by word and shape, too, for those who don't see the colour. */
const markOf = (isGood: boolean): string =>
  isGood ? '<span class="good" title="held">✔</span>' : '<span class="bad" title="not held">✘</span>'

const markOfCheck = (check: Check): string =>
  isJudged(check) ? markOf(check.isMet) : '<span class="faint" title="not judged">–</span>'

const cellsOf = (cells: readonly string[], kind: 'td' | 'th'): string =>
  cells.map((cell) => `<${kind}>${escaped(cell)}</${kind}>`).join('')

function tableOf({ head, rows }: Sheet): string {
  const body = rows.map((row) => `<tr>${cellsOf(row, 'td')}</tr>`)
  const table = `<table><thead><tr>${cellsOf(head, 'th')}</tr></thead><tbody>${body.join('')}</tbody></table>`
  return `<div class="wide">${table}</div>`
}

const listOf = (facts: Findings['facts']): string =>
  `<dl>${facts.map(([name, text]) => `<dt>${escaped(name)}</dt><dd>${escaped(text)}</dd>`).join('')}</dl>`

function chartOf(graph: Findings['graphs'][number]): string {
  const svg = 'bars' in graph ? drawBars(graph) : lineChartOf(graph)
  return `<figure role="img" aria-label="${escaped(graph.title)}">${svg}</figure>`
}

function lineChartOf({ title, x, y, lines }: Graph): string {
  return drawChart({
    title,
    x: typeof x === 'string' ? { name: x, ...rangeOf(lines) } : x,
    y: { name: y, min: 0 },
    lines,
  })
}

/** No room beside the points. */
function rangeOf(lines: Graph['lines']): { min?: number; max?: number } {
  const places = lines.flatMap(({ points }) => points.map(([at]) => at))
  return places.length === 0 ? {} : { min: Math.min(...places), max: Math.max(...places) }
}

function machineOf(machine: Machine, { postgresVersion, durability, gitSha, limits }: RunConditions): string {
  const { fsync, synchronousCommit } = durability
  return `<section><h2>Measured on</h2>${listOf([
    ['machine', `${machine.cores} cores (${machine.cpu}), ${machine.memoryGb} GB of memory, ${machine.system}`],
    ['database', `PostgreSQL ${postgresVersion}, fsync=${fsync}, synchronous_commit=${synchronousCommit}`],
    ['broker', `commit ${gitSha}, Bun ${machine.bun}, rate limits ${limits}`],
    ['day', machine.date],
  ])}</section>`
}
