/** Where an attack takes place: a Postgres, a broker with its limits on, a mesh and its members. */
import { HistoryFixture } from '@sealpost/harness/members/history-fixture'
import { enrolMesh, generateMesh, identityOf } from '@sealpost/harness/members/mesh'
import { openOwnDatabase } from '@sealpost/harness/postgres/own-postgres'
import { startOwnBroker } from '@sealpost/harness/programs/own-broker'
import type { Teardown } from '@sealpost/harness/programs/teardown'
import type { Identity } from '@sealpost/identity'
import type { MeshId } from '@sealpost/std'
import type { AttackTarget } from './attacks.ts'

/** More than sockets buffer: a replay of it lasts as long as its reader likes. */
export const HISTORY = { entries: 10_000, bytes: 20_000_000, events: 10_000 }

export interface StageMember {
  readonly identity: Identity
}

export interface AttackStage {
  readonly target: AttackTarget
  readonly brokerPid: number
  readonly honest: readonly StageMember[]
  readonly hostile: readonly StageMember[]
}

interface StageOptions {
  readonly hasHistory: boolean
  readonly env: Readonly<Record<string, string>>
  readonly honest: number
  readonly hostile: number
}

/** One database for all attacks of a run. */
let database: Promise<string> | undefined

export async function openStage(
  { env, honest, hostile, hasHistory }: StageOptions,
  teardown: Teardown,
): Promise<AttackStage> {
  database ??= openOwnDatabase(teardown)
  const databaseUrl = await database
  const broker = await startOwnBroker({ databaseUrl, env: { LIMITS: 'on', ...env } }, teardown)
  const mesh = await generateMesh(honest + hostile)
  const { meshId } = mesh
  await enrolMesh(databaseUrl, mesh, `attack ${meshId}`)
  const members = mesh.secrets.map((keys) => ({ identity: identityOf(keys) }))
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
  const fixture = await HistoryFixture.open(databaseUrl)
  try {
    await fixture.createPartitions()
    await fixture.fillSpaceOf({ meshId }, HISTORY)
  } finally {
    await fixture.close()
  }
}
