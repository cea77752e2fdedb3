import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { searchWith } from '../mutants/test/build.ts'
import { senderKeyBugs } from './test/sender-key-bugs.ts'

const SEEDS = 400

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-sender-key-mutants-'))
})
afterAll(() => rm(folder, { recursive: true }))

test.concurrent.each(senderKeyBugs)('each planted bug of sender keys is found: $name', async (bug) => {
  const entry = join(import.meta.dirname, 'test/search-sender-keys.ts')
  expect(await searchWith(bug, entry, folder, SEEDS)).toMatch(bug.breaks)
})
