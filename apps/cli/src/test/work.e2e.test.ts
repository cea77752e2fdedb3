/** Tests `sealpost work` with real agents: scripts that a user could have written. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { jsonLinesOf, Machine } from './cli.ts'

let machine: Machine
beforeAll(async () => {
  machine = await Machine.withBroker('bob')
}, 120_000)
afterAll(() => machine[Symbol.asyncDispose]())

const AS_BOB = ['--profile', 'bob'] as const

test('the output of a command is the reply, in the thread of the message', async () => {
  const worker = machine.start(['work', '--json', '--count', '2', ...AS_BOB, '--', 'tr', 'a-z', 'A-Z'])
  await worker.until('it works', ({ stderr }) => stderr.includes('working as'))
  expect(await machine.run(['request', 'bob', 'hello'])).toMatchObject({ code: 0, stdout: 'HELLO\n' })
  expect((await machine.run(['send', 'bob', 'no request'])).code).toBe(0)
  const replied = await machine.run(['listen', '--count', '1', '--json'])
  expect(jsonLinesOf(replied)).toMatchObject([{ text: 'NO REQUEST', name: 'bob' }])
  const ended = await worker.ended()
  expect(ended).toMatchObject({ code: 0 })
  expect(jsonLinesOf(ended)).toMatchObject([
    { outcome: 'replied', attempt: 1, isResumed: false },
    { outcome: 'replied', attempt: 1, isResumed: false },
  ])
  process.stdout.write(
    `from the broker's storage to the agent's start: ${jsonLinesOf(ended).map(({ waitedMs }) => waitedMs.toFixed(0))} ms\n`,
  )
})
