import { openDatabase } from '@sealpost/pg'
import { unhurried } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import { toBase64url } from '@sealpost/std'
import { BatchingBus } from './bus.ts'
import { postgresTopicOf, postgresTransport } from './postgres.ts'
import { busConformance } from './test/conformance.ts'

busConformance('postgres', async () => {
  const scratch = await scratchDatabase()
  const db = await openDatabase(scratch.url, { connections: 1, ...unhurried })
  return {
    join: (shard) => new BatchingBus({ shard, open: postgresTransport(scratch.url) }),
    send: async (topic, bytes) => {
      await db.run((sql) => sql`select pg_notify(${topic}, ${toBase64url(bytes)})`)
    },
    topicOf: postgresTopicOf,
    disconnect: async () => {
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
