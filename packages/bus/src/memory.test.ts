import { MemoryHub } from './memory.ts'
import { busConformance } from './test/conformance.ts'

busConformance('memory', async () => {
  const hub = new MemoryHub()
  return {
    join: (shard) => hub.join(shard),
    send: async (topic, bytes) => hub.deliver(topic, bytes),
    topicOf: (meshId) => meshId,
    end: async () => undefined,
  }
})
