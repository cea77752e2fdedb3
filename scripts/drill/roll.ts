/**
 * The drill of a deploy: some brokers on one Postgres, replaced one after the other under mail, as a supervisor does it; then
 * one of them is killed. How long did a sender wait, and when were the peers of the killed one served again?
 */
import { setTimeout as delay } from 'node:timers/promises'
import { ready } from '@sealpost/identity'
import type { Millis } from '@sealpost/std'
import type { Teardown } from '../lib/teardown.ts'
import { Cluster, talksIn, until } from './cluster.ts'
import type { Order } from './order.ts'
import type { Talk } from './talk.ts'

export interface RollDrillOptions {
  readonly brokers: number
  /** Half of them write, each to one of the others. */
  readonly peers: number
  /** Messages a second of all together. */
  readonly rate: number
}

/** How long things took; the longest send is from its call to its ack. */
export interface RollDrillResult extends Order {
  readonly sent: number
  /** How late this program came to a send at most: on a busy machine it waits for itself. */
  readonly lateMs: Millis
  readonly roll: { readonly longestSendMs: Millis; readonly tookMs: Millis }
  readonly kill: {
    readonly longestSendMs: Millis
    /** Peers of the killed broker, and when half and all of them had a session again. */
    readonly peers: number
    readonly halfServedMs: Millis
    readonly allServedMs: Millis
  }
}

const AROUND_MS = 3_000

export async function drillRoll(options: RollDrillOptions, teardown: Teardown): Promise<RollDrillResult> {
  await ready()
  const cluster = await Cluster.open(options.brokers, teardown)
  const talks = await talksIn(cluster, options.peers)
  teardown.add({ end: async () => void (await Promise.all(talks.map((talk) => talk.close()))) })
  const traffic = talks.map((talk) => talk.keepSending(options.rate / talks.length))
  const longestMs = () => Math.round(Math.max(...talks.map((talk) => talk.takeLongestMs())))
  const areAllOnline = () => talks.every(({ isOnline }) => isOnline)
  await delay(AROUND_MS)
  longestMs()
  const rolledFromMs = performance.now()
  for (let no = 0; no < options.brokers; no++) {
    await cluster.replace(no)
    await until('all are back', areAllOnline)
    await delay(AROUND_MS)
  }
  const roll = { tookMs: Math.round(performance.now() - rolledFromMs), longestSendMs: longestMs() }
  const served = await servedAgain(cluster, talks)
  await delay(AROUND_MS)
  const kill = { ...served, longestSendMs: longestMs() }
  for (const talk of talks) talk.isOver = true
  await Promise.all(traffic)
  await until('all has come', () => talks.every((talk) => talk.hasAll))
  const sum = (of: (talk: Talk) => number) => talks.reduce((total, talk) => total + of(talk), 0)
  return {
    ...{ roll, kill },
    sent: sum(({ sent }) => sent),
    lateMs: Math.round(Math.max(...talks.map(({ lateMs }) => lateMs))),
    lost: sum((talk) => talk.order.lost),
    duplicates: sum((talk) => talk.order.duplicates),
    misordered: sum((talk) => talk.order.misordered),
  }
}

/** Kills one, and waits for those that had their sessions there. */
async function servedAgain(cluster: Cluster, talks: readonly Talk[]) {
  const killedAtMs = performance.now()
  await cluster.kill(0)
  const cutOff = () => talks.flatMap((talk) => talk.cutOffSince(killedAtMs))
  await until('its peers have noticed', () => cutOff().length > 0)
  await until('its peers are served again', () => talks.every(({ isOnline }) => isOnline))
  const took = cutOff()
    .map(({ servedAtMs }) => Math.round(servedAtMs - killedAtMs))
    .sort((a, b) => a - b)
  return { peers: took.length, halfServedMs: took[Math.floor(took.length / 2)]!, allServedMs: took.at(-1)! }
}
