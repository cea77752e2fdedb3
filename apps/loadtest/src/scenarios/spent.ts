/** What brokers and Postgres spent during a scenario, told the same way for all of them. */
import { cpus, loadavg } from 'node:os'
import type { ProcessUsage, ResourceUsage, UsageSample } from '@sealpost/harness/programs/resource-usage'
import type { Fact } from '@sealpost/harness/report/text'
import { count, figure, orDash, plural } from '@sealpost/harness/report/text'
import type { Graph, Sheet } from './scenario.ts'

const MEMORY = "The broker's memory"

/** Over time, of the broker that has the most. */
export function usageGraphs(samples: readonly UsageSample[]): Graph[] {
  if (samples.length < 2) return []
  const line = (pick: 'brokerRssMb' | 'brokerFd') =>
    samples.flatMap((sample) => (sample[pick] === null ? [] : [[sample.seconds, sample[pick]] as const]))
  return [
    { title: MEMORY, x: 'seconds', y: 'MB', lines: [{ name: 'RSS', points: line('brokerRssMb') }] },
    { title: "The broker's descriptors", x: 'seconds', y: 'open', lines: [{ name: 'open', points: line('brokerFd') }] },
  ]
}

/** A program that was restarted meanwhile has no sum. */
export function usageSheet({ brokers: shards, postgres }: ResourceUsage, seconds: number): Sheet {
  const row = (name: string, { cpuSeconds, rssMbPeak, fdMax }: ProcessUsage) => {
    const cores = cpuSeconds === null ? null : cpuSeconds / Math.max(1, seconds)
    return [name, orDash(cpuSeconds), orDash(cores), orDash(rssMbPeak), orDash(fdMax, count)]
  }
  const brokers = shards.map((shard, i) => row(shards.length === 1 ? 'broker' : `broker ${i + 1}`, shard))
  return {
    head: [`CPU over ${figure(seconds)} s`, 'seconds', 'cores', 'peak RSS MB', 'descriptors'],
    rows: [...brokers, row('Postgres', postgres)],
  }
}

/** Percentiles of a machine that others use are theirs, too. */
export function machineFact({ machineCoresBusy }: ResourceUsage): Fact {
  const load = `load average ${figure(loadavg()[0]!)} on ${plural(cpus().length, 'core')}`
  const busy = machineCoresBusy === null ? '' : `, of which ${figure(machineCoresBusy)} were busy`
  return ['machine', `${load}${busy}, with whatever else ran`]
}

/** A scenario that draws its own keeps them. */
export const drawsUsage = (graphs: readonly { readonly title: string }[]): boolean =>
  graphs.some(({ title }) => title === MEMORY)
