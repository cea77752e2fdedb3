/** Where an attack takes place: a Postgres, a broker with its limits on, a mesh and its members. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { startEmbedded } from '@sealpost/embedded-pg'
import { HistoryFixture } from '@sealpost/harness/members/history-fixture'
import { startOwnBroker } from '@sealpost/harness/programs/own-broker'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import { bindBoxKey, generateIdentity, generateSigningKeys, type Identity, ready } from '@sealpost/identity'
import { writeKeyFile } from '@sealpost/identity/key-file'
import { openDatabase } from '@sealpost/pg'
import { migrate } from '@sealpost/schema'
import { type MeshId, toHex } from '@sealpost/std'
import { addMembers, createMesh } from '@sealpost/store'
import type { Target } from './attack.ts'

const DAY_MS = 86_400_000
/** More than sockets hold by themselves: a replay of it lasts as long as its reader likes. */
export const HISTORY = { entries: 10_000, bytes: 20_000_000, events: 10_000 }

export interface Member {
  readonly identity: Identity
}

export interface Stage {
  readonly target: Target
  readonly brokerPid: number
  readonly honest: readonly Member[]
  readonly hostile: readonly Member[]
}

export interface StageOptions {
  readonly hasHistory: boolean
  readonly env: Readonly<Record<string, string>>
  readonly honest: number
  readonly hostile: number
}

export async function openStage(
  { env, honest, hostile, hasHistory }: StageOptions,
  teardown: Teardown,
): Promise<Stage> {
  await ready()
  const databaseUrl = process.env.DATABASE_URL || (await embeddedUrl(teardown))
  await migrate(databaseUrl)
  const folder = await mkdtemp(join(tmpdir(), 'sealpost-attack-'))
  teardown.add({ end: () => rm(folder, { recursive: true, force: true }) })
  const keyFile = join(folder, 'broker.json')
  await writeKeyFile(keyFile, { kind: 'broker', signing: generateSigningKeys() })
  const settings = { BROKER_KEY_FILE: keyFile, LIMITS: 'on', ...env }
  const broker = await startOwnBroker({ databaseUrl, env: settings }, teardown)
  const { meshId, members } = await enrol(databaseUrl, honest + hostile)
  if (hasHistory) await fillHistory(databaseUrl, meshId)
  const { url, httpUrl, brokerKey } = broker
  return {
    target: { url, httpUrl, brokerKey, meshId },
    brokerPid: broker.pid,
    honest: members.slice(0, honest),
    hostile: members.slice(honest),
  }
}

async function fillHistory(databaseUrl: string, meshId: MeshId): Promise<void> {
  const ground = await HistoryFixture.open(databaseUrl)
  try {
    await ground.createPartitions()
    await ground.fillSpaceOf({ meshId }, HISTORY)
  } finally {
    await ground.close()
  }
}

let embedded: Promise<string> | undefined

/** One for all attacks of a run. */
function embeddedUrl(teardown: Teardown): Promise<string> {
  embedded ??= teardown
    .starting(startEmbedded(), (started) => ({ end: () => started.stop(), kill: () => started.kill() }))
    .then(({ url }) => url)
  return embedded
}

async function enrol(databaseUrl: string, count: number): Promise<{ meshId: MeshId; members: Member[] }> {
  const meshId = toHex(crypto.getRandomValues(new Uint8Array(16))) as MeshId
  const identities = Array.from({ length: count }, generateIdentity)
  const db = await openDatabase(databaseUrl, { connections: 1 })
  try {
    await createMesh(db, { meshId, name: `attack ${meshId}` })
    const bindings = identities.map((identity) => bindBoxKey(identity, meshId, Date.now() + DAY_MS))
    await addMembers(db, meshId, bindings)
  } finally {
    await db.close()
  }
  return { meshId, members: identities.map((identity) => ({ identity })) }
}
