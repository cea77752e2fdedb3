/** Runs a share of the population, by commands of `population.ts`, until its parent ends. */
import { ready } from '@sealpost/identity'
import { clockMs } from '@sealpost/sdk'
import { type PeerKey, type Random, seededRandom } from '@sealpost/std'
import { LedgerWriter } from '../judgement/ledger.ts'
import { Actor } from './actor.ts'
import type { PeerCommand, PeerProgress, PeerReply, PeerSetup } from './population.ts'

const PROGRESS_MS = 100
const SEND_EVERY_MS = 10
/** One in this number of messages has a short time to live. */
const BRIEF_ONE_IN = 40
const JOINING_AT_ONCE = 16
/** How late a timer is if the program has not run. */
const STOOD_STILL_MS = 400
/** The number of messages after which a burst yields. */
const BURST_CHUNK = 64

class Troupe {
  readonly #actors = new Map<number, Actor>()
  readonly #correspondents: PeerSetup['correspondents']
  readonly #ledger: LedgerWriter
  readonly #random: Random
  readonly #tally = { sent: 0, acked: 0, got: 0 }
  #perSecond = 0
  #due = 0
  #lookedAtMs = clockMs()

  constructor({ ledgerFile, roles, seed, ...shared }: PeerSetup) {
    const numbers = new Map(shared.keys.map((key, no) => [key, no]))
    const numberOf = (key: PeerKey) => numbers.get(key)
    this.#ledger = new LedgerWriter(ledgerFile)
    this.#random = seededRandom(seed)
    this.#correspondents = shared.correspondents
    for (const role of roles)
      this.#actors.set(role.no, new Actor(role, { ...shared, ledger: this.#ledger, numberOf, tally: this.#tally }))
    setInterval(() => this.#sendDue(), SEND_EVERY_MS)
  }

  get progress(): PeerProgress {
    const actors = [...this.#actors.values()]
    return {
      ...this.#tally,
      pending: actors.reduce((sum, actor) => sum + actor.pending, 0),
      online: actors.filter((actor) => actor.isOnline).length,
      joined: actors.filter((actor) => actor.hasJoined).length,
    }
  }

  async join(peers: readonly number[]): Promise<void> {
    const waiting = peers.map((no) => this.#actors.get(no)!)
    const joinNext = async (): Promise<void> => {
      for (let actor = waiting.shift(); actor; actor = waiting.shift()) await actor.join()
    }
    await Promise.all(Array.from({ length: JOINING_AT_ONCE }, joinNext))
  }

  async leave(peers: readonly number[]): Promise<void> {
    await Promise.all(peers.map((no) => this.#actors.get(no)!.leave()))
  }

  pace(perSecond: number): void {
    this.#perSecond = perSecond
    this.#due = 0
  }

  async burst({ from, to, count, kind }: Extract<PeerCommand, { do: 'burst' }>): Promise<void> {
    const actor = this.#actors.get(from)!
    for (let i = 0; i < count; ) {
      for (const end = Math.min(count, i + BURST_CHUNK); i < end; i++) actor.write(to, kind)
      do await Bun.sleep(SEND_EVERY_MS)
      while (!actor.mayWrite)
    }
  }

  dawdle(peers: readonly number[], forMs: number): void {
    for (const no of peers) this.#actors.get(no)!.dawdleMs = forMs
  }

  flush(): void {
    this.#ledger.flush()
  }

  #pick<T>(list: readonly T[]): T {
    return list[this.#random.below(list.length)]!
  }

  #sendDue(): void {
    const nowMs = clockMs()
    const lateMs = nowMs - this.#lookedAtMs
    if (lateMs > STOOD_STILL_MS) this.#ledger.write({ atMs: nowMs, e: 'stood still', sinceMs: this.#lookedAtMs })
    this.#lookedAtMs = nowMs
    if (this.#perSecond === 0) return
    const writers = [...this.#actors.values()].filter((actor) => actor.mayWrite)
    if (writers.length === 0) return
    this.#due = Math.min(this.#due + (this.#perSecond * lateMs) / 1000, this.#perSecond / 4)
    for (; this.#due >= 1; this.#due--) {
      const writer = this.#pick(writers)
      const to = this.#pick(this.#correspondents[writer.no]!)
      if (writer.mayWrite) writer.write(to, this.#random.below(BRIEF_ONE_IN) === 0 ? 'brief' : 'plain')
    }
  }
}

function listen(): void {
  let troupe: Troupe | undefined
  const answer = (reply: PeerReply) => void process.send?.(reply)
  const obey = async (order: PeerCommand): Promise<void> => {
    if (order.do === 'prepare') {
      await ready()
      troupe = new Troupe(order)
      setInterval(() => answer({ did: 'progress', ...troupe!.progress }), PROGRESS_MS)
    }
    const own = troupe!
    if (order.do === 'pace') return own.pace(order.perSecond)
    if (order.do === 'dawdle') return own.dawdle(order.peers, order.forMs)
    if (order.do === 'join') await own.join(order.peers)
    if (order.do === 'leave') await own.leave(order.peers)
    if (order.do === 'burst') await own.burst(order)
    if (order.do === 'flush') own.flush()
    answer({ did: order.do })
  }
  const fail = (error: unknown) => {
    answer({ did: 'fail', reason: error instanceof Error ? String(error.stack) : String(error) })
    setTimeout(() => process.exit(1), 50)
  }
  process.on('message', (order: PeerCommand) => void obey(order).catch(fail))
  process.on('uncaughtException', fail)
  process.on('unhandledRejection', fail)
  process.on('disconnect', () => process.exit(0)) // the parent has exited
  for (const signal of ['SIGINT', 'SIGHUP'] as const) process.on(signal, () => undefined) // the parent ends this program
}

if (import.meta.main) listen()
