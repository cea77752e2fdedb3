/** Tests that an agent learns what became of its messages, and that its own reading is confirmed. */
import { expect, test } from 'vitest'
import { jsonLinesOf, Machine } from './cli.ts'
import { Agent } from './mcp.ts'

test('an agent sees when another agent reads, settles and rejects its messages', async () => {
  await using machine = await Machine.withBroker('writer', 'reader')
  await using writer = await Agent.start(machine, ['--profile', 'writer'])
  const asked = { to: 'reader', waitFor: 'confirmed', waitSeconds: 0 }
  const first = (await writer.call('send_message', { ...asked, text: 'one' })).structured
  expect(first).toMatchObject({ isStored: true, state: 'stored' })
  const second = (await writer.call('send_message', { ...asked, text: 'two' })).structured
  const statusOf = async (envelopeId: string) =>
    (await writer.call('message_status', { envelopeId })).structured.messages[0]
  expect(await statusOf(first.envelopeId)).toMatchObject({
    state: 'stored',
    summary: expect.stringContaining('never connected'),
  })
  await using reader = await Agent.start(machine, ['--profile', 'reader'])
  const { messages } = (await reader.call('read_inbox', { waitSeconds: 40 })).structured
  const all =
    messages.length === 2
      ? messages
      : [...messages, ...(await reader.call('read_inbox', { waitSeconds: 40 })).structured.messages]
  await expect.poll(() => statusOf(first.envelopeId)).toMatchObject({ state: 'read', isSigned: true })
  const idOf = (text: string) => all.find((message: { text: string }) => message.text === text).messageId
  await reader.call('settle_message', { messageIds: [idOf('one')] })
  await reader.call('reject_message', { messageIds: [idOf('two')], reason: 'not for me' })
  await expect.poll(() => statusOf(first.envelopeId)).toMatchObject({ state: 'confirmed', isSigned: true })
  await expect
    .poll(() => statusOf(second.envelopeId))
    .toMatchObject({ state: 'rejected', isSigned: true, reason: 'not for me' })
  const last = (await writer.call('message_status', { to: 'reader' })).structured
  expect(last.messages.map(({ state }: { state: string }) => state)).toEqual(['rejected', 'confirmed'])
  expect((await writer.call('read_inbox', { waitSeconds: 0 })).structured.messages).toEqual([])
  const sent = jsonLinesOf(await machine.run(['sent', '--profile', 'writer', '--json']))
  expect(sent.map(({ state }) => state)).toEqual(['rejected', 'confirmed'])
})
