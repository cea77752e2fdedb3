import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { searchWith } from './test/build.ts'
import { plantedBugs } from './test/planted-bugs.ts'

const SEEDS = 300

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-mutants-'))
})
afterAll(() => rm(folder, { recursive: true }))

test.concurrent.each(plantedBugs)('each planted bug is found: $name', async (bug) => {
  const entry = join(import.meta.dirname, 'test/search.ts')
  expect(await searchWith(bug, entry, folder, SEEDS)).toMatch(bug.breaks)
})
