import type { Measured } from '@sealpost/protocol'
import type { MeshId, PeerNo } from '@sealpost/std'
import type { Recipient } from '../queue.ts'
import { isReceipt } from './rules.ts'
import type { MemoryStore, StoredDeadLetter, StoredDelivery } from './store.ts'

/** `MEASURE` of `sql-cold.ts`, for one recipient. */
export function measureIn(store: MemoryStore, { meshId, peer }: Recipient, max: number): Measured[] {
  const waiting = (store.find(meshId, peer)?.deliveries ?? []).filter((row) => !isReceipt(row))
  const delayed = store.delayed.filter((row) => row.meshId === meshId && row.recipient === peer)
  return bySender(store, [...waiting.slice(0, max), ...delayed.slice(0, max)])
}

/** `MEASURE_MESH`. */
export function measureMeshIn(store: MemoryStore, meshId: MeshId, max: number): Measured[] {
  const waiting = [...store.deliveries()].filter((row) => row.meshId === meshId && !isReceipt(row))
  const delayed = store.delayed.filter((row) => row.meshId === meshId)
  const dead = store.deadLetters.filter((row) => row.meshId === meshId)
  return bySender(store, [...waiting.slice(0, max), ...delayed.slice(0, max), ...dead.slice(0, max)])
}

function bySender(store: MemoryStore, rows: readonly (StoredDelivery | StoredDeadLetter)[]): Measured[] {
  const found = new Map<PeerNo, { sender: PeerNo; count: number; bytes: number }>()
  for (const row of rows) {
    const of = found.get(row.sender) ?? { sender: row.sender, count: 0, bytes: 0 }
    of.count += 1
    of.bytes += bytesOf(store, row)
    found.set(row.sender, of)
  }
  return [...found.values()]
}

type Sized = Pick<StoredDeadLetter, 'meshId' | 'sender' | 'bodyId' | 'envelope'>

function bytesOf(store: MemoryStore, { meshId, sender, bodyId, envelope }: Sized): number {
  const body = bodyId === null ? undefined : store.bodies.get(`${meshId} ${sender} ${bodyId}`)
  return (envelope?.length ?? 0) + (body?.bytes.length ?? 0)
}
