import { busConformance } from './conformance.ts'
import { MemoryHub } from './memory.ts'

busConformance('memory', async () => {
  const hub = new MemoryHub()
  return {
    join: (shard) => hub.join(shard),
    say: async (topic, bytes) => hub.carry(topic, bytes),
    topicOf: (meshId) => meshId,
    end: async () => undefined,
  }
})
