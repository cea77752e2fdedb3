import type { Measured } from '@sealpost/protocol'
import type { PeerNo } from '@sealpost/std'
import { isReceipt } from './memory-rules.ts'
import type { MemoryStore } from './memory-store.ts'
import type { Recipient } from './queue.ts'

/** `MEASURE` of `sql-cold.ts`, for one recipient. */
export function measureIn(store: MemoryStore, { meshId, peer }: Recipient, max: number): Measured[] {
  const waiting = (store.find(meshId, peer)?.deliveries ?? []).filter((row) => !isReceipt(row))
  const delayed = store.delayed.filter((row) => row.meshId === meshId && row.recipient === peer)
  const found = new Map<PeerNo, { sender: PeerNo; count: number; bytes: number }>()
  for (const { sender, envelope, bodyId } of [...waiting.slice(0, max), ...delayed.slice(0, max)]) {
    const of = found.get(sender) ?? { sender, count: 0, bytes: 0 }
    const body = bodyId === null ? undefined : store.bodies.get(`${meshId} ${sender} ${bodyId}`)
    of.count += 1
    of.bytes += envelope.length + (body?.bytes.length ?? 0)
    found.set(sender, of)
  }
  return [...found.values()]
}
