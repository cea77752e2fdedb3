/**
 * Measures proofs of a log of 100,000 statements: reading one from Postgres, verifying it, and its size as JSON. Run:
 * `bun apps/broker/src/mesh-log/mesh-logs.bench.ts [STATEMENTS]`
 */
import { startEmbedded } from '@sealpost/embedded-pg'
import { generateSigningKeys, ready } from '@sealpost/identity'
import { entryKindOf, entryLeaf, readCheckpoint, rootOfInclusion } from '@sealpost/identity/log'
import { openDatabase } from '@sealpost/pg'
import { migrate } from '@sealpost/schema'
import { type MeshId, toBase64url, toHex } from '@sealpost/std'
import { createMesh, listLogEntries } from '@sealpost/store'
import { type InclusionProof, MeshLogs, type SignedLog } from './mesh-logs.ts'

const STATEMENTS = Number(process.argv[2] ?? 100_000)
const RUNS = 2_000
const BATCH = 64
const meshId = '01'.repeat(16) as MeshId

await ready()
const server = await startEmbedded()
try {
  await migrate(server.url)
  const db = await openDatabase(server.url, { connections: 1, statementTimeoutMs: 600_000, queryTimeoutMs: 600_000 })
  await createMesh(db, { meshId, name: 'bench' })
  const startMs = performance.now()
  await db.run(
    (sql) => sql`select count(log_append(${meshId}, 8, sha256(int8send(n)))) from generate_series(1, ${STATEMENTS}) n`,
  )
  console.log(`append: ${((1000 * (performance.now() - startMs)) / STATEMENTS).toFixed(1)} µs on average`)
  await db.run((sql) => sql`analyze log_node`)
  const signing = generateSigningKeys()
  const logs = new MeshLogs(db, { ...signing, clusterKey: signing.publicKey, certificate: null })
  const { size, rootHash } = readCheckpoint(((await logs.checkpoint(meshId)) as SignedLog).checkpoint, meshId)!
  const leaves = await someLeaves()
  const proofs: InclusionProof[] = []
  for (const leaf of leaves)
    proofs.push(...((await logs.inclusion(meshId, { size, leaves: [leaf] })) as InclusionProof[]))
  await report('read one proof', leaves, (leaf) => logs.inclusion(meshId, { size, leaves: [leaf] }))
  const batches = Array.from({ length: RUNS / BATCH }, (_, at) => leaves.slice(at * BATCH, (at + 1) * BATCH))
  await report(`read ${BATCH} proofs in one request`, batches, (some) => logs.inclusion(meshId, { size, leaves: some }))
  await report('verify a proof', proofs, async ({ leaf, index, path }) => {
    const root = rootOfInclusion({ leaf: Buffer.from(leaf, 'hex'), index: index!, size, path })
    if (!root || toHex(root) !== toHex(rootHash)) throw new Error('a proof is wrong')
  })
  const sizes = proofs.map((proof) => JSON.stringify({ ...proof, path: toBase64url(Buffer.concat(proof.path)) }).length)
  console.log(`a proof as JSON: at most ${Math.max(...sizes)} bytes`)
  const sizesBefore = Array.from({ length: RUNS }, (_, n) => Math.ceil(((n + 1) * size) / RUNS))
  await report('read a consistency proof', sizesBefore, (from) => logs.consistency(meshId, { from, to: size }))
  await db.close()

  async function someLeaves(): Promise<string[]> {
    const all: string[] = []
    for (let n = 0; n < RUNS; n += 100) {
      const from = Math.floor((n / RUNS) * (STATEMENTS - 100))
      for (const { kind, statement } of await listLogEntries(db, meshId, { from, limit: 100 }))
        all.push(toHex(entryLeaf({ kind: entryKindOf(kind)!, statement })))
    }
    return all
  }
} finally {
  await server.stop()
}

/** Runs the work once for each item. Reports the median, and the minimum, which a busy machine affects least. */
async function report<T>(what: string, items: readonly T[], work: (item: T) => Promise<unknown>): Promise<void> {
  const times: number[] = []
  for (const item of items) {
    const startMs = performance.now()
    await work(item)
    times.push(1000 * (performance.now() - startMs))
  }
  times.sort((a, b) => a - b)
  console.log(`${what}: median ${times[times.length >> 1]!.toFixed(1)} µs, minimum ${times[0]!.toFixed(1)} µs`)
}
