/** Tests the capacity planner as an operator runs it. */
import { join } from 'node:path'
import { expect, test } from 'vitest'
import type { CapacityPlan } from './model.ts'

test('the command prints a plan for a billion peers', () => {
  const plan = JSON.parse(capacity('--json', '--peers', '1G', '--online', '0.1', '--messages', '50')) as CapacityPlan
  expect(plan.brokers).toBeGreaterThan(10_000)
  expect(plan.cells).toBeGreaterThan(10)
})

test('the command simulates its plan', () => {
  expect(capacity('--simulate', '--peers', '20k')).toMatch(/0 meshes move unnecessarily[\s\S]*all after \d/)
})

test('invalid numbers are usage errors', () => {
  expect(spawn('--online', '2')).toMatchObject({ exitCode: 2 })
  expect(spawn('--peers', '0')).toMatchObject({ exitCode: 2 })
})

const spawn = (...words: string[]) =>
  Bun.spawnSync([process.execPath, join(import.meta.dirname, '../../../../scripts/capacity.ts'), ...words], {
    stderr: 'pipe',
  })

function capacity(...words: string[]): string {
  const { exitCode, stdout, stderr } = spawn(...words)
  expect(`${exitCode}${stderr}`).toBe('0')
  return stdout.toString()
}
