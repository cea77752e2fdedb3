import type { EnvelopeId, PeerKey, PoolId } from '@sealpost/std'
import { type ClientFrame, encodeBoxes, type ServerFrame } from '../src/index.ts'

const POOL = 'c1'.repeat(32) as PoolId
const bytes = (length: number): Uint8Array => Uint8Array.from({ length }, (_, i) => i)

export const poolServerSamples: readonly { name: string; frame: ServerFrame }[] = [
  { name: 'poolJoined', frame: { type: 'poolJoined', ref: 31, pool: POOL, outcome: 'joined' } },
  { name: 'poolJoined, by itself', frame: { type: 'poolJoined', ref: 0, pool: POOL, outcome: 'not_in_pool' } },
]

export const poolClientSamples: readonly { name: string; frame: ClientFrame }[] = [
  { name: 'setPool', frame: { type: 'setPool', ref: 30, statement: bytes(40) } },
  { name: 'pools', frame: { type: 'pools', ref: 32, after: POOL } },
  { name: 'joinPool', frame: { type: 'joinPool', ref: 31, pool: POOL, credit: 1 } },
  {
    name: 'sendPool',
    frame: {
      type: 'sendPool',
      rosterEpoch: 2,
      bodyId: 'd0'.repeat(32),
      body: bytes(44),
      terms: { notBeforeMs: 0, receipts: 'end', thread: '0'.repeat(32), hops: 0, noAutoReply: false, ifOnline: false },
      send: {
        envelopeId: '019b76da80007000800000000000000a' as EnvelopeId,
        recipient: POOL as string as PeerKey,
        priority: 'next',
        isHead: true,
        ttlSeconds: 0,
        envelope: encodeBoxes([{ peer: '1f'.repeat(32) as PeerKey, box: bytes(40) }]),
      },
    },
  },
]
