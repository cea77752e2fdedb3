/** Tests the preparation of a database for brokers, on a separate server, because roles belong to the server. */
import { type EmbeddedPostgres, startEmbedded } from '@sealpost/embedded-pg'
import { openDatabase } from '@sealpost/pg'
import { unhurried } from '@sealpost/pg/testing'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { prepareDatabase } from './roles.ts'

let server: EmbeddedPostgres
const urlOf = (user: string, password: string) => {
  const url = new URL(server.url)
  url.username = user
  url.password = encodeURIComponent(password)
  return url.href
}

beforeAll(async () => {
  server = await startEmbedded()
})
afterAll(() => server.stop())

const sqlstateOf = async (url: string, statement: string) => {
  const db = await openDatabase(url, { ...unhurried, connections: 1 })
  return db
    .run((sql) => sql.unsafe(statement))
    .then(
      () => 'done',
      (error) => error.sqlstate,
    )
    .finally(() => db.close())
}

test('several callers at once create tables, roles and logins, and a repeat changes the passwords', async () => {
  for (const password of ['first: pass/word@', 'second']) {
    const logins = [
      { role: 'broker', url: urlOf('broker', password) },
      { role: 'admin', url: urlOf('operator', password) },
      { role: 'sender', url: urlOf('shop', password) },
    ] as const
    await Promise.all([prepareDatabase(server.url, logins), prepareDatabase(server.url, logins)])
    expect(await sqlstateOf(logins[0].url, 'select from message_queue')).toBe('done')
    expect(await sqlstateOf(logins[0].url, 'drop table message_queue')).toBe('42501')
    expect(await sqlstateOf(logins[0].url, "insert into mesh values (gen_random_uuid(), 'mine')")).toBe('42501')
    expect(await sqlstateOf(logins[1].url, "insert into mesh values (gen_random_uuid(), 'home')")).toBe('done')
    expect(await sqlstateOf(logins[1].url, 'drop table message_queue')).toBe('42501')
    expect(await sqlstateOf(logins[2].url, "select sealpost.send('')")).toBe('SP400')
    expect(await sqlstateOf(logins[2].url, 'select from public.prepared_send')).toBe('42501')
  }
  await expect(openDatabase(urlOf('broker', 'first: pass/word@'), unhurried)).rejects.toThrow('refused the password')
})

test.each([
  ['sealpost', 'word', 'must not use the account that owns the database'],
  ['broker', '', 'must have a password'],
  ['bro"ker', 'word', 'must have a user name'],
])('a login %s is refused: %#', async (user, password, sentence) => {
  const logins = [{ role: 'broker', url: urlOf(user, password) }] as const
  await expect(prepareDatabase(server.url, logins)).rejects.toThrow(sentence)
})
