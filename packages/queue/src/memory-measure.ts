import type { Measured } from '@sealpost/protocol'
import type { MeshId, PeerNo } from '@sealpost/std'
import { isReceipt } from './memory-rules.ts'
import type { MemoryStore, StoredDelivery } from './memory-store.ts'
import type { Amount, Recipient } from './queue.ts'

/** `MEASURE` of `sql-cold.ts`, for one recipient. */
export function measureIn(store: MemoryStore, { meshId, peer }: Recipient, max: number): Measured[] {
  const waiting = (store.find(meshId, peer)?.deliveries ?? []).filter((row) => !isReceipt(row))
  const delayed = store.delayed.filter((row) => row.meshId === meshId && row.recipient === peer)
  const found = new Map<PeerNo, { sender: PeerNo; count: number; bytes: number }>()
  for (const row of [...waiting.slice(0, max), ...delayed.slice(0, max)]) {
    const of = found.get(row.sender) ?? { sender: row.sender, count: 0, bytes: 0 }
    of.count += 1
    of.bytes += bytesOf(store, row)
    found.set(row.sender, of)
  }
  return [...found.values()]
}

/** `MEASURE_MESH`. */
export function measureMeshIn(store: MemoryStore, meshId: MeshId, max: number): Amount {
  const waiting = [...store.deliveries()].filter((row) => row.meshId === meshId && !isReceipt(row))
  const delayed = store.delayed.filter((row) => row.meshId === meshId)
  const seen = [...waiting.slice(0, max), ...delayed.slice(0, max)]
  return { count: seen.length, bytes: seen.reduce((sum, row) => sum + bytesOf(store, row), 0) }
}

function bytesOf(store: MemoryStore, { meshId, sender, bodyId, envelope }: StoredDelivery): number {
  const body = bodyId === null ? undefined : store.bodies.get(`${meshId} ${sender} ${bodyId}`)
  return envelope.length + (body?.bytes.length ?? 0)
}
