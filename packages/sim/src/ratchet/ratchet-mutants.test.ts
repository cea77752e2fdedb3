import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { buildWith } from '../mutants/test/build.ts'
import { ratchetBugs } from './test/ratchet-bugs.ts'

const SEEDS = 400

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-ratchet-mutants-'))
})
afterAll(() => rm(folder, { recursive: true }))

test.concurrent.each(ratchetBugs)('each planted bug of ratchets is found: $name', async (bug) => {
  const path = await buildWith(bug, join(import.meta.dirname, 'test/search-ratchet.ts'), folder)
  const search = Bun.spawn([process.execPath, path, String(bug.firstSeed ?? 1), String(SEEDS)], { stderr: 'inherit' })
  expect(await new Response(search.stdout).text()).toMatch(bug.breaks)
})
