/** Performs a rolling deploy under load: replaces brokers one by one, and then kills one. */

import { waitUntil } from '@sealpost/harness/programs/pace'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { clockMs } from '@sealpost/sdk'
import type { Millis } from '@sealpost/std'
import { Cluster } from './cluster.ts'
import type { Drill } from './drill.ts'
import { deliveryCheck, PairTraffic, type TrafficOptions, type TrafficResult, trafficOptions } from './pair-traffic.ts'

interface RollResult extends TrafficResult {
  readonly roll: { readonly longestSendMs: Millis; readonly tookMs: Millis }
  readonly kill: {
    readonly longestSendMs: Millis
    /** The number of peers on the killed broker. */
    readonly peers: number
    /** The time until half of these peers had a session again. */
    readonly halfServedMs: Millis
    /** The time until all these peers had a session again. */
    readonly allServedMs: Millis
  }
}

const SEND_MS_MAX = 2_000
const SERVED_MS_MAX = 3_000
const CALM_MS = 3_000

export const rollDrill: Drill<TrafficOptions> = {
  name: 'roll',
  description: 'Replace brokers under load, kill one, and report the longest waits.',
  configure: (command) => trafficOptions(command, { brokers: 3, brokersMin: 2, peers: 300, peersMin: 20, rate: 2000 }),
  run: async (options, teardown) => {
    const result = await drillRoll(options, teardown)
    const { roll, kill } = result
    const served = `all within ${kill.allServedMs} ms (limit ${SERVED_MS_MAX}), half within ${kill.halfServedMs} ms`
    const checks = [
      [
        roll.longestSendMs <= SEND_MS_MAX,
        `during the replacements the longest send took ${roll.longestSendMs} ms (limit ${SEND_MS_MAX})`,
      ],
      [
        kill.allServedMs <= SERVED_MS_MAX,
        `the ${kill.peers} peers of a killed broker were served again, ${served}; the longest send took ${kill.longestSendMs} ms`,
      ],
    ] as const
    return { result, checks: [...checks, deliveryCheck(result.sent, result)] }
  },
}

async function drillRoll(options: TrafficOptions, teardown: Teardown): Promise<RollResult> {
  const cluster = await Cluster.open(options.brokers, teardown)
  const traffic = await PairTraffic.open(options.peers, cluster, teardown)
  traffic.begin(options.rate)
  await Bun.sleep(CALM_MS)
  traffic.takeLongest()
  const startMs = clockMs()
  for (let no = 0; no < options.brokers; no++) {
    await cluster.replace(no)
    await waitUntil('all peers are back', () => traffic.areAllOnline)
    await Bun.sleep(CALM_MS)
  }
  const roll = { tookMs: Math.round(clockMs() - startMs), longestSendMs: traffic.takeLongest().sendMs }
  const served = await killOne(cluster, traffic)
  await Bun.sleep(CALM_MS)
  const kill = { ...served, longestSendMs: traffic.takeLongest().sendMs }
  return { roll, kill, ...(await traffic.finish()) }
}

/** Kills a broker. Waits until its peers have sessions again. */
async function killOne(cluster: Cluster, traffic: PairTraffic) {
  const killedAtMs = clockMs()
  await cluster.kill(0)
  await waitUntil('its peers have lost their sessions', () => traffic.outagesSince(killedAtMs).length > 0)
  await waitUntil('its peers are served again', () => traffic.areAllOnline)
  const took = traffic
    .outagesSince(killedAtMs)
    .map(({ servedAtMs }) => Math.round(servedAtMs - killedAtMs))
    .sort((a, b) => a - b)
  return { peers: took.length, halfServedMs: took[took.length >> 1]!, allServedMs: took.at(-1)! }
}
