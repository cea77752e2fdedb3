/**
 * Suspends each broker under load (`SIGSTOP`): its port accepts connections, but it never replies. Resumes it once its
 * peers have left.
 */
import { wholeNumber } from '@sealpost/harness/programs/command'
import { waitUntil } from '@sealpost/harness/programs/pace'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { clockMs } from '@sealpost/sdk'
import type { Millis } from '@sealpost/std'
import { Cluster } from './cluster.ts'
import type { Drill } from './drill.ts'
import { deliveryCheck, PairTraffic, type TrafficOptions, type TrafficResult, trafficOptions } from './pair-traffic.ts'

interface HangOptions extends TrafficOptions {
  readonly seconds: number
}

interface HangResult extends TrafficResult {
  /** One entry per broker, in the order of suspension. */
  readonly stops: readonly Stop[]
}

interface Stop {
  /** The number of peers that lost their session. */
  readonly peers: number
  /** The time from the call to `send` until its ack. */
  readonly longestSendMs: Millis
  /** The longest time from `send` until the recipient's application has the message. */
  readonly longestReceiveMs: Millis
}

const SEND_MS_MAX = 8_000
const CALM_MS = 3_000

export const hangDrill: Drill<HangOptions> = {
  name: 'hang',
  description: 'Suspend each broker for a while under load and report the longest waits.',
  configure: (command) =>
    trafficOptions(command, { brokers: 2, brokersMin: 2, peers: 100, peersMin: 20, rate: 500 }).option(
      '--seconds <n>',
      'how long each broker is suspended',
      wholeNumber(1, 3_600),
      20,
    ),
  run: async (options, teardown) => {
    const result = await drillHang(options, teardown)
    const checks = result.stops.map(({ peers, longestSendMs, longestReceiveMs }, no) => {
      const times = `the longest send took ${longestSendMs} ms (limit ${SEND_MS_MAX}), the longest delivery ${longestReceiveMs} ms`
      return [
        longestSendMs <= SEND_MS_MAX,
        `broker ${no + 1} was suspended, ${peers} sessions ended: ${times}`,
      ] as const
    })
    return { result, checks: [...checks, deliveryCheck(result.sent, result)] }
  },
}

async function drillHang(options: HangOptions, teardown: Teardown): Promise<HangResult> {
  const cluster = await Cluster.open(options.brokers, teardown)
  const traffic = await PairTraffic.open(options.peers, cluster, teardown)
  traffic.begin(options.rate)
  const stops: Stop[] = []
  for (const { pid } of cluster.brokers) {
    await Bun.sleep(CALM_MS)
    stops.push(await stopBroker(pid, options.seconds * 1000, traffic))
  }
  return { stops, ...(await traffic.finish()) }
}

/** Suspends a broker. Times include its peers' return afterwards. */
async function stopBroker(pid: number, stopMs: Millis, traffic: PairTraffic): Promise<Stop> {
  traffic.takeLongest()
  const stoppedAtMs = clockMs()
  process.kill(pid, 'SIGSTOP')
  try {
    await Bun.sleep(stopMs)
    await waitUntil('the other brokers serve all peers', () => traffic.areAllOnline)
  } finally {
    process.kill(pid, 'SIGCONT')
  }
  const peers = traffic.outagesSince(stoppedAtMs).length
  await Bun.sleep(CALM_MS)
  await waitUntil('all peers are served', () => traffic.areAllOnline)
  const { sendMs, receiveMs } = traffic.takeLongest()
  return { peers, longestSendMs: sendMs, longestReceiveMs: receiveMs }
}
