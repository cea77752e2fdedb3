/**
 * From a load to brokers, databases and disks: `bun scripts/capacity.ts --peers 1M --messages 50`. docs/CAPACITY.md says
 * what the plan is made of. The parts are: `figures` (what was measured), `model` (the arithmetic),
 * `placement-check` and `storm` (what `--simulate` plays through), `measure` and `handshakes` (`--measure`).
 */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startEmbedded } from '@sealpost/embedded-pg'
import { endOnSignals, forever, Teardown } from '@sealpost/harness/programs/teardown'
import { OperatingError } from '@sealpost/std'
import { readFigures, SIZES_FILE, type Sizes } from './figures.ts'
import { measureHandshakes } from './handshakes.ts'
import { measureSizes } from './measure.ts'
import { planFor } from './model.ts'
import { readOptions } from './options.ts'
import { renderPage } from './page.ts'
import { planText, simulationText } from './report.ts'

const teardown = new Teardown()
endOnSignals(teardown)
const { load, hardware, isSimulating, isMeasuring, isRendering, isJson } = readOptions(process.argv.slice(2))
let exitCode = 0
try {
  if (isMeasuring) await Bun.write(SIZES_FILE, `${JSON.stringify(await measured(), null, 1)}\n`)
  const figures = await readFigures()
  if (isRendering) await renderPage(figures)
  const plan = planFor(load, hardware, figures)
  if (isJson) console.log(JSON.stringify(plan, null, 2))
  else if (!isRendering) console.log(planText({ load, hardware, plan }))
  if (isSimulating) console.log(simulationText({ load, hardware, figures, plan }))
} catch (error) {
  if (teardown.isRunning) await forever()
  console.error(error instanceof OperatingError ? error.message : String((error as Error).stack))
  exitCode = 1
}
await teardown.run()
process.exit(exitCode)

async function measured(): Promise<Sizes> {
  const server = await teardown.starting(startEmbedded(), (started) => ({
    end: () => started.stop(),
    kill: () => started.kill(),
  }))
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-capacity-'))
  teardown.add({ end: () => rm(folder, { recursive: true, force: true }) })
  const sizes = await measureSizes(server.url)
  const place = { databaseUrl: server.url, postmaster: server.pid, folder }
  return { ...sizes, handshake: await measureHandshakes(place, teardown) }
}
