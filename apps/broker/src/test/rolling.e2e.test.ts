/**
 * Tests that no acknowledged message is lost, duplicated or reordered while three brokers under load are replaced or
 * killed.
 */
import { connect, type Peer } from '@sealpost/sdk'
import { expect, test } from 'vitest'
import { Cluster, placeAt } from './cluster.ts'
import { until } from './process.ts'

const MESHES = 3
const TIMEOUT_MS = 240_000
/** The pause between two sends. */
const PAUSE_MS = 20

/** A sender of ascending numbers and its recipient. */
class Pair {
  readonly heard: number[] = []
  said = 0
  acked = 0
  /** The longest send since the previous reading. */
  private longestMs = 0
  private isOver = false
  private readonly underWay = new Set<Promise<void>>()
  private readonly sender: Peer
  private readonly recipient: Peer

  constructor(sender: Peer, recipient: Peer) {
    this.sender = sender
    this.recipient = recipient
    recipient.onMessage((message) => void this.heard.push(Number(message.text())))
  }

  get isOnline(): boolean {
    return this.sender.isOnline && this.recipient.isOnline
  }

  async talk(): Promise<void> {
    while (!this.isOver) {
      const sent = this.say().finally(() => this.underWay.delete(sent))
      this.underWay.add(sent)
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS))
    }
    await Promise.all(this.underWay)
  }

  stop(): void {
    this.isOver = true
  }

  takeLongestMs(): number {
    const { longestMs } = this
    this.longestMs = 0
    return longestMs
  }

  async close(): Promise<void> {
    await Promise.all([this.sender.close(), this.recipient.close()])
  }

  private async say(): Promise<void> {
    const startedAtMs = performance.now()
    this.said += 1
    await this.sender.send(this.recipient.key, String(this.said))
    this.acked += 1
    this.longestMs = Math.max(this.longestMs, performance.now() - startedAtMs)
  }
}

async function pairsIn(cluster: Cluster): Promise<Pair[]> {
  const { brokers, world } = cluster
  const peers = Array.from({ length: MESHES }, async (_, n) => {
    const meshId = await world.mesh()
    const enter = async (via: number) => connect(placeAt(brokers[via % 3]!, await world.enrol(meshId)))
    return [new Pair(await enter(n), await enter(n + 1)), new Pair(await enter(n + 2), await enter(n))]
  })
  return (await Promise.all(peers)).flat()
}

test('a rolling restart and a kill -9 under load lose nothing', { timeout: TIMEOUT_MS }, async ({ annotate }) => {
  await using cluster = await Cluster.open(3)
  const pairs = await pairsIn(cluster)
  const longestMs = () => Math.round(Math.max(...pairs.map((pair) => pair.takeLongestMs())))
  const talks = Promise.all(pairs.map((pair) => pair.talk()))
  const allAreBack = () => until('all are back', () => pairs.every(({ isOnline }) => isOnline))
  for (const broker of [...cluster.brokers]) {
    broker.signal('SIGTERM')
    const { code } = await broker.exited
    expect(code).toBe(0)
    await cluster.replace(broker)
    await allAreBack()
  }
  await annotate(`rolling restart: no send took longer than ${longestMs()} ms`)
  await cluster.brokers[0]!.kill()
  await allAreBack()
  const saidBefore = pairs.map(({ said }) => said)
  await until('all go on', () => pairs.every(({ acked }, n) => acked > saidBefore[n]!))
  for (const pair of pairs) pair.stop()
  await talks
  await annotate(`kill -9: no send took longer than ${longestMs()} ms`)
  await until('all came', () => pairs.every(({ said, heard }) => heard.length >= said))
  for (const { said, heard } of pairs) expect(heard).toEqual(Array.from({ length: said }, (_, n) => n + 1))
  await Promise.all(pairs.map((pair) => pair.close()))
})
