/** Declares the tests that every `Queue` must pass, with `queueConformance('memory', makeWorld)`. */
import { afterEach, beforeEach, describe } from 'vitest'
import { collectTests } from './conformance-collect.ts'
import { commitTests } from './conformance-commit.ts'
import { keptTests } from './conformance-history.ts'
import { leaseTests } from './conformance-lease.ts'
import { poolTests } from './conformance-pools.ts'
import { sweepTests } from './conformance-sweep.ts'
import { termsTests } from './conformance-terms.ts'
import { type QueueWorld, Stage } from './conformance-world.ts'

export * from './conformance-world.ts'

export function queueConformance(name: string, makeWorld: () => Promise<QueueWorld>): void {
  describe(`a queue (${name})`, () => {
    let world: QueueWorld
    let stage: Stage
    beforeEach(async () => {
      world = await makeWorld()
      stage = await Stage.open(world)
    })
    afterEach(() => world.end())
    commitTests(() => stage)
    leaseTests(() => stage)
    collectTests(() => stage)
    sweepTests(() => stage)
    termsTests(() => stage)
    poolTests(() => stage)
    keptTests(() => stage)
  })
}
