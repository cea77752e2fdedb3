/** Runs the short form: every scenario once, with a printed seed. */
import { join } from 'node:path'
import { expect, test } from 'vitest'
import type { VerdictLine } from './judgement/verdict.ts'
import { SCENARIOS } from './torture.ts'

const SCRIPT = join(import.meta.dirname, '../../../scripts/torture.ts')
const SLOW = 600_000
/** No time limits for slow machines, and few messages between faults. */
const SHORT = ['--measure', 'short', '--rate', '100', '--recover-within', '0', '--json']

/** Scenarios whose file systems no npm package contains. */
const MAY_BE_SKIPPED =
  process.env.CI === 'true' ? ['power-loss', 'store-power-loss'] : SCENARIOS.map(({ name }) => name)
const MIXED = SCENARIOS.filter(({ alone }) => !alone).map(({ name }) => name)
const ALONE = SCENARIOS.filter(({ alone }) => alone)

async function run(args: readonly string[]) {
  const child = Bun.spawn([process.execPath, SCRIPT, ...args], { stdio: ['ignore', 'pipe', 'pipe'] })
  const [out, err] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()])
  return { code: await child.exited, out, err }
}

async function torture(names: readonly string[]): Promise<{ lines: VerdictLine[]; err: string }> {
  const { code, out, err } = await run([...SHORT, ...names.flatMap((name) => ['--scenario', name])])
  const { lines, seed } = JSON.parse(out || '{"lines":[]}') as { lines: VerdictLine[]; seed: number }
  const reasons = lines.flatMap(({ scenario, reasons }) => reasons.map((reason) => `${scenario}: ${reason}`))
  expect(code, `seed ${seed}\n${reasons.join('\n')}\n${err}`).toBe(0)
  return { lines, err }
}

test('every promise holds under all faults that can be combined', { timeout: SLOW }, async () => {
  const { lines } = await torture(MIXED)
  expect(lines.map(({ scenario }) => scenario)).toEqual(MIXED)
  for (const { outcome, rounds, scenario } of lines)
    expect([scenario, outcome, rounds > 0]).toEqual([scenario, 'held', true])
  expect(lines.reduce((sum, { acked }) => sum + acked, 0)).toBeGreaterThanOrEqual(100 * MIXED.length)
})

test.for(ALONE)('each promise holds under $name', { timeout: SLOW }, async ({ name, obstacle }, { skip }) => {
  const reason = obstacle?.() ?? null
  if (reason !== null && MAY_BE_SKIPPED.includes(name)) skip(reason)
  const { lines } = await torture([name])
  expect(lines).toMatchObject([{ outcome: 'held', scenario: name }])
})

test('it ends after the given minutes, skips scenarios without a turn, and shows its progress', {
  timeout: SLOW,
}, async () => {
  const { out, err } = await run(['--minutes', '0.2', '--rate', '100', '--recover-within', '0', '--json'])
  const { lines } = JSON.parse(out) as { lines: VerdictLine[] }
  expect(lines.map(({ scenario }) => scenario)).toEqual(SCENARIOS.map(({ name }) => name))
  const skipped = lines.filter(({ outcome }) => outcome === 'skipped').map(({ scenario }) => scenario)
  expect(skipped).toEqual(expect.arrayContaining(ALONE.map(({ name }) => name)))
  expect(skipped.length).toBeLessThan(SCENARIOS.length)
  expect(err).toMatch(/^\d:\d\d of 0:12 {2}fault 1: \S+$/m)
  expect(err).toContain(`scenarios did not run within 0.2 minutes.`)
})

test('it lists its scenarios, and refuses an unknown name', async () => {
  const { out, code } = await run(['--list'])
  expect(code).toBe(0)
  for (const { name } of SCENARIOS) expect(out).toContain(`${name} `)
  const wrong = await run(['--scenario', 'broker-kil'])
  expect(wrong.code).toBe(2)
  expect(wrong.err).toContain('There is no "broker-kil"')
})
