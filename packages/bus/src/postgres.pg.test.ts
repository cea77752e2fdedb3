import { openDatabase } from '@sealpost/db'
import { scratchDatabase, unhurried } from '@sealpost/db/testing'
import { toBase64url } from '@sealpost/std'
import { busConformance } from './conformance.ts'
import { GatheredBus } from './gathered-bus.ts'
import { postgresTopicOf, postgresWire } from './postgres.ts'

busConformance('postgres', async () => {
  const scratch = await scratchDatabase()
  const db = await openDatabase(scratch.url, { connections: 1, ...unhurried })
  return {
    join: (shard) => new GatheredBus({ shard, open: postgresWire(scratch.url) }),
    say: async (topic, bytes) => {
      await db.run((sql) => sql`select pg_notify(${topic}, ${toBase64url(bytes)})`)
    },
    topicOf: postgresTopicOf,
    cut: async () => {
      await db.run(
        (sql) => sql`
          select pg_terminate_backend(pid) from pg_stat_activity
          where application_name = 'sealpost bus' and datname = current_database()`,
      )
    },
    end: async () => {
      await db.close()
      await scratch.drop()
    },
  }
})
