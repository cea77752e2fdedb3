import { databaseOfFile } from '@sealpost/schema/testing'
import { type MeshId, toHex } from '@sealpost/std'
import { expect, test } from 'vitest'
import { newKey, newMeshOf, randomBinding, revokeMember } from '../test/members.ts'
import { addAccessToken, findAccessToken, revokeAccessToken } from './key-bindings.ts'

const db = await databaseOfFile({ connections: 2 })

const random = (bytes: number) => crypto.getRandomValues(new Uint8Array(bytes))
const DAY = 86_400

async function world() {
  const peerKey = newKey()
  const { meshId, owner } = await newMeshOf(db, [randomBinding(peerKey)])
  const { peer } = owner
  const token = { meshId, hash: random(32) }
  const add = (ttlSeconds = DAY, hash = token.hash, countMax = 10) =>
    addAccessToken(db, { meshId, hash, peer, ttlSeconds, countMax })
  const age = () => db.run((sql) => sql`update access_token set expires_at = now() where mesh_id = ${meshId}::uuid`)
  const count = async () => {
    const [row] = await db.run(
      (sql) => sql<{ n: number }[]>`select count(*)::int as n from access_token where mesh_id = ${meshId}::uuid`,
    )
    return row!.n
  }
  return { meshId, peer, peerKey, token, add, age, count }
}

test('a token is found by mesh and hash, with its remaining time', async () => {
  const { peer, peerKey, token, add } = await world()
  const fromMs = Date.now()
  const expiresAtMs = await add(60)
  // Process and server share a clock but round differently.
  expect(expiresAtMs! - 60_000).toBeGreaterThanOrEqual(fromMs - 100)
  expect(expiresAtMs! - 60_000).toBeLessThanOrEqual(Date.now() + 100)
  const found = await findAccessToken(db, token)
  expect(found).toMatchObject({ peer, peerKey })
  expect(found!.remainingMs).toBeGreaterThan(0)
  expect(found!.remainingMs).toBeLessThanOrEqual(60_000)
  expect(await findAccessToken(db, { ...token, meshId: toHex(random(16)) as MeshId })).toBeUndefined()
  expect(await findAccessToken(db, { ...token, hash: random(32) })).toBeUndefined()
})

test('a token that expired, was revoked, or belongs to a revoked peer is not found', async () => {
  const [over, revoked, expelled] = [await world(), await world(), await world()]
  for (const { add } of [over, revoked, expelled]) await add()
  await over.age()
  await revokeAccessToken(db, revoked.token)
  await revokeMember(db, expelled.meshId, expelled.peerKey)
  for (const { token } of [over, revoked, expelled]) expect(await findAccessToken(db, token)).toBeUndefined()
})

test('a peer has a limit of valid tokens, and expired ones are deleted', async () => {
  const { token, add, age, count } = await world()
  expect(await add(DAY, token.hash, 1)).not.toBeNull()
  expect(await add(DAY, random(32), 1)).toBeNull()
  await revokeAccessToken(db, token)
  expect(await add(DAY, random(32), 1)).not.toBeNull()
  await age()
  expect(await add(DAY, random(32), 1)).not.toBeNull()
  expect(await count()).toBe(1)
})
