/** Tests prepared sends: messages that an application stores in its own transactions on the broker's database. */
import { readPreparedSend, signPreparedSend } from '@sealpost/identity'
import { type Database, openDatabase } from '@sealpost/pg'
import { unhurried } from '@sealpost/pg/testing'
import { loginUrls } from '@sealpost/schema/testing-roles'
import { type PreparedMessage, prepareSend } from '@sealpost/sdk/prepare'
import type { EnvelopeId, MeshId } from '@sealpost/std'
import { test as base, expect, inject } from 'vitest'
import { keyOf, Member } from './member.ts'
import { until } from './process.ts'
import { World } from './world.ts'

const test = base.concurrent

/** An application with one connection, which may use nothing but the schema `sealpost`. */
class Application implements AsyncDisposable {
  readonly db: Database

  private constructor(db: Database) {
    this.db = db
  }

  static async open({ databaseUrl }: World): Promise<Application> {
    const { prefix } = inject('sealpostTestRoles')
    const url = loginUrls(databaseUrl, prefix).sender
    return new Application(await openDatabase(url, { ...unhurried, connections: 1, applicationName: 'application' }))
  }

  run(statement: string) {
    return this.db.run((sql) => sql.unsafe(statement).simple())
  }

  send({ literal }: Pick<PreparedMessage, 'literal'>) {
    return this.run(`select sealpost.send('${literal}')`)
  }

  async statusOf({ envelopeId }: { readonly envelopeId: EnvelopeId }): Promise<string> {
    const [row] = await this.db.run(
      (sql) =>
        sql<{ status: string; code: string | null }[]>`select status, code from sealpost.sent_status(${envelopeId})`,
    )
    return row!.code ? `${row!.status} ${row!.code}` : row!.status
  }

  async decided(message: { readonly envelopeId: EnvelopeId }): Promise<string> {
    return until('the request is decided', async () => {
      const status = await this.statusOf(message)
      return status.startsWith('queued') ? null : status
    })
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.db.close()
  }
}

/** Returns the SQLSTATE of an error, or `done`. */
const sqlstateOf = (statement: Promise<unknown>): Promise<string> =>
  statement.then(
    () => 'done',
    ({ sqlstate }: { sqlstate: string }) => sqlstate,
  )

test('a message commits with the transaction that stores it, and a rollback leaves nothing', async () => {
  await using world = await World.open()
  await using app = await Application.open(world)
  const [ada, ben] = await Member.enterMany(world, 2)
  const [kept, dropped, last] = [
    await prepareSend(ada.peer, keyOf(ben.place), 'kept', { receipts: 'end', thread: 'ab'.repeat(16) }),
    await prepareSend(ada.peer, keyOf(ben.place), 'dropped'),
    await prepareSend(ada.peer, keyOf(ben.place), 'last'),
  ]
  await app.run(`begin; select sealpost.send('${kept.literal}')`)
  expect(await app.statusOf(kept)).toBe('queued')
  expect(ben.texts).toEqual([])
  await app.run('commit')
  expect(await app.decided(kept)).toBe('stored')
  await app.run(`begin; select sealpost.send('${dropped.literal}'); rollback`)
  await ada.peer.send(keyOf(ben.place), 'over the socket')
  await app.send(last)
  await until('everything arrived', () => ben.texts.length === 3)
  expect(ben.texts).toEqual(['kept', 'over the socket', 'last'])
  expect(ben.received[0]).toMatchObject({ envelopeId: kept.envelopeId, thread: 'ab'.repeat(16) })
  await until('the receipt arrived', () => ada.events.find(({ type }) => type === 'receipt'))
  expect(await app.statusOf(dropped)).toBe('unknown')
  expect(ben.events.filter(({ type }) => type === 'gap')).toEqual([])
})
