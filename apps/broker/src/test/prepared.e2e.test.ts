/** Tests prepared sends: messages that an application stores in its own transactions on the broker's database. */
import { generateBoxKeys, generateIdentity, readPreparedSend, signPreparedSend } from '@sealpost/identity'
import { type Database, openDatabase } from '@sealpost/pg'
import { unhurried } from '@sealpost/pg/testing'
import { loginUrls } from '@sealpost/schema/testing-roles'
import { connect } from '@sealpost/sdk'
import { type PreparedMessage, type PrepareOptions, prepareSend } from '@sealpost/sdk/prepare'
import { type EnvelopeId, seededRandom, toHex } from '@sealpost/std'
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

test('a request that a broker refuses is recorded with a code, and nothing is delivered', async () => {
  await using world = await World.open({ ENVELOPE_BYTES_MAX: '2000' })
  await using app = await Application.open(world)
  const [ada, ben, eve] = await Member.enterMany(world, 3)
  const foreigner = await Member.enter(world, await world.enrol(await world.mesh()))
  await ben.peer.updateConsent({ block: [keyOf(eve.place)] })
  const prepare = (from: Member, options?: PrepareOptions, text = 'no') =>
    prepareSend(from.peer, keyOf(ben.place), text, options)
  const changed = async (change: object) => {
    const send = readPreparedSend((await prepare(ada)).request)!
    const request = signPreparedSend(ada.place.identity.signing, { ...send, ...change })
    return { envelopeId: send.envelopeId, literal: `\\x${toHex(request)}` }
  }
  const forged = await prepare(ada)
  const [good, stranger] = [await prepare(ada, { ttlSeconds: 60 }, 'yes'), generateIdentity().signing.publicKey]
  const cases = {
    'refused signature_invalid': {
      ...forged,
      literal: forged.literal.replace(/..$/, (end) => (end === '00' ? '01' : '00')),
    },
    'refused unknown_sender': await changedMesh(foreigner, world, ben),
    'refused unknown_recipient': await changed({ recipient: stranger }),
    'refused ttl_too_long': await changed({ ttlSeconds: 2 ** 32 - 1 }),
    'refused envelope_too_large': await prepare(ada, {}, 'x'.repeat(3000)),
    'refused not_allowed': await prepare(eve),
  }
  await app.run(
    `begin; ${Object.values(cases)
      .map(({ literal }) => `select sealpost.send('${literal}')`)
      .join('; ')}; commit`,
  )
  for (const [expected, message] of Object.entries(cases)) expect(await app.decided(message)).toBe(expected)
  const late = await prepare(eve)
  await world.db.run(
    (sql) => sql`update member set revoked_at = now() where peer_key = ${`\\x${keyOf(eve.place)}`}::bytea`,
  )
  await app.send(late)
  expect(await app.decided(late)).toBe('refused revoked')
  await app.send(good)
  await until('the last one arrived', () => ben.texts.length > 0)
  expect(ben.texts).toEqual(['yes'])
  expect(await app.decided(good)).toBe('stored')
  expect(await world.broker.metric('sealpost_prepared_refused_total')).toBe(7)
  expect(await world.broker.metric('sealpost_prepared_stored_total')).toBe(1)
})

/** Signs a request that names a mesh of which the sender is not a member. */
async function changedMesh(from: Member, { meshId }: World, to: Member) {
  const send = readPreparedSend((await prepareSend(from.peer, from.peer.key, 'no')).request)!
  const request = signPreparedSend(from.place.identity.signing, { ...send, meshId, recipient: keyOf(to.place) })
  return { envelopeId: send.envelopeId, literal: `\\x${toHex(request)}` }
}

test('a request is accepted once, however often it is stored', async () => {
  await using world = await World.open({ BUS: 'memory' }) // listens on a connection of its own
  await using app = await Application.open(world)
  const [ada, ben] = await Member.enterMany(world, 2)
  const message = await prepareSend(ada.peer, keyOf(ben.place), 'once')
  await app.run(`begin; select sealpost.send('${message.literal}'); select sealpost.send('${message.literal}'); commit`)
  expect(await app.decided(message)).toBe('stored')
  await app.send(message)
  await world.db.run((sql) => sql`delete from prepared_send`)
  await app.send(message) // the ledger recognizes the envelope
  expect(await app.decided(message)).toBe('stored')
  await ada.peer.send(keyOf(ben.place), 'last')
  await until('the last one arrived', () => ben.texts.includes('last'))
  expect(ben.texts).toEqual(['once', 'last'])
})

test('a broker without the rights reports it once, and continues when it has them', async () => {
  await using world = await World.open()
  await using app = await Application.open(world)
  const [ada, ben] = await Member.enterMany(world, 2)
  const messages = [
    await prepareSend(ada.peer, keyOf(ben.place), 'first'),
    await prepareSend(ada.peer, keyOf(ben.place), 'second'),
  ] as const
  const { prefix } = inject('sealpostTestRoles')
  const change = (statement: string) => world.db.run((sql) => sql.unsafe(`${statement} ${prefix}_broker`))
  await change('revoke execute on function take_prepared_sends(integer, interval) from')
  await app.send(messages[0])
  const failures = () => world.broker.log.filter(({ event }) => event === 'prepared.failed')
  await until('the broker reports it', () => failures().length > 0)
  await ada.peer.send(keyOf(ben.place), 'over the socket')
  await change('grant execute on function take_prepared_sends(integer, interval) to')
  await app.send(messages[1])
  await until('all arrived', () => ben.texts.length === 3)
  expect(ben.texts).toEqual(['over the socket', 'first', 'second'])
  expect(failures()).toMatchObject([{ code: 'db_refused', message: expect.stringContaining('permission denied') }])
})

test('requests that wait while no broker accepts them expire, or are given up if an earlier attempt may have stored them', async () => {
  await using world = await World.open({ PREPARED_SENDS: 'off' })
  await using app = await Application.open(world)
  const [ada, ben] = await Member.enterMany(world, 2)
  const [good, old, doubted] = (await Promise.all(
    ['good', 'old', 'doubted'].map((text) => prepareSend(ada.peer, keyOf(ben.place), text)),
  )) as [PreparedMessage, PreparedMessage, PreparedMessage]
  for (const message of [good, old, doubted]) await app.send(message)
  await world.db.run((sql) => sql`update prepared_send set expires_at = now() where envelope_id = ${old.envelopeId}`)
  await world.db.run(
    (sql) =>
      sql`update prepared_send set doubt_since = now() - interval '2 days' where envelope_id = ${doubted.envelopeId}`,
  )
  expect(await app.statusOf(good)).toBe('queued')
  await world.secondShard({ PREPARED_SENDS: 'on' })
  expect(await app.decided(good)).toBe('stored')
  expect(await app.decided(old)).toBe('refused expired')
  expect(await app.decided(doubted)).toBe('in_doubt maybe_sent')
  await until('the good one arrived', () => ben.texts.length > 0)
  expect(ben.texts).toEqual(['good'])
})

test('a message can be prepared without a broker, and opens after its recipient has rotated its key', async () => {
  await using world = await World.open()
  await using app = await Application.open(world)
  const [ada, place] = [await Member.enter(world), await world.enrol()]
  await ada.peer.lookupKey(keyOf(place))
  await world.broker.kill()
  const message = await prepareSend(ada.peer, keyOf(place), 'sealed to the former key')
  await world.restart()
  const next = { ...place, identity: { ...place.identity, box: generateBoxKeys(place.identity.box.epoch + 1) } }
  const rotating = await connect({ ...place, credit: 0 })
  await rotating.rotateBoxKey(next.identity.box)
  await rotating.close()
  await app.send(message)
  const ben = await Member.enter(world, next, { formerBoxKeys: [place.identity.box] })
  await until('it arrived', () => ben.texts.length > 0)
  expect(ben.texts).toEqual(['sealed to the former key'])
})

test('messages of a sender that exceeds its rate wait, and arrive in order', async () => {
  await using world = await World.open({ LIMITS: 'on', RATE_PER_SECOND: '200', RATE_BURST: '20' })
  await using app = await Application.open(world)
  const [ada, ben] = await Member.enterMany(world, 2)
  const numbers = Array.from({ length: 100 }, (_, no) => String(no))
  const messages: PreparedMessage[] = []
  for (const number of numbers) messages.push(await prepareSend(ada.peer, keyOf(ben.place), number))
  await app.run(`begin; ${messages.map(({ literal }) => `select sealpost.send('${literal}')`).join('; ')}; commit`)
  await until('all arrived', () => ben.texts.length >= numbers.length)
  expect(ben.texts).toEqual(numbers)
  expect(await app.decided(messages.at(-1)!)).toBe('stored')
  expect(await world.broker.metric('sealpost_prepared_retried_total')).toBeGreaterThan(0)
})

test('while many messages arrive, a broker polls for them, and transactions do not notify it', async () => {
  await using world = await World.open()
  await using app = await Application.open(world)
  const [ada, ben] = await Member.enterMany(world, 2)
  const prepare = (text: string) => prepareSend(ada.peer, keyOf(ben.place), text)
  const many = await Promise.all(Array.from({ length: 60 }, (_, no) => prepare(String(no))))
  await app.run(`begin; ${many.map(({ literal }) => `select sealpost.send('${literal}')`).join('; ')}; commit`)
  await until('the broker has announced that it polls', async () => {
    const [row] = await world.db.run(
      (sql) => sql<{ isSet: boolean }[]>`select prepared_polled_until is not null as "isSet" from cluster`,
    )
    return row?.isSet
  })
  const texts = ['a', 'b', 'c']
  await world.db.run((sql) => sql`update cluster set prepared_polled_until = 'infinity'`) // no transaction notifies
  for (const text of texts) await app.send(await prepare(text))
  await until('all arrived', () => ben.texts.length === 63)
  expect(ben.texts.slice(60)).toEqual(texts)
})

const TRANSACTIONS = 60
const KILL_EVERY = 9

test('orders and messages agree after kills of brokers and of the application, with two brokers', {
  timeout: 120_000,
}, async () => {
  const random = seededRandom(21)
  await using world = await World.open()
  const second = await world.secondShard()
  const [ada, bob] = [await world.enrol(), await world.enrol()]
  const url = [world.broker.url, second.url]
  const [from, to] = [await Member.enter(world, ada, { url }), await Member.enter(world, bob, { url })]
  await world.db.run((sql) =>
    sql
      .unsafe(`create schema shop; create table shop.orders (no int primary key, message uuid not null);
      grant usage on schema shop to public; grant select, insert on shop.orders to public`)
      .simple(),
  )
  let app = await Application.open(world)
  const terminate = () =>
    world.db.run(
      (sql) => sql`select pg_terminate_backend(pid) from pg_stat_activity
        where application_name = 'application' and datname = current_database()`,
    )
  const restarts: Promise<unknown>[] = []
  for (let no = 0; no < TRANSACTIONS; no++) {
    const { literal } = await prepareSend(from.peer, keyOf(bob), String(no))
    const fate = random.next()
    try {
      await app.run(`begin; insert into shop.orders values (${no}, sealpost.send('${literal}'))`)
      if (fate < 0.1) await terminate()
      const ended = app.run(fate < 0.3 ? 'rollback' : 'commit')
      if (fate > 0.9) await Promise.allSettled([terminate(), ended])
      await ended
    } catch {
      await app.db.close()
      app = await Application.open(world)
    }
    if (no % KILL_EVERY !== KILL_EVERY - 1) continue
    await Promise.all(restarts)
    await world.broker.kill() // while it sends
    restarts.push(world.restart())
  }
  await Promise.all(restarts)
  await app.db.close()
  const orders = await world.db.run(
    (sql) => sql<{ no: number; message: string }[]>`select * from shop.orders order by no`,
  )
  await until('every message of an order arrived', () => to.received.length >= orders.length)
  await from.peer.send(keyOf(bob), 'last')
  await until('the last message arrived', () => to.texts.includes('last'))
  expect(to.texts).toEqual([...orders.map(({ no }) => String(no)), 'last'])
  expect(to.received.slice(0, -1).map(({ envelopeId }) => envelopeId)).toEqual(
    orders.map(({ message }) => message.replaceAll('-', '')),
  )
  expect(orders.length).toBeLessThan(TRANSACTIONS - 5)
  expect(orders.length).toBeGreaterThanOrEqual(TRANSACTIONS / 2)
  expect(from.events.filter(({ type }) => type === 'gap')).toEqual([])
})
