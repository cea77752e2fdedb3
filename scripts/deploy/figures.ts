/** What a scrape shows, what a PromQL expression asks for, and the reference page of the first. */
import { parser } from '@prometheus-io/lezer-promql'

export interface Family {
  readonly name: string
  readonly type: string
  readonly help: string
}

export function familiesOf(scrape: string): Family[] {
  const types = new Map([...scrape.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name, type]) => [name!, type!]))
  return [...scrape.matchAll(/^# HELP (\S+) (.*)$/gm)]
    .map(([, name, help]) => ({ name: name!, type: types.get(name!) ?? 'untyped', help: help! }))
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
}

/** Names by which Prometheus knows a family. */
export function seriesOf({ name, type }: Family): string[] {
  return type === 'histogram' ? ['bucket', 'sum', 'count'].map((part) => `${name}_${part}`) : [name]
}

/** The series it asks for. @throws Error for what is no PromQL */
export function namesIn(expression: string): string[] {
  const plain = expression.replaceAll('$__rate_interval', '5m').replaceAll('$__all', '.*')
  const names: string[] = []
  parser.parse(plain).iterate({
    enter: ({ type, from, to, node }) => {
      if (type.isError) throw new Error(`no PromQL at ${from}: ${plain}`)
      if (type.name === 'Identifier' && node.parent?.name === 'VectorSelector') names.push(plain.slice(from, to))
    },
  })
  return names
}

/** `docs/reference/metrics.md`. */
export function metricsPage(families: readonly Family[]): string {
  const rows = families.map(({ name, type, help }) => `| \`${name}\` | ${type} | ${help} |`)
  return `${HEAD}\n${rows.join('\n')}\n`
}

const HEAD = `<!-- Made by \`bun --bun vitest run scripts/figures.e2e.test.ts -u\` from what a broker shows; the same test compares them. -->
# Metrics

A broker shows its figures at \`/metrics\` on its private port (\`ADMIN_HOST\`, \`ADMIN_PORT\`), as Prometheus reads them. Units are
seconds and bytes; a counter begins at 0 with its process; no figure names a peer or a mesh. A histogram also has \`_bucket\`, \`_sum\`
and \`_count\`. A board and alarms over them are in [docs/grafana](../grafana/board.json).

| Name | Kind | Meaning |
|---|---|---|`
