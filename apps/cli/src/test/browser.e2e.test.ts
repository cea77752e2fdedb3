/** Tests that a user at the demo page and an agent behind `sealpost mcp` exchange messages. */
import { chromiumPath, openBrowser, Person } from '@sealpost/ui/testing'
import { expect, test } from 'vitest'
import { AS_ALICE, letIn, Machine, startUp } from './cli.ts'
import { Agent } from './mcp.ts'

const isMissing = chromiumPath === null && process.env.CI !== 'true'
if (isMissing) process.stdout.write('skipped: an agent and a browser, for there is no Chromium here\n')

test.skipIf(isMissing)('an agent and a user in a browser exchange messages both ways', async () => {
  await using machine = await Machine.make()
  const { facts } = await startUp(machine, AS_ALICE, { DEMO: 'on' })
  await letIn(machine, 'agent')
  await using agent = await Agent.start(machine, ['--profile', 'agent', '--as', 'clock'])
  await using browser = await openBrowser()
  const bea = await Person.open(browser)
  const invite = (await machine.run(['invite', 'create', '--quiet'])).stdout.trim()
  await bea.join(`${facts.url.replace(/^ws/, 'http')}/demo#${invite}`, 'bea')

  await bea.select('agent')
  await bea.say('what is the time?')
  const params = await agent.readOne()
  expect(params).toMatchObject({ from: { name: 'bea' }, text: 'what is the time?' })
  await agent.call('settle_message', { messageIds: [params.messageId] })
  await bea.fate('stored', 1)

  const sent = await agent.call('send_message', { to: 'bea', text: 'noon, by my clock' })
  expect(sent.structured).toMatchObject({ to: { name: 'bea' }, isStored: true })
  expect(await bea.lines('written')).toEqual(['what is the time?'])
  await bea.select('clock')
  await bea.reads('noon, by my clock')
  expect(await bea.lines('received')).toEqual(['noon, by my clock'])
  expect(bea.complaints).toEqual([])
})
