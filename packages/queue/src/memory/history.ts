/** `KEEP_MESSAGES` of `sql-kept.ts`. */
import type { Append } from '@sealpost/protocol'
import type { MeshId, PeerNo, SpaceId } from '@sealpost/std'
import { recordedMessagesOf } from '../postgres/commit-batch.ts'
import { bodyKey, type MemoryStore } from './store.ts'

/** An event of a space that is a message. */
export interface StoredMessage {
  readonly meshId: MeshId
  readonly spaceId: SpaceId
  /** From 1, in each space. */
  readonly seq: number
  readonly sender: PeerNo
  readonly bodyId: string
  readonly record: Uint8Array
  readonly body: Uint8Array
}

export function keepMessages(store: MemoryStore, appends: readonly Append[]): void {
  const messages = recordedMessagesOf(appends)
  if (messages.length === 0) return
  const queued = new Set([...store.deliveries()].map(bodyKey))
  for (const { meshId, spaceId, sender, bodyId, record } of messages) {
    const key = bodyKey({ meshId, sender, bodyId })
    const events = store.eventsOf(meshId, spaceId)
    if (
      !events ||
      !queued.has(key) ||
      !store.belongsTo(meshId, spaceId, sender) ||
      events.some((event) => bodyKey(event) === key)
    )
      continue
    const { bytes: body } = store.bodies.get(key)!
    events.push({ meshId, spaceId, seq: events.length + 1, sender, bodyId, record, body })
  }
}
