#!/usr/bin/env bun
/** Runs the program `sealpost`, as `bun apps/cli/src/main.ts` or as the bin of this package. */
import { constants } from 'node:os'
import { OperatingError } from '@sealpost/std'
import { runCli } from './program.ts'
import { readSettings } from './settings.ts'

/** The time within which the same signal is a repetition: terminal, npx and launcher may each send a Ctrl-C. */
const REPEATED_WITHIN_MS = 500

const interruption = new AbortController()
let interruptedAtMs = Number.NaN
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.on(signal, () => {
    const nowMs = performance.now()
    if (nowMs - interruptedAtMs > REPEATED_WITHIN_MS) process.exit(128 + constants.signals[signal]) // a second signal ends the program immediately
    if (interruption.signal.aborted) return
    interruptedAtMs = nowMs
    interruption.abort(new OperatingError('interrupted', 'Interrupted.'))
  })
}
process.stdout.on('error', () => undefined) // the write's callback reports the error
process.exit(await runCli(process.argv.slice(2), { settings: readSettings(), signal: interruption.signal }))
