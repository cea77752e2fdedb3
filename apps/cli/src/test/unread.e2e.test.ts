/** Tests that commands of a profile without a session leave its unread mail as it is. */
import { expect, test } from 'vitest'
import { jsonLinesOf, Machine } from './cli.ts'
import { Agent } from './mcp.ts'

test('commands that wait for reports count no attempt for unread mail, and their reports arrive', async () => {
  await using machine = await Machine.withBroker('carol', 'frank')
  for (const text of ['one', 'two']) await machine.run(['send', 'frank', text])
  const carol = machine.start(['listen', '--profile', 'carol'])
  await carol.until('it listens', ({ stderr }) => stderr.includes('listening'))
  const waiting = ['send', 'carol', 'x', '--wait', 'settled', '--timeout', '1m', '--profile', 'frank']
  for (let turn = 0; turn < 7; turn++) expect((await machine.run(waiting)).code).toBe(0)
  const as = ['--profile', 'frank']
  const [sent] = jsonLinesOf(await machine.run(['sent', '--json', ...as]))
  expect((await machine.run(['why', sent.envelopeId, ...as])).code).toBe(0)
  expect((await machine.run(['request', 'carol', 'are you there?', '--timeout', '1s', ...as])).code).not.toBe(0)
  const unread = jsonLinesOf(await machine.run(['inbox', '--json', '--profile', 'frank']))
  expect(unread).toMatchObject([
    { text: 'one', attempts: 0 },
    { text: 'two', attempts: 0 },
  ])
}, 120_000)

test('an agent that reads nothing counts no attempt, and one that reads a message counts one', async () => {
  await using machine = await Machine.withBroker('bob')
  for (const text of ['one', 'two']) await machine.run(['send', 'bob', text])
  const waiting = async () => jsonLinesOf(await machine.run(['inbox', '--json', '--profile', 'bob']))
  const areHeld = () => expect.poll(waiting).toMatchObject([{ isHeld: true }, { isHeld: true }])
  {
    await using _agent = await Agent.start(machine, ['--profile', 'bob'])
    await areHeld()
  }
  await expect.poll(waiting).toMatchObject([{ attempts: 0 }, { attempts: 0 }])
  {
    await using agent = await Agent.start(machine, ['--profile', 'bob'])
    await areHeld()
    await agent.call('read_inbox', { limit: 1, waitSeconds: 0 })
  }
  await expect.poll(waiting).toMatchObject([
    { text: 'one', attempts: 1 },
    { text: 'two', attempts: 0 },
  ])
}, 120_000)
