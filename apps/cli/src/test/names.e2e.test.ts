/** Tests names on the command line: Unicode, names that look alike, unknown names, and verified contacts. */
import { beforeAll, expect, test } from 'vitest'
import { failureOf, jsonLinesOf, jsonOf, Machine } from './cli.ts'

let machine: Machine
beforeAll(async () => {
  machine = await Machine.withBroker('bob')
  const invite = (await machine.run(['invite', 'create', '--quiet'])).stdout.trim()
  expect(await machine.run(['join', invite, '--name', 'Zoe\u0308', '--profile', 'zoe'])).toMatchObject({ code: 0 })
  return () => machine[Symbol.asyncDispose]()
})

const peerNamed = async (name: string) =>
  jsonLinesOf(await machine.run(['peers', '--json'])).find((peer) => peer.name === name)

test('a member with a Unicode name is listed, addressed in any form, and shown', async () => {
  expect(await peerNamed('Zoë')).toMatchObject({ name: 'Zoë', known: '', verified: false })
  for (const typed of ['Zoe\u0308', 'xn--Zo-ija'])
    expect((await machine.run(['send', typed, 'hello', '--profile', 'bob'])).code).toBe(0)
  await machine.run(['send', 'bob', 'hi', '--profile', 'zoe'])
  const { stdout } = await machine.run(['listen', '--count', '1', '--profile', 'bob'])
  expect(stdout).toMatch(/ Zoë \([\w-]{9}\) {2}hi\n/)
  expect(jsonOf(await machine.run(['group', 'create', '会議', 'Zoë', '--json']))).toMatchObject({ name: '会議' })
  expect((await machine.run(['group', 'send', '会議', 'begin'])).code).toBe(0)
})

test('a name of two scripts, or that looks like a taken one, is refused', async () => {
  const { invite } = jsonOf(await machine.run(['invite', 'create', '--json']))
  const join = (name: string) => machine.run(['join', invite, '--name', name, '--profile', 'impostor', '--json'])
  expect(failureOf(await join('b\u043eb'))).toEqual([2, 'name_malformed'])
  expect(failureOf(await join('bo\u200db'))).toEqual([2, 'name_malformed'])
  expect(failureOf(await join('b0b'))).toEqual([5, 'name_taken'])
  expect(failureOf(await join('ZOE\u0308'))).toEqual([5, 'name_taken'])
})

test('an unknown name is refused with suggestions', async () => {
  const refused = await machine.run(['send', 'bbo', 'x', '--no-wait', '--json'])
  expect(failureOf(refused)).toEqual([3, 'name_unknown'])
  expect(refused.stderr).toContain('Did you mean bob?')
  expect((await machine.run(['request', 'Zoé', 'x'])).stderr).toContain('Did you mean Zoë?')
  expect((await machine.run(['group', 'send', '会議室', 'x'])).stderr).toContain('Did you mean 会議?')
  expect((await machine.run(['group', 'add', '会議', 'bobb'])).stderr).toContain('Did you mean bob?')
})

test('a contact is verified with the fingerprint that it shows, and then listed without it', async () => {
  const { fingerprint } = jsonOf(await machine.run(['key', 'fingerprint', '--json', '--profile', 'bob']))
  const other = jsonOf(await machine.run(['key', 'fingerprint', '--json'])).fingerprint
  const verify = (...words: string[]) => machine.run(['peers', '--verify', ...words, '--json'])
  expect(failureOf(await verify('bob', other))).toEqual([4, 'fingerprint_differs'])
  expect(failureOf(await verify('bob', fingerprint.slice(0, 9)))).toEqual([2, 'usage'])
  expect(failureOf(await verify('bob'))).toEqual([2, 'usage'])
  expect(jsonOf(await verify('bob', fingerprint.toLowerCase()))).toMatchObject({ name: 'bob', verified: true })
  expect(await peerNamed('bob')).toMatchObject({ known: 'verified', verified: true })
  await machine.run(['send', 'alice', 'hi', '--profile', 'bob'])
  expect((await machine.run(['listen', '--count', '1'])).stdout).toMatch(/ bob {2}hi\n/)
})
