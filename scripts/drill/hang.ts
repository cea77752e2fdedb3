/**
 * The drill of a broker that hangs: each of some brokers on one Postgres is stopped under mail (`SIGSTOP`), so that its port
 * accepts and it never answers, and runs again once its peers have left it.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { ready } from '@sealpost/identity'
import type { Millis } from '@sealpost/std'
import type { Teardown } from '../lib/teardown.ts'
import { Cluster, talksIn, until } from './cluster.ts'
import type { Order } from './order.ts'
import type { Talk } from './talk.ts'

export interface HangDrillOptions {
  readonly brokers: number
  /** Half of them write, each to one of the others. */
  readonly peers: number
  /** Messages a second of all together. */
  readonly rate: number
  /** How long each broker is stopped. */
  readonly stopMs: Millis
}

export interface HangDrillResult extends Order {
  readonly sent: number
  /** How late this program came to a send at most: on a busy machine it waits for itself. */
  readonly lateMs: Millis
  /** One for each broker, in the order in which they were stopped. */
  readonly stops: readonly Stop[]
}

export interface Stop {
  /** Sessions that ended while it was stopped. */
  readonly peers: number
  /** From the call of `send` to its ack. */
  readonly longestSendMs: Millis
  /** From the call of `send` to the recipient's application. */
  readonly longestReadMs: Millis
}

const AROUND_MS = 3_000

export async function drillHang(options: HangDrillOptions, teardown: Teardown): Promise<HangDrillResult> {
  await ready()
  const cluster = await Cluster.open(options.brokers, teardown)
  const talks = await talksIn(cluster, options.peers)
  teardown.add({ end: async () => void (await Promise.all(talks.map((talk) => talk.close()))) })
  const traffic = talks.map((talk) => talk.keepSending(options.rate / talks.length))
  const stops: Stop[] = []
  for (const { pid } of cluster.brokers) {
    await delay(AROUND_MS)
    stops.push(await stopFor(pid, options.stopMs, talks))
  }
  for (const talk of talks) talk.isOver = true
  await Promise.all(traffic)
  await until('all has come', () => talks.every((talk) => talk.hasAll))
  const sum = (of: (talk: Talk) => number) => talks.reduce((total, talk) => total + of(talk), 0)
  return {
    stops,
    sent: sum(({ sent }) => sent),
    lateMs: Math.round(Math.max(...talks.map(({ lateMs }) => lateMs))),
    lost: sum((talk) => talk.order.lost),
    duplicates: sum((talk) => talk.order.duplicates),
    misordered: sum((talk) => talk.order.misordered),
  }
}

/** The figures also count the return of its peers, once it runs again. */
async function stopFor(pid: number, stopMs: Millis, talks: readonly Talk[]): Promise<Stop> {
  for (const talk of talks) void (talk.takeLongestMs() + talk.takeLongestReadMs())
  const stoppedAtMs = performance.now()
  process.kill(pid, 'SIGSTOP')
  try {
    await delay(stopMs)
    await until('all are served by the others', () => talks.every(({ isOnline }) => isOnline))
  } finally {
    process.kill(pid, 'SIGCONT')
  }
  const peers = talks.flatMap((talk) => talk.cutOffSince(stoppedAtMs)).length
  await delay(AROUND_MS)
  await until('all are served', () => talks.every(({ isOnline }) => isOnline))
  const longest = (of: (talk: Talk) => Millis) => Math.round(Math.max(...talks.map(of)))
  const longestSendMs = longest((talk) => talk.takeLongestMs())
  return { peers, longestSendMs, longestReadMs: longest((talk) => talk.takeLongestReadMs()) }
}
