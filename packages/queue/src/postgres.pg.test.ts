import { afterAll, beforeAll } from 'vitest'
import { queueConformance } from './conformance.ts'
import { type PostgresWorlds, postgresWorlds } from './testing-postgres.ts'

let worlds: PostgresWorlds

beforeAll(async () => {
  worlds = await postgresWorlds()
})
afterAll(() => worlds.close())

queueConformance('postgres', () => worlds.next())
