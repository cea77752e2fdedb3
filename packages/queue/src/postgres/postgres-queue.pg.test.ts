import { afterAll, beforeAll } from 'vitest'
import { queueConformance } from '../test/conformance.ts'
import { type PostgresWorlds, postgresWorlds } from '../test/postgres-world.ts'

let worlds: PostgresWorlds

beforeAll(async () => {
  worlds = await postgresWorlds()
})
afterAll(() => worlds.close())

queueConformance('postgres', () => worlds.next())
