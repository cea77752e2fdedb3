/**
 * Measures the cost of sealing and opening a message with a cached shared key, for one recipient and for a group
 * member. Run: `bun packages/identity/src/envelope/envelope.bench.ts`
 */
import type { EnvelopeId, GroupId, MeshId } from '@sealpost/std'
import {
  generateIdentity,
  openBody,
  openEnvelope,
  ready,
  Sealer,
  type StreamId,
  sealBody,
  sealEnvelope,
  sealInStream,
} from '../index.ts'

const ROUNDS = 50_000
const meshId = '01'.repeat(16) as MeshId
const envelopeId = '0198c0de'.repeat(4) as EnvelopeId

await ready()
const [alice, bob] = [generateIdentity(), generateIdentity()]
const sealer = new Sealer({ identity: alice, meshId })
const opener = new Sealer({ identity: bob, meshId })
const toBob = { peerKey: bob.signing.publicKey, boxKey: bob.box.publicKey, boxEpoch: 1 }
const fromAlice = { peerKey: alice.signing.publicKey, boxKey: alice.box.publicKey, boxEpoch: 1 }
const stream = { streamId: 'ab'.repeat(16) as StreamId, seq: 7, prev: new Uint8Array(16) }

for (const bodyBytes of [0, 200, 2_000, 20_000]) {
  const draft = { to: toBob, envelopeId, stream, sentAtMs: 1_760_000_000_000, body: new Uint8Array(bodyBytes).fill(7) }
  const envelope = sealEnvelope(sealer, draft)
  report(`seal ${bodyBytes} B`, () => sealInStream(sealer, draft))
  report(`open ${bodyBytes} B`, () => openEnvelope(opener, envelope, { from: fromAlice, envelopeId }))
}

const note = { group: 'd0'.repeat(16) as GroupId, groupEpoch: 1 }
for (const bodyBytes of [200, 20_000]) {
  const { bytes, ticket } = sealBody(new Uint8Array(bodyBytes).fill(7))
  const draft = { to: toBob, envelopeId, stream, sentAtMs: 1_760_000_000_000, note, body: ticket }
  const envelope = sealEnvelope(sealer, draft)
  report(`seal a ticket`, () => sealInStream(sealer, draft))
  report(`open a ticket`, () => openEnvelope(opener, envelope, { from: fromAlice, envelopeId }))
  report(`open its ${bodyBytes} B`, () => openBody(bytes, ticket))
}

/** Prints the best of five runs, to exclude other load. */
function report(name: string, step: () => unknown): void {
  let bestMicros = Number.POSITIVE_INFINITY
  for (let run = 0; run < 5; run++) {
    const startedAt = performance.now()
    for (let i = 0; i < ROUNDS; i++) step()
    bestMicros = Math.min(bestMicros, ((performance.now() - startedAt) * 1000) / ROUNDS)
  }
  process.stdout.write(`${name.padEnd(20)} ${bestMicros.toFixed(2)} µs\n`)
}
