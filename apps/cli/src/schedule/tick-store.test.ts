/** Tests that a tick and the messages of this tick are in the same batch, with a real peer on a fake broker. */
import {
  generateIdentity,
  type MeshId,
  openPeer,
  type PeerKey,
  ready,
  type StoreChange,
  type WebSocketLike,
} from '@sealpost/sdk'
import { MemoryStore } from '@sealpost/sdk/memory-store'
import { beforeAll, expect, test } from 'vitest'
import { tickCallsOf } from './tick-calls.ts'
import { TickStore } from './tick-store.ts'

beforeAll(() => ready())

/** A socket that never opens. */
class SilentSocket implements WebSocketLike {
  binaryType = 'arraybuffer'
  readonly protocol = ''
  onopen: (() => void) | null = null
  onmessage: ((event: { data: unknown }) => void) | null = null
  onclose: ((event: { code: number }) => void) | null = null
  onerror: ((event: unknown) => void) | null = null
  send(): void {}
  close(): void {
    this.onclose?.({ code: 1000 })
  }
}

/** Opens a peer whose broker is unreachable. */
async function peerOn(memory: MemoryStore, batches: (readonly StoreChange[])[] = []) {
  const store = new TickStore({
    load: () => memory.load(),
    close: () => memory.close(),
    write: (changes) => {
      batches.push(changes)
      return memory.write(changes)
    },
  })
  const place = {
    url: 'ws://127.0.0.1:9',
    webSocket: SilentSocket,
    brokerKey: 'aa'.repeat(32) as PeerKey,
    meshId: 'bb'.repeat(16) as MeshId,
  }
  const peer = await openPeer({ ...place, identity, store })
  return { peer, calls: tickCallsOf(peer, store, 0) }
}

const identity = generateIdentity()
const peers = [1, 2].map((n) => n.toString(16).padStart(64, '0') as PeerKey)
const params = {
  schedule: 's',
  ...{ peers, groups: [], ttlSeconds: 0 },
  priority: 'next',
  ticks: [1_000, 2_000].map((tickMs) => ({ tickMs, bodyBase64: 'aGk=' })),
} as const

test('a tick is stored in the batch of its messages, and a later process does not send it again', async () => {
  const memory = new MemoryStore()
  const batches: (readonly StoreChange[])[] = []
  const first = await peerOn(memory, batches)
  expect(await first.calls.sendTicks(params)).toEqual({ sent: [1_000, 2_000], isDrained: false })
  expect(await first.calls.sendTicks(params)).toEqual({ sent: [], isDrained: false })
  const kinds = batches.map((changes) => changes.map(({ record }) => record?.kind as string).sort())
  expect(kinds).toContainEqual(['tick', 'waiting', 'waiting', 'waiting', 'waiting'])
  await first.peer.close()
  const second = await peerOn(new MemoryStore(memory.records))
  expect(await second.calls.lastTicks(null)).toEqual({ s: 2_000 })
  expect(await second.calls.sendTicks(params)).toMatchObject({ sent: [] })
  expect(second.peer.pendingCount).toBe(4)
  await second.peer.close()
})
