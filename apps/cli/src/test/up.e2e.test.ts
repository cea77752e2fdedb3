/** Tests the first steps of a new user, with the commands from the help: up, invite, join, send, listen. */
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { openDatabase } from '@sealpost/pg'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { AS_ALICE, errorOf, jsonLinesOf, jsonOf, letIn, Machine, ownerUrl, startUp, type Up } from './cli.ts'

describe('on one machine', () => {
  let machine: Machine
  let up: Up
  beforeAll(async () => {
    machine = await Machine.make()
    up = await startUp(machine, AS_ALICE)
    await letIn(machine, 'bob')
  })
  afterAll(() => machine[Symbol.asyncDispose]())
  const bob = ['--profile', 'bob']

  test('a message can be addressed by name, and its sender is shown by name', async () => {
    const sent = await machine.run(['send', 'bob', 'hello bob', '--json'])
    expect(sent.code).toBe(0)
    const heard = await machine.run(['listen', '--count', '1', '--json', ...bob])
    const { envelopeId, to } = jsonOf(sent)
    expect(jsonOf(heard)).toMatchObject({ envelopeId, name: 'alice', text: 'hello bob', attempt: 1 })
    expect(to).toMatch(/^[0-9a-f]{64}$/)
  })

  test('messages from stdin arrive unchanged', async () => {
    expect((await machine.run(['send', 'bob', '-q'], { stdin: 'line 1\nline 2\n' })).code).toBe(0)
    expect((await machine.run(['send', 'bob'], { stdin: new Uint8Array([0, 255, 254]) })).code).toBe(0)
    const heard = await machine.run(['listen', '--count', '2', '--json', ...bob])
    const [first, second] = jsonLinesOf(heard)
    expect(first.text).toBe('line 1\nline 2\n')
    expect(second.bodyBase64).toBe('AP/+')
  })

  test('a file accompanies a message, and is saved under a unique name', async () => {
    const [path, folder] = [join(machine.folder, 'plan.bin'), join(machine.folder, 'received')]
    const bytes = crypto.getRandomValues(new Uint8Array(40_000))
    await Bun.write(path, bytes)
    for (const words of [
      ['the plan', '--file', path],
      ['--file', path],
    ])
      expect((await machine.run(['send', 'bob', ...words])).code).toBe(0)
    const heard = await machine.run(['listen', '--count', '2', '--json', '--files', folder, ...bob])
    const [first, second] = jsonLinesOf(heard)
    expect(first).toMatchObject({ text: 'the plan', file: { name: 'plan.bin', bytes: 40_000 } })
    expect([first.file.path, second.file.path]).toEqual(['plan.bin', 'plan (2).bin'].map((name) => join(folder, name)))
    expect(await Bun.file(second.file.path).bytes()).toEqual(bytes)
  })

  test("a peer's text cannot move the cursor, set colours, or imitate another line", async () => {
    await machine.run(['send', 'bob', '\x1b[2Jboo\n15:00 carol  fake\u202e'])
    const heard = await machine.run(['listen', '--count', '1', ...bob])
    expect(heard.stdout).toMatch(/^\d\d:\d\d alice \([\w-]{9}\) {2}\\x1b\[2Jboo\n {4}15:00 carol {2}fake\\u\{202e\}\n$/)
  })

  test('a program that fails gets the message again, and one that succeeds settles it', async () => {
    const counter = join(machine.folder, 'counter')
    const script = `echo x >> ${counter}; cat > ${counter}.body; echo "$SEALPOST_FROM_NAME $SEALPOST_ATTEMPT"; test $(wc -l < ${counter}) -ge 2`
    await machine.run(['send', 'bob', 'do it'])
    const worked = await machine.run(['listen', '--count', '1', '--exec', script, ...bob])
    expect(worked.code).toBe(0)
    expect(worked.stdout).toBe('alice 1\nalice 2\n')
    expect(worked.stderr).toContain('with exit code 1; next delivery in 1 s')
    expect(await Bun.file(`${counter}.body`).text()).toBe('do it')
  })

  test('a program run for messages gets the variables that it needs to run, and those that were named', async () => {
    const env = {
      SEALPOST_ADMIN_TOKEN: 'spa_x',
      MYSQL_PWD: 'm',
      DB_URL: 'postgres://u:p@h/d',
      STRIPE_KEY: 'k',
      LANG: 'C',
    }
    const script = 'echo "$SEALPOST_ADMIN_TOKEN|$MYSQL_PWD|$DB_URL|$STRIPE_KEY|$LANG|$HOME|$SEALPOST_FROM_NAME"'
    const words = ['listen', '--count', '1', '--exec', script, ...bob]
    for (const [more, said] of [
      [[], '||||C'],
      [['--env', 'STRIPE_KEY', '--env', 'MYSQL_PWD'], '|m||k|C'],
    ] as const) {
      await machine.run(['send', 'bob', 'x'])
      expect((await machine.run([...words, ...more], { env })).stdout).toBe(`${said}|${machine.folder}|alice\n`)
    }
    await machine.run(['send', 'bob', 'x'])
    const unset = await machine.run([...words, '--env', 'NOT_SET'], { env })
    expect(unset).toMatchObject({ code: 0, stderr: expect.stringContaining('--env NOT_SET: the variable is not set') })
  })

  test('commands of one profile share its connection: sending does not end a listener', async () => {
    const listener = machine.start(['listen', '--json'])
    await listener.until('it listens', ({ stderr }) => stderr.includes('listening as alice'))
    const both = await Promise.all([
      machine.run(['send', 'bob', 'one']),
      machine.run(['send', 'bob', 'two']),
      machine.run(['peers', '--json']),
    ])
    expect(both.map(({ code }) => code)).toEqual([0, 0, 0])
    const names = jsonLinesOf(both[2]!).map(({ name }) => name)
    expect(names).toEqual(expect.arrayContaining(['alice', 'bob', expect.stringMatching(/^alice\/.+-1$/)]))
    await machine.run(['send', 'alice', 'still there?', ...bob])
    await listener.until('it hears', ({ lines }) => lines.length === 1)
    expect((await listener.interrupt()).code).toBe(130)
    const heard = await machine.run(['listen', '--count', '2', '--json', ...bob])
    expect(new Set(jsonLinesOf(heard).map(({ text }) => text))).toEqual(new Set(['one', 'two']))
  })

  test('an invite works once, an unknown name is not found, and only an admin revokes', async () => {
    const { invite, inviteId } = jsonOf(await machine.run(['invite', 'create', '--json']))
    expect((await machine.run(['invite', 'revoke', inviteId, ...bob])).code).toBe(4)
    expect((await machine.run(['invite', 'revoke', inviteId])).code).toBe(0)
    expect((await machine.run(['join', invite, '--profile', 'carol'])).code).toBe(4)
    expect((await machine.run(['join', invite, ...bob])).code).toBe(5)
    expect((await machine.run(['send', 'carol', 'hi'])).code).toBe(3)
    expect((await machine.run(['send', 'f'.repeat(64), 'hi'])).code).toBe(3)
  })

  test('a name that now belongs to another key is refused with a warning until it is accepted', async () => {
    await letIn(machine, 'dora')
    expect((await machine.run(['send', 'dora', 'hi'])).code).toBe(0)
    const contactsFile = join(machine.folder, 'profiles/default/contacts.json')
    const contacts = (await Bun.file(contactsFile).json()) as { contacts: Record<string, string> }
    await Bun.write(
      contactsFile,
      JSON.stringify({ ...contacts, contacts: { ...contacts.contacts, dora: 'ab'.repeat(32) } }),
    )
    const refused = await machine.run(['send', 'dora', 'secret'])
    expect(refused.code).toBe(4)
    expect(refused.stderr).toContain('THE KEY OF dora HAS CHANGED')
    expect((await machine.run(['peers'])).stdout).toMatch(/^dora .*CHANGED$/m)
    expect((await machine.run(['peers', '--accept', 'dora'])).code).toBe(0)
    expect((await machine.run(['send', 'dora', 'hi again'])).code).toBe(0)
  })

  test('the doctor passes a healthy installation, and reports what is wrong', async () => {
    const well = await machine.run(['doctor', '--json'])
    expect(well.code).toBe(0)
    const checks = jsonLinesOf(well)
    expect(checks.map(({ outcome }) => outcome)).toEqual(Array(checks.length).fill('ok'))
    expect(checks.map(({ name }) => name)).toContain('round trip')
    expect((await machine.run(['doctor', '--profile', 'nobody'])).code).toBe(1)
  })

  test('the broker has the rights of its role and of the operators, and never those of the owner', async () => {
    const db = await openDatabase(await ownerUrl(up), { connections: 1, applicationName: 'the test' })
    const accounts = await db.run(
      (sql) => sql`
        select distinct a.application_name as name, rolsuper or rolcreaterole or has_table_privilege(r.oid, 'message_queue', 'truncate') as is_mighty
        from pg_stat_activity a join pg_roles r on r.oid = a.usesysid
        where a.client_addr is not null and a.application_name <> 'the test'`,
    )
    await db.close()
    expect(accounts.map(({ name }) => name)).toEqual(expect.arrayContaining(['sealpost writing', 'sealpost admin']))
    expect(accounts.filter((account) => account.is_mighty)).toEqual([])
  })

  test('a dead letter is listed, redriven, and received', async () => {
    const env = { DATABASE_URL: await ownerUrl(up) }
    expect(await machine.run(['dead', 'list'], { env })).toMatchObject({ code: 0, stdout: 'no dead letters\n' })
    expect((await machine.run(['dead', 'redrive', '7'], { env })).code).toBe(3)
    const { envelopeId } = jsonOf(await machine.run(['send', 'bob', 'given up', '--json']))
    await giveUp(env.DATABASE_URL)
    const listed = jsonLinesOf(await machine.run(['dead', 'list', '--json'], { env }))
    const letter = listed.find((row) => row.envelopeId === envelopeId)
    expect(letter).toMatchObject({ reason: 'strikes', priority: 'next', meshName: 'home' })
    expect((await machine.run(['dead', 'list'], { env })).stdout).toContain('bob')
    expect(await machine.run(['dead', 'redrive', String(letter.id)], { env })).toMatchObject({ code: 0 })
    const heard = await machine.run(['listen', '--count', '1', '--json', ...bob])
    expect(jsonOf(heard)).toMatchObject({ text: 'given up', envelopeId })
    const purged = await machine.run(['dead', 'purge', '--all'], { env })
    expect(purged.stdout).toBe(`${listed.length - 1} purged\n`)
  })

  test('a dead letter that cannot be redriven is refused with the reason, on the database and by the broker', async () => {
    const { url, token } = await Bun.file(join(up.facts.folder, 'admin.json')).json()
    const env = { DATABASE_URL: await ownerUrl(up), SEALPOST_ADMIN_URL: url, SEALPOST_ADMIN_TOKEN: token }
    await machine.run(['send', 'bob', 'too late'])
    await giveUp(env.DATABASE_URL, 'expired')
    const { id } = jsonOf(await machine.run(['dead', 'list', '--json'], { env }))
    for (const dead of [['dead'], ['admin', 'dead']]) {
      const both = await machine.run([...dead, 'redrive', String(id), '7'], { env })
      expect(both).toMatchObject({ code: 3, stderr: expect.stringContaining('2 dead letters were not redriven.') })
      expect(both.stdout.split('\n')).toEqual([
        '0 redriven, 1 not redriven',
        '7: no dead letter has this ID (unknown)',
        `${id}: it expired, so its envelope was not kept (not_kept)`,
        '',
      ])
      const one = await machine.run([...dead, 'redrive', String(id), '--json'], { env })
      expect([one.code, jsonOf(one)]).toEqual([1, { redriven: 0, left: 1, refused: [{ id, reason: 'not_kept' }] }])
      expect(errorOf(one).code).toBe('dead_letter_refused')
      const all = await machine.run([...dead, 'redrive', '--all'], { env })
      expect([all.code, all.stdout.split('\n')[1]]).toEqual([
        0,
        '1: it expired, so its envelope was not kept (not_kept)',
      ])
    }
    await machine.run(['dead', 'purge', '--all'], { env })
  })

  test('an operator inspects and controls the broker with the token that up stored', async () => {
    const { url, token } = await Bun.file(join(up.facts.folder, 'admin.json')).json()
    const env = { SEALPOST_ADMIN_URL: url, SEALPOST_ADMIN_TOKEN: token }
    const admin = (...words: string[]) => machine.run(['admin', ...words], { env })
    const { meshes } = jsonOf(await admin('overview', '--json'))
    expect(meshes).toBeInstanceOf(Array)
    expect((await admin('meshes')).stdout).toMatch(/^MESH .*\n[0-9a-f]{32} +home /)
    const { meshId } = jsonOf(await admin('meshes', '--json'))
    const peers = jsonLinesOf(await admin('peers', meshId, '--json'))
    expect(peers.map(({ name }) => name)).toEqual(expect.arrayContaining(['alice', 'bob']))
    expect((await admin('mesh', meshId)).stdout).toContain('home')
    expect((await admin('revoke-invite', meshId, 'ab'.repeat(16))).stdout).toBe('revoked\n')
    expect((await admin('audit')).stdout).toContain('token:sealpost up')
    expect((await admin('mesh', '0'.repeat(32))).code).toBe(3)
    expect((await admin('dead', 'purge')).code).toBe(2)
    expect((await admin('dead', 'list', '--reason', 'strike')).code).toBe(2)
    for (const change of ['redrive', 'purge']) expect((await admin('dead', change, '7')).code).toBe(3)
    expect((await admin('dead', 'list')).stdout).toBe('no dead letters\n')
    expect((await admin('console')).stdout).toBe(`${url}/console/#${token}\n`)
    const refused = await machine.run(['admin', 'database'], { env: { ...env, SEALPOST_ADMIN_TOKEN: 'spa_no' } })
    expect(refused).toMatchObject({ code: 4, stderr: expect.stringContaining('(token_invalid)') })
    expect((await machine.run(['admin', 'overview'])).code).toBe(2)
  })
})

/** Turns all queued messages into dead letters, as if they had failed or expired. */
async function giveUp(databaseUrl: string, reason: 'strikes' | 'expired' = 'strikes'): Promise<void> {
  const db = await openDatabase(databaseUrl, { connections: 1 })
  await db.run(
    (sql) => sql`
      with gone as (delete from message_queue returning *)
      insert into dead_letter (mesh_id, recipient, id, priority, sender, attempts, strikes, envelope_id, enqueued_at,
        reason, envelope)
      select mesh_id, recipient, id, priority, sender, 20, 20, envelope_id, enqueued_at, ${reason},
        case when ${reason} = 'strikes' then envelope end from gone`,
  )
  await db.close()
}

test('up prints the link of the demo when DEMO is on', async () => {
  await using machine = await Machine.make()
  const { facts } = await startUp(machine, AS_ALICE, { DEMO: 'on' })
  const page = await fetch(String(facts.demoUrl))
  expect([page.status, page.headers.get('content-type')]).toEqual([200, expect.stringContaining('text/html')])
})

test('up keeps its data, its port and its members, and ends cleanly with everything it started', async () => {
  await using machine = await Machine.make()
  const first = await startUp(machine, AS_ALICE)
  await letIn(machine, 'bob')
  const second = machine.start(['up', '--data', first.facts.folder])
  expect((await second.ended()).code).toBe(5)
  expect((await machine.run(['send', 'bob', 'wait for me'])).code).toBe(0)
  expect((await first.process.interrupt()).code).toBe(0)
  for (const pid of [first.facts.pid, first.facts.postgresPid]) expect(() => process.kill(pid, 0)).toThrow()
  expect((await stat(join(machine.folder, 'profiles/default/key.json'))).mode & 0o777).toBe(0o600)

  const again = await startUp(machine)
  expect(again.facts.url).toBe(first.facts.url)
  const heard = await machine.run(['listen', '--count', '1', '--json', '--profile', 'bob'])
  expect(jsonOf(heard).text).toBe('wait for me')
})

test.each([
  ['--name', 'a/b', 'name_malformed'],
  ['--url', 'nonsense', 'usage'],
  ['--url', 'https://broker.example', 'usage'],
  ['--host', '198.51.100.1', 'address_unusable'],
  ['--tls-cert=missing.pem', '--tls-key=missing.pem', 'tls_certificate_unreadable'],
])('up %s %s creates nothing', async (option, value, code) => {
  await using machine = await Machine.make()
  const ended = await machine.run(['up', '--json', '--data', join(machine.folder, 'outer/data'), option, value])
  expect(errorOf(ended).code).toBe(code)
  expect(await readdir(machine.folder)).not.toContain('outer')
})
