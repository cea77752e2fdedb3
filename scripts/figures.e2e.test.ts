/** Checks dashboard, alerts, reference page and probes against a running broker. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { CONNECTIONS_PER_BROKER } from '@sealpost/bench/capacity-model'
import { World } from '@sealpost/broker/testing'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { familiesOf, metricsPage, namesIn, seriesOf } from './deploy/figures.ts'
import { ROOT, textOf, yamlOf } from './deploy/sources.ts'

let world: World
let scrape = ''
const answers = new Map<string, number>()
const [, probes = ''] = /containers:([\s\S]*)lifecycle:/.exec(textOf('docs/deploy/kubernetes/brokers.yaml')) ?? []
const probed = new Set([...probes.matchAll(/path: (\S+), port: private/g)].map(([, path]) => path!))

beforeAll(async () => {
  world = await World.open()
  const { adminUrl } = world.broker
  scrape = await (await fetch(`${adminUrl}/metrics`)).text()
  for (const path of probed) answers.set(path, (await fetch(`${adminUrl}${path}`)).status)
  answers.set('public /readyz', (await fetch(`${world.broker.httpUrl}/readyz`)).status)
})

afterAll(() => world?.[Symbol.asyncDispose]())

test('the probes of Kubernetes and of Caddy succeed', () => {
  expect([...answers]).toEqual([
    ['/livez', 200],
    ['/readyz', 200],
    ['public /readyz', 200],
  ])
})

test('a broker holds at most as many connections as plans assume, and not many fewer', async () => {
  await expect.poll(() => connectionsOf(world)).toBeGreaterThan(CONNECTIONS_PER_BROKER / 2) // some connections are opened on demand
  expect(await connectionsOf(world)).toBeLessThanOrEqual(CONNECTIONS_PER_BROKER)
})

test('docs/reference/metrics.md lists the metrics of a broker', async () => {
  const page = metricsPage(familiesOf(scrape))
  await expect(page).toMatchFileSnapshot(join(ROOT, 'docs/reference/metrics.md'))
})

describe('every metric series exists', () => {
  /** Returns an expression's unknown series. Prometheus provides `up`. */
  const unknownIn = (expression: string) => {
    const known = new Set(['up', ...familiesOf(scrape).flatMap(seriesOf)])
    return namesIn(expression).filter((name) => !known.has(name))
  }

  test('that the dashboard shows', () => {
    const expressions: string[] = []
    JSON.parse(readFileSync(join(ROOT, 'docs/grafana/board.json'), 'utf8'), (key, value: unknown) => {
      if (key === 'expr') expressions.push(String(value))
      return value
    })
    expect(expressions.length).toBeGreaterThan(30)
    expect(expressions.flatMap(unknownIn)).toEqual([])
    expect(expressions.flatMap(namesIn).length).toBeGreaterThanOrEqual(expressions.length)
  })

  test('that an alert uses, and each alert has instructions', () => {
    const [{ groups }] = yamlOf('docs/grafana/alerts.yaml') as [{ groups: { rules: Rule[] }[] }]
    const rules = groups.flatMap((group) => group.rules)
    expect(rules.length).toBeGreaterThan(8)
    expect(rules.flatMap(({ expr }) => unknownIn(expr))).toEqual([])
    for (const { annotations } of rules) {
      const [page, anchor] = annotations.runbook.split('#') as [string, string]
      expect(existsSync(join(ROOT, page))).toBe(true)
      expect(textOf(page).toLowerCase()).toContain(`# ${anchor.replaceAll('-', ' ')}\n`)
    }
  })

  test('and a series that does not exist is detected', () => {
    expect(unknownIn('sum(rate(sealpost_pigeons_total[5m])) > sealpost_sessions')).toEqual(['sealpost_pigeons_total'])
    expect(() => namesIn('sum(rate(')).toThrow('no PromQL')
  })
})

async function connectionsOf({ db }: World): Promise<number> {
  const [row] = await db.run(
    (sql) => sql<{ count: number }[]>`
      select count(*)::int from pg_stat_activity
      where datname = current_database() and application_name like 'sealpost%'`,
  )
  return row!.count
}

interface Rule {
  readonly expr: string
  readonly annotations: { readonly runbook: string }
}
