/**
 * Fuzzes the input of a peer from a seed: valid and invalid frames of every type, in every state, from a hostile broker
 * with the right key. Known ids, keys and envelopes occur especially often. Nothing may throw, and the application
 * receives only what a sender has sealed: once, and once more after each rejection.
 */
import {
  bindBoxKey,
  generateSigningKeys,
  type Identity,
  identityFromSeeds,
  NO_PREV,
  Sealer,
  type StreamId,
  sealInStream,
  signAsBroker,
} from '@sealpost/identity'
import {
  type ClientFrame,
  decodeServerFrame,
  encode,
  type Form,
  type FrameOf,
  type ServerFrame,
  serverFrames,
} from '@sealpost/protocol'
import { type Known, made } from '@sealpost/protocol/testing'
import { type EnvelopeId, type MeshId, type Millis, type Random, seededRandom, toHex } from '@sealpost/std'
import { bytesOf, faultyBytes, faultyText, pick } from '@sealpost/std/testing'
import { PeerEngine } from '../engine.ts'
import type { Message } from '../inbox/message.ts'
import { sodiumCrypto } from '../keys/sodium-crypto.ts'
import type { ConnectionTarget, PeerEffects } from '../ports.ts'

export interface PeerFuzzReport {
  readonly frames: number
  readonly sessions: number
  readonly delivered: number
  readonly tampered: number
}

const MESH = 'a0'.repeat(16) as MeshId
const FAR_MS = 4e12
const LIVES = 400
/** The peer and its correspondent. Created late, because the library must be ready. */
let pair: readonly [Identity, Identity] | undefined
const people = () => (pair ??= [identity(1), identity(3)])
const identity = (n: number) =>
  identityFromSeeds({ signing: new Uint8Array(32).fill(n), box: new Uint8Array(32).fill(n + 1) })

/**
 * Runs the fuzzer. Await `ready()` first. @throws Error with the seed and the number of the first input that breaks a
 * rule
 */
export function fuzzPeer({ seed, inputs }: { seed: number; inputs: number }): PeerFuzzReport {
  const random = seededRandom(seed)
  const report = { frames: inputs, sessions: 0, delivered: 0, tampered: 0 }
  let broker = new HostileBroker(random)
  for (let n = 0; n < inputs; n++) {
    try {
      broker.act()
    } catch (cause) {
      throw new Error(`seed ${seed}, input ${n}`, { cause })
    }
    if ((n + 1) % LIVES > 0 && n + 1 < inputs && !broker.isOver) continue
    const { sessions, received, tampered } = broker.engine.counters
    report.sessions += sessions
    report.delivered += received
    report.tampered += tampered
    broker = new HostileBroker(random)
  }
  return report
}

type Push = FrameOf<'push'>['deliveries'][number]

class HostileBroker implements PeerEffects {
  readonly engine: PeerEngine
  private readonly random: Random
  private readonly keys = generateSigningKeys()
  private readonly place: ConnectionTarget
  private readonly mail: readonly Push[]
  private readonly delivered = new Set<EnvelopeId>()
  /** Messages that the application has rejected and not received since. */
  private readonly rejected = new Set<EnvelopeId>()
  private readonly open: Message[] = []
  private readonly known: Known & { integers: number[]; hex: string[] }
  private nowMs: Millis = 1_700_000_000_000
  private dialNo = 0
  private hello: FrameOf<'hello'> | undefined
  private auth: FrameOf<'auth'> | undefined

  constructor(random: Random) {
    this.random = random
    this.mail = sealedMail(random)
    const peers = people().map(({ signing }) => signing.publicKey)
    this.place = { urls: ['wss://broker.example'], brokerKey: this.keys.publicKey, meshId: MESH, peerKey: peers[0]! }
    this.known = {
      integers: [0, 1, 2, this.nowMs, ...this.mail.map(({ id }) => id)],
      hex: [...peers, ...this.mail.map(({ envelopeId }) => envelopeId)],
      blobs: this.mail.map(({ envelope }) => envelope),
    }
    const options = { ...this.place, nowMs: this.nowMs, random: () => random.next() }
    this.engine = new PeerEngine(this, sodiumCrypto({ identity: people()[0], meshId: MESH }), options)
    this.engine.start()
  }

  get isOver(): boolean {
    return this.engine.state.name === 'closed'
  }

  act(): void {
    const { random, engine } = this
    this.nowMs += random.below(50)
    engine.advance(this.nowMs)
    const chance = random.next()
    if (chance < 0.1) this.use()
    else if (chance < 0.13) this.pass()
    else if (chance < 0.14) engine.closed(this.dialNo, pick(random, [1000, 1006, 1009, 4440, 0, 65_535]))
    else if (engine.state.name !== 'live' && chance < 0.9) this.handshake()
    else this.say()
    engine.flush()
  }

  dial(dialNo: number): void {
    this.dialNo = dialNo
  }
  closeSocket(): void {
    this.auth = undefined
  }
  transmit(frame: ClientFrame): void {
    if (frame.type === 'auth') this.auth = frame
    if ('ref' in frame) this.known.integers.push(frame.ref)
    if (frame.type === 'send') this.known.hex.push(...frame.envelopes.map(({ envelopeId }) => envelopeId))
    encode('binary', frame) // throws if the frame is invalid
  }
  emit(): void {
    return // Other tests check what events report.
  }
  flushSoon(): void {
    return // Every step ends with a flush.
  }

  deliver(message: Message): void {
    if (message.sender !== people()[1].signing.publicKey) throw new Error('a message of nobody')
    const isRedriven = message.isRedriven && this.rejected.delete(message.envelopeId)
    if (this.delivered.has(message.envelopeId) && !isRedriven) throw new Error('a message was handed out twice')
    if (new TextDecoder().decode(message.body) !== message.envelopeId) throw new Error('another body')
    this.delivered.add(message.envelopeId)
    this.open.push(message)
  }

  private use(): void {
    const { random, engine } = this
    const to = pick(random, people()).signing.publicKey
    const refused = () => undefined
    const message = this.open.pop()
    switch (random.below(7)) {
      case 0:
        return message?.settle()
      case 1:
        if (message) this.delivered.delete(message.envelopeId) // After `retry`, the message may arrive again.
        return message?.retry(random.below(10_000))
      case 2:
        if (message) this.rejected.add(message.envelopeId)
        return message?.reject('no')
      case 3:
        return engine.enqueue({
          to,
          priority: 'next',
          ttlSeconds: 0,
          body: bytesOf(random, 10),
          accepted: refused,
          refused,
        })
      case 4:
        return engine.lookup(to, { found: refused, refused })
      case 5:
        return engine.watchPresence(random.chance(0.5))
      default:
        engine.sendEphemeral(to, bytesOf(random, 10))
    }
  }

  /** Advances the clock, at most to the next due time. */
  private pass(): void {
    this.nowMs = Math.max(this.nowMs, Math.min(this.engine.wakeAtMs, this.nowMs + 60_000))
    this.engine.advance(this.nowMs)
    this.engine.tick()
  }

  private handshake(): void {
    const { engine } = this
    const { name } = engine.state
    if (name === 'waiting') this.pass()
    else if (name === 'connecting') engine.opened(this.dialNo)
    else if (name === 'greeting') this.greet()
    else if (name === 'proving') this.welcome()
  }

  private greet(): void {
    const any = this.made('hello') as FrameOf<'hello'>
    this.hello = { ...any, versions: [1], brokerKey: this.keys.publicKey }
    this.engine.received(this.dialNo, this.hello)
  }

  /** Sends a `welcome` with a valid proof and arbitrary limits. */
  private welcome(): void {
    if (!this.auth || !this.hello) return
    const { version, clientNonce, capabilities, signature } = this.auth
    const { versions: versionsOffered, nonce: serverNonce, connectionId, issuedAtMs } = this.hello
    const ours = { version, clientNonce, capabilities }
    const { urls: _, ...place } = this.place
    const authority = 'broker.example:443'
    const transcript = { ...place, ...ours, authority, versionsOffered, serverNonce, connectionId, issuedAtMs }
    const proof = signAsBroker(this.keys, transcript, signature)
    this.engine.received(this.dialNo, { ...(this.made('welcome') as FrameOf<'welcome'>), proof })
  }

  private say(): void {
    const { random } = this
    const chance = random.next()
    if (chance < 0.3) return this.hear({ type: 'push', deliveries: [this.pushed()] })
    if (chance < 0.35)
      return this.hear({ type: 'directory', ref: pick(random, this.known.integers) >>> 0, ...directory() })
    this.hear(this.made(pick(random, HARMLESS)))
  }

  /** Returns valid mail, except that one in four items has a wrong id or sender. */
  private pushed(): Push {
    const push = pick(this.random, this.mail)
    if (this.random.chance(0.75)) return push
    return {
      ...push,
      ...pick(this.random, [{ envelopeId: pick(this.random, this.mail).envelopeId }, { sender: this.place.peerKey }]),
    }
  }

  private hear(frame: ServerFrame): void {
    const { random } = this
    const form: Form = random.chance(0.5) ? 'binary' : 'json'
    const good = encode(form, frame)
    const wire = random.chance(0.98)
      ? good
      : typeof good === 'string'
        ? faultyText(random, good)
        : faultyBytes(random, good, good)
    const decoded = decodeServerFrame(form, wire)
    if (decoded.ok) this.engine.received(this.dialNo, decoded.frame)
    else this.engine.malformed(this.dialNo)
  }

  private made(type: ServerFrame['type']): ServerFrame {
    const kind = serverFrames.find((one) => one.type === type)!
    return made(this.random, kind, this.known) as ServerFrame
  }
}

/** Frames that end a session. They are rare, because otherwise no session would last. */
const ENDINGS = ['hello', 'welcome', 'refused', 'goaway'] as const
const TYPES = serverFrames.map(({ type }) => type as ServerFrame['type'])
const HARMLESS = [
  ...Array.from({ length: 12 }, () => TYPES.filter((type) => !ENDINGS.includes(type as 'hello'))).flat(),
  ...ENDINGS,
]

function directory(): Pick<FrameOf<'directory'>, 'bindings' | 'unknown'> {
  const { peerKey: peer, boxKey, boxEpoch, notAfterMs, signature } = bindBoxKey(people()[1], MESH, FAR_MS)
  return { bindings: [{ peer, boxKey, boxEpoch, notAfterMs, signature }], unknown: [] }
}

/** Returns mail from Bob in two streams and without a stream. Each body is its message's id. */
function sealedMail(random: Random): Push[] {
  const [alice, bob] = people()
  const sealer = new Sealer({ identity: bob, meshId: MESH })
  const to = { peerKey: alice.signing.publicKey, boxKey: alice.box.publicKey, boxEpoch: 1 }
  const newStream = () => ({ streamId: toHex(bytesOf(random, 16)) as StreamId, seq: 1, prev: NO_PREV as Uint8Array })
  const streams = [newStream(), newStream(), null]
  return Array.from({ length: 12 }, (_, i) => {
    const envelopeId = toHex(bytesOf(random, 16)) as EnvelopeId
    const stream = streams[i % 3] ?? null
    const body = new TextEncoder().encode(envelopeId)
    const { envelope, headerHash } = sealInStream(sealer, { to, envelopeId, stream, sentAtMs: Date.now(), body })
    if (stream) streams[i % 3] = { ...stream, seq: stream.seq + 1, prev: headerHash }
    const id = (i + 1) as Push['id']
    return { id, envelopeId, sender: bob.signing.publicKey, priority: 'next', attempt: 1, enqueuedAtMs: 1, envelope }
  })
}
