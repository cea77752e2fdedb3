import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { buildWith } from './test/build.ts'
import { plantedBugs } from './test/planted-bugs.ts'

const SEEDS = 300

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-mutants-'))
})
afterAll(() => rm(folder, { recursive: true }))

test.concurrent.each(plantedBugs)('each planted bug is found: $name', async (bug) => {
  const path = await buildWith(bug, join(import.meta.dirname, 'test/search.ts'), folder)
  const search = Bun.spawn([process.execPath, path, String(bug.firstSeed ?? 1), String(SEEDS)], { stderr: 'inherit' })
  expect(await new Response(search.stdout).text()).toMatch(bug.breaks)
})
