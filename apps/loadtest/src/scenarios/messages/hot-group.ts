/** This scenario compares one group with ten of the same members, to show whether one is a bottleneck. */

import type { Teardown } from '@sealpost/harness/programs/teardown'
import { Latencies } from '@sealpost/harness/report/latencies'
import { count, figure, median } from '@sealpost/harness/report/text'
import { planOf } from '../../generators/plan.ts'
import { GroupCrew } from '../../run/group.ts'
import { newMesh, type RunContext } from '../../run/run.ts'
import {
  Effort,
  type Findings,
  generatorCheck,
  latencySheet,
  mailCheck,
  type Scenario,
  sizeOf,
  spectrumGraph,
} from '../scenario.ts'

export const hotGroup: Scenario = {
  name: 'hot-group',
  summary: '50 senders write to one group of 100 members and to 10 groups of the same members, alternately (ABBA)',
  bar: 'no timeout',
  reported: '42 % timeouts; 10 groups were 3.8 × faster',
  run,
}

const GROUPS = 10
const SENDS = 10
const ROUNDS = 3
const QUICK_ROUNDS = 1
/** The time limit of a turn. */
const TURN_WITHIN_MS = 60_000

/** The side with one group or with ten, whose members stay connected. */
class GroupSide {
  readonly name: string
  readonly seconds: number[] = []
  /** The time until each send is stored for all members. */
  readonly stored = new Latencies()
  isComplete = true
  readonly crew: GroupCrew

  constructor(groups: number, crew: GroupCrew) {
    this.name = groups === 1 ? 'one group' : `${groups} groups`
    this.crew = crew
  }

  get deliveries(): number {
    return this.crew.deliveryCount * this.seconds.length
  }

  get perSecond(): number {
    return this.crew.deliveryCount / median(this.seconds)
  }

  async turn(): Promise<void> {
    const startMs = performance.now()
    const complete = this.crew.turn((sender) => this.crew.inGroup(sender, this.stored)).then(() => true)
    this.isComplete = await Promise.race([complete, Bun.sleep(TURN_WITHIN_MS).then(() => false)])
    this.seconds.push((performance.now() - startMs) / 1000)
  }
}

async function run(context: RunContext, teardown: Teardown): Promise<Findings> {
  const { target, options, display } = context
  const { peers: members } = sizeOf(context, { peers: 100, seconds: 0 }, { peers: 40, seconds: 0 })
  const rounds = options.isQuick ? QUICK_ROUNDS : ROUNDS
  const effort = new Effort()
  const hot = await openSide(context, { members, groups: 1 }, teardown)
  const spread = await openSide(context, { members, groups: GROUPS }, teardown)
  // ABBA exposes both sides equally to changes of speed and after-effects.
  const order = Array.from({ length: rounds }, () => [hot, spread, spread, hot]).flat()
  for (const [i, side] of order.entries()) {
    display.step(`${members} members of ${side.name}, turn ${i + 1} of ${order.length}`)
    await Promise.race([side.turn(), target.failed])
    if (!side.isComplete) break
  }
  return findingsOf([hot, spread], { members, share: effort.share })
}

async function openSide(
  { target, options, display }: RunContext,
  { members, groups }: { members: number; groups: number },
  teardown: Teardown,
): Promise<GroupSide> {
  const plan = planOf({ peers: members })
  const mesh = await newMesh(plan, target, teardown)
  const crew = new GroupCrew({ plan, mesh, broker: target.shards[0]!, form: options.form, sends: SENDS, groups })
  teardown.add({ end: () => crew.close() })
  const side = new GroupSide(groups, crew)
  display.step(`${members} members join ${side.name}`)
  await Promise.race([crew.open(), target.failed])
  return side
}

/** Returns the ratio of one group's time to ten groups', for each round of four turns. */
export function ratiosOf(hot: readonly number[], spread: readonly number[]): number[] {
  const rounds = Math.floor(Math.min(hot.length, spread.length) / 2)
  const sumOf = (seconds: readonly number[], round: number) => seconds[2 * round]! + seconds[2 * round + 1]!
  return Array.from({ length: rounds }, (_, round) => sumOf(hot, round) / sumOf(spread, round))
}

function findingsOf(
  sides: readonly [hot: GroupSide, spread: GroupSide],
  { members, share }: { members: number; share: number },
): Findings {
  const [hot, spread] = sides
  const ratios = ratiosOf(hot.seconds, spread.seconds)
  const speedUp = median(ratios)
  const isComplete = hot.isComplete && spread.isComplete
  const rows = sides.map((side) => [
    ...[side.name, count(side.seconds.length), count(side.deliveries), count(side.perSecond)],
    ...[figure(median(side.seconds)), side.seconds.map(figure).join(', ')],
  ])
  const senders = count(Math.ceil(members / 2))
  const rounds = ratios.map(figure).join(', ') || 'none was complete'
  return {
    headline: `${senders} senders, ${count(members)} members: ten groups are ${figure(speedUp)} times as fast as one`,
    shown: `${isComplete ? 'no timeout' : 'timed out'}, 10 groups ${figure(speedUp)} × as fast`,
    sheets: [
      { head: ['', 'turns', 'deliveries', 'per second', 'median s', 'each'], rows },
      latencySheet(sides.map(({ name, stored }) => [`send → stored, ${name}`, stored])),
    ],
    facts: [
      ['shape', `${SENDS} messages from each sender to every other member, each after the previous one was stored`],
      ['ratio', `each round runs one, ten, ten, one: ${rounds}; the median counts`],
    ],
    checks: [
      mailCheck(isComplete, 'Nothing timed out, and every member received every message once.'),
      generatorCheck(share),
    ],
    graphs: [spectrumGraph(sides.map(({ name, stored }) => [name, stored.spectrum]))],
    figures: {
      hotDeliveriesPerSecond: hot.perSecond,
      spreadDeliveriesPerSecond: spread.perSecond,
      rounds: ratios.length,
      speedUp,
      generatorShare: share,
    },
  }
}
