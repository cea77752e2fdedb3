/** What a run may be measured against: the same peers, the same protocol, another way with envelopes behind it. */
import { join } from 'node:path'
import type { BrokerAddress, MeshMembers } from '@sealpost/harness/members/mesh'
import { Child } from '@sealpost/harness/programs/child'
import { postmasterOf } from '@sealpost/harness/programs/process-facts'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { generateSigningKeys, ready } from '@sealpost/identity'
import { toHex } from '@sealpost/std'
import { YARDSTICK_NAMES, type Yardstick } from '../command/command.ts'
import { openPostgres } from './cells.ts'
import { LoadDatabase } from './database.ts'
import type { RunTarget } from './environment.ts'
import type { FrontSetup } from './front.ts'

const FILES: Readonly<Record<Yardstick, string>> = { relay: 'relay.ts', 'plain-sql': 'plain-queue.ts' }

export interface YardstickSetup {
  readonly against: Yardstick
  readonly mesh: MeshMembers
  /** Words for Bun. */
  readonly words: readonly string[]
  readonly databaseUrl: string | undefined
  readonly tell: (step: string) => void
}

/** It knows the mesh from the start; there is nothing to seed. */
export async function openYardstick(
  setup: YardstickSetup,
  teardown: Teardown,
): Promise<RunTarget & { stop(): Promise<void> }> {
  const { against, mesh, words } = setup
  const storage = against === 'relay' ? null : await openStorage(setup, teardown)
  await ready()
  const signingSeed = toHex(generateSigningKeys().secretKey.subarray(0, 32))
  const name = `The yardstick (${YARDSTICK_NAMES[against]})`
  const child = new Child<FrontSetup, BrokerAddress>(name, join(import.meta.dirname, FILES[against]), words)
  const stopChild = teardown.add({ end: () => child.stop(), kill: () => child.kill() })
  child.send({ signingSeed, meshId: mesh.meshId, bindings: mesh.bindings, databaseUrl: storage?.url ?? null })
  const place = await child.nextReply((answer): answer is BrokerAddress => 'url' in answer)
  return {
    shards: [{ ...place, pid: child.pid, adminUrl: null }],
    postmasterPids: storage?.postmasterPids ?? [],
    databases: null,
    failed: child.died,
    stop: async () => {
      await stopChild()
      await storage?.stop()
    },
  }
}

async function openStorage(setup: YardstickSetup, teardown: Teardown) {
  const postgres = await openPostgres(setup, teardown)
  const database = await LoadDatabase.open(postgres.url)
  const { backendPid } = await database.facts()
  const postmasterPid = postmasterOf(backendPid)
  await database.close()
  return {
    url: postgres.url,
    postmasterPids: postmasterPid === null ? [] : [postmasterPid],
    stop: () => postgres.stop(),
  }
}
