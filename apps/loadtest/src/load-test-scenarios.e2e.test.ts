/** Runs the scenarios as a user would, and checks what they count, not how fast they are. */
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { SCENARIOS } from './scenarios/registry.ts'
import type { ScenarioReport, ScenarioResult } from './scenarios/run.ts'
import { LoadTestWorld, programsOf } from './test/testing-run.ts'

const world = new LoadTestWorld()

test('every scenario in its shortest form counts correctly and creates a page', {
  timeout: 400_000,
}, async () => {
  const page = join(world.folder, 'report.html')
  const words = ['6', '20', '--all', '--quick', '--seconds', '1', '--rate', '50']
  const { code, out, err, left } = await world.run([...words, '--html', page, '--json', world.resultFile])
  expect(err).not.toContain('Error')
  const { scenarios } = await world.result<ScenarioReport['json']>()
  expect(scenarios.map(({ scenario }) => scenario)).toEqual(SCENARIOS.map(({ name }) => name))
  expect(code).toBe(scenarios.every(({ isGood }) => isGood) ? 0 : 1)
  const figures = Object.fromEntries(scenarios.map(({ scenario, figures }) => [scenario, figures]))
  expect(figures).toMatchObject({
    burst: { delivered: 120, lost: 0 },
    sweep: { lost: 0 },
    roundtrip: { sockets: 6, sent: 12, delivered: 12, dropped: 0 },
    connections: { connected: 6, dropped: 0 },
    throughput: { messagesPerSecondTried: 50, refused: 0 },
    votes: { votes: 120, stored: 120, known: 120, delivered: 120, failed: 0 },
    'hot-group': { rounds: 1, speedUp: expect.any(Number) },
    'http-send': { errorShare: 0, pacedRequestsPerSecond: expect.any(Number) },
    'http-ceiling': { requestsPerSecondTried: 50, failed: 0 },
    'http-group-send': { messages: 10, deliveries: 60, delivered: 60, failed: 0 },
    stream: { failed: 0 },
    reactions: { errors: 0, updates: 6, stored: 6, found: 6, uncounted: 0 },
    attachments: { chunksTwiceSender: expect.any(Number) },
    mixed: { parts: SCENARIOS.length - 2, partsWhole: SCENARIOS.length - 2 },
    soak: { delivered: 50, lost: 0 },
  })
  for (const { figures, checks } of scenarios) {
    for (const value of Object.values(figures)) expect(value).toEqual(expect.any(Number))
    expect(checks.filter(({ about, isMet }) => about === 'mail' && !isMet)).toEqual([])
    expect(checks.length).toBeGreaterThan(0)
  }
  for (const { scenario, shown, bar } of scenarios)
    expect(out).toMatch(new RegExp(`^ +${scenario} +${literal(shown)} +${literal(bar)} `, 'm'))
  const html = await Bun.file(page).text()
  for (const { name } of SCENARIOS) expect(html).toContain(`<section id="${name}">`)
  expect(html).toContain('<svg')
  expect(html).not.toMatch(/undefined|NaN|<script|(src|href)="http/)
  expect(left).toEqual([])
  expect(await programsOf(world.folder)).toEqual([])
})

test('votes are counted completely with more peers than may request tokens concurrently', async () => {
  const { out } = await world.run(['100', '2', '--scenario', 'votes', '--quick', '--json', world.resultFile])
  expect(out).toContain('200 of 200 votes counted')
  const [{ checks }] = (await world.result<ScenarioReport['json']>()).scenarios as [ScenarioResult]
  expect(checks.filter(({ about, isMet }) => about === 'mail' && !isMet)).toEqual([])
})

/** Escapes a string for a regular expression. */
const literal = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')

test('named scenarios run in the given order and end with one table', async () => {
  const words = ['4', '5', '--scenario', 'roundtrip', '--scenario', 'burst', '--quick', '--seconds', '1']
  const { out } = await world.run([...words, '--json', world.resultFile])
  const { scenarios } = await world.result<ScenarioReport['json']>()
  expect(scenarios.map(({ scenario }) => scenario)).toEqual(['roundtrip', 'burst'])
  expect(out).toMatch(/scenario +measured/)
})

test('a run with its own page', async () => {
  const page = join(world.folder, 'report.html')
  const { code } = await world.run(['3', '10', '--html', page, '--json', world.resultFile])
  expect(code).toBe(0)
  expect(await Bun.file(page).text()).toContain('30 messages, nothing lost')
})
