import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { isChosenName, type MeshId, type PeerKey, toHex } from '@sealpost/std'
import { expect, test } from 'vitest'
import { addMembers, createMesh } from './admin.ts'
import { databaseOfFile, randomBinding } from './testing.ts'

const db = await databaseOfFile()
const MIGRATION = readFileSync(join(import.meta.dirname, '../migrations/0028_tidy_names.sql'), 'utf8')

test('the migration gives every member a tidy name that no other one has, and leaves devices alone', async () => {
  const meshId = toHex(randomBytes(16)) as MeshId
  await createMesh(db, { meshId, name: 'old' })
  const names = ['bob', 'bob  ', 'bob (you)', '  Ann', '--rf', 'ab'.repeat(32), 'a,b', 'a*b', 'x'.repeat(64), '   ']
  const keys = names.map(() => toHex(randomBytes(32)) as PeerKey)
  const numbers = await addMembers(db, meshId, keys.map(randomBinding))
  for (const [i, name] of names.entries())
    await db.run((sql) => sql`update member set name = ${name} where mesh_id = ${meshId} and peer_no = ${numbers[i]!}`)
  await db.run(
    (sql) => sql`update member set name = 'bob/my (old) phone', person = ${numbers[0]!}
    where mesh_id = ${meshId} and peer_no = ${numbers[9]!}`,
  )
  await db.run((sql) => sql.unsafe(MIGRATION))
  const rows = await db.run(
    (sql) => sql<{ name: string }[]>`select name from member where mesh_id = ${meshId} order by peer_no`,
  )
  const tidy = rows.map(({ name }) => name)
  expect(tidy.slice(0, 5)).toEqual(['bob', `bob-${keys[1]!.slice(0, 8)}`, 'bob _you_', 'Ann', '_-rf'])
  expect(tidy[5]).toBe(`${'ab'.repeat(32).slice(0, 55)}-${keys[5]!.slice(0, 8)}`)
  expect(tidy.slice(6, 8)).toEqual(['a_b', `a_b-${keys[7]!.slice(0, 8)}`])
  expect(tidy.slice(8)).toEqual(['x'.repeat(64), 'bob/my (old) phone'])
  expect(tidy.slice(0, 9).every(isChosenName)).toBe(true)
})
