import type { ServerFrame } from '../src/index.ts'

const bytes = (length: number, first: number): Uint8Array => Uint8Array.from({ length }, (_, i) => first + i)

export const shardServerSamples: readonly { name: string; frame: ServerFrame }[] = [
  {
    name: 'moved, to a shard with the key of the cluster',
    frame: { type: 'moved', url: 'wss://b.example', certificate: new Uint8Array(), proof: bytes(64, 0) },
  },
  {
    name: 'moved, to a shard with a key of its own',
    frame: { type: 'moved', url: 'wss://b.example:7450/v1/ws', certificate: bytes(140, 5), proof: bytes(64, 0x80) },
  },
  { name: 'certificate', frame: { type: 'certificate', certificate: bytes(140, 5) } },
  { name: 'shards', frame: { type: 'shards', urls: ['wss://b.example', 'ws://127.0.0.1:7450'], cell: [] } },
  { name: 'shards, no other one', frame: { type: 'shards', urls: [], cell: [] } },
  {
    name: 'shards, of a cell',
    frame: { type: 'shards', urls: [], cell: ['wss://south.example', 'wss://south-2.example'] },
  },
]
