/** Builds and runs programs with planted bugs. */
import { type PlantedBug, placeOf } from './planted-bugs.ts'

/** Builds the program `entry`, with the code that it runs and the bug. Returns the program's path. */
async function buildWith(bug: PlantedBug, entry: string, folder: string): Promise<string> {
  const { path, text } = placeOf(bug)
  const contents = text.replace(bug.from, () => bug.to)
  const plugin: Bun.BunPlugin = {
    name: 'planted bug',
    setup: ({ onLoad }) => {
      onLoad({ filter: new RegExp(`${RegExp.escape(path)}$`) }, () => ({ contents, loader: 'ts' }))
    },
  }
  const entrypoints = [entry]
  const bundle = await Bun.build({ entrypoints, target: 'bun', outdir: folder, naming: '[hash].js', plugins: [plugin] })
  return bundle.outputs[0]!.path
}

/** Returns what the program `entry` prints, with the bug, for these seeds. */
export async function searchWith(bug: PlantedBug, entry: string, folder: string, seeds: number): Promise<string> {
  const path = await buildWith(bug, entry, folder)
  const search = Bun.spawn([process.execPath, path, String(bug.firstSeed ?? 1), String(seeds)], { stderr: 'inherit' })
  return await new Response(search.stdout).text()
}
