/** Writes a run's output: the report, the JSON file, and an HTML page without scripts, whose charts are inline SVG. */

import { type Machine, thisMachine } from '@sealpost/harness/programs/machine'
import { drawBars, drawChart } from '@sealpost/harness/report/chart'
import type { RunConditions } from '../run/result.ts'
import { type Check, type Findings, type Graph, isJudged, type Sheet } from '../scenarios/scenario.ts'

export interface Report {
  readonly text: string
  readonly json: object
  readonly isGood: boolean
  /** Null for a run without a page. */
  readonly page: Omit<Page, 'command'> | null
}

export interface Page {
  readonly command: string
  readonly chapters: readonly Chapter[]
  readonly conditions: RunConditions
}

export interface Chapter extends Findings {
  readonly title: string
  readonly summary: string
  /** The figure's requirement, if any. */
  readonly bar: string | null
  /** Another project's published figures, if any. */
  readonly reported: string | null
  readonly isGood: boolean
}

export interface ReportOutput {
  readonly jsonFile: string | null
  readonly htmlFile: string | null
  /** The command line, as typed. */
  readonly command: string
}

export async function writeReport({ text, json, isGood, page }: Report, { jsonFile, htmlFile, command }: ReportOutput) {
  process.stdout.write(text)
  if (jsonFile) await Bun.write(jsonFile, `${JSON.stringify(json, null, 2)}\n`)
  if (htmlFile && page) await Bun.write(htmlFile, renderPage({ command, ...page }))
  return isGood ? 0 : 1
}

function renderPage({ command, chapters, conditions }: Page): string {
  const failed = chapters.filter(({ isGood }) => !isGood).length
  const some = chapters.length === 1 ? 'It' : `${failed} of ${chapters.length}`
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
<p class="verdict ${failed === 0 ? 'good' : 'bad'}">${failed === 0 ? 'All checks passed.' : `${some} failed.`}</p>
<p><code>${escaped(command)}</code></p>
</header>
<main>
${chapters.length > 1 ? summaryOf(chapters) : ''}
${chapters.map(chapterOf).join('\n')}
${machineOf(machine, conditions)}
</main>
</body>
</html>
`
}

const escaped = (text: string): string => Bun.escapeHTML(text)

function summaryOf(chapters: readonly Chapter[]): string {
  const rows = chapters.map(({ title, isGood, shown, bar, reported }) => {
    const name = `<a href="#${escaped(title)}">${escaped(title)}</a>`
    return `<tr><td>${name}</td>${cellsOf([shown, bar ?? '–', reported ?? '–'], 'td')}<td>${markOf(isGood)}</td></tr>`
  })
  const head = ['scenario', 'measured', 'bar', 'a published report of another system', '']
  return `<section><h2>Summary</h2>
<div class="wide"><table class="words"><thead><tr>${cellsOf(head, 'th')}</tr></thead><tbody>${rows.join('')}</tbody></table></div>
</section>`
}

function chapterOf(chapter: Chapter): string {
  const { title, summary, headline, checks, sheets, graphs, facts, bar, reported } = chapter
  const items = checks.map((check) => `<li>${markOfCheck(check)} ${escaped(check.sentence)}</li>`)
  const all = [...facts]
  if (bar) all.push(['asked', bar])
  if (reported) all.push(['reported', `${reported}, of another system`])
  return `<section id="${escaped(title)}">
<h2>${markOf(chapter.isGood)} ${escaped(title)}</h2>
<p class="headline">${escaped(headline)}</p>
<p class="faint">${escaped(summary)}</p>
<ul class="checks">${items.join('')}</ul>
${sheets.map(tableOf).join('\n')}
<div class="charts">${graphs.map(chartOf).join('\n')}</div>
${listOf(all)}
</section>`
}

/** Returns a mark, with shape and title for readers who can't distinguish colours. */
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

const lineChartOf = ({ title, x, y, lines }: Graph): string =>
  drawChart({ title, x: typeof x === 'string' ? { name: x, ...rangeOf(lines) } : x, y: { name: y, min: 0 }, lines })

/** Returns the axis's range, without margins. */
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

/** Styles for phones, screens and paper, light and dark. */
const STYLE = `
:root { color-scheme: light dark; --ink: #24292f; --faint: #59636e; --line: #d8dade; --page: #fff; --good: #1a7f37; --bad: #c62828 }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --faint: #9da7b1; --line: #3d444d; --page: #14181d; --good: #4ac26b; --bad: #ff7b72 } }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 64rem; font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page) }
h1 { margin: 0; font-size: 1.6rem }
h2 { margin: 2.5rem 0 .25rem; padding-top: 1rem; border-top: 1px solid var(--line); font-size: 1.25rem }
.verdict, .headline { margin: .25rem 0; font-size: 1.15rem; font-weight: 600 }
.good { color: var(--good) } .bad { color: var(--bad) } .faint { margin-top: 0; color: var(--faint) }
.wide { overflow-x: auto }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .8rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap }
th { font-weight: 600; color: var(--faint) }
th:first-child, td:first-child, .words th, .words td { text-align: left }
.words td { white-space: normal }
.checks { padding: 0; list-style: none }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 28rem), 1fr)); gap: 1rem }
figure { margin: 0 } figure svg { width: 100%; height: auto; border-radius: .4rem }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 1rem 0 } dt { color: var(--faint) } dd { margin: 0 }
code { overflow-wrap: anywhere }
@media print { section { break-inside: avoid } }
`
