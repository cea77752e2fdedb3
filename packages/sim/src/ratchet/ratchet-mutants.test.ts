import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { searchWith } from '../mutants/test/build.ts'
import { ratchetBugs } from './test/ratchet-bugs.ts'

const SEEDS = 400

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-ratchet-mutants-'))
})
afterAll(() => rm(folder, { recursive: true }))

test.concurrent.each(ratchetBugs)('each planted bug of ratchets is found: $name', async (bug) => {
  const entry = join(import.meta.dirname, 'test/search-ratchet.ts')
  expect(await searchWith(bug, entry, folder, SEEDS)).toMatch(bug.breaks)
})
