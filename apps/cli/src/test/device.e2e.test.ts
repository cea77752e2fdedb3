/** One person, several machines, from the command line. */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { letIn, Machine, startUp } from './cli.ts'

let machine: Machine

beforeEach(async () => {
  machine = await Machine.make()
  await startUp(machine, ['--port', '0', '--name', 'alice'])
  await letIn(machine, 'bob')
})
afterEach(() => machine[Symbol.asyncDispose]())

const json = ({ stdout }: { stdout: string }) => JSON.parse(stdout)
const failure = ({ code, stderr }: { code: number | null; stderr: string }) => [
  code,
  JSON.parse(stderr.trim().split('\n').at(-1)!).error.code,
]

test('a machine is added by one line, is written to, and is removed', async () => {
  const { invite } = json(await machine.run(['device', 'add', 'phone', '--json']))
  const joined = json(await machine.run(['join', invite, '--profile', 'phone', '--json']))
  expect(joined.name).toBe('alice/phone')
  expect(failure(await machine.run(['join', invite, '--profile', 'thief', '--json']))).toEqual([4, 'invite_refused'])
  expect((await machine.run(['device', 'list', 'alice', '--profile', 'bob'])).stdout).toMatch(/^LABEL.*\nphone /)

  await machine.run(['send', 'bob', 'hello', '--profile', 'phone'])
  const heard = json(await machine.run(['listen', '--count', '1', '--json', '--profile', 'bob']))
  expect(heard).toMatchObject({ text: 'hello', from: joined.key, name: 'alice', device: 'phone' })
  await machine.run(['send', 'bob', 'once more', '--profile', 'phone'])
  expect((await machine.run(['listen', '--count', '1', '--profile', 'bob'])).stdout).toMatch(
    /alice\/phone {2}once more/,
  )

  expect((await machine.run(['send', 'alice/phone', 'one', '--profile', 'bob'])).code).toBe(0)
  const every = json(await machine.run(['send', 'alice', 'all', '--every-device', '--profile', 'bob', '--json']))
  expect(every.devices).toHaveLength(2)
  const atPhone = await machine.run(['listen', '--count', '2', '--profile', 'phone'])
  expect(atPhone.stdout).toMatch(/bob {2}one\n.*bob {2}all/)
  const free = json(await machine.run(['send', 'alice', 'any', '--free-device', '--profile', 'bob', '--json']))
  expect(free.to).toBe(heard.person)

  expect((await machine.run(['device', 'remove', 'phone'])).code).toBe(0)
  expect(failure(await machine.run(['peers', '--profile', 'phone', '--json']))).toEqual([4, 'revoked'])
  expect(failure(await machine.run(['device', 'remove', 'phone', '--json']))).toEqual([3, 'unknown_device'])
  expect(failure(await machine.run(['device', 'add', 'a/b', '--json']))).toEqual([2, 'label_malformed'])
})

test('a new identity key keeps name, mail and who knows it', async () => {
  await machine.run(['send', 'alice', 'before', '--profile', 'bob'])
  const { key, fingerprint } = json(await machine.run(['key', 'rotate', '--identity', '--json']))
  expect(json(await machine.run(['key', 'fingerprint', '--json']))).toMatchObject({ key, fingerprint })
  await machine.run(['send', 'alice', 'after', '--profile', 'bob'])
  const heard = await machine.run(['listen', '--count', '2'])
  expect(heard.stdout).toMatch(/bob {2}before\n.*bob {2}after/)
  const peers = await machine.run(['peers', '--profile', 'bob', '--json'])
  const alice = peers.stdout
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line))
    .find(({ name }) => name === 'alice')
  expect(alice).toMatchObject({ peer: key, role: 'admin', known: 'yes' })
})
