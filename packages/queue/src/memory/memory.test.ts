import { queueConformance } from '../test/conformance.ts'
import { memoryWorld } from '../test/memory-world.ts'

queueConformance('memory', async () => memoryWorld())
