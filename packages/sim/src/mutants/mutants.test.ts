import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type PlantedBug, placeOf, plantedBugs } from './test/planted-bugs.ts'

const SEEDS = 300

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'sealpost-mutants-'))
})
afterAll(() => rm(folder, { recursive: true }))

test.concurrent.each(plantedBugs)('each planted bug is found: $name', async (bug) => {
  const path = await buildWith(bug)
  const search = Bun.spawn([process.execPath, path, String(bug.firstSeed ?? 1), String(SEEDS)], { stderr: 'inherit' })
  expect(await new Response(search.stdout).text()).toMatch(bug.breaks)
})

/** Builds the simulator and the code that it runs, with the bug. Returns the program's path. */
async function buildWith(bug: PlantedBug): Promise<string> {
  const { path, text } = placeOf(bug)
  const contents = text.replace(bug.from, () => bug.to)
  const plugin: Bun.BunPlugin = {
    name: 'planted bug',
    setup: ({ onLoad }) => {
      onLoad({ filter: new RegExp(`${RegExp.escape(path)}$`) }, () => ({ contents, loader: 'ts' }))
    },
  }
  const entrypoints = [join(import.meta.dirname, 'test/search.ts')]
  const bundle = await Bun.build({ entrypoints, target: 'bun', outdir: folder, naming: '[hash].js', plugins: [plugin] })
  return bundle.outputs[0]!.path
}
