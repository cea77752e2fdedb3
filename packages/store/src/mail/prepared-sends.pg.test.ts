import { openDatabase, openListener } from '@sealpost/pg'
import { unhurried } from '@sealpost/pg/testing'
import { scratchWithLogins } from '@sealpost/schema/testing'
import { type MeshId, toHex } from '@sealpost/std'
import { afterAll, beforeEach, describe, expect, test } from 'vitest'
import { createMesh } from '../meshes/meshes.ts'
import {
  announcePreparedPolling,
  decidePreparedSends,
  endPreparedPolling,
  forgetPreparedSends,
  PREPARED_CHANNEL,
  readPreparedBacklog,
  takePreparedSends,
} from './prepared-sends.ts'

const scratch = await scratchWithLogins()
const [owner, broker, application] = (await Promise.all(
  [scratch.url, scratch.broker, scratch.sender].map((url) => openDatabase(url, { ...unhurried, connections: 2 })),
)) as [
  Awaited<ReturnType<typeof openDatabase>>,
  Awaited<ReturnType<typeof openDatabase>>,
  Awaited<ReturnType<typeof openDatabase>>,
]
const meshId = toHex(crypto.getRandomValues(new Uint8Array(16))) as MeshId
await createMesh(owner, { meshId, name: 'home' })
afterAll(async () => {
  for (const db of [owner, broker, application]) await db.close()
  await scratch.drop()
})
beforeEach(() => owner.run((sql) => sql`truncate prepared_send`))

const DAY_MS = 86_400_000
const random = (bytes: number) => Buffer.from(crypto.getRandomValues(new Uint8Array(bytes)))

interface Draft {
  mesh?: string
  sender?: Buffer
  recipient?: Buffer
  envelopeId?: Buffer
  priority?: number
  version?: number
  preparedAtMs?: number
  expiresAtMs?: number
  envelopeBytes?: number
}

/** Returns a request without a valid signature, which Postgres can't check. */
function requestOf(draft: Draft = {}): Buffer {
  const { preparedAtMs = Date.now(), expiresAtMs = preparedAtMs + 3_600_000, envelopeBytes = 100 } = draft
  const numbers = Buffer.alloc(31)
  numbers.writeUInt8(draft.priority ?? 1, 0)
  numbers.writeBigInt64BE(BigInt(preparedAtMs), 13)
  numbers.writeBigInt64BE(BigInt(expiresAtMs), 21)
  return Buffer.concat([
    Buffer.from([draft.version ?? 1]),
    Buffer.from(draft.mesh ?? meshId, 'hex'),
    draft.sender ?? SENDER,
    draft.recipient ?? RECIPIENT,
    draft.envelopeId ?? random(16),
    numbers,
    random(envelopeBytes + 64),
  ])
}

const SENDER = random(32)
const RECIPIENT = random(32)

const send = async (request: Buffer | null): Promise<string> => {
  const value = request && `\\x${request.toString('hex')}`
  const [row] = await application.run((sql) => sql<{ id: string }[]>`select sealpost.send(${value}::bytea) as id`)
  return row!.id
}

const take = (rowsMax = 10, leaseMs = 60_000) => takePreparedSends(broker, { rowsMax, leaseMs })
const idsOf = (rows: readonly { id: number }[]) => rows.map(({ id }) => id)
const statusOf = async (id: string) => {
  const [row] = await application.run(
    (sql) => sql<{ status: string; code: string | null }[]>`select status, code from sealpost.sent_status(${id}::uuid)`,
  )
  return row
}

describe('sealpost.send', () => {
  test.each([
    ['null', 'SP400', () => null],
    ['no bytes', 'SP400', () => Buffer.alloc(0)],
    ['a truncated request', 'SP400', () => requestOf({ envelopeBytes: 39 })],
    ['another version', 'SP400', () => requestOf({ version: 2 })],
    ['an unknown priority', 'SP400', () => requestOf({ priority: 3 })],
    ['a lifetime of more than a day', 'SP400', () => requestOf({ expiresAtMs: Date.now() + DAY_MS + 60_000 })],
    ['an end before the beginning', 'SP400', () => requestOf({ expiresAtMs: Date.now() - DAY_MS })],
    ['a negative time', 'SP400', () => requestOf({ preparedAtMs: -1 })],
    ['a clock that is ahead', 'SP425', () => requestOf({ preparedAtMs: Date.now() + 600_000 })],
    [
      'an expired request',
      'SP408',
      () => requestOf({ preparedAtMs: Date.now() - 2000, expiresAtMs: Date.now() - 1000 }),
    ],
    ['too many bytes', 'SP413', () => requestOf({ envelopeBytes: 132_000 })],
    ['an unknown mesh', 'SP404', () => requestOf({ mesh: '00'.repeat(16) })],
  ])('refuses %s', async (_, sqlstate, request) => {
    await expect(send(request())).rejects.toMatchObject({ sqlstate })
    expect(await readPreparedBacklog(broker)).toMatchObject({ waiting: 0 })
  })

  test('refuses a mesh that has moved to another cell', async () => {
    await owner.run((sql) => sql`update mesh set moved_to = 'west' where mesh_id = ${meshId}::uuid`)
    await expect(send(requestOf())).rejects.toMatchObject({ sqlstate: 'SP404' })
    await owner.run((sql) => sql`update mesh set moved_to = null where mesh_id = ${meshId}::uuid`)
  })

  test('returns the envelope id, and stores a repeated request once', async () => {
    const envelopeId = random(16)
    const request = requestOf({ envelopeId })
    const [first, second] = await Promise.all([send(request), send(request)])
    expect([first, second].map((id) => id.replaceAll('-', ''))).toEqual(Array(2).fill(envelopeId.toString('hex')))
    expect(await readPreparedBacklog(broker)).toMatchObject({ waiting: 1 })
    expect(await statusOf(first)).toEqual({ status: 'queued', code: null })
    expect(await statusOf('00000000-0000-0000-0000-000000000000')).toEqual({ status: 'unknown', code: null })
  })

  test('refuses more requests while the outbox is full', async () => {
    await owner.run(
      (sql) => sql`insert into prepared_send (mesh_id, sender, recipient, priority, envelope_id, expires_at, request)
        select ${meshId}::uuid, 's', 'r', 1, gen_random_uuid(), now() + interval '1 hour', convert_to(repeat('x', 8000), 'UTF8')
        from generate_series(1, 10000)`,
      { timeoutMs: 30_000 },
    )
    await expect(send(requestOf())).rejects.toMatchObject({ sqlstate: 'SP429' })
    const [row] = await take(1)
    await decidePreparedSends(broker, [{ id: row!.id, status: 'stored' }])
    await expect(send(requestOf())).resolves.toMatch(/-/)
  })
})

/** Insufficient privilege, or an object that this role can't see. */
const NO_RIGHTS = /^(42501|42P01|42883|3F000)$/

describe('an application', () => {
  test.each([
    'select from prepared_send',
    'select from message_queue',
    'delete from prepared_send',
    "select take_prepared_sends(1, '1 second')",
    "update prepared_send set status = 'stored'",
    'create table mine (one int)',
    'create table sealpost.mine (one int)',
  ])('may not: %s', async (statement) => {
    await expect(application.run((sql) => sql.unsafe(statement))).rejects.toMatchObject({
      sqlstate: expect.stringMatching(NO_RIGHTS),
    })
  })

  test('needs the role', async () => {
    for (const call of ["sealpost.send('')", 'sealpost.sent_status(gen_random_uuid())'])
      await expect(broker.run((sql) => sql.unsafe(`select ${call}`))).rejects.toMatchObject({ sqlstate: '42501' })
  })
})

describe('a broker', () => {
  test('takes rows in order, once while their lease lasts', async () => {
    const requests = [requestOf(), requestOf(), requestOf({ sender: random(32) })]
    for (const request of requests) await send(request)
    const first = await take(1)
    expect(first).toMatchObject([{ attempts: 1, doubtMs: null, isExpired: false }])
    expect(Buffer.compare(first[0]!.request, requests[0]!)).toBe(0)
    const others = await take() // the second row waits behind the first one of its lane
    expect(others.map(({ request }) => Buffer.compare(request, requests[2]!))).toEqual([0])
    expect(await take()).toEqual([])
  })

  test('takes a row again once its lease has ended, and knows that its envelope may be stored', async () => {
    await send(requestOf())
    const [first] = await take(10, 0)
    const [again] = await take(10, 0)
    expect(again).toMatchObject({ id: first!.id, attempts: 2 })
    expect(again!.doubtMs).toBeGreaterThanOrEqual(0)
  })

  test('takes no row twice when several brokers call at once', async () => {
    for (let n = 0; n < 20; n++) await send(requestOf({ sender: n % 2 === 0 ? SENDER : random(32) }))
    const taken = (await Promise.all([1, 2, 3, 4, 5, 6].map(() => take(4)))).flat()
    expect(new Set(idsOf(taken)).size).toBe(taken.length)
    expect(taken).toHaveLength(2 + 10) // the first call takes two rows of the lane, and the others of the lane wait
  })

  test('stores decisions, of which the first one counts', async () => {
    const ids = [await send(requestOf()), await send(requestOf()), await send(requestOf()), await send(requestOf())]
    const [a, b, c, d] = idsOf(await take()) as [number, number, number, number]
    await decidePreparedSends(broker, [
      { id: a, status: 'stored' },
      { id: b, status: 'refused', code: 'not_allowed' },
      { id: c, status: 'in_doubt', code: 'maybe_sent' },
      { id: d, status: 'queued', code: 'mailbox_full', retryAfterMs: 0, isInDoubt: false },
    ])
    await decidePreparedSends(broker, [{ id: a, status: 'refused', code: 'late' }])
    expect(await Promise.all(ids.map(statusOf))).toEqual([
      { status: 'stored', code: null },
      { status: 'refused', code: 'not_allowed' },
      { status: 'in_doubt', code: 'maybe_sent' },
      { status: 'queued', code: 'mailbox_full' },
    ])
    expect(await readPreparedBacklog(broker)).toMatchObject({ waiting: 1 })
    expect(await take()).toMatchObject([{ id: d, attempts: 2, doubtMs: null }])
    const [{ kept }] = await owner.run(
      (sql) => sql<[{ kept: number }]>`select count(request)::int as kept from prepared_send`,
    )
    expect(kept).toBe(1)
  })

  test('forgets decided rows after a day, but no waiting ones', async () => {
    await send(requestOf())
    await send(requestOf())
    const [first] = idsOf(await take(1))
    await decidePreparedSends(broker, [{ id: first!, status: 'stored' }])
    expect(await forgetPreparedSends(broker)).toBe(0)
    await owner.run(
      (sql) => sql`update prepared_send set decided_at = now() - interval '25 hours' where id = ${first!}`,
    )
    expect(await forgetPreparedSends(broker)).toBe(1)
    expect(await readPreparedBacklog(broker)).toMatchObject({ waiting: 1 })
  })
})

test('a transaction notifies the brokers at its commit, unless one of them polls', async () => {
  const heard: string[] = []
  const ports = { onNotification: (channel: string) => void heard.push(channel), onClosed: () => undefined }
  const listener = await openListener(scratch.url, 'a broker', ports)
  await listener.listen([PREPARED_CHANNEL])
  await announcePreparedPolling(broker, 60_000)
  await send(requestOf())
  await listener.probe()
  expect(heard).toEqual([])
  const sent = `select sealpost.send('\\x${requestOf().toString('hex')}')`
  const ended = 'update cluster set prepared_polled_until = clock_timestamp()'
  await owner.run((sql) => sql.unsafe(`begin; ${sent}; ${ended}; commit`).simple())
  await listener.probe()
  expect(heard).toEqual([PREPARED_CHANNEL])
  await endPreparedPolling(broker)
  await send(requestOf())
  await listener.probe()
  expect(heard).toHaveLength(3)
  await listener.close()
})
