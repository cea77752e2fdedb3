/** Tests `sealpost admin mesh create` and `invite`: what they print, and when they refuse. */
import { join } from 'node:path'
import { type BrokerProgram, startBroker } from '@sealpost/broker-program'
import { emptyDatabase, type ScratchDatabase } from '@sealpost/pg/testing'
import { scratchDatabase } from '@sealpost/schema/testing'
import { loginsOf, type RoleLogins } from '@sealpost/schema/testing-roles'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { jsonOf, Machine } from './cli.ts'

let machine: Machine
let scratch: ScratchDatabase
let logins: RoleLogins
let broker: BrokerProgram
beforeAll(async () => {
  machine = await Machine.make()
  scratch = await scratchDatabase()
  logins = await loginsOf(scratch.url)
})
afterAll(async () => {
  await broker?.stop()
  await machine[Symbol.asyncDispose]()
  await logins.drop()
  await scratch.drop()
})

const admin = (words: readonly string[], env: Record<string, string> = { DATABASE_URL: logins.admin }) =>
  machine.run(['admin', 'mesh', ...words], { env })

test('no invite is created without a broker, unless its key is given', async () => {
  const refused = await admin(['create', 'home', '--url', 'ws://127.0.0.1:7450'])
  expect(refused).toMatchObject({ code: 7, stdout: '', stderr: expect.stringContaining('(broker_not_running)') })
})

test('a database without tables is refused with a remedy, and a missing invite is refused too', async () => {
  const empty = await emptyDatabase()
  const refused = await admin(['create', 'home', '--url', 'ws://127.0.0.1:7450', '--quiet'], {
    DATABASE_URL: empty.url,
  })
  await empty.drop()
  expect(refused).toMatchObject({ code: 7, stdout: '', stderr: expect.stringContaining('(database_not_migrated)') })
  expect(refused.stderr).toContain('run `sealpost db migrate`')
  const joined = await machine.run(['join', refused.stdout, '--name', 'alice'])
  expect(joined).toMatchObject({ code: 2, stderr: expect.stringContaining('The argument INVITE is empty') })
})

test('a mesh begins with one admin, who invites others', async () => {
  const keyFile = join(machine.folder, 'broker.json')
  const made = await machine.run(['shard', 'keygen', keyFile])
  expect((await machine.run(['shard', 'keygen', keyFile])).code).toBe(5)
  const environment = { ...machine.environment, DATABASE_URL: logins.broker, BROKER_KEY_FILE: keyFile }
  broker = await startBroker({ environment: { ...environment, PORT: '0', PUBLIC_URL: 'ws://127.0.0.1:0' } })
  const created = await admin(['create', 'home', '--json'])
  const { invite, url, brokerKey, meshId, role, name } = jsonOf(created)
  expect({ url, brokerKey, role, name }).toEqual({
    ...{ url: `ws://${new URL(broker.url).host}`, brokerKey: made.stdout.trim(), role: 'admin', name: 'home' },
  })
  expect((await machine.run(['join', invite, '--name', 'alice'])).code).toBe(0)
  expect((await machine.run(['join', invite, '--name', 'eve', '--profile', 'eve'])).code).toBe(4)
  const another = await admin(['invite', meshId, '--quiet'])
  expect(another.stdout).toMatch(/^sealpost1:\S+\n$/)
  expect((await machine.run(['join', another.stdout.trim(), '--name', 'bob', '--profile', 'bob'])).code).toBe(0)
  for (const profile of ['default', 'bob'])
    expect((await machine.run(['invite', 'create', '--quiet', '--profile', profile])).code).toBe(0)
})

test.each([
  [['create', 'home'], 5, 'mesh_exists'],
  [['create', '(home)'], 2, 'name_malformed'],
  [['create', 'ho\u0007me'], 2, 'name_malformed'],
  [['create', 'other', '--url', 'https://broker.example'], 2, 'usage'],
  [['create', 'other', '--url', 'ws://name:word@broker.example'], 2, 'usage'],
  [['invite', '0'.repeat(32)], 3, 'mesh_unknown'],
] as const)('%j is refused', async (words, code, name) => {
  const refused = await admin(words)
  expect(refused).toMatchObject({ code, stdout: '', stderr: expect.stringContaining(`(${name})`) })
})

test("the broker's login is refused, and the operators' login is used if it is configured", async () => {
  const refused = await admin(['create', 'mine'], { DATABASE_URL: logins.broker })
  expect(refused).toMatchObject({ code: 4, stderr: expect.stringContaining('(database_forbids)') })
  const env = { DATABASE_URL: logins.broker, ADMIN_DATABASE_URL: logins.admin }
  expect((await admin(['create', 'mine'], env)).code).toBe(0)
  expect((await machine.run(['db', 'prepare'], { env: { DATABASE_URL: scratch.url } })).code).toBe(2)
})

test("a member's invite to an address that nobody can dial is refused too", async () => {
  const refused = await machine.run(['invite', 'create', '--url', 'ws://broker.example/?a'])
  expect(refused).toMatchObject({ code: 2, stderr: expect.stringContaining('(usage)') })
})
