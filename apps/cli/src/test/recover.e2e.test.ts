/** Tests that a device which is an heir recovers its user's lost key, and what contacts and the user see. */
import { readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { openDatabase } from '@sealpost/pg'
import type { LogExport } from '@sealpost/sdk/audit'
import { openFileStore } from '@sealpost/sdk/file-store'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { AS_ALICE, failureOf, jsonLinesOf, jsonOf, Machine, ownerUrl, startUp, type Up } from './cli.ts'

const WEEK_MS = 7 * 86_400_000

let machine: Machine
let up: Up
beforeAll(async () => {
  machine = await Machine.make()
  up = await startUp(machine, AS_ALICE)
  const { invite } = jsonOf(await machine.run(['invite', 'create', '--uses', '3', '--json']))
  await each(['bob', 'carol', 'dan'], async (name) => jsonOf(await as(name, 'join', invite, '--name', name, '--json')))
  await each(['laptop', 'phone'], async (label) => {
    const added = jsonOf(await as('carol', 'device', 'add', label, '--json'))
    jsonOf(await as(label, 'join', added.invite, '--json'))
  })
})
afterAll(() => machine[Symbol.asyncDispose]())

const each = (names: readonly string[], act: (name: string) => Promise<unknown>) => Promise.all(names.map(act))
const as = (profile: string, ...words: string[]) => machine.run([...words, '--profile', profile])

/** Sets the clock of the database for all recoveries. */
async function passWeek(): Promise<void> {
  const db = await openDatabase(await ownerUrl(up), { connections: 1 })
  await db.run((sql) => sql`update key_recovery set published_at = published_at - interval '7 days'`)
  await db.close()
}

/** Sets the clock of a profile: it has known all recoveries for a week. */
async function passWeekFor(profile: string): Promise<void> {
  const store = await openFileStore(join(machine.folder, 'profiles', profile, 'recoveries'))
  for (const record of await store.load())
    if (record.kind === 'recovery')
      await store.write([{ key: `recovery ${carol}`, record: { ...record, seenAtMs: record.seenAtMs - WEEK_MS } }])
  await store.close()
}

let carol: string
/** The key that the stolen laptop certifies. */
let thief: string

test('a user names devices as heirs, but no session and no unknown device', async () => {
  carol = jsonOf(await as('carol', 'key', 'fingerprint', '--json')).key
  expect(jsonLinesOf(await as('carol', 'key', 'heirs', 'add', 'laptop', 'phone', '--json'))).toMatchObject([
    { label: 'laptop' },
    { label: 'phone' },
  ])
  expect((await as('carol', 'key', 'heirs', 'remove', 'phone')).stdout).toMatch(/^HEIR +FINGERPRINT\nlaptop /)
  expect(failureOf(await as('carol', 'key', 'heirs', 'add', 'tablet', '--json'))).toEqual([3, 'unknown_device'])
  expect(failureOf(await as('carol', 'key', 'heirs', 'remove', 'phone', '--json'))).toEqual([3, 'unknown_device'])
  expect(failureOf(await as('laptop', 'key', 'heirs', 'add', 'laptop', '--json'))).toEqual([4, 'not_owner'])
  const listening = machine.start(['listen', '--as', 'desk', '--profile', 'carol'])
  await listening.until('the session exists', ({ stderr }) => stderr.includes('carol/desk'))
  expect(failureOf(await as('carol', 'key', 'heirs', 'add', 'desk', '--json'))).toEqual([5, 'heir_is_session'])
  await listening.interrupt()
})

test('the user sees a pending recovery and cancels it', async () => {
  const pending = jsonOf(await as('laptop', 'key', 'recover', 'thief', '--json'))
  thief = pending.key
  expect(pending).toMatchObject({ state: 'pending', profile: 'thief' })
  const status = await as('carol', 'status', '--json')
  expect(jsonOf(status)).toMatchObject({ recovery: { state: 'pending', label: 'laptop', successor: pending.key } })
  expect(status.stderr).toContain('(recovery_pending)')
  expect((await as('bob', 'status')).stderr).toBe('')
  expect(jsonOf(await as('carol', 'key', 'recover', '--cancel', '--json'))).toMatchObject({ heir: 'laptop' })
  expect(failureOf(await as('carol', 'key', 'recover', '--cancel', '--json'))).toEqual([3, 'recovery_unknown'])
  await passWeek()
  expect(failureOf(await as('laptop', 'key', 'recover', 'thief', '--json'))[0]).toBeGreaterThan(3)
  expect(failureOf(await as('phone', 'key', 'recover', 'other', '--json'))).toEqual([4, 'not_heir'])
  expect(failureOf(await as('phone', 'key', 'recover', '--json'))).toEqual([2, 'usage'])
  expect(jsonLinesOf(await as('carol', 'key', 'heirs', 'list', '--json'))).toEqual([])
})

test('a rotated key keeps the heirs, and a removed device is no heir', async () => {
  await as('carol', 'key', 'heirs', 'add', 'phone', 'laptop')
  carol = jsonOf(await as('carol', 'key', 'rotate', '--identity', '--json')).key
  expect((await as('carol', 'device', 'remove', 'laptop')).code).toBe(0)
  expect(jsonLinesOf(await as('carol', 'key', 'heirs', 'list', '--json'))).toMatchObject([{ label: 'phone' }])
})

test('a device recovers the key of its user, and each contact compares the fingerprint again', async () => {
  await each(['bob', 'dan'], (name) => as(name, 'send', 'carol', 'hello'))
  const print = jsonOf(await as('carol', 'key', 'fingerprint', '--json')).fingerprint
  expect((await as('bob', 'peers', '--verify', 'carol', print)).code).toBe(0)
  await rm(join(machine.folder, 'profiles/carol'), { recursive: true })
  const { key } = jsonOf(await as('phone', 'key', 'recover', 'carol', '--json'))
  await each(['bob', 'dan'], async (name) => expect((await as(name, 'peers')).stderr).toContain('(recovery_pending)'))
  await passWeek()
  for (const name of ['bob', 'dan']) await passWeekFor(name)
  expect(jsonOf(await as('phone', 'key', 'recover', 'carol', '--json'))).toMatchObject({ state: 'done', key })
  expect(jsonOf(await as('carol', 'status', '--json'))).toMatchObject({ name: 'carol', key, membership: 'proven' })

  const seen = await as('dan', 'peers', '--json')
  expect(seen.stderr).toContain('(identity_recovered)')
  expect(jsonLinesOf(seen).find(({ name }) => name === 'carol')).toMatchObject({
    ...{ peer: key, known: 'yes', membership: 'proven' },
  })
  expect((await as('dan', 'send', 'carol', 'to the new key')).code).toBe(0)
  await as('phone', 'send', 'dan', 'from the phone')
  expect(jsonOf(await as('dan', 'listen', '--count', '1', '--json'))).toMatchObject({ name: 'carol', device: 'phone' })

  const refused = await as('bob', 'send', 'carol', 'secret')
  expect(refused).toMatchObject({ code: 4, stderr: expect.stringContaining('(key_recovered)') })
  expect(refused.stderr).toContain("certified by carol's device phone: compare the fingerprint again")
  expect(jsonOf(await as('bob', 'peers', '--accept', 'carol', '--json'))).toMatchObject({ key, wasVerified: true })
  expect((await as('bob', 'send', 'carol', 'to the new key')).code).toBe(0)
  const heard = await as('carol', 'listen', '--count', '2')
  expect(heard.stdout.match(/to the new key/g)).toHaveLength(2)
})

test('an audit follows the recovery, and finds one that its user had cancelled', async () => {
  const file = join(machine.folder, 'log.json')
  const report = jsonOf(await machine.run(['audit', '--export', file, '--json']))
  expect(report).toMatchObject({ ok: true, problems: [], entries: { admission: 3, recovery: 2 } })
  const exported = JSON.parse(await readFile(file, 'utf8')) as LogExport
  const members = exported.members.map((each) => (each.name === 'carol' ? { ...each, peer: thief } : each))
  await writeFile(file, JSON.stringify({ ...exported, members }))
  const stolen = await machine.run(['audit', file, '--json'])
  const { problems } = JSON.parse(stolen.stdout) as { problems: { code: string; about: string }[] }
  expect(problems).toContainEqual({ code: 'recovery_cancelled', about: 'carol', reason: null })
  expect(stolen.code).toBe(1)
})
