/** Tests `sealpost prepare` with transactions on the database of `sealpost up`, as a user would run them. */
import { join } from 'node:path'
import { openDatabase } from '@sealpost/pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { AS_ALICE, failureOf, jsonLinesOf, jsonOf, letIn, Machine, ownerUrl, startUp } from './cli.ts'

const EXAMPLE = join(import.meta.dirname, '../../../../docs/examples/order.sql')

let machine: Machine
let databaseUrl: string
let folder: string

beforeAll(async () => {
  machine = await Machine.make()
  const up = await startUp(machine, AS_ALICE)
  databaseUrl = await ownerUrl(up)
  folder = up.facts.folder
  for (const name of ['bob', 'carol']) await letIn(machine, name)
})
afterAll(() => machine[Symbol.asyncDispose]())

test('a transaction sends what `prepare` printed, unless it rolls back', async () => {
  const dropped = await machine.run(['prepare', 'bob', 'dropped', '--sql'])
  expect(dropped).toMatchObject({ code: 0, stderr: expect.stringContaining('prepared for bob as ') })
  const kept = jsonOf(await machine.run(['prepare', 'bob', '--json'], { stdin: 'kept' }))
  const db = await openDatabase(databaseUrl, { connections: 1 })
  await db.run((sql) => sql.unsafe(`begin; ${dropped.stdout} rollback`).simple())
  const [row] = await db.run((sql) => sql<{ id: string }[]>`select sealpost.send(${kept.request}::text::bytea) as id`)
  await db.close()
  expect(row!.id.replaceAll('-', '')).toBe(kept.envelopeId)
  expect((await machine.run(['why', row!.id])).code).toBe(0)
  const listened = await machine.run(['listen', '--count', '1', '--profile', 'bob', '--json'])
  expect(jsonOf(listened)).toMatchObject({ text: 'kept', envelopeId: kept.envelopeId })
  expect(await machine.run(['prepare', 'nobody', 'x', '--json'])).toMatchObject({ code: 3, stdout: '' })
  expect(await machine.run(['prepare', 'bob', 'x', '--valid', '2d'])).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('at most 1d'),
  })
})

test('a message is prepared for several peers, and refused for groups and with a text over the limit', async () => {
  const both = await machine.run(['prepare', 'bob,carol', 'for both', '--sql'])
  const db = await openDatabase(databaseUrl, { connections: 1 })
  await db.run((sql) => sql.unsafe(`begin; ${both.stdout} commit`).simple())
  await db.close()
  for (const profile of ['bob', 'carol'])
    expect(jsonOf(await machine.run(['listen', '--count', '1', '--profile', profile, '--json'])).text).toBe('for both')
  expect((await machine.run(['prepare', '@crew', 'x'])).code).toBe(2)
  const long = await machine.run(['prepare', 'bob', '--json'], { stdin: 'x'.repeat(70_000) })
  expect(failureOf(long)).toEqual([6, 'body_too_large'])
  expect(failureOf(await machine.run(['request', 'bob,carol', 'x', '--json']))).toEqual([2, 'usage'])
})

test('an operator sees what was refused or waits, with the reason', async () => {
  const { url, token } = await Bun.file(join(folder, 'admin.json')).json()
  const env = { SEALPOST_ADMIN_URL: url, SEALPOST_ADMIN_TOKEN: token }
  const list = (...words: string[]) => machine.run(['admin', 'prepared', ...words], { env })
  const { request } = jsonOf(await machine.run(['prepare', 'bob', 'forged', '--json']))
  const forged = request.replace(/..$/, (end: string) => (end === '00' ? '01' : '00'))
  const { envelopeId, request: waits } = jsonOf(await machine.run(['prepare', 'bob', 'waits', '--json']))
  const db = await openDatabase(databaseUrl, { connections: 1 })
  await db.run((sql) => sql.unsafe(`select sealpost.send('${forged}')`).simple())
  await expect
    .poll(async () => jsonLinesOf(await list('--json')))
    .toMatchObject([{ senderName: 'alice', recipientName: 'bob', status: 'refused', code: 'signature_invalid' }])
  const listed = await list('--status', 'refused')
  expect(listed.stdout).toContain('the request is not signed by its sender')
  // The broker has no more attempts within an hour.
  await db.run((sql) =>
    sql
      .unsafe(`begin; select sealpost.send('${waits}');
      update prepared_send set due_at = now() + interval '1 hour', code = 'rate_limited' where status = 'queued'; commit`)
      .simple(),
  )
  const queued = jsonLinesOf(await list('--status', 'queued', '--json'))
  expect(queued).toMatchObject([{ envelopeId, status: 'queued', code: 'rate_limited', decidedAtMs: null }])
  expect(JSON.stringify(queued)).not.toContain('waits')
  expect(jsonLinesOf(await list('--mesh', '01'.repeat(16), '--json'))).toEqual([])
  expect((await list('--status', 'lost')).code).toBe(2)
  await db.run((sql) => sql`delete from prepared_send where status = 'queued'`) // it would hold up its lane
  await db.close()
})

const psql = Bun.which('psql')
if (!psql) process.stderr.write('skipped: docs/examples/order.sql needs psql\n')

test.skipIf(!psql)('the example for psql pays an order once and sends one message', async () => {
  for (const [text, code] of [
    ['order 7 is paid', 0],
    ['order 7 is paid again', 3],
  ] as const) {
    const { stdout } = await machine.run(['prepare', 'bob', text, '--quiet'])
    const child = Bun.spawn([psql!, databaseUrl, '-X', '-v', `message=${stdout.trim()}`, '-f', EXAMPLE], {
      stdout: 'ignore',
      stderr: 'ignore',
    })
    expect(await child.exited).toBe(code)
  }
  const sent = await machine.run(['send', 'bob', 'last'])
  expect(sent.code).toBe(0)
  const listened = await machine.run(['listen', '--count', '2', '--profile', 'bob', '--quiet'])
  expect(listened.stdout).toContain('order 7 is paid')
  expect(listened.stdout).toContain('last')
  expect(listened.stdout).not.toContain('again')
})
