/**
 * Measures the cost of a message for both clients together, without sockets: post, seal, frame, decode, open, dedupe,
 * settle, ack. The relay between them is not included. Run: `bun packages/sdk/src/engine.bench.ts`
 */
import { bindBoxKey, generateIdentity, generateSigningKeys, type Identity, ready } from '@sealpost/identity'
import { type ClientFrame, decodeServerFrame, encodeBinary, type FrameOf, type ServerFrame } from '@sealpost/protocol'
import type { DeliveryId, MeshId } from '@sealpost/std'
import { clockMs } from './driver.ts'
import { PeerEngine } from './engine.ts'
import type { Message } from './inbox/message.ts'
import { sodiumCrypto } from './keys/sodium-crypto.ts'
import type { CryptoPort, PeerEffects } from './ports.ts'

const MESSAGES = 64_000
const WINDOW = 64
const meshId = '01'.repeat(16) as MeshId

class BenchPeer implements PeerEffects {
  readonly engine: PeerEngine
  readonly sent: { frame: ClientFrame; bytes: Uint8Array }[] = []

  constructor(identity: Identity, crypto: CryptoPort) {
    const place = { urls: ['ws://broker:1'], brokerKey, meshId, peerKey: identity.signing.publicKey }
    this.engine = new PeerEngine(this, crypto, { ...place, nowMs: clockMs(), random: Math.random, window: WINDOW })
    this.engine.start()
    this.engine.opened(1)
    this.hear({
      type: 'hello',
      versions: [1],
      brokerKey,
      connectionId: new Uint8Array(16),
      nonce: new Uint8Array(32),
      issuedAtMs: 1,
      authWithinMs: 10_000,
    })
    this.hear({
      type: 'welcome',
      proof: new Uint8Array(64),
      epoch: 1,
      incarnation: '00'.repeat(16),
      durability: 'fsync',
      heartbeatMs: 15_000,
      leaseMs: 30_000,
      dedupeSeconds: 86_400,
      creditMax: 1024,
      envelopeBytesMax: 72 * 1024,
      ttlSecondsMax: 86_400,
      inFlightMax: 1024,
    })
    this.sent.length = 0
  }

  dial(): void {}
  closeSocket(): void {}
  emit(): void {}
  flushSoon(): void {}
  transmit(frame: ClientFrame): void {
    this.sent.push({ frame, bytes: encodeBinary(frame) })
  }
  deliver(message: Message): void {
    message.settle()
  }
  hear(frame: ServerFrame): void {
    this.engine.received(1, frame)
  }
  hearBytes(bytes: Uint8Array): void {
    const decoded = decodeServerFrame('binary', bytes)
    if (decoded.ok) this.engine.received(1, decoded.frame)
  }
}

await ready()
const brokerKey = generateSigningKeys().publicKey
const [alice, bob] = [generateIdentity(), generateIdentity()]
const trusting = (crypto: CryptoPort): CryptoPort => ({ ...crypto, isBrokerProof: () => true })
const sender = new BenchPeer(alice, trusting(sodiumCrypto({ identity: alice, meshId })))
const reader = new BenchPeer(bob, trusting(sodiumCrypto({ identity: bob, meshId })))
const entries = [alice, bob].map((identity) => {
  const { peerKey: peer, ...binding } = bindBoxKey(identity, meshId, 4_000_000_000_000)
  return { peer, ...binding }
})
for (const peer of [sender, reader]) {
  for (const { peer: key } of entries) peer.engine.lookup(key, { found: () => undefined, refused: () => undefined })
  peer.engine.flush()
  peer.sent.length = 0
  peer.hear({ type: 'directory', ref: 1, bindings: entries, unknown: [] })
}

const body = new Uint8Array(200).fill(7)
let acked = 0
const accepted = () => {
  acked += 1
}
const refused = (error: Error) => {
  throw error
}
let nextId = 1

function relay(sends: FrameOf<'send'>[]): { push: Uint8Array; ack: Uint8Array } {
  const deliveries: FrameOf<'push'>['deliveries'] = []
  const items: FrameOf<'ack'>['items'] = []
  for (const { envelopes } of sends)
    for (const { envelopeId, priority, envelope } of envelopes) {
      const id = nextId++ as DeliveryId
      deliveries.push({ id, envelopeId, sender: entries[0]!.peer, priority, attempt: 1, enqueuedAtMs: 1, envelope })
      items.push({ envelopeId, isDuplicate: false })
    }
  return { push: encodeBinary({ type: 'push', deliveries }), ack: encodeBinary({ type: 'ack', items }) }
}

let bestMicros = Number.POSITIVE_INFINITY
for (let run = 0; run < 8; run++) {
  let relayMs = 0
  const startedAt = performance.now()
  for (let i = 0; i < MESSAGES; i += WINDOW) {
    for (const peer of [sender, reader]) peer.engine.advance(clockMs())
    for (let k = 0; k < WINDOW; k++)
      sender.engine.enqueue({ to: entries[1]!.peer, priority: 'next', ttlSeconds: 0, body, accepted, refused })
    sender.engine.flush()
    const relayedAt = performance.now()
    const { push, ack } = relay(sender.sent.splice(0).map(({ frame }) => frame as FrameOf<'send'>))
    relayMs += performance.now() - relayedAt
    reader.hearBytes(push)
    reader.engine.flush()
    reader.sent.length = 0
    sender.hearBytes(ack)
  }
  bestMicros = Math.min(bestMicros, ((performance.now() - startedAt - relayMs) * 1000) / MESSAGES)
}
process.stdout.write(`${bestMicros.toFixed(2)} µs a message, both clients, ${acked} acked\n`)
