/** Tests that looking at the inbox takes nothing and counts no attempt. */
import { expect, test } from 'vitest'
import { jsonLinesOf, jsonOf, Machine } from './cli.ts'
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
