/**
 * Runs the Autobahn testsuite against an echo server with the broker's own endpoint settings: `bun
 * scripts/autobahn.ts`.
 *
 * The suite is a Python 2.7 program. Install it once with `virtualenv -p python2.7 autobahn` and `autobahn/bin/pip
 * install autobahntestsuite==0.8.2`, then run `bun scripts/autobahn.ts --wstest autobahn/bin/wstest`. Without it, this
 * script prints a note and exits with 0. `ws-conformance.e2e.test.ts` runs everywhere.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { endpointSettings } from '@sealpost/broker/endpoint'
import { Command } from 'commander'

/** A case's result. `NON-STRICT`: a violation was detected late. `INFORMATIONAL`: there is no rule. */
type Behavior = 'OK' | 'NON-STRICT' | 'INFORMATIONAL' | 'UNIMPLEMENTED' | 'FAILED' | 'UNCLEAN' | 'WRONG CODE'
interface Outcome {
  readonly behavior: Behavior
  readonly behaviorClose: Behavior
}

const ECHO = 'echo'
/** Omitted groups: 9 measures speed, 12 and 13 test compression, which is never negotiated. */
const LEFT_OUT = ['9.*', '12.*', '13.*']
const GOOD: readonly Behavior[] = ['OK', 'NON-STRICT', 'INFORMATIONAL']

const options = new Command('autobahn')
  .description("Run the Autobahn testsuite against the broker's endpoint settings.")
  .option('--wstest <path>', 'the path of the program wstest', Bun.which('wstest') ?? undefined)
  .option('--cases <pattern>', 'run only these cases, such as 7.3.*', '*')
  .parse()
  .opts<{ wstest?: string; cases: string }>()

process.exitCode = options.wstest ? await run(options.wstest) : skip()

function skip(): number {
  console.log(
    'skipped: wstest is not installed. It is a Python 2.7 program; the head of this script explains how to install it.',
  )
  return 0
}

async function run(wstest: string): Promise<number> {
  const folder = mkdtempSync(join(tmpdir(), 'sealpost-autobahn-'))
  const server = echo()
  try {
    writeFileSync(join(folder, 'spec.json'), specification(`ws://127.0.0.1:${server.port}`))
    const suite = Bun.spawn([wstest, '-m', 'fuzzingclient', '-s', 'spec.json'], {
      cwd: folder,
      stdout: 'ignore',
      stderr: 'ignore',
    })
    const exitCode = await suite.exited
    if (exitCode !== 0) throw new Error(`${wstest} ended with ${exitCode}`)
    return report(JSON.parse(readFileSync(join(folder, 'reports', 'index.json'), 'utf8'))[ECHO])
  } finally {
    await server.stop(true)
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Starts the suite's echo server with the broker's endpoint settings. */
function echo() {
  return Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    development: false,
    reusePort: false,
    fetch: (request, server) => (server.upgrade(request) ? undefined : new Response('upgrade', { status: 426 })),
    websocket: { ...endpointSettings(64 * 1024 * 1024), message: (socket, wire) => void socket.send(wire) },
  })
}

function specification(url: string): string {
  return JSON.stringify({
    outdir: './reports',
    servers: [{ agent: ECHO, url }],
    cases: [options.cases],
    'exclude-cases': LEFT_OUT,
    'exclude-agent-cases': {},
  })
}

function report(outcomes: Readonly<Record<string, Outcome>>): number {
  const counts = new Map<string, number>()
  const failed: string[] = []
  for (const [name, { behavior, behaviorClose }] of Object.entries(outcomes)) {
    counts.set(behavior, (counts.get(behavior) ?? 0) + 1)
    if (!GOOD.includes(behavior) || !GOOD.includes(behaviorClose)) failed.push(`${name}: ${behavior}, ${behaviorClose}`)
  }
  for (const line of failed) console.error(line)
  const all = Object.keys(outcomes).length
  const words = [...counts].map(([behavior, count]) => `${count} ${behavior.toLowerCase()}`)
  console.log(`${all} cases: ${words.join(', ')}; ${failed.length} failed`)
  return failed.length === 0 && all > 0 ? 0 : 1
}
