/** Tests requests, replies and peer statuses by running the CLI commands as a user would. */
import { beforeEach, expect, test } from 'vitest'
import { failureOf, jsonLinesOf, Machine } from './cli.ts'

let machine: Machine
beforeEach(async () => {
  machine = await Machine.withBroker('bob')
  return () => machine[Symbol.asyncDispose]()
})

const ANSWER_CMD = 'if [ "$SEALPOST_IS_REQUEST" ]; then tr a-z A-Z; else cat; fi'

test('a request gets the output of a command as its reply, whichever process holds the session', async () => {
  const bob = machine.start(['listen', '--exec', ANSWER_CMD, '--reply', '--profile', 'bob'])
  await bob.until('it listens', ({ stderr }) => stderr.includes('listening'))
  expect(await machine.run(['request', 'bob', 'hello'])).toMatchObject({ code: 0, stdout: 'HELLO\n' })
  const alice = machine.start(['listen', '--json'])
  await alice.until('it listens', ({ stderr }) => stderr.includes('listening'))
  const asked = await machine.run(['request', 'bob', '--json'], { stdin: 'over the desk' })
  expect(JSON.parse(asked.stdout)).toMatchObject({ text: 'OVER THE DESK', isError: false })
  expect(alice.lines).toEqual([])
  expect((await machine.run(['send', 'bob', 'no params'])).code).toBe(0)
  await bob.until('what is no params is printed', ({ stdout }) => stdout.includes('no params'))
})

test('without a reply a request fails at once if the caller wants that, otherwise on timeout', async () => {
  expect(await machine.run(['request', 'bob', 'x', '--if-online', '--json'])).toMatchObject({
    code: 7,
    stderr: expect.stringContaining('"no_responder"'),
  })
  expect(await machine.run(['request', 'bob', 'x', '--timeout', '1s'])).toMatchObject({
    code: 124,
    stderr: expect.stringContaining('No reply arrived in time'),
  })
  // Alice's next command sends a request that was unsent at the timeout.
  const alice = machine.start(['listen', '--json', '--count', '1'])
  const late = machine.start(['listen', '--exec', ANSWER_CMD, '--reply', '--count', '1', '--profile', 'bob'])
  expect((await late.ended()).code).toBe(0)
  expect(JSON.parse((await alice.ended()).stdout)).toMatchObject({ text: 'X', name: 'bob' })
})

test('a request ends in time although the process that has the connection is suspended', async () => {
  const alice = machine.start(['listen'])
  await alice.until('it listens', ({ stderr }) => stderr.includes('listening'))
  const checks = async () => (await machine.run(['doctor', '--json'])).stdout
  await expect.poll(checks, { timeout: 60_000 }).toContain('Another command is using')
  expect((await machine.run(['send', 'bob', 'x'])).code).toBe(0)
  alice.child.kill('SIGSTOP')
  try {
    const asked = await machine.run(['request', 'bob', 'x', '--timeout', '1s', '--json'])
    expect(failureOf(asked)).toEqual([124, 'timeout'])
  } finally {
    alice.child.kill('SIGCONT')
  }
})

test("a peer's status is stored, and others see it while the peer is online", async () => {
  const says = (words: string[]) => machine.run(['status', ...words, '--profile', 'bob'])
  expect(await says(['dnd', 'asleep'])).toMatchObject({
    code: 0,
    stderr: expect.stringContaining('while you are connected'),
  })
  expect((await machine.run(['peers'])).stdout).not.toContain('asleep')
  const bob = machine.start(['listen', '--profile', 'bob'])
  await bob.until('it listens', ({ stderr }) => stderr.includes('listening'))
  const seen = async () => (await machine.run(['peers'])).stdout
  await expect.poll(seen).toMatch(/^bob .*dnd: asleep/m)
  expect(await says(['working'])).toMatchObject({ code: 0, stderr: expect.stringContaining('your status is working') })
  await expect.poll(seen).toMatch(/^bob .*working/m)
  expect(jsonLinesOf(await machine.run(['peers', '--json']))).toContainEqual(
    expect.objectContaining({ name: 'bob', isOnline: true, availability: 'working', summary: '' }),
  )
  expect(await says(['dnd', 'in Zürich'])).toMatchObject({ code: 2, stderr: expect.stringContaining('ASCII') })
  expect(await says(['dead'])).toMatchObject({ code: 2 })
  expect((await says([])).stdout).toMatch(/says +working/)
})
