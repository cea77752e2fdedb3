/** Tests what the CLI reports about sent messages, with the commands as a user would run them. */
import { beforeEach, expect, test } from 'vitest'
import { jsonLinesOf, jsonOf, Machine } from './cli.ts'

let machine: Machine
beforeEach(async () => {
  machine = await Machine.withBroker('bob')
  return () => machine[Symbol.asyncDispose]()
})

test('a command waits until the recipient has confirmed, and lists and explains the messages afterwards', async () => {
  const waiting = await machine.run(['send', 'bob', 'one', '--json'])
  const { envelopeId } = jsonOf(waiting)
  const late = await machine.run(['send', 'bob', 'two', '--wait', 'settled', '--timeout', '1s', '--json'])
  expect(late.code).toBe(124)
  expect(JSON.parse(late.stdout)).toMatchObject({ state: 'stored' })
  expect(JSON.parse(late.stderr).error.code).toBe('timeout')
  const why = await machine.run(['why', envelopeId])
  expect(why.stdout).toMatch(/^stored \d\d:\d\d · bob never connected · attempt 1 of 20\n$/)
  const bob = machine.start(['listen', '--profile', 'bob'])
  await bob.until('it listens', ({ stderr }) => stderr.includes('listening'))
  const confirmed = await machine.run(['send', 'bob', 'three', '--wait', 'confirmed', '--json'])
  expect(confirmed.code).toBe(0)
  expect(jsonOf(confirmed)).toMatchObject({ state: 'confirmed', isSigned: true })
  const sent = jsonLinesOf(await machine.run(['sent', '--to', 'bob', '--json']))
  expect(sent.map(({ state }) => state)).toEqual(['confirmed', 'settled', 'stored'])
  expect(sent[2].broker).toMatchObject({ status: 'gone' })
  expect((await machine.run(['why', sent[0].envelopeId])).stdout).toMatch(/^confirmed \d\d:\d\d by bob\n$/)
  expect((await machine.run(['sent'])).stdout).toContain(`settled`)
})

test('a rejected message, an unknown id and a malformed id give a code and a sentence', async () => {
  const codeOf = async (words: readonly string[]) => {
    const { code, stderr } = await machine.run([...words, '--json'])
    return { exit: code, ...JSON.parse(stderr).error }
  }
  expect(await codeOf(['why', 'ab'.repeat(16)])).toMatchObject({ exit: 3, code: 'message_unknown' })
  expect(await codeOf(['why', 'nonsense'])).toMatchObject({ exit: 2, code: 'usage' })
  expect(await codeOf(['send', 'bob', 'x', '--wait', 'read'])).toMatchObject({ exit: 2, code: 'usage' })
})
