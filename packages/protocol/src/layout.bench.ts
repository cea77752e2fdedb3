/**
 * Measures the cost per item of encoding and decoding frames in both forms. Run: `bun
 * packages/protocol/src/layout.bench.ts`
 */
import type { DeliveryId, EnvelopeId, PeerKey } from '@sealpost/std'
import { decodeClientFrame, decodeServerFrame, encode, type Form, type Frame, type FrameOf } from './index.ts'

const ENVELOPE = crypto.getRandomValues(new Uint8Array(437))
const ITEMS = 64
const items = <T>(make: (n: number) => T): T[] => Array.from({ length: ITEMS }, (_, n) => make(n))
const id = (n: number) => `0198c0de0000700080000000${n.toString(16).padStart(8, '0')}` as EnvelopeId
const key = (n: number) => `${'5a'.repeat(28)}${n.toString(16).padStart(8, '0')}` as PeerKey

const send: FrameOf<'send'> = {
  type: 'send',
  envelopes: items((n) => ({
    envelopeId: id(n),
    recipient: key(n),
    priority: 'next',
    isHead: false,
    ttlSeconds: 0,
    envelope: ENVELOPE,
  })),
}
const push: FrameOf<'push'> = {
  type: 'push',
  deliveries: items((n) => ({
    id: (1_000_000 + n) as DeliveryId,
    envelopeId: id(n),
    sender: key(n),
    priority: 'next',
    attempt: 1,
    enqueuedAtMs: 1_767_225_600_000 + n,
    envelope: ENVELOPE,
  })),
}
const ack: FrameOf<'ack'> = {
  type: 'ack',
  items: items((n) => ({ envelopeId: id(n), id: (1_000_000 + n) as DeliveryId, isDuplicate: false })),
}
const settle: FrameOf<'settle'> = { type: 'settle', ids: items((n) => (1_000_000 + n) as DeliveryId) }

for (const form of ['binary', 'json'] as const) {
  reportFrame(form, send, decodeClientFrame)
  reportFrame(form, push, decodeServerFrame)
  reportFrame(form, ack, decodeServerFrame)
  reportFrame(form, settle, decodeClientFrame)
}

function reportFrame(form: Form, frame: Frame, decode: (form: Form, wire: Uint8Array | string) => unknown): void {
  const wire = encode(form, frame)
  const encodeMicros = best(() => encode(form, frame))
  const decodeMicros = best(() => decode(form, wire))
  const columns = [encodeMicros, decodeMicros, encodeMicros + decodeMicros].map((us) => us.toFixed(3).padStart(7))
  console.log(`${form.padEnd(7)}${frame.type.padEnd(7)} encode, decode, both: ${columns.join(' ')} µs an item`)
}

/** Returns the microseconds per item in the fastest of seven runs, which excludes other load. */
function best(step: () => unknown): number {
  const rounds = 400
  let bestMs = Number.POSITIVE_INFINITY
  for (let run = 0; run < 9; run++) {
    const startedAt = performance.now()
    for (let i = 0; i < rounds; i++) step()
    bestMs = Math.min(bestMs, performance.now() - startedAt)
  }
  return (bestMs * 1000) / (rounds * ITEMS)
}
