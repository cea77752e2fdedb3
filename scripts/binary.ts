/** Builds `sealpost` as one file: `bun run build:binary [--platform NAME …]`, by default for this machine. */
import { statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { oneOf, parseArgs, runCommand, wholeNumber } from '@sealpost/harness/programs/command'
import { Command } from 'commander'
import { buildBinary, ownPlatform, type Platform, platforms } from './binary/build.ts'

interface Options {
  readonly platform?: readonly string[]
  readonly out: string
  readonly level: number
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
      .option('--level <NUMBER>', 'how hard PostgreSQL is compressed, from 1 to 19', wholeNumber(1, 19), 19),
  )
  for (const name of options.platform ?? [ownPlatform()]) await build(name as Platform, options)
  return 0
})

async function build(platform: Platform, { out, level }: Options): Promise<void> {
  const outfile = join(resolve(out), `sealpost-${platform}${platform.startsWith('win32') ? '.exe' : ''}`)
  await buildBinary({ platform, outfile, level })
  console.log(`${outfile}  ${(statSync(outfile).size / 1e6).toFixed(1)} MB`)
}
