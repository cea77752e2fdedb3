/**
 * Provides tests with deliveries and their keys, and a broker that pushes returned deliveries again, on a clock that
 * the test moves. Alice rotates her box key at any time; Bob learns of it only when her mail can't be opened.
 */
import type { StreamId, StreamPosition } from '@sealpost/identity'
import type { FrameOf, KeyBindingEntry, Priority } from '@sealpost/protocol'
import type { DeliveryId, EnvelopeId, MeshId, Millis, PeerKey } from '@sealpost/std'
import { GroupOpener, GroupStatements } from '../groups/group-client.ts'
import type { Message, PushedDelivery } from '../inbox/message.ts'
import { Receiver } from '../inbox/receiver.ts'
import { KeyEpochs } from '../keys/key-epochs.ts'
import { PeerKeys } from '../keys/peer-keys.ts'
import { seenStoreOf } from '../stores/store.ts'
import { fakeBinding, fakeCrypto } from './fake-crypto.ts'
import { World as OutboxWorld } from './outbox.ts'

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
  readonly push: PushedDelivery
  readonly readyAtMs: Millis
}

export class TurnsScene {
  nowMs: Millis = 0
  readonly shown: { text: string; atMs: Millis }[] = []
  readonly settles: { count: number; atMs: Millis }[] = []
  /** Alice's keys in the directory, newest first. */
  private bindings: KeyBindingEntry[] = []
  private epoch = 0
  /** The requests that the broker delays; null if it replies immediately. */
  private unanswered: Question[] | null = null
  private waiting: Waiting[] = []
  private readonly pushes = new Map<DeliveryId, PushedDelivery>()
  private readonly streams = new Map<Priority, { no: number; seq: number }>()
  private lastId = 0
  private readonly arrivals: Receiver
  private readonly peerKeys: PeerKeys
  private readonly delayMs: () => Millis

  /** `delayMs`: the additional delay before the broker pushes again. */
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
      emit: ignore,
      unlock: (peer) => this.arrivals.unlock(peer, this.nowMs),
      refuse: (peer) => this.arrivals.refuse(peer, this.nowMs),
      flushSoon: ignore,
    })
    const reports = { emit: ignore, ask: ignore, changed: ignore }
    const statements = new GroupStatements({ crypto: crypto.groups, seen: seenStoreOf(null), ...reports })
    this.arrivals = new Receiver({
      opening: this.peerKeys.opening,
      groups: new GroupOpener({ crypto: crypto.groups, statements, current: (peer) => peer, unlock: ignore }),
      users: { senderUser: (user) => ({ user, deviceLabel: null }) },
      effects: { deliver: (message) => this.show(message), emit: ignore, flushSoon: ignore },
      counters: new OutboxWorld().counters,
      isAnswer: () => false,
      hooks: {},
      worksForPools: () => false,
      maxAgeMs: Infinity,
      credit,
      post: ignore,
    })
    this.arrivals.connected({ leaseMs: 30_000, creditMax: 1024 })
  }

  /** Makes Alice seal with another box key, which the broker has. */
  turn(): void {
    this.turnUnheard()
    this.publish()
  }

  /** Makes Alice seal with another box key, which the broker does not have yet. */
  turnUnheard(): void {
    this.epoch += 1
  }

  publish(): void {
    const claim = { peer: ALICE, boxKey: boxKeyOf(this.epoch), boxEpoch: this.epoch, notAfterMs: FAR_MS }
    this.bindings.unshift(fakeBinding(claim))
  }

  send(text: string, priority: Priority = 'next'): void {
    this.push(this.seal(text, priority))
  }

  /** Sends a delayed message, which has no stream. */
  sendLoose(text: string): void {
    this.push(this.sealAt(text, 'next', null))
  }

  /** Sends a message that the broker accepts but never pushes. */
  lose(text: string, priority: Priority = 'next'): void {
    this.seal(text, priority)
  }

  /** Makes Alice's next message of this priority begin a new stream, as after a refusal. */
  restartStream(priority: Priority = 'next'): void {
    this.streams.set(priority, { no: this.streamOf(priority).no + 1, seq: 0 })
  }

  /** Advances the clock, and pushes returned deliveries that become due. */
  advance(byMs: Millis): void {
    const untilMs = this.nowMs + byMs
    for (let next = this.nextBy(untilMs); next; next = this.nextBy(untilMs)) {
      this.tickUntil(Math.max(this.nowMs, next.readyAtMs))
      this.waiting.splice(this.waiting.indexOf(next), 1)
      this.push(next.push)
    }
    this.tickUntil(untilMs)
    this.listen()
  }

  /** Expires the messages that wait at the broker. */
  expire(): void {
    this.waiting = []
  }

  /** Ends Bob's session. The next one pushes everything immediately, in order. */
  reconnect(): void {
    this.arrivals.disconnected()
    this.peerKeys.disconnected()
    this.arrivals.connected({ leaseMs: 30_000, creditMax: 1024 })
    const pushes = this.waiting.map(({ push }) => push).sort((a, b) => a.id - b.id)
    this.waiting = []
    for (const push of pushes) this.push(push)
  }

  /** Delays the broker's replies until `happen` has returned. */
  whileSilent(happen: () => void): void {
    const unanswered: Question[] = []
    this.unanswered = unanswered
    happen()
    this.unanswered = null
    for (const question of unanswered) this.answer(question)
    this.listen()
  }

  /** Unlocks Alice, as when groups were read for another message from her. */
  unlock(): void {
    this.arrivals.unlock(ALICE, this.nowMs)
    this.listen()
  }

  get texts(): string[] {
    return this.shown.map(({ text }) => text)
  }

  private tickUntil(untilMs: Millis): void {
    for (let wakeAtMs = this.arrivals.wakeAtMs; wakeAtMs <= untilMs; wakeAtMs = this.arrivals.wakeAtMs) {
      this.nowMs = Math.max(this.nowMs, wakeAtMs)
      this.arrivals.tick(this.nowMs)
      this.listen()
    }
    this.nowMs = untilMs
  }

  private streamOf(priority: Priority): { readonly no: number; readonly seq: number } {
    return this.streams.get(priority) ?? { no: 1, seq: 0 }
  }

  private show(message: Message): void {
    this.shown.push({ text: message.text(), atMs: this.nowMs })
    message.settle()
  }

  private seal(text: string, priority: Priority): PushedDelivery {
    const { no, seq: lastSeq } = this.streamOf(priority)
    const seq = lastSeq + 1
    this.streams.set(priority, { no, seq })
    const streamId = `${priority} ${no} `.padEnd(32, '0') as StreamId
    return this.sealAt(text, priority, { streamId, seq, prev: new Uint8Array(16) })
  }

  private sealAt(text: string, priority: Priority, stream: StreamPosition | null): PushedDelivery {
    const crypto = fakeCrypto({ peerKey: ALICE, meshId: MESH, boxKey: boxKeyOf(this.epoch), random: () => 0.5 })
    this.lastId += 1
    const envelopeId = this.lastId.toString(16).padStart(32, '0') as EnvelopeId
    const { envelope } = crypto.seal({
      to: { peerKey: BOB, boxKey: boxKeyOf(0), boxEpoch: 1 },
      envelopeId,
      stream,
      sentAtMs: this.nowMs,
      body: encoder.encode(text),
    })
    const id = this.lastId as DeliveryId
    return { id, envelopeId, sender: ALICE, priority, attempt: 1, enqueuedAtMs: this.nowMs, envelope }
  }

  private push(push: PushedDelivery): void {
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

  /** Sends the open request. Returns whether there was one. */
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
