/** Provides the tests of a file with shared brokers. */
import { afterAll } from 'vitest'
import type { Environment } from './process.ts'
import { World } from './world.ts'

/**
 * Returns a function that opens a new mesh on a broker per environment. Tests that look beyond their mesh or stop the
 * broker need their own world.
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
