/**
 * For tests: arrivals with their keys and a broker that pushes again what was given back, on a clock the test moves. Alice
 * turns her box key as she likes; Bob learns of it only by what does not open.
 */
import type { FrameOf, KeyBindingEntry, Priority } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, MeshId, Millis, PeerKey } from '@sealpost/std'
import { Arrivals } from './arrivals.ts'
import { fakeBinding, fakeCrypto } from './fake-crypto.ts'
import { GroupBook } from './group-book.ts'
import { GroupOpening } from './group-opening.ts'
import { KeyEpochs } from './key-epochs.ts'
import type { Message, Pushed } from './message.ts'
import { PeerKeys } from './peer-keys.ts'
import { World as OutboxWorld } from './testing-outbox.ts'

const ALICE = 'a'.repeat(64) as PeerKey
const BOB = 'b'.repeat(64) as PeerKey
const MESH = '1'.repeat(32) as MeshId
const FAR_MS = 4_000_000_000_000
const boxKeyOf = (epoch: number) => new Uint8Array(32).fill(epoch)
const OWN_BINDING = fakeBinding({ peer: BOB, boxKey: boxKeyOf(0), boxEpoch: 1, notAfterMs: FAR_MS })
const encoder = new TextEncoder()
const ignore = () => undefined

type Question = FrameOf<'lookup'> | FrameOf<'lookupHistory'>

interface Waiting {
  readonly push: Pushed
  readonly readyAtMs: Millis
}

export class TurnsScene {
  nowMs: Millis = 0
  readonly shown: { text: string; atMs: Millis }[] = []
  readonly settles: { count: number; atMs: Millis }[] = []
  /** Newest first; none: the broker does not know her. */
  private bindings: KeyBindingEntry[] = []
  private epoch = 0
  /** Questions the broker takes its time for; null: it answers at once. */
  private unanswered: Question[] | null = null
  private waiting: Waiting[] = []
  private readonly pushes = new Map<DeliveryId, Pushed>()
  private readonly seqs = new Map<Priority, number>()
  private lastId = 0
  private readonly arrivals: Arrivals
  private readonly peerKeys: PeerKeys
  private readonly delayMs: () => Millis

  /** `delayMs`: how much later than asked for the broker pushes again. */
  constructor(delayMs: () => Millis = () => 0, credit = 256) {
    this.delayMs = delayMs
    const crypto = fakeCrypto({ peerKey: BOB, meshId: MESH, boxKey: boxKeyOf(0), random: () => 0.5 })
    this.peerKeys = new PeerKeys({
      crypto,
      epochs: new KeyEpochs({ self: BOB }),
      self: BOB,
      ownKeyMissing: (error) => {
        throw error
      },
      current: (peer) => peer,
      announce: ignore,
      unlock: (peer) => this.arrivals.unlock(peer, this.nowMs),
      refuse: (peer) => this.arrivals.refuse(peer, this.nowMs),
      flushSoon: ignore,
    })
    const book = new GroupBook({ crypto: crypto.groups, announce: ignore, ask: ignore, changed: ignore })
    this.arrivals = new Arrivals({
      opening: this.peerKeys.opening,
      groups: new GroupOpening({ crypto: crypto.groups, book, current: (peer) => peer, unlock: ignore }),
      persons: { whose: (person) => ({ person, label: null }) },
      effects: { deliver: (message) => this.show(message), announce: ignore, flushSoon: ignore },
      counters: new OutboxWorld().counters,
      isAnswer: () => false,
      worksForPools: () => false,
      maxAgeMs: Infinity,
      credit,
      post: ignore,
    })
    this.arrivals.connected({ leaseMs: 30_000, creditMax: 1024 })
  }

  /** Alice seals with another box key from now on, and the broker has it. */
  turn(): void {
    this.turnUnheard()
    this.publish()
  }

  /** The broker has no key of hers yet. */
  turnUnheard(): void {
    this.epoch += 1
  }

  publish(): void {
    const claim = { peer: ALICE, boxKey: boxKeyOf(this.epoch), boxEpoch: this.epoch, notAfterMs: FAR_MS }
    this.bindings.unshift(fakeBinding(claim))
  }

  /** Accepted and pushed at once. */
  send(text: string, priority: Priority = 'next'): void {
    this.push(this.seal(text, priority))
  }

  /** The clock goes on; what is ready meanwhile is pushed again. */
  advance(byMs: Millis): void {
    const untilMs = this.nowMs + byMs
    for (let next = this.nextBy(untilMs); next; next = this.nextBy(untilMs)) {
      this.nowMs = Math.max(this.nowMs, next.readyAtMs)
      this.waiting.splice(this.waiting.indexOf(next), 1)
      this.push(next.push)
    }
    this.nowMs = untilMs
    this.listen()
  }

  /** What waits at the broker dies there. */
  expire(): void {
    this.waiting = []
  }

  /** Bob's session ends, and in the next one everything comes at once, in its order. */
  reconnect(): void {
    this.arrivals.disconnected()
    this.peerKeys.disconnected()
    this.arrivals.connected({ leaseMs: 30_000, creditMax: 1024 })
    const pushes = this.waiting.map(({ push }) => push).sort((a, b) => a.id - b.id)
    this.waiting = []
    for (const push of pushes) this.push(push)
  }

  /** The broker answers nothing until what happens here is over. */
  whileSilent(happen: () => void): void {
    const unanswered: Question[] = []
    this.unanswered = unanswered
    happen()
    this.unanswered = null
    for (const question of unanswered) this.answer(question)
    this.listen()
  }

  /** As when the groups were read that another message of hers waits for. */
  unlock(): void {
    this.arrivals.unlock(ALICE, this.nowMs)
    this.listen()
  }

  get texts(): string[] {
    return this.shown.map(({ text }) => text)
  }

  private show(message: Message): void {
    this.shown.push({ text: message.text(), atMs: this.nowMs })
    message.settle()
  }

  private seal(text: string, priority: Priority): Pushed {
    const crypto = fakeCrypto({ peerKey: ALICE, meshId: MESH, boxKey: boxKeyOf(this.epoch), random: () => 0.5 })
    this.lastId += 1
    const seq = (this.seqs.get(priority) ?? 0) + 1
    this.seqs.set(priority, seq)
    const envelopeId = this.lastId.toString(16).padStart(32, '0') as EnvelopeId
    const streamId = priority.padEnd(32, '0') as ReturnType<typeof crypto.newStreamId>
    const { envelope } = crypto.seal({
      to: { peerKey: BOB, boxKey: boxKeyOf(0), boxEpoch: 1 },
      envelopeId,
      stream: { streamId, seq, prev: new Uint8Array(16) },
      sentAtMs: this.nowMs,
      body: encoder.encode(text),
    })
    const id = this.lastId as DeliveryId
    return { id, envelopeId, sender: ALICE, priority, attempt: 1, enqueuedAtMs: this.nowMs, envelope }
  }

  private push(push: Pushed): void {
    this.arrivals.pushed([push], this.nowMs)
    this.pushes.set(push.id, push)
    this.listen()
  }

  private listen(): void {
    while (!this.unanswered && this.ask());
    this.ask()
    for (const frame of this.arrivals.takeFrames(this.nowMs))
      if (frame.type === 'retry') this.takeBack(frame)
      else if (frame.type === 'settle') this.settles.push({ count: frame.ids.length, atMs: this.nowMs })
  }

  /** Answers whether there was a question. */
  private ask(): boolean {
    const questions = this.peerKeys.directory.takeFrames(this.nowMs)
    for (const question of questions) this.answer(question)
    return questions.length > 0
  }

  private answer(question: Question): void {
    if (this.unanswered) return void this.unanswered.push(question)
    const { bindings, nowMs } = this
    const { ref } = question
    if (question.type === 'lookupHistory')
      return this.peerKeys.directory.historyAnswered({ type: 'keyHistory', ref, bindings }, nowMs)
    const known = [...bindings.slice(0, 1), OWN_BINDING]
    const found = known.filter(({ peer }) => question.peers.includes(peer))
    const unknown = question.peers.filter((asked) => !found.some(({ peer }) => peer === asked))
    this.peerKeys.directory.answered({ type: 'directory', ref, bindings: found, unknown }, nowMs)
  }

  private takeBack({ items }: FrameOf<'retry'>): void {
    for (const { id, afterMs } of items) {
      const push = this.pushes.get(id)!
      this.waiting.push({
        push: { ...push, attempt: push.attempt + 1 },
        readyAtMs: this.nowMs + afterMs + this.delayMs(),
      })
    }
  }

  private nextBy(untilMs: Millis): Waiting | undefined {
    const ready = this.waiting.filter(({ readyAtMs }) => readyAtMs <= untilMs)
    return ready.sort((a, b) => a.readyAtMs - b.readyAtMs || a.push.id - b.push.id)[0]
  }
}
