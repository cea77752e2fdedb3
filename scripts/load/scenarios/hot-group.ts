/** Everybody writes to one group, then the same to ten groups of the same members: is one group a bottleneck? */
import type { Teardown } from '../../lib/teardown.ts'
import { GroupCrew } from '../group-crew.ts'
import { Latencies } from '../histogram.ts'
import type { Plan } from '../plan.ts'
import { newMeshes } from '../run.ts'
import type { Mesh } from '../seed.ts'
import { ALONE } from '../spread.ts'
import { count, figure } from '../text.ts'
import { Effort, generatorCheck } from './effort.ts'
import { latencySheet, spectrumGraph } from './latency.ts'
import { type Findings, type Scenario, type ScenarioSetup, sizeOf } from './scenario.ts'

export const hotGroup: Scenario = {
  name: 'hot-group',
  summary: '50 senders into one group of 100 members, then the same into 10 groups',
  bar: 'no timeout',
  reported: '42 % timeouts; 10 groups were 3.8 × faster',
  run,
}

const GROUPS = 10
const SENDS = 10
/** A turn that takes longer has timed out. */
const TURN_WITHIN_MS = 60_000

interface Turn {
  readonly groups: number
  readonly seconds: number
  readonly deliveries: number
  readonly isWhole: boolean
  /** From a send until it is stored for all. */
  readonly stored: Latencies
}

async function run(setup: ScenarioSetup, teardown: Teardown): Promise<Findings> {
  const { peers: members } = sizeOf(setup, { peers: 100, seconds: 0 }, { peers: 40, seconds: 0 })
  const effort = new Effort()
  const hot = await turnOf(setup, { members, groups: 1 }, teardown)
  const spread = await turnOf(setup, { members, groups: GROUPS }, teardown)
  const { share } = effort
  const speedUp = hot.seconds / spread.seconds
  const perSecond = ({ deliveries, seconds }: Turn) => deliveries / seconds
  const turns = [hot, spread].map((turn) => ({
    ...turn,
    name: turn.groups === 1 ? 'one group' : `${turn.groups} groups`,
  }))
  const rows = turns.map((turn) => [turn.name, ...[turn.deliveries, perSecond(turn)].map(count), figure(turn.seconds)])
  const senders = Math.ceil(members / 2)
  return {
    headline: `${count(senders)} senders, ${count(members)} members: ten groups are ${figure(speedUp)} times as fast as one`,
    shown: `${hot.isWhole && spread.isWhole ? 'no timeout' : 'timed out'}, 10 groups ${figure(speedUp)} × as fast`,
    sheets: [
      { head: ['', 'deliveries', 'a second', 'seconds'], rows },
      latencySheet(turns.map(({ name, stored }) => [`send → stored, ${name}`, stored])),
    ],
    facts: [
      ['shape', `${SENDS} messages of each sender, to every other member, the next when the one before is stored`],
    ],
    checks: [
      {
        about: 'mail',
        isMet: hot.isWhole && spread.isWhole,
        sentence: 'Nothing timed out, and every member got every message once.',
      },
      generatorCheck(share),
    ],
    graphs: [spectrumGraph(turns.map(({ name, stored }) => [name, stored.spectrum]))],
    figures: {
      hotDeliveriesPerSecond: perSecond(hot),
      spreadDeliveriesPerSecond: perSecond(spread),
      speedUp,
      generatorShare: share,
    },
  }
}

async function turnOf(
  setup: ScenarioSetup,
  { members, groups }: { members: number; groups: number },
  teardown: Teardown,
): Promise<Turn> {
  const { target, options, display } = setup
  const { payloadBytes, seed, form } = options
  const plan: Plan = { peers: members, total: 0, rate: null, payloadBytes, seed, isOneWay: false, spread: ALONE }
  const [mesh] = (await newMeshes({ plan, target, options }, teardown)) as [Mesh]
  const crew = new GroupCrew({ plan, mesh, place: target.shards[0]!, form, sends: SENDS, groups })
  const close = teardown.add({ end: () => crew.close() })
  display.step(`${members} members of ${groups === 1 ? 'one group' : `${groups} groups`}`)
  await Promise.race([crew.open(), target.failed])
  const startMs = performance.now()
  const stored = new Latencies()
  const whole = crew.turn((sender) => crew.inGroup(sender, stored)).then(() => true)
  const isWhole = await Promise.race([whole, Bun.sleep(TURN_WITHIN_MS).then(() => false), target.failed])
  const seconds = (performance.now() - startMs) / 1000
  await close()
  return { groups, seconds, deliveries: crew.deliveryCount, isWhole, stored }
}
