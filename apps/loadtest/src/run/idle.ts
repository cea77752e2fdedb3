/** What sessions cost that do nothing: they connect, the clock runs, they go. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { processFacts } from '@sealpost/harness/programs/process-facts'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count, factList, figure } from '@sealpost/harness/report/text'
import { OperatingError } from '@sealpost/std'
import { createColors } from 'picocolors'
import type { LoadOptions } from '../command/arguments.ts'
import type { Display } from '../command/progress.ts'
import type { Environment } from '../environment/environment.ts'
import { Fleet } from '../generators/fleet.ts'
import type { Plan } from '../generators/plan.ts'
import type { ReportOptions } from '../report/report.ts'
import { fleetSetup, newMeshes } from './run.ts'

export interface IdleResult {
  readonly sessions: number
  readonly seconds: number
  /** Of the broker: cores, from 0 up. */
  readonly cpuShare: number
  readonly rssMbBefore: number
  readonly rssMbAfter: number
  readonly rssKbPerSession: number
  readonly gitSha: string
}

export interface IdleSetup {
  readonly plan: Plan
  readonly target: Environment
  readonly options: LoadOptions
  readonly display: Display
}

/** A start and a thousand handshakes leave garbage and compiled code behind; this long after it the figures stand. */
const SETTLE_MS = 5_000

export async function runIdle(setup: IdleSetup, teardown: Teardown): Promise<IdleResult> {
  const { plan, target, options, display } = setup
  const meshes = await newMeshes(setup, teardown)
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-load-'))
  teardown.add({ end: () => rm(folder, { recursive: true, force: true }) })
  display.step('letting the broker settle')
  await Bun.sleep(SETTLE_MS)
  const before = brokerFacts(target)
  const fleet = await Fleet.open(fleetSetup({ ...setup, meshes }, join(folder, 'idle')))
  const stop = teardown.add({ end: () => fleet.stop(), kill: () => fleet.kill() })
  display.step(`connecting ${plan.peers} peers`)
  await Promise.race([fleet.connect(), target.failed])
  await Bun.sleep(SETTLE_MS)
  display.step(`looking at them for ${options.seconds} s`)
  const first = brokerFacts(target)
  await Promise.race([Bun.sleep(options.seconds * 1000), target.failed])
  const last = brokerFacts(target)
  await stop()
  return {
    sessions: plan.peers,
    seconds: options.seconds,
    cpuShare: (last.cpuSeconds - first.cpuSeconds) / options.seconds,
    rssMbBefore: before.rssMb,
    rssMbAfter: last.rssMb,
    rssKbPerSession: ((last.rssMb - before.rssMb) * 1024) / plan.peers,
    gitSha: target.version.gitSha,
  }
}

function brokerFacts({ shards: [shard] }: Environment) {
  const facts = shard?.pid == null ? null : processFacts(shard.pid)
  if (!facts) throw new OperatingError('broker_unknown', 'The system tells nothing about the broker.')
  return facts
}

export function printIdle(result: IdleResult, { isColored }: ReportOptions): string {
  const { sessions, seconds, cpuShare, rssMbBefore, rssMbAfter, rssKbPerSession } = result
  const cpu = `${figure(cpuShare * 100)} % of a core over ${count(seconds)} s`
  const memory = `${figure(rssMbBefore)} MB before, ${figure(rssMbAfter)} MB with them: ${figure(rssKbPerSession)} kB each`
  const lines = [
    ['sessions', `${count(sessions)}, silent`],
    ['CPU', cpu],
    ['memory', memory],
  ] as const
  return `\n${factList(lines, createColors(isColored))}\n`
}
