/** For tests: brokers that are shared by the tests of a file. */
import { afterAll } from 'vitest'
import type { Environment } from './process.ts'
import { World } from './world.ts'

/**
 * Returns a function that opens a world with its own mesh, on one broker and database per environment. A test that
 * looks beyond its mesh, reads the broker's counters or stops the broker must open its own world instead.
 */
export function sharedWorlds(): (env?: Environment) => Promise<World> {
  const hosts = new Map<string, Promise<World>>()
  afterAll(async () => {
    for (const host of hosts.values()) await (await host)[Symbol.asyncDispose]()
  })
  return async (env = {}) => {
    const name = JSON.stringify(env)
    const host = hosts.get(name) ?? World.open(env)
    hosts.set(name, host)
    host.catch(() => hosts.delete(name)) // the next test tries again
    return (await host).inNewMesh()
  }
}
