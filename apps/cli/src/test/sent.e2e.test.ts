/** Tests what the CLI and agents learn about sent messages, with the programs as a user would run them. */
import { beforeAll, expect, test } from 'vitest'
import { jsonLinesOf, jsonOf, Machine } from './cli.ts'
import { Agent } from './mcp.ts'

let machine: Machine
beforeAll(async () => {
  machine = await Machine.withBroker('bob', 'writer', 'reader')
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
  expect(why.stdout).toMatch(/^stored \d\d:\d\d · bob \(\S+\) never connected · attempt 1 of 20\n$/)
  const bob = machine.start(['listen', '--profile', 'bob'])
  await bob.until('it listens', ({ stderr }) => stderr.includes('listening'))
  const confirmed = await machine.run(['send', 'bob', 'three', '--wait', 'confirmed', '--json'])
  expect(confirmed.code).toBe(0)
  expect(jsonOf(confirmed)).toMatchObject({ state: 'confirmed', isSigned: true })
  const pushed = await machine.run(['send', 'bob', 'four', '--wait', 'pushed', '--json'])
  expect(jsonOf(pushed).state).toMatch(/^(pushed|settled)$/)
  const sentOf = async () => jsonLinesOf(await machine.run(['sent', '--to', 'bob', '--json']))
  const statesOf = async () => (await sentOf()).map(({ state }) => state)
  await expect.poll(statesOf).toEqual(['settled', 'confirmed', 'settled', 'stored'])
  const [, ...sent] = await sentOf()
  expect(sent[2].broker).toMatchObject({ status: 'gone' })
  expect((await machine.run(['why', sent[0].envelopeId])).stdout).toMatch(/^confirmed \d\d:\d\d by bob \(\S+\)\n$/)
  expect((await machine.run(['sent'])).stdout).toContain(`settled`)
})

test('a wait through the session of another command continues after that command has ended', async () => {
  const holder = machine.start(['listen', '--profile', 'writer'])
  await holder.until('it listens', ({ stderr }) => stderr.includes('listening'))
  const words = ['send', 'reader', 'x', '--wait', 'confirmed', '--timeout', '2m', '--profile', 'writer', '--json']
  const waiting = machine.start(words)
  const sent = async () => jsonLinesOf(await machine.run(['sent', '--profile', 'writer', '--json']))
  await expect.poll(sent).toMatchObject([{ state: 'stored' }])
  await holder.interrupt()
  const reader = machine.start(['listen', '--count', '1', '--profile', 'reader'])
  expect((await reader.ended()).code).toBe(0)
  expect(await waiting.ended()).toMatchObject({ code: 0, stdout: expect.stringContaining('"confirmed"') })
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

test('an agent sees when another agent reads, settles and rejects its messages', async () => {
  await using writer = await Agent.start(machine, ['--profile', 'writer'])
  const asked = { to: 'reader', waitFor: 'confirmed', waitSeconds: 0 }
  const first = (await writer.call('send_message', { ...asked, text: 'one' })).structured
  expect(first).toMatchObject({ isStored: true, state: 'stored' })
  const second = (await writer.call('send_message', { ...asked, text: 'two' })).structured
  const statusOf = async (envelopeId: string) =>
    (await writer.call('message_status', { envelopeId })).structured.messages[0]
  expect(await statusOf(first.envelopeId)).toMatchObject({
    state: 'stored',
    summary: expect.stringMatching(/reader \(\S+\) (offline|never connected)/),
  })
  await using reader = await Agent.start(machine, ['--profile', 'reader'])
  const { messages } = (await reader.call('read_inbox', { waitSeconds: 40 })).structured
  const all =
    messages.length === 2
      ? messages
      : [...messages, ...(await reader.call('read_inbox', { waitSeconds: 40 })).structured.messages]
  await expect.poll(() => statusOf(first.envelopeId)).toMatchObject({ state: 'read', isSigned: true })
  const idOf = (word: string) => all.find(({ text }) => text === word)!.messageId
  await reader.call('settle_message', { messageIds: [idOf('one')] })
  await reader.call('reject_message', { messageIds: [idOf('two')], reason: 'not for me' })
  await expect.poll(() => statusOf(first.envelopeId)).toMatchObject({ state: 'confirmed', isSigned: true })
  await expect
    .poll(() => statusOf(second.envelopeId))
    .toMatchObject({ state: 'rejected', isSigned: true, reason: 'not for me' })
  const last = (await writer.call('message_status', { to: 'reader', limit: 2 })).structured
  expect(last.messages).toMatchObject([{ state: 'rejected' }, { state: 'confirmed' }])
  expect((await writer.call('read_inbox', { waitSeconds: 0 })).structured.messages).toEqual([])
})
