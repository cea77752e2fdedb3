/** Everybody writes to one group, and the same to ten groups of the same members, in turns: is one group a bottleneck? */

import type { MeshMembers } from '@sealpost/harness/members/mesh'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { Latencies } from '@sealpost/harness/report/latencies'
import { count, figure } from '@sealpost/harness/report/text'
import type { Plan } from '../../generators/plan.ts'
import { ALONE } from '../../generators/spread.ts'
import { GroupCrew } from '../../run/group-crew.ts'
import { newMeshes } from '../../run/run.ts'
import { Effort, generatorCheck } from '../effort.ts'
import { latencySheet, spectrumGraph } from '../latency.ts'
import { type Findings, type Scenario, type ScenarioSetup, sizeOf } from '../scenario.ts'

export const hotGroup: Scenario = {
  name: 'hot-group',
  summary: '50 senders into one group of 100 members and into 10 groups of them, in turns of the order ABBA',
  bar: 'no timeout',
  reported: '42 % timeouts; 10 groups were 3.8 × faster',
  run,
}

const GROUPS = 10
const SENDS = 10
const ROUNDS = 3
const QUICK_ROUNDS = 1
/** A turn that takes longer has timed out. */
const TURN_WITHIN_MS = 60_000

/** One group, or ten, whose members stay connected over all turns. */
class Side {
  readonly name: string
  readonly seconds: number[] = []
  /** From a send until it is stored for all. */
  readonly stored = new Latencies()
  isWhole = true
  readonly crew: GroupCrew

  constructor(groups: number, crew: GroupCrew) {
    this.name = groups === 1 ? 'one group' : `${groups} groups`
    this.crew = crew
  }

  get deliveries(): number {
    return this.crew.deliveryCount * this.seconds.length
  }

  async turn(): Promise<void> {
    const startMs = performance.now()
    const whole = this.crew.turn((sender) => this.crew.inGroup(sender, this.stored)).then(() => true)
    this.isWhole = await Promise.race([whole, Bun.sleep(TURN_WITHIN_MS).then(() => false)])
    this.seconds.push((performance.now() - startMs) / 1000)
  }
}

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { target, options, display } = setup
  const { peers: members } = sizeOf(setup, { peers: 100, seconds: 0 }, { peers: 40, seconds: 0 })
  const rounds = options.isQuick ? QUICK_ROUNDS : ROUNDS
  const effort = new Effort()
  const hot = await sideOf(setup, { members, groups: 1 }, teardown)
  const spread = await sideOf(setup, { members, groups: GROUPS }, teardown)
  // What a machine does over time, and what a turn leaves to the next one, meets both sides as often.
  const order = Array.from({ length: rounds }, () => [hot, spread, spread, hot]).flat()
  for (const [i, side] of order.entries()) {
    display.step(`${members} members of ${side.name}, turn ${i + 1} of ${order.length}`)
    await Promise.race([side.turn(), target.failed])
    if (!side.isWhole) break
  }
  return findingsOf({ hot, spread }, { members, share: effort.share })
}

async function sideOf(
  setup: ScenarioSetup,
  { members, groups }: { members: number; groups: number },
  teardown: Teardown,
): Promise<Side> {
  const { target, options, display } = setup
  const { payloadBytes, seed, form } = options
  const plan: Plan = { peers: members, total: 0, rate: null, payloadBytes, seed, isOneWay: false, spread: ALONE }
  const [mesh] = (await newMeshes({ plan, target }, teardown)) as [MeshMembers]
  const crew = new GroupCrew({ plan, mesh, place: target.shards[0]!, form, sends: SENDS, groups })
  teardown.add({ end: () => crew.close() })
  const side = new Side(groups, crew)
  display.step(`${members} members come to ${side.name}`)
  await Promise.race([crew.open(), target.failed])
  return side
}

interface Sides {
  readonly hot: Side
  readonly spread: Side
}

/** How many times as fast ten groups were, in each round of four turns. */
export function ratiosOf(hot: readonly number[], spread: readonly number[]): number[] {
  const rounds = Math.floor(Math.min(hot.length, spread.length) / 2)
  const sum = (seconds: readonly number[], round: number) => seconds[2 * round]! + seconds[2 * round + 1]!
  return Array.from({ length: rounds }, (_, round) => sum(hot, round) / sum(spread, round))
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length >> 1
  if (sorted.length === 0) return 0
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2
}

function findingsOf(sides: Sides, { members, share }: { members: number; share: number }): Findings {
  const { hot, spread } = sides
  const ratios = ratiosOf(hot.seconds, spread.seconds)
  const speedUp = median(ratios)
  const isWhole = hot.isWhole && spread.isWhole
  const perSecond = ({ crew, seconds }: Side) => crew.deliveryCount / median(seconds)
  const both = [hot, spread]
  const rows = both.map((side) => [
    ...[side.name, count(side.seconds.length), count(side.deliveries), count(perSecond(side))],
    ...[figure(median(side.seconds)), side.seconds.map(figure).join(', ')],
  ])
  const senders = count(Math.ceil(members / 2))
  return {
    headline: `${senders} senders, ${count(members)} members: ten groups are ${figure(speedUp)} times as fast as one`,
    shown: `${isWhole ? 'no timeout' : 'timed out'}, 10 groups ${figure(speedUp)} × as fast`,
    sheets: [
      { head: ['', 'turns', 'deliveries', 'a second', 'median s', 'each'], rows },
      latencySheet(both.map(({ name, stored }) => [`send → stored, ${name}`, stored])),
    ],
    facts: [
      ['shape', `${SENDS} messages of each sender, to every other member, the next when the one before is stored`],
      [
        'ratio',
        `of each round one, ten, ten, one: ${ratios.map(figure).join(', ') || 'none was whole'}; their median counts`,
      ],
    ],
    checks: [
      { about: 'mail', isMet: isWhole, sentence: 'Nothing timed out, and every member got every message once.' },
      generatorCheck(share),
    ],
    graphs: [spectrumGraph(both.map(({ name, stored }) => [name, stored.spectrum]))],
    figures: {
      hotDeliveriesPerSecond: perSecond(hot),
      spreadDeliveriesPerSecond: perSecond(spread),
      rounds: ratios.length,
      speedUp,
      generatorShare: share,
    },
  }
}
