/**
 * Builds and checks a release without publishing it: `bun run release --dry-run`. docs/RELEASING.md describes the steps
 * before and after it.
 */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { oneOf, parseArgs, runCommand, wholeNumber } from '@sealpost/harness/programs/command'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { OperatingError } from '@sealpost/std'
import { Command, Option } from 'commander'
import { platforms } from './binary/build.ts'
import { ROOT } from './packages/sdk.ts'
import type { DryRunOptions } from './release/dry-run.ts'
import { commitOf, prepareVersion } from './release/repository.ts'
import { reportFile } from './run.ts'

interface Options extends DryRunOptions {
  readonly dryRun?: boolean
  readonly prepare?: string
  readonly fixture?: number
}

const command = new Command('release')
  .description('Build and check a release. This command publishes nothing.')
  .addOption(new Option('--dry-run', 'build, test and describe a release').conflicts(['prepare', 'fixture']))
  .addOption(new Option('--prepare <VERSION>', 'set the version and date the changelog').conflicts('fixture'))
  .option('--fixture <NUMBER>', 'replace an upgrade fixture with the current version', wholeNumber(1, 999))
  .option('--platform <NAME>', `${platforms.join(', ')}; repeat it for several; default: all`, oneOf(platforms))
  .option('--out <FOLDER>', 'the folder of the release, which is replaced', join(ROOT, 'dist/release'))
  .option('--built <FOLDER>', 'take the binaries from this folder instead of building them')
  .option('--no-tests', 'skip the tests of the packed files')
  .option('--allow-changes', 'accept a working tree with changes, for trying this command')
  .option('--source <URI>', 'the address of the repository in the provenance statement, such as git+https://…')
  .option('--builder <URI>', 'the name of this machine in the provenance statement', 'urn:sealpost:builder:unnamed')

// The modules that build are imported late: loading them takes a second.
await runCommand(async (teardown) => {
  try {
    await perform(parseArgs<Options>(command), teardown)
    return 0
  } catch (error) {
    if (!(error instanceof OperatingError)) throw error
    throw new OperatingError(error.code, `${error.code}: ${error.message}`)
  }
})

async function perform(options: Options, teardown: Teardown): Promise<void> {
  if (options.prepare !== undefined) prepareVersion(options.prepare, new Date().toISOString().slice(0, 10))
  else if (options.fixture !== undefined) await replaceFixture(options.fixture)
  else if (options.dryRun) print(await (await import('./release/dry-run.ts')).dryRun(options, teardown))
  else throw new OperatingError('nothing_published', 'This command publishes nothing: add --dry-run, and publish the files as docs/RELEASING.md describes.') // biome-ignore format: one thing
}

async function replaceFixture(number: number): Promise<void> {
  const { allFixtures, cutFixture } = await import('./upgrade/fixture.ts')
  const former = allFixtures().find((fixture) => fixture.number === number)
  if (former && commitOf(former.version))
    throw new OperatingError('fixture_released', `Fixture ${number} is version ${former.version}, which is released: cut fixture ${number + 1}.`) // biome-ignore format: one thing
  print(await cutFixture(number))
}

function print(folder: string): void {
  for (const name of readdirSync(folder).sort()) reportFile(join(folder, name))
}
