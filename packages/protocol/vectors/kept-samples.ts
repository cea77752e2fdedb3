import type { EnvelopeId, GroupId, PeerKey } from '@sealpost/std'
import type { ClientFrame } from '../src/index.ts'

const bytes = (length: number, first: number): Uint8Array => Uint8Array.from({ length }, (_, i) => first + i)

export const keptClientSamples: readonly { name: string; frame: ClientFrame }[] = [
  {
    name: 'broadcastKept',
    frame: {
      type: 'broadcastKept',
      group: '50'.repeat(16) as GroupId,
      rosterEpoch: 3,
      bodyId: '60'.repeat(32),
      body: bytes(48, 5),
      terms: { receipts: 'none', thread: '00'.repeat(16), hops: 0, noAutoReply: false },
      envelopes: [
        {
          envelopeId: '019b76da80007000800000000000000b' as EnvelopeId,
          recipient: '1f'.repeat(32) as PeerKey,
          priority: 'next',
          isHead: true,
          ttlSeconds: 0,
          envelope: bytes(40, 6),
        },
      ],
      record: bytes(120, 8),
    },
  },
]
