/** Tests a user with several machines. */
import { beforeEach, expect, test } from 'vitest'
import { failureOf, jsonLinesOf, jsonOf, Machine } from './cli.ts'

let machine: Machine
beforeEach(async () => {
  machine = await Machine.withBroker('bob')
  return () => machine[Symbol.asyncDispose]()
})

test('one command adds a machine, which receives messages and can be removed', async () => {
  const { invite } = jsonOf(await machine.run(['device', 'add', 'phone', '--json']))
  const joined = jsonOf(await machine.run(['join', invite, '--profile', 'phone', '--json']))
  expect(joined.name).toBe('alice/phone')
  expect(failureOf(await machine.run(['join', invite, '--profile', 'thief', '--json']))).toEqual([4, 'invite_refused'])
  expect((await machine.run(['device', 'list', 'alice', '--profile', 'bob'])).stdout).toMatch(/^LABEL.*\nphone /)

  await machine.run(['send', 'bob', 'hello', '--profile', 'phone'])
  const heard = jsonOf(await machine.run(['listen', '--count', '1', '--json', '--profile', 'bob']))
  expect(heard).toMatchObject({ text: 'hello', from: joined.key, name: 'alice', device: 'phone' })
  await machine.run(['send', 'bob', 'once more', '--profile', 'phone'])
  expect((await machine.run(['listen', '--count', '1', '--profile', 'bob'])).stdout).toMatch(
    /alice\/phone \([\w-]{9}\) {2}once more/,
  )

  expect((await machine.run(['send', 'alice/phone', 'one', '--profile', 'bob'])).code).toBe(0)
  const every = jsonOf(await machine.run(['send', 'alice', 'all', '--every-device', '--profile', 'bob', '--json']))
  expect(every.devices).toHaveLength(2)
  const atPhone = await machine.run(['listen', '--count', '2', '--profile', 'phone'])
  expect(atPhone.stdout).toMatch(/bob \([\w-]{9}\) {2}one\n.*bob \([\w-]{9}\) {2}all/)
  const free = jsonOf(await machine.run(['send', 'alice', 'any', '--free-device', '--profile', 'bob', '--json']))
  expect(free.to).toBe(heard.person)

  expect((await machine.run(['device', 'remove', 'phone'])).code).toBe(0)
  expect(failureOf(await machine.run(['peers', '--profile', 'phone', '--json']))).toEqual([4, 'revoked'])
  expect(failureOf(await machine.run(['device', 'remove', 'phone', '--json']))).toEqual([3, 'unknown_device'])
  expect(failureOf(await machine.run(['device', 'add', 'a/b', '--json']))).toEqual([2, 'label_malformed'])
})

test('a new identity key keeps the name, waiting messages and contacts', async () => {
  await machine.run(['send', 'alice', 'before', '--profile', 'bob'])
  const { key, fingerprint } = jsonOf(await machine.run(['key', 'rotate', '--identity', '--json']))
  expect(jsonOf(await machine.run(['key', 'fingerprint', '--json']))).toMatchObject({ key, fingerprint })
  await machine.run(['send', 'alice', 'after', '--profile', 'bob'])
  const heard = await machine.run(['listen', '--count', '2'])
  expect(heard.stdout).toMatch(/bob \([\w-]{9}\) {2}before\n.*bob \([\w-]{9}\) {2}after/)
  const peers = await machine.run(['peers', '--profile', 'bob', '--json'])
  const alice = jsonLinesOf(peers).find(({ name }) => name === 'alice')
  expect(alice).toMatchObject({ peer: key, role: 'admin', known: 'yes' })
})
