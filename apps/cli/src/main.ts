#!/usr/bin/env bun
/** Runs the program `sealpost`, as `bun apps/cli/src/main.ts` or as the bin of this package. */
import { constants } from 'node:os'
import { OperatingError } from '@sealpost/std'
import { runCli } from './program.ts'
import { readSettings } from './settings.ts'

const interruption = new AbortController()
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.on(signal, () => {
    if (interruption.signal.aborted) process.exit(128 + constants.signals[signal]) // a second signal ends the program immediately
    interruption.abort(new OperatingError('interrupted', 'Interrupted.'))
  })
}
process.stdout.on('error', () => undefined) // the callback of the write reports the error
process.exit(await runCli(process.argv.slice(2), { settings: readSettings(), signal: interruption.signal }))
