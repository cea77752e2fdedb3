/** Tests jobs of pools and requests to several peers, on the command line and for agents. */
import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { failureOf, jsonLinesOf, jsonOf, Machine } from './cli.ts'
import { Agent } from './mcp.ts'

let machine: Machine
beforeAll(async () => {
  machine = await Machine.withBroker('bob', 'carol')
  await machine.run(['pool', 'create', 'workers', 'bob', 'carol'])
})
afterAll(() => machine[Symbol.asyncDispose]())

test('a worker takes one job, and a job that fails goes back to the pool', async () => {
  const take = (...words: string[]) => machine.run(['pool', 'take', 'workers', '--profile', 'bob', ...words])
  expect(failureOf(await take('--timeout', '1s', '--json'))).toEqual([124, 'timeout'])
  expect(failureOf(await machine.run(['pool', 'take', 'workers', '--json']))).toEqual([4, 'not_in_pool'])
  for (const text of ['one', 'two']) await machine.run(['pool', 'send', 'workers', text])
  await machine.run(['send', 'bob', 'not a job'])
  expect(failureOf(await take('--exec', 'exit 3', '--json'))).toEqual([1, 'job_failed'])
  const texts = [jsonOf(await take('--json')).text, jsonOf(await take('--json')).text]
  expect(texts.sort()).toEqual(['one', 'two'])
  const replying = take('--files', join(machine.folder, 'jobs'), '--exec', 'tr a-z A-Z <"$SEALPOST_FILE"', '--reply')
  const files = join(machine.folder, 'files')
  const asked = machine.run(['request', '--pool', 'workers', '--files', files, '--json'], { stdin: 'y'.repeat(80_000) })
  const reply = jsonOf(await asked)
  expect(await Bun.file(reply.file.path).text()).toBe('Y'.repeat(80_000))
  expect((await replying).code).toBe(0)
  const { text } = jsonOf(await machine.run(['listen', '--count', '1', '--json', '--profile', 'bob']))
  expect(text).toBe('not a job')
})

test('a worker takes jobs beside other commands of its profile, and leaves the other messages to them', async () => {
  const take = () => machine.start(['pool', 'take', 'workers', '--profile', 'carol', '--json'])
  await machine.run(['send', 'carol', 'not a job'])
  const first = take()
  const socket = join(machine.environment.SEALPOST_HOME!, 'carol/sessions/host.sock')
  await expect.poll(() => existsSync(socket), { timeout: 60_000 }).toBe(true)
  const listener = machine.start(['listen', '--profile', 'carol', '--json'])
  await listener.until('it has the message', ({ stdout }) => stdout.includes('not a job'))
  for (const text of ['three', 'four']) await machine.run(['pool', 'send', 'workers', text])
  const texts = (await Promise.all([first.ended(), take().ended()])).map((taken) => jsonOf(taken).text)
  expect(texts.sort()).toEqual(['four', 'three'])
  await machine.run(['send', 'carol', 'the last one'])
  await listener.until('it has the message', ({ stdout }) => stdout.includes('the last one'))
  await listener.interrupt()
  expect(jsonLinesOf(listener).map(({ text }) => text)).toEqual(['not a job', 'the last one'])
})

test('an agent sends to several peers, sends files of one folder, and works on one job at a time', async () => {
  const folder = join(machine.folder, 'outgoing')
  await Bun.write(join(folder, 'plan.txt'), 'the plan')
  await writeFile(join(machine.folder, 'secret.txt'), 'a secret')
  await using alice = await Agent.start(machine, ['--send-files', folder])
  const long = await alice.call('send_message', { to: ['bob', 'carol'], text: 'x'.repeat(10 * 2 ** 20) })
  expect(long.structured.outcomes.map(({ code }) => code)).toEqual([null, null])
  const code = async (input: object) =>
    (await alice.call('send_message', { to: 'bob', text: '', ...input })).error?.code
  expect(await code({ filePath: 'plan.txt' })).toBeUndefined()
  expect(await code({ filePath: '../secret.txt' })).toBe('file_not_allowed')
  expect(await code({ filePath: 'missing.txt' })).toBe('file_missing')
  expect(await code({ to: '@everybody' })).toBe('usage')
  for (const text of ['one', 'two']) await alice.call('send_to_pool', { pool: 'workers', text })

  await using bob = await Agent.start(machine, ['--profile', 'bob'])
  expect((await bob.call('list_pools')).structured.pools).toMatchObject([{ name: 'workers', isWorker: true }])
  const [read] = (await bob.call('read_inbox', { limit: 1, waitSeconds: 20 })).structured.messages
  expect(read).toMatchObject({
    text: expect.stringMatching(/^x{1000}\n/),
    file: { bytes: 10 * 2 ** 20 },
  })
  const take = async () => (await bob.call('take_job', { pool: 'workers', waitSeconds: 40 })).structured.job!
  const first = await take()
  expect((await bob.call('take_job', { pool: 'workers', waitSeconds: 0 })).structured.job).toBeNull()
  expect((await machine.run(['pool', 'take', 'workers', '--profile', 'carol', '--json'])).stdout).toContain('"two"')
  expect(first).toMatchObject({ text: 'one', attempt: 1 })
  expect((await bob.call('settle_message', { messageIds: [first.messageId] })).isError).toBe(false)
})

test('a request to a group prints the reply of each member, or why there is none', async () => {
  await machine.run(['group', 'create', 'crew', 'bob', 'carol'])
  await machine.run(['consent', 'block', 'alice', '--profile', 'carol'])
  const bob = machine.start(['listen', '--exec', 'tr a-z A-Z', '--reply', '--profile', 'bob'])
  await bob.until('it listens', ({ stderr }) => stderr.includes('listening'))
  await using alice = await Agent.start(machine)
  const { answers } = (await alice.call('request', { to: '@crew', text: 'now?' })).structured
  expect(answers.map(({ code, answer }) => answer?.text ?? code).sort()).toEqual(['NOW?', 'not_allowed'])
  const replies = jsonLinesOf(await machine.run(['request', '@crew', 'ready?', '--timeout', '60s', '--json']))
  expect(replies).toContainEqual(expect.objectContaining({ name: 'bob', text: 'READY?', code: null }))
  expect(replies).toContainEqual(expect.objectContaining({ name: 'carol', code: 'not_allowed' }))
  await bob.interrupt()
  await machine.run(['group', 'remove', 'crew', 'carol'])
  expect(failureOf(await machine.run(['request', '@crew', 'x', '--timeout', '1s', '--json']))).toEqual([124, 'timeout'])
})
