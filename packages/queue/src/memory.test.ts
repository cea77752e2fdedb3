import { queueConformance } from './conformance.ts'
import { memoryWorld } from './testing-memory.ts'

queueConformance('memory', async () => memoryWorld())
