/** Writes the generated pages in `docs/reference`, after a change to settings or commands. */
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { configReference } from '@sealpost/broker/config-reference'
import { cliReference } from '@sealpost/cli/reference'

const folder = join(import.meta.dirname, '../docs/reference')
await mkdir(folder, { recursive: true })
await writeFile(join(folder, 'config.md'), configReference())
await writeFile(join(folder, 'cli.md'), await cliReference())
