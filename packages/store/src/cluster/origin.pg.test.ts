import { databaseOfFile } from '@sealpost/schema/testing'
import type { EnvelopeId, MeshId, PeerKey, PeerNo, ShardId } from '@sealpost/std'
import { beforeEach, expect, test } from 'vitest'
import {
  type AckedEnvelope,
  attestOrigin,
  awaitOrigin,
  type BrokerCheckpoint,
  currentIncarnation,
  parseOrigin,
  SELECT_ORIGIN,
} from './origin.ts'
import { removeShard, renewShardLease } from './shards.ts'

const db = databaseOfFile({ connections: 3 })
const [FIRST, SECOND] = ['a1'.repeat(16), 'b2'.repeat(16)] as [ShardId, ShardId]
const PATIENT = 60_000
const MESH = '11'.repeat(16) as MeshId
const ENVELOPE = '22'.repeat(16) as EnvelopeId
let served: string

const run = async (text: string) => (await db).run((sql) => sql.unsafe(text))
const numberOf = async (text: string) => Number((await run(text))[0]?.n)

/** Simulates a promotion: records an older timeline than the server's. */
const promote = () => run(`update cluster set origin = split_part(database_origin(), '/', 1) || '/00000000'`)

async function leased(shardId: ShardId): Promise<BrokerCheckpoint> {
  const self = { name: shardId, shardId, url: null, brokerKey: 'c3'.repeat(32) as PeerKey, certificate: null }
  const { leaseUntil } = await renewShardLease(await db, self, { leaseMs: 60_000, isNew: true })
  return { shard: shardId, leaseUntil, acknowledged: [] }
}

const attest = async (acts: BrokerCheckpoint, patienceMs = PATIENT) =>
  attestOrigin(await db, { checkpoint: acts, former: served, patienceMs })

beforeEach(async () => {
  for (const table of ['shard', 'dedupe_ledger']) await run(`delete from ${table}`)
  served = await currentIncarnation(await db)
})

test('the only broker finds its last renewal: the incarnation stays, and ids continue after a large gap', async () => {
  const acts = await leased(FIRST)
  await promote()
  const before = await numberOf(`select nextval('delivery_block')::float8 as n`)
  const verdict = await attest(acts)
  expect(verdict).toMatchObject({ is: 'decided', incarnation: served })
  expect(await numberOf(`select nextval('delivery_block')::float8 as n`)).toBeGreaterThan(before + 1_000_000)
  const [row] = await (await db).run((sql) => sql.unsafe(SELECT_ORIGIN).values())
  expect({ is: 'decided', ...parseOrigin(row as string[]) }).toEqual(verdict)
})

test('the verdict waits for every broker that was alive', async () => {
  const [first, second] = [await leased(FIRST), await leased(SECOND)]
  await promote()
  expect(await attest(first)).toEqual({ is: 'waiting' })
  expect(await attest(first)).toEqual({ is: 'waiting' })
  expect(await attest(second)).toMatchObject({ is: 'decided', incarnation: served })
  expect(await attest(first)).toMatchObject({ is: 'decided', incarnation: served })
})

test('a broker that attests too late ends the incarnation', async () => {
  const [first] = [await leased(FIRST), await leased(SECOND)]
  await promote()
  expect(await attest(first)).toEqual({ is: 'waiting' })
  const verdict = await attest(first, 0)
  expect(verdict).toMatchObject({ is: 'decided' })
  expect(verdict).not.toMatchObject({ incarnation: served })
})

test('the verdict does not wait for a broker that left or stopped renewing long before', async () => {
  const first = await leased(FIRST)
  await leased(SECOND)
  await run(`update shard set lease_until = lease_until - interval '20 seconds' where name = '${SECOND}'`)
  await promote()
  expect(await attest(first)).toMatchObject({ is: 'decided', incarnation: served })
  await leased(SECOND)
  await removeShard(await db, { name: SECOND, shardId: SECOND })
  await promote()
  expect(await attest(first)).toMatchObject({ is: 'decided', incarnation: served })
})

test('if the server has lost a renewal, the incarnation ends at once for all brokers', async () => {
  const [first, second] = [await leased(FIRST), await leased(SECOND)]
  await promote()
  const verdict = await attest({ ...first, leaseUntil: `${Number(first.leaseUntil) + 1}` })
  expect(verdict).toMatchObject({ is: 'decided' })
  expect(verdict).not.toMatchObject({ incarnation: served })
  expect(await attest(second)).toEqual(verdict)
})

test('a broker that missed the verdict and lost a commit ends the incarnation that the others kept', async () => {
  const first = await leased(FIRST)
  await promote()
  expect(await attest(first)).toMatchObject({ incarnation: served })
  const late = await attest({ shard: SECOND, leaseUntil: '4000000000', acknowledged: [] })
  expect(late).not.toMatchObject({ incarnation: served })
  expect(await attest(first)).toEqual(late)
})

test.each<[string, (acked: AckedEnvelope) => AckedEnvelope[] | null, boolean]>([
  ['an envelope that the ledger has', (acked) => [acked], true],
  ['one that it has and one that it does not have', (acked) => [acked, { ...acked, sender: 8 as PeerNo }], false],
  ['another envelope of the same second', (acked) => [{ ...acked, envelopeId: '33'.repeat(16) as EnvelopeId }], false],
  ['more than the broker remembers', () => null, false],
])('acknowledged was %s', async (_, acknowledgedOf, isKept) => {
  await run(`insert into mesh (mesh_id, name) values ('${MESH}', 'm') on conflict do nothing`)
  await run(`insert into dedupe_ledger (mesh_id, sender, second, first_id, keep_until, envelope_ids, fingerprints, ids,
    recipients, priorities) values ('${MESH}', 7, 5, 1, now(), '{${ENVELOPE}}', '{1}', '{1}', '{9}', '{1}')`)
  const acts = await leased(FIRST)
  await promote()
  const acknowledged = acknowledgedOf({ meshId: MESH, sender: 7 as PeerNo, second: 5, envelopeId: ENVELOPE })
  const verdict = await attest({ ...acts, acknowledged })
  if (isKept) expect(verdict).toMatchObject({ incarnation: served })
  else expect(verdict).not.toMatchObject({ incarnation: served })
})

test('another system never keeps the incarnation', async () => {
  const acts = await leased(FIRST)
  await run(`update cluster set origin = 'elsewhere/00000001'`)
  expect(await attest(acts)).not.toMatchObject({ incarnation: served })
})

test('a starting broker leaves the verdict to running ones', async () => {
  const first = await leased(FIRST)
  await promote()
  const starting = awaitOrigin(await db, SECOND, PATIENT)
  await expect.poll(() => numberOf(`select count(candidate) as n from cluster`)).toBe(1)
  expect(await attest(first)).toMatchObject({ incarnation: served })
  expect(await starting).toMatchObject({ incarnation: served })
})

test('the first broker of a database begins a new incarnation', async () => {
  await promote()
  expect(await awaitOrigin(await db, FIRST, PATIENT)).not.toMatchObject({ incarnation: served })
})

test('a server without a verdict has no origin', async () => {
  await promote()
  const [row] = await (await db).run((sql) => sql.unsafe(SELECT_ORIGIN).values())
  expect(parseOrigin(row as string[])).toBeNull()
  expect(parseOrigin([null, null, served])).toBeNull()
})
