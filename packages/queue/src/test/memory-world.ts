import type { MeshId, PeerKey, PeerNo } from '@sealpost/std'
import { MemoryDatabase, queueFor } from '../memory/index.ts'
import { type QueueWorld, textOf } from './conformance-world.ts'

export interface MemoryWorld extends QueueWorld {
  readonly store: MemoryDatabase
  /** Adds a member with this number. */
  addNumbered(meshId: MeshId, peerKey: PeerKey, peer: PeerNo): void
}

export function memoryWorld(): MemoryWorld {
  let nowMs = 1_700_000_000_000
  const store = new MemoryDatabase(() => nowMs)
  const bindingOf = (peer: PeerKey) => ({
    peer,
    boxKey: new Uint8Array(32),
    boxEpoch: 1,
    notAfterMs: 1_900_000_000_000,
    signature: new Uint8Array(64),
  })
  return {
    store,
    queueFor: (shard, options) => queueFor(store, shard, options),
    addMesh: async (meshId) => store.addMesh(meshId),
    addMember: async (meshId, peerKey) => store.addMember(meshId, bindingOf(peerKey)),
    addNumbered: (meshId, peerKey, peer) => store.addMember(meshId, bindingOf(peerKey), peer),
    setPool: async (meshId, poolId, { epoch, members }) => {
      const numbers = members.map((key) => store.findByKey(meshId, key)!.peer)
      store.setPool(meshId, poolId, { epoch, members: numbers })
    },
    setSpace: async (meshId, spaceId, { keepsMessages, members }) => {
      const numbers = members?.map((key) => store.findByKey(meshId, key)!.peer)
      store.setSpace(meshId, spaceId, { keepsMessages, members: numbers && new Set(numbers) })
    },
    keptMessages: async (meshId, spaceId) =>
      (store.eventsOf(meshId, spaceId) ?? []).map(({ seq, record, body }) => ({
        seq,
        record: textOf(record),
        body: textOf(body),
      })),
    revoke: async (meshId, peerKey) => store.revokeMember(meshId, store.findByKey(meshId, peerKey)!.peer),
    advance: async (byMs) => {
      nowMs += byMs
    },
    whileLocked: async (meshId, peer, body) => {
      store.lock(meshId, peer)
      await body()
      store.unlock(meshId, peer)
    },
    deadLetters: async () =>
      [...store.deadLetters]
        .sort((a, b) => a.id - b.id)
        .map(({ id, recipient, envelopeId, reason, detail, attempts, failedAttempts, envelope, isReported }) => ({
          ...{ id, recipient, envelopeId, reason, detail, attempts, failedAttempts, isReported },
          hasEnvelope: envelope !== null,
        })),
    bodyCount: async () => store.bodies.size,
    end: async () => undefined,
  }
}
