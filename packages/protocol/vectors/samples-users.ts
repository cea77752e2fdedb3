import type { PeerKey } from '@sealpost/std'
import type { ClientFrame, ServerFrame } from '../src/index.ts'

const count = (length: number, first: number): Uint8Array => Uint8Array.from({ length }, (_, i) => first + i)
const alice = '10'.repeat(32) as PeerKey
const bob = '40'.repeat(32) as PeerKey
const AT_MS = 1_767_225_600_123

export const serverUserSamples: readonly { name: string; frame: ServerFrame }[] = [
  {
    name: 'deviceList',
    frame: { type: 'deviceList', ref: 61, statements: [count(200, 1), count(1, 2)], removals: [count(166, 3)] },
  },
  { name: 'deviceList, empty', frame: { type: 'deviceList', ref: 0, statements: [], removals: [] } },
  { name: 'deviceRemoved', frame: { type: 'deviceRemoved', ref: 62, outcome: 'unknown_device' } },
  { name: 'succeeded', frame: { type: 'succeeded', ref: 63, outcome: 'done' } },
  { name: 'successions', frame: { type: 'successions', statements: [count(230, 4)] } },
]

export const clientUserSamples: readonly { name: string; frame: ClientFrame }[] = [
  {
    name: 'enrolDevice',
    frame: {
      type: 'enrolDevice',
      version: 1,
      clientNonce: count(32, 0x80),
      statement: count(250, 5),
      boxKey: count(32, 0x70),
      boxEpoch: 1,
      bindingNotAfterMs: AT_MS,
      bindingSignature: count(64, 0x90),
      signature: count(64, 0),
    },
  },
  { name: 'devices', frame: { type: 'devices', ref: 61, peers: [alice, bob] } },
  { name: 'removeDevice', frame: { type: 'removeDevice', ref: 62, removal: count(166, 3) } },
  {
    name: 'succeed',
    frame: {
      type: 'succeed',
      ref: 63,
      statement: count(230, 4),
      boxKey: count(32, 0x70),
      boxEpoch: 2,
      bindingNotAfterMs: AT_MS,
      bindingSignature: count(64, 0x90),
    },
  },
]
