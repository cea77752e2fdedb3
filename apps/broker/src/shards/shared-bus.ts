/** One bus for several parts of a broker that follow meshes independently: the last one unfollows. */
import type { Bus } from '@sealpost/bus'
import type { MeshId } from '@sealpost/std'

export function sharedBus(bus: Bus): Bus {
  const counts = new Map<MeshId, number>()
  const change = (meshId: MeshId, by: number): number => {
    const count = (counts.get(meshId) ?? 0) + by
    if (count > 0) counts.set(meshId, count)
    else counts.delete(meshId)
    return count
  }
  return {
    counters: bus.counters,
    get isUp() {
      return bus.isUp
    },
    get replyMs() {
      return bus.replyMs
    },
    publish: (hint) => bus.publish(hint),
    follow: (meshId) => {
      if (change(meshId, 1) === 1) bus.follow(meshId)
    },
    unfollow: (meshId) => {
      if (change(meshId, -1) === 0) bus.unfollow(meshId)
    },
    subscribe: (listener) => bus.subscribe(listener),
    close: () => bus.close(),
  }
}
