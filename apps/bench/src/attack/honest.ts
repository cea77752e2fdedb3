/**
 * Runs the honest peers: pairs that send 10 messages a second each, and a probe. Latency is from `send()` to the
 * recipient's handler, on one clock.
 */
import { WireClient } from '@sealpost/broker/testing-wire'
import { serveParent } from '@sealpost/harness/programs/child'
import { ready } from '@sealpost/identity'
import { connect, type Peer } from '@sealpost/sdk'
import { type AttackTarget, HISTORY, HttpMember, type ProbeKind, type StageMember } from './attack.ts'

export interface HonestOrder {
  /** The members: two for each pair, and one for the probe. */
  readonly open?: { readonly target: AttackTarget; readonly members: readonly StageMember[]; readonly probe: ProbeKind }
  readonly seconds?: number
}

export interface HonestFigures {
  readonly p50Ms: number
  readonly p99Ms: number
  readonly sent: number
  readonly tries: number
  readonly succeeded: number
}

export type HonestReply = { readonly isOpen: true } | HonestFigures

const EVERY_MS = 100
const PROBE_EVERY_MS = 1000
/** The latency recorded for a message that takes longer. */
const LATE_MS = 10_000
const CHUNK_BYTES = 64 * 1024

type SendingPair = readonly [sender: Peer, recipient: Peer]

class HonestPeers {
  readonly #pairs: readonly SendingPair[]
  readonly #probe: () => Promise<boolean>
  readonly #sentAt = new Map<string, number>()
  readonly #latencies: number[] = []
  #lastNo = 0

  private constructor(pairs: readonly SendingPair[], probe: () => Promise<boolean>) {
    this.#pairs = pairs
    this.#probe = probe
    for (const [, recipient] of pairs)
      recipient.onMessage((message) => {
        const sentAt = this.#sentAt.get(message.text())
        this.#sentAt.delete(message.text())
        if (sentAt !== undefined) this.#latencies.push(performance.now() - sentAt)
      })
  }

  static async open({ target, members, probe }: NonNullable<HonestOrder['open']>): Promise<HonestPeers> {
    await ready()
    const peers = await Promise.all(members.slice(0, -1).map((member) => connect({ ...target, ...member })))
    const pairs = Array.from({ length: peers.length / 2 }, (_, i) => [peers[2 * i]!, peers[2 * i + 1]!] as const)
    for (const [sender, recipient] of pairs) await sender.send(recipient.key, 'hello') // exchanges keys before the measurement
    return new HonestPeers(pairs, await openProbe(probe, { ...target, ...members.at(-1)! }))
  }

  async measure(seconds: number): Promise<HonestFigures> {
    this.#latencies.length = 0
    let tries = 0
    let succeeded = 0
    const probing = setInterval(() => {
      tries += 1
      void this.#probe().then((isGood) => (succeeded += Number(isGood)))
    }, PROBE_EVERY_MS)
    const end = performance.now() + seconds * 1000
    while (performance.now() < end) {
      for (const pair of this.#pairs) setTimeout(() => this.#send(pair), Math.random() * EVERY_MS)
      await Bun.sleep(EVERY_MS)
    }
    clearInterval(probing)
    const deadline = performance.now() + LATE_MS
    while ((this.#sentAt.size > 0 || succeeded < tries) && performance.now() < deadline) await Bun.sleep(10)
    for (const _ of this.#sentAt) this.#latencies.push(LATE_MS)
    this.#sentAt.clear()
    const sorted = this.#latencies.toSorted((a, b) => a - b)
    const at = (share: number) => sorted[Math.ceil(share * sorted.length) - 1] ?? 0
    return { p50Ms: at(0.5), p99Ms: at(0.99), sent: sorted.length, tries, succeeded }
  }

  #send([sender, recipient]: SendingPair): void {
    const text = `message ${++this.#lastNo}`
    this.#sentAt.set(text, performance.now())
    sender.send(recipient.key, text).catch(() => undefined) // an unfinished send counts as late
  }
}

/** Returns the probe: a connection, an upload, or a replay of the last events. */
async function openProbe(probe: ProbeKind, account: AttackTarget & StageMember): Promise<() => Promise<boolean>> {
  if (probe === 'join') return () => joins(account)
  const member = await HttpMember.enter(account)
  if (probe === 'replay') return () => member.replay(HISTORY.events - 10).catch(() => false)
  const content = crypto.getRandomValues(new Uint8Array(CHUNK_BYTES))
  const id = await member.createAttachment(CHUNK_BYTES, CHUNK_BYTES)
  return () => member.putChunk(id, 0, content).catch(() => false)
}

async function joins(account: AttackTarget & StageMember): Promise<boolean> {
  const client = await WireClient.enter(account).catch(() => null) // null if the broker refuses the client
  client?.destroy()
  return client !== null
}

let peers: HonestPeers | undefined
serveParent<HonestOrder, HonestReply>(async ({ open, seconds }, reply) => {
  if (open) {
    peers = await HonestPeers.open(open)
    reply({ isOpen: true })
  }
  if (seconds) reply(await peers!.measure(seconds))
})
