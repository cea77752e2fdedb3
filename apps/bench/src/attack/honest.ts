/**
 * The honest peers, as a program of their own: four pairs, each sending 10 messages a second, and a probe once a second.
 * A latency is the time from the call of `send()` to the recipient's handler. Both run in this process, on one clock.
 */
import { ready } from '@sealpost/identity'
import { connect, type Peer } from '@sealpost/sdk'
import type { Probe, Target } from './attack.ts'
import { type Prober, probers } from './probes.ts'
import type { Member } from './stage.ts'

export interface HonestOrder {
  readonly open?: { readonly target: Target; readonly members: readonly Member[]; readonly probe: Probe }
  /** Seconds of a measurement. */
  readonly seconds?: number
}

export type HonestAnswer =
  | { readonly isOpen: true }
  | { readonly p50Ms: number; readonly p99Ms: number; readonly sent: number; readonly tries: number; readonly succeeded: number } // biome-ignore format: one thing

export const PAIRS = 4
/** Two for each pair, and one that joins, uploads or reads. */
export const HONEST_MEMBERS = 2 * PAIRS + 1
const EVERY_MS = 100
const PROBE_EVERY_MS = 1000
/** A message that is not there by then counts as so late. */
const LATE_MS = 10_000

type SendingPair = readonly [sender: Peer, recipient: Peer]

class HonestPeers {
  readonly #pairs: readonly SendingPair[]
  readonly #prober: Prober
  readonly #sentAt = new Map<string, number>()
  readonly #latencies: number[] = []
  #lastNo = 0

  private constructor(pairs: readonly SendingPair[], prober: Prober) {
    this.#pairs = pairs
    this.#prober = prober
    for (const [, recipient] of pairs)
      recipient.onMessage((message) => {
        const sentAt = this.#sentAt.get(message.text())
        this.#sentAt.delete(message.text())
        if (sentAt !== undefined) this.#latencies.push(performance.now() - sentAt)
      })
  }

  static async open({ target, members, probe }: NonNullable<HonestOrder['open']>): Promise<HonestPeers> {
    await ready()
    const peers = await Promise.all(members.slice(0, 2 * PAIRS).map((member) => connect({ ...target, ...member })))
    const pairs = Array.from({ length: PAIRS }, (_, i) => [peers[2 * i]!, peers[2 * i + 1]!] as const)
    // Keys are exchanged before the clock runs.
    for (const [sender, recipient] of pairs) await sender.send(recipient.key, 'hello')
    return new HonestPeers(pairs, await probers[probe]({ ...target, ...members[2 * PAIRS]! }))
  }

  async measure(seconds: number): Promise<HonestAnswer> {
    this.#latencies.length = 0
    let tries = 0
    let succeeded = 0
    const probe = setInterval(() => {
      tries += 1
      void this.#prober().then((isGood) => (succeeded += Number(isGood)))
    }, PROBE_EVERY_MS)
    const end = performance.now() + seconds * 1000
    while (performance.now() < end) {
      for (const pair of this.#pairs) setTimeout(() => this.#send(pair), Math.random() * EVERY_MS)
      await Bun.sleep(EVERY_MS)
    }
    clearInterval(probe)
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
    sender.send(recipient.key, text).catch(() => undefined) // it counts as late
  }
}

let peers: HonestPeers | undefined
const answer = (said: HonestAnswer) => process.send?.(said)
process.on('disconnect', () => process.exit(0))
process.on('message', async ({ open, seconds }: HonestOrder) => {
  if (open) {
    peers = await HonestPeers.open(open)
    answer({ isOpen: true })
  }
  if (seconds) answer(await peers!.measure(seconds))
})
