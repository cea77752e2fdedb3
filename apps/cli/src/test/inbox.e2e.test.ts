/** Tests that looking at the inbox takes nothing and counts no attempt. */
import { paddedLength } from '@sealpost/identity'
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
      { text: 'urgent', priority: 'now', attempts: 0, name: 'alice', isHeld: false },
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

test('a message of a session shows its address, and the messages to a named session are shown with --as', async () => {
  await using machine = await Machine.withBroker('bob', 'carol')
  const builds = await Agent.start(machine, ['--profile', 'bob', '--as', 'builds'])
  await builds.call('send_message', { to: 'carol', text: 'from a session' })
  await builds[Symbol.asyncDispose]()
  const carol = await Agent.start(machine, ['--profile', 'carol', '--as', 'chat'])
  const { to } = (await carol.call('send_message', { to: 'bob/builds', text: 'to a session' })).structured
  expect(to).toMatchObject({ name: 'bob/builds', verified: false })
  const several = await carol.call('send_message', { to: ['bob/builds', 'bob'], text: 'to both' })
  expect(several.structured.outcomes).toMatchObject([{ to: { name: 'bob/builds' } }, { to: { name: 'bob' } }])
  await carol[Symbol.asyncDispose]()
  const look = (...words: string[]) => machine.run(['inbox', ...words])
  const [waiting] = jsonLinesOf(await look('--profile', 'carol', '--json'))
  expect(waiting).toMatchObject({
    text: 'from a session',
    device: 'builds',
    person: expect.not.stringMatching(waiting.sender),
  })
  expect((await look('--profile', 'carol')).stdout).toMatch(/ bob\/builds \(\S+\) +next /)
  expect(jsonLinesOf(await look('--profile', 'bob', '--as', 'builds', '--json'))).toMatchObject([
    { text: 'to a session' },
    { text: 'to both' },
  ])
  expect(failureOf(await look('--profile', 'bob', '--as', 'build', '--json'))).toEqual([3, 'session_unknown'])
  const sent = await machine.run(['send', 'bob,bob/builds', 'x', '--ttl', '3650d', '--profile', 'carol'])
  expect(sent.stderr).toMatch(/not for bob\/builds \(\S+\) \(ttl_too_long\)/)
})

test('the size of a waiting message reveals only its bucket, unless SEALPOST_PADDING is off', async () => {
  await using machine = await Machine.withBroker('bob')
  for (const text of ['yes', 'no, not before noon', 'x'.repeat(100), 'x'.repeat(300)])
    expect((await machine.run(['send', 'bob', text])).code).toBe(0)
  for (const text of ['yes', 'yes!']) await machine.run(['send', 'bob', text], { env: { SEALPOST_PADDING: 'off' } })
  const waiting = jsonLinesOf(await machine.run(['inbox', '--json', '--profile', 'bob']))
  const contents = waiting.map(({ bytes }) => bytes - 197) // without the overhead of an envelope
  const isPadded = contents.map((bytes) => paddedLength(bytes) === bytes)
  expect(isPadded.slice(0, 4)).toEqual(Array(4).fill(true))
  expect(isPadded.slice(4)).toContain(false)
  const bad = await machine.run(['send', 'bob', 'yes', '--json'], { env: { SEALPOST_PADDING: 'maybe' } })
  expect([failureOf(bad), bad.stderr]).toEqual([[2, 'usage'], expect.stringContaining('must be `on` or `off`')])
})
