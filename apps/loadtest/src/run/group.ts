/**
 * What a broadcast costs for each member it reaches, against the same deliveries sent one by one: half of the peers write
 * to one group of all at once, then the same bodies to every other peer directly, in turns. Wall time is the machine's
 * word, which others may share; the CPU of client, broker and Postgres is what the two ways are compared by.
 */

import type { MeshMembers } from '@sealpost/harness/members/mesh'
import { postgresFacts, processFacts } from '@sealpost/harness/programs/process-facts'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { count, figure, orDash, plainTable } from '@sealpost/harness/report/text'
import { clockMs } from '@sealpost/sdk'
import { createColors } from 'picocolors'
import type { LoadOptions } from '../command/arguments.ts'
import type { Display } from '../command/progress.ts'
import type { Environment } from '../environment/environment.ts'
import type { Plan } from '../generators/plan.ts'
import type { ReportOptions } from '../report/report.ts'
import { GroupCrew } from './group-crew.ts'
import { newMeshes } from './run.ts'

/** Microseconds for each delivery. */
export interface GroupCost {
  readonly wallUs: number
  readonly clientUs: number
  /** Null: the system tells nothing about it. */
  readonly brokerUs: number | null
  readonly postgresUs: number | null
}

export interface GroupResult {
  readonly members: number
  readonly senders: number
  /** Of one turn. */
  readonly deliveries: number
  readonly pairs: number
  /** Of the median pair, by CPU of all three. */
  readonly inGroup: GroupCost
  readonly direct: GroupCost
  /** What the direct way takes of what the group takes: of the median pair each. */
  readonly throughputRatio: number
  readonly cpuRatio: number
  readonly gitSha: string
}

export interface GroupSetup {
  readonly plan: Plan
  readonly target: Environment
  readonly options: LoadOptions
  readonly display: Display
}

interface Pair {
  readonly inGroup: GroupCost
  readonly direct: GroupCost
}

const PAIRS = 6

export async function runGroup(setup: GroupSetup, teardown: Teardown): Promise<GroupResult> {
  const { plan, target, options, display } = setup
  const [mesh] = (await newMeshes(setup, teardown)) as [MeshMembers]
  const crew = new GroupCrew({ plan, mesh, place: target.shards[0]!, form: options.form, sends: options.group! })
  teardown.add({ end: () => crew.close() })
  display.step(`connecting ${plan.peers} peers`)
  await Promise.race([crew.open(), target.failed])
  const pairs: Pair[] = []
  for (let i = 0; i < PAIRS; i++) {
    display.step(`pair ${i + 1} of ${PAIRS}`)
    pairs.push(await Promise.race([onePair(crew, target, i % 2 === 0), target.failed]))
  }
  const ratios = (costOf: (cost: GroupCost) => number) =>
    pairs.map(({ inGroup, direct }) => costOf(direct) / costOf(inGroup))
  const cpuRatios = ratios(cpuOf)
  const cpuRatio = median(cpuRatios)
  return {
    ...pairs[cpuRatios.indexOf(cpuRatio)]!,
    members: plan.peers,
    senders: crew.senderCount,
    deliveries: crew.deliveryCount,
    pairs: PAIRS,
    throughputRatio: median(ratios(({ wallUs }) => wallUs)),
    cpuRatio,
    gitSha: target.version.gitSha,
  }
}

/** In turns, so that neither way always has the warmer caches or the longer queue before it. */
async function onePair(crew: GroupCrew, target: Environment, isGroupFirst: boolean): Promise<Pair> {
  const group = () => costOf(crew, target, (at) => crew.inGroup(at))
  const direct = () => costOf(crew, target, (at) => crew.direct(at))
  if (isGroupFirst) return { inGroup: await group(), direct: await direct() }
  const cost = await direct()
  return { inGroup: await group(), direct: cost }
}

async function costOf(
  crew: GroupCrew,
  { shards: [shard], postmasterPids: [postmaster] }: Environment,
  send: (sender: number) => Promise<unknown>,
): Promise<GroupCost> {
  const look = () => ({
    wallUs: clockMs() * 1000,
    client: process.cpuUsage(),
    broker: (shard?.pid == null ? null : processFacts(shard.pid))?.cpuSeconds ?? null,
    postgres: (postmaster === undefined ? null : postgresFacts(postmaster))?.cpuSeconds ?? null,
  })
  Bun.gc(true)
  const before = look()
  await crew.turn(send)
  const after = look()
  const each = (us: number) => us / crew.deliveryCount
  const spent = (last: number | null, first: number | null) =>
    last === null || first === null ? null : each((last - first) * 1e6)
  const { user, system } = process.cpuUsage(before.client)
  return {
    wallUs: each(after.wallUs - before.wallUs),
    clientUs: each(user + system),
    brokerUs: spent(after.broker, before.broker),
    postgresUs: spent(after.postgres, before.postgres),
  }
}

const cpuOf = ({ clientUs, brokerUs, postgresUs }: GroupCost): number => clientUs + (brokerUs ?? 0) + (postgresUs ?? 0)

/** The lower of the two in the middle, so that it is one of them. */
const median = (values: readonly number[]): number => values.toSorted((a, b) => a - b)[(values.length - 1) >> 1]!

export function printGroup(result: GroupResult, { isColored }: ReportOptions): string {
  const paint = createColors(isColored)
  const { members, senders, deliveries, pairs, inGroup, direct, throughputRatio, cpuRatio } = result
  const table = plainTable(['µs a delivery', 'wall', 'CPU', 'client', 'broker', 'Postgres'], paint)
  for (const [name, cost] of [['to the group', inGroup] as const, ['directly', direct] as const]) {
    const cells = [cost.wallUs, cpuOf(cost), cost.clientUs].map(figure)
    table.push([name, ...cells, orDash(cost.brokerUs), orDash(cost.postgresUs)])
  }
  const shape = `${count(senders)} senders to one group of ${count(members)}: ${count(deliveries)} deliveries a turn, ${count(pairs)} pairs of turns`
  const ratios = `${figure(throughputRatio)} of the throughput of direct sends, ${figure(cpuRatio)} by CPU`
  return `\n  ${paint.bold(ratios)}\n  ${paint.dim(shape)}\n\n${table.toString()}\n`
}
