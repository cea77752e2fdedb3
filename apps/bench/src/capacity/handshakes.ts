/** What a peer costs that connects: CPU of the broker and of Postgres, from the upgrade to its first claim. */

import { startOwnBroker } from '@sealpost/harness/programs/own-broker'
import { postgresFacts, processFacts } from '@sealpost/harness/programs/process-facts'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { bindBoxKey, generateIdentity, generateSigningKeys, ready } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { openDatabase } from '@sealpost/pg'
import { connect } from '@sealpost/sdk'
import { assert, type MeshId, toHex } from '@sealpost/std'
import { addMembers, createMesh } from '@sealpost/store'
import type { Sizes } from './figures.ts'

/** The first ones pay for compiling the broker's code. */
const WARMING = 300
const MEASURED = 1000
const AT_ONCE = 16
const DAY_MS = 86_400_000

interface Place {
  readonly databaseUrl: string
  readonly postmaster: number
  /** For the broker's key; it is there and goes with the run. */
  readonly folder: string
}

export async function measureHandshakes(place: Place, teardown: Teardown): Promise<Sizes['handshake']> {
  await ready()
  const { databaseUrl, postmaster, folder } = place
  const keyFile = `${folder}/broker.json`
  await writeKeyFile(keyFile, { kind: 'broker', signing: generateSigningKeys() })
  const env = { BROKER_KEY_FILE: keyFile, LIMITS: 'off' }
  const broker = await startOwnBroker({ databaseUrl, env }, teardown)
  const { meshId, identities } = await enrol(databaseUrl)
  const cpu = () => {
    const [own, server] = [processFacts(broker.pid), postgresFacts(postmaster)]
    assert(own !== null && server !== null, 'the system tells what both programs used')
    return { broker: own.cpuSeconds, postgres: server.cpuSeconds }
  }
  const { url, brokerKey } = broker
  const visit = (some: typeof identities) =>
    inTurns(some, async (identity) => {
      const peer = await connect({ url, brokerKey, meshId, identity })
      await peer.close()
    })
  await visit(identities.slice(0, WARMING))
  const before = cpu()
  await visit(identities.slice(WARMING))
  const after = cpu()
  return {
    brokerUs: ((after.broker - before.broker) * 1e6) / MEASURED,
    postgresUs: ((after.postgres - before.postgres) * 1e6) / MEASURED,
  }
}

async function enrol(databaseUrl: string) {
  const meshId = toHex(crypto.getRandomValues(new Uint8Array(16))) as MeshId
  const identities = Array.from({ length: WARMING + MEASURED }, generateIdentity)
  const db = await openDatabase(databaseUrl, { connections: 1 })
  try {
    await createMesh(db, { meshId, name: 'handshakes' })
    const bindings = identities.map((identity) => bindBoxKey(identity, meshId, Date.now() + DAY_MS))
    await addMembers(db, meshId, bindings)
  } finally {
    await db.close()
  }
  return { meshId, identities }
}

async function inTurns<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const waiting = [...items]
  const next = async (): Promise<void> => {
    for (let item = waiting.shift(); item; item = waiting.shift()) await work(item)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, next))
}
