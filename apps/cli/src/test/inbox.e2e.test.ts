/** Tests that looking at the inbox takes nothing and counts no attempt. */
import { expect, test } from 'vitest'
import { failureOf, jsonLinesOf, jsonOf, Machine } from './cli.ts'
import { Agent } from './mcp.ts'

test('the inbox shows what waits, also to a second command, and changes nothing', async () => {
  await using machine = await Machine.withBroker('bob')
  await machine.run(['group', 'create', 'crew', 'bob'])
  await machine.run(['send', 'bob', 'first of all'])
  await machine.run(['group', 'send', 'crew', 'lunch?'])
  await machine.run(['send', 'bob', 'urgent', '--priority', 'now'])
  await machine.run(['send', 'bob', 'later', '--in', '1h'])
  const look = async () => jsonLinesOf(await machine.run(['inbox', '--json', '--profile', 'bob']))
  for (let turn = 0; turn < 2; turn++)
    expect(await look()).toMatchObject([
      { text: 'urgent', priority: 'now', attempts: 0, name: null, isHeld: false },
      { text: 'first of all', attempts: 0, group: null },
      { text: 'lunch?', attempts: 0, group: expect.any(String) },
    ])
  const shown = await machine.run(['inbox', '--limit', '1', '--profile', 'bob'])
  expect([shown.code, shown.stdout]).toEqual([0, expect.stringMatching(/now +0 +\d+ B +urgent/)])
  expect(shown.stderr).toContain('1 of 3 messages')
  const bob = await Agent.start(machine, ['--profile', 'bob'])
  await expect.poll(look).toMatchObject([{ isHeld: true }, { isHeld: true }, { isHeld: true }])
  await bob[Symbol.asyncDispose]()
  const heard = jsonOf(await machine.run(['listen', '--count', '1', '--json', '--profile', 'bob']))
  expect(heard).toMatchObject({ text: 'urgent' })
})

test('the size of a waiting message reveals only its bucket, unless SEALPOST_PADDING is off', async () => {
  await using machine = await Machine.withBroker('bob')
  const texts = ['yes', 'no, not before noon', 'x'.repeat(200), 'x'.repeat(300)]
  for (const text of texts) expect((await machine.run(['send', 'bob', text])).code).toBe(0)
  await machine.run(['send', 'bob', 'yes'], { env: { SEALPOST_PADDING: 'off' } })
  const waiting = jsonLinesOf(await machine.run(['inbox', '--json', '--profile', 'bob']))
  const [short, long] = [197 + 256, 197 + 304]
  expect(waiting.map(({ text, bytes }) => [text, bytes])).toEqual([
    ...texts.map((text) => [text, text.length > 256 ? long : short]),
    ['yes', expect.toSatisfy((bytes: number) => bytes < short)],
  ])
  const bad = await machine.run(['send', 'bob', 'yes', '--json'], { env: { SEALPOST_PADDING: 'maybe' } })
  expect([failureOf(bad), bad.stderr]).toEqual([[2, 'usage'], expect.stringContaining('must be `on` or `off`')])
})
