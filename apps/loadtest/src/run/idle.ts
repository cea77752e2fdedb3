/** Measures the cost of silent sessions for a broker. */
import { join } from 'node:path'
import { type ProcessFacts, processFacts } from '@sealpost/harness/programs/machine'
import { type Teardown, temporaryFolder } from '@sealpost/harness/programs/teardown'
import { count, factList, figure } from '@sealpost/harness/report/text'
import { OperatingError } from '@sealpost/std'
import { createColors } from 'picocolors'
import type { Environment } from '../environment/environment.ts'
import { Fleet } from '../generators/fleet.ts'
import type { Plan } from '../generators/plan.ts'
import { fleetSetup, newMeshes, type RunContext } from './run.ts'

export interface IdleResult {
  readonly sessions: number
  readonly seconds: number
  /** The number of cores that the broker used. */
  readonly cpuShare: number
  readonly rssMbBefore: number
  readonly rssMbAfter: number
  readonly rssKbPerSession: number
  readonly gitSha: string
}

/** How long a broker settles: the start and a thousand handshakes leave garbage and trigger compilation. */
export const SETTLE_MS = 5_000

export async function runIdle(context: RunContext, plan: Plan, teardown: Teardown): Promise<IdleResult> {
  const { target, options, display } = context
  const meshes = await newMeshes(plan, target, teardown)
  const folder = await temporaryFolder('load', teardown)
  display.step('waiting for the broker to become idle')
  await Bun.sleep(SETTLE_MS)
  const before = brokerFacts(target)
  const fleet = new Fleet(fleetSetup({ plan, meshes, target, options }, join(folder, 'idle')))
  const stop = teardown.addProgram(fleet)
  display.step(`connecting ${plan.peers} peers`)
  await Promise.race([fleet.connect(), target.failed])
  await Bun.sleep(SETTLE_MS)
  display.step(`measuring them for ${options.seconds} s`)
  const { cpuShare, rssMb } = await restingFacts(target, options.seconds)
  await stop()
  return {
    sessions: plan.peers,
    seconds: options.seconds,
    cpuShare,
    rssMbBefore: before.rssMb,
    rssMbAfter: rssMb,
    rssKbPerSession: ((rssMb - before.rssMb) * 1024) / plan.peers,
    gitSha: target.version.gitSha,
  }
}

/** Returns the facts of the first broker. @throws OperatingError `broker_unknown` */
export function brokerFacts({ shards: [shard] }: Environment): ProcessFacts {
  const facts = shard?.pid == null ? null : processFacts(shard.pid)
  if (!facts) throw new OperatingError('broker_unknown', 'The system reports no figures for the broker.')
  return facts
}

/** Waits. Returns the facts, and the cores that the broker used in the meantime. */
export async function restingFacts(target: Environment, seconds: number): Promise<ProcessFacts & { cpuShare: number }> {
  const first = brokerFacts(target)
  await Promise.race([Bun.sleep(seconds * 1000), target.failed])
  const last = brokerFacts(target)
  return { ...last, cpuShare: (last.cpuSeconds - first.cpuSeconds) / seconds }
}

export function printIdle(result: IdleResult, { isColored }: { readonly isColored: boolean }): string {
  const { sessions, seconds, cpuShare, rssMbBefore, rssMbAfter, rssKbPerSession } = result
  const lines = [
    ['sessions', `${count(sessions)}, silent`],
    ['CPU', `${figure(cpuShare * 100)} % of a core over ${count(seconds)} s`],
    ['memory', memoryText(rssMbBefore, rssMbAfter, rssKbPerSession)],
  ] as const
  return `\n${factList(lines, createColors(isColored))}\n`
}

export const memoryText = (mbBefore: number, mbAfter: number, kbEach: number): string =>
  `${figure(mbBefore)} MB before, ${figure(mbAfter)} MB with the connections: ${figure(kbEach)} kB each`
