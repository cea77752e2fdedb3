/**
 * Builds `sealpost` as one file: `bun run build:binary [--platform NAME …]`, by default for this machine. `bun run
 * build:npm` then packs the npm packages.
 */
import { join, resolve } from 'node:path'
import { oneOf, parseArgs, runCommand, wholeNumber } from '@sealpost/harness/programs/command'
import { Command } from 'commander'
import { binaryName, buildBinary, ownPlatform, type Platform, platforms } from './binary/build.ts'
import { packCli } from './packages/cli.ts'
import { packSdk } from './packages/sdk.ts'
import { reportFile } from './run.ts'

interface Options {
  readonly platform?: readonly Platform[]
  readonly out: string
  readonly level: number
  readonly npm?: boolean
}

await runCommand(async () => {
  const options = parseArgs<Options>(
    new Command('build:binary')
      .description('Build sealpost as one file')
      .option(
        '--platform <NAME>',
        `${platforms.join(', ')}; repeat it for several; default: this machine's`,
        oneOf(platforms),
      )
      .option('--out <FOLDER>', 'the folder of the binaries', join(import.meta.dirname, '../dist'))
      .option('--level <NUMBER>', 'how hard PostgreSQL is compressed, from 1 to 19', wholeNumber(1, 19), 19)
      .option('--npm', 'pack the npm packages, too'),
  )
  const { platform: names = [ownPlatform()], level, npm } = options
  const out = resolve(options.out)
  for (const platform of names) {
    const outfile = join(out, binaryName(platform))
    await buildBinary({ platform, outfile, level })
    reportFile(outfile)
  }
  if (npm) for (const tarball of [packSdk(out).tarball, ...packCli(out, names)]) reportFile(tarball)
  return 0
})
