import type { SessionRef, SessionStatus } from '@sealpost/protocol'
import type { ShardId } from '@sealpost/std'
import type { MemoryStore } from './store.ts'

/** `STANDINGS` of `sql-cold.ts`, for one session. */
export function standingIn(store: MemoryStore, shard: ShardId, { meshId, peer, epoch }: SessionRef): SessionStatus {
  const member = store.find(meshId, peer)
  if (!member) return { peerKey: null, isRevoked: false, isElsewhere: false }
  const { binding, isRevoked, session } = member
  return { peerKey: binding.peer, isRevoked, isElsewhere: session.epoch > epoch && session.shard !== shard }
}
