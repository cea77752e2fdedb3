/** Tests what `sealpost sent` and `sealpost why` show of sessions, groups, pools, requests and replies, as a user runs them. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { failureOf, jsonLinesOf, jsonOf, Machine } from './cli.ts'
import { Agent } from './mcp.ts'

let machine: Machine
beforeAll(async () => {
  machine = await Machine.withBroker('bob', 'carol', 'dave')
})
afterAll(() => machine[Symbol.asyncDispose]())

const sentOf = async (...words: string[]) => jsonLinesOf(await machine.run(['sent', '--json', ...words]))
const whyOf = async (envelopeId: string) => (await machine.run(['why', envelopeId])).stdout

async function listen(profile: string, ...words: string[]) {
  const running = machine.start(['listen', '--profile', profile, ...words])
  await running.until('it listens', ({ stderr }) => stderr.includes('listening'))
  return running
}

test('commands and other agents find what a session has sent, and name the session', async () => {
  const bob = await listen('bob')
  await using api = await Agent.start(machine, ['--as', 'api'])
  await using other = await Agent.start(machine, ['--as', 'other'])
  const asked = { to: 'bob', text: 'from a session', waitFor: 'confirmed' }
  const { envelopeId } = (await api.call('send_message', asked)).structured
  await machine.run(['send', 'bob', 'from a command'])
  const [newest, before] = await sentOf()
  expect(newest).toMatchObject({ session: null, bodyBytes: 14 })
  expect(before).toMatchObject({ envelopeId, session: 'api', state: 'confirmed', isSigned: true })
  expect((await machine.run(['sent'])).stdout).toMatch(
    /SESSION +ENVELOPE\n(.*\n)?.*confirmed \d\d:\d\d by bob .* api +/,
  )
  expect(await whyOf(envelopeId)).toMatch(/^confirmed \d\d:\d\d by bob \(\S+\)\n$/)
  const seen = (await other.call('message_status', { envelopeId })).structured.messages
  expect(seen).toMatchObject([{ envelopeId, session: 'api', state: 'confirmed' }])
  await bob.interrupt()
})

test('reports for a session that does not run wait for it, or reach it through the host', async () => {
  const send = async (agent: Agent) =>
    (await agent.call('send_message', { to: 'dave', text: 'x', waitFor: 'confirmed', waitSeconds: 0 })).structured
      .envelopeId
  const ids: string[] = []
  {
    await using named = await Agent.start(machine, ['--as', 'nightly'])
    await using unnamed = await Agent.start(machine)
    ids.push(await send(named), await send(unnamed))
  }
  expect((await machine.run(['listen', '--count', '2', '--profile', 'dave'])).code).toBe(0)
  const [named, unnamed] = ids as [string, string]
  expect(await whyOf(named)).toContain('not confirmed · reports wait for the session nightly, which does not run')
  const host = machine.start(['listen'])
  await expect.poll(() => whyOf(unnamed), { timeout: 60_000 }).toMatch(/^confirmed .* by dave/)
  await host.interrupt()
})

test('a message to a group is listed with each member, and names who has confirmed it', async () => {
  await machine.run(['group', 'create', 'crew', 'bob', 'carol', 'dave'])
  const [bob, carol] = [await listen('bob'), await listen('carol')]
  const late = await machine.run(['send', '@crew', 'hurry', '--wait', 'confirmed', '--timeout', '1s', '--json'])
  expect(failureOf(late)).toEqual([124, 'timeout']) // Dave is away
  expect(JSON.parse(late.stdout).recipients).toHaveLength(3)
  const { recipients } = jsonOf(await machine.run(['send', '@crew', 'who is in?', '--confirm', '--json']))
  const statesOf = (list: { state: string }[]) => list.map(({ state }) => state).sort()
  const states = async () => statesOf(await sentOf('--limit', '1'))
  await expect.poll(states, { timeout: 60_000 }).toEqual(['confirmed', 'confirmed', 'stored'])
  const why = await whyOf(recipients[0].envelopeId)
  expect(why).toMatch(/^sent \d\d:\d\d to @crew · /)
  expect(why).toMatch(/dave \(\S+\) +stored \d\d:\d\d · dave .*(offline|never connected).* · not confirmed\n/)
  expect(why).toMatch(/\nconfirmed by (bob \S+, carol \S+|carol \S+, bob \S+); not confirmed by dave \(\S+\)\n$/)
  expect((await machine.run(['sent', '--limit', '1'])).stdout).toMatch(/ @crew .*\n( {2,}(bob|carol|dave) \(.*\n){3}$/)
  const both = jsonOf(await machine.run(['send', 'bob,carol', 'lunch?', '--wait', 'settled', '--json']))
  expect(statesOf(both.recipients)).toEqual(['settled', 'settled'])
  const all = jsonOf(await machine.run(['send', 'bob', 'to all', '--all', '--wait', 'confirmed', '--json']))
  expect(statesOf(all.devices)).toEqual(['confirmed', 'confirmed'])
  const free = jsonOf(await machine.run(['send', 'bob', 'x', '--free-device', '--wait', 'confirmed', '--json']))
  expect(free).toMatchObject({ state: 'confirmed', signer: free.to })
  const toCrew = await sentOf('--to', '@crew', '--limit', '1')
  expect(toCrew.map(({ audience }) => audience.name)).toEqual(['crew', 'crew', 'crew'])
  const code = async (...words: string[]) => failureOf(await machine.run([...words, '--json']))
  expect(await code('send', '@crew', 'x', '--no-wait')).toEqual([2, 'usage'])
  expect(await code('sent', '--to', '@nobody')).toEqual([3, 'unknown_group'])
  await Promise.all([bob.interrupt(), carol.interrupt()])
})

test('an agent asks a group and the recipient of a reply to confirm, and waits for several recipients', async () => {
  await machine.run(['group', 'create', 'pair', 'bob', 'carol'])
  const [bob, carol] = [await listen('bob'), await listen('carol')]
  await using agent = await Agent.start(machine, ['--as', 'lead'])
  const several = await agent.call('send_message', {
    to: ['bob', 'carol'],
    text: 'x',
    waitFor: 'settled',
    waitSeconds: 40,
  })
  expect(several.structured.outcomes).toMatchObject([
    { state: 'settled', code: null },
    { state: 'settled', code: null },
  ])
  const group = (await agent.call('send_to_group', { group: 'pair', text: 'x', confirm: true })).structured
  const statusOf = async (envelopeId: string): Promise<readonly Record<string, unknown>[]> =>
    (await agent.call('message_status', { envelopeId })).structured.messages as never
  const states = async () => (await statusOf(group.envelopeId)).map(({ state }) => state)
  await expect.poll(states, { timeout: 60_000 }).toEqual(['confirmed', 'confirmed'])
  expect((await statusOf(group.envelopeId))[0]).toMatchObject({ audience: { kind: 'group', name: 'pair' } })
  await machine.run(['send', 'alice/lead', 'hello', '--profile', 'bob'])
  const { messageId } = await agent.readOne()
  const reply = (await agent.call('reply_to_message', { messageId, text: 'hi', confirm: true })).structured
  const stateOfReply = async () => (await statusOf(reply.envelopeId))[0]!.state
  await expect.poll(stateOfReply, { timeout: 60_000 }).toBe('confirmed')
  await Promise.all([bob.interrupt(), carol.interrupt()])
})

test('a message to a pool says that no worker has it, and then who has confirmed it', async () => {
  await machine.run(['pool', 'create', 'workers', 'bob'])
  const early = await machine.run([
    'pool',
    'send',
    'workers',
    'a job',
    '--wait',
    'confirmed',
    '--timeout',
    '1s',
    '--json',
  ])
  expect(failureOf(early)).toEqual([124, 'timeout'])
  const { envelopeId } = JSON.parse(early.stdout)
  expect(await whyOf(envelopeId)).toMatch(
    /^stored .* · no worker has taken it, so none can read, settle or confirm it yet/,
  )
  expect((await machine.run(['listen', '--pool', 'workers', '--count', '1', '--profile', 'bob'])).code).toBe(0)
  await expect.poll(() => whyOf(envelopeId), { timeout: 60_000 }).toMatch(/^confirmed .* by bob/)
})

test('a request and its reply are listed on both sides', async () => {
  const carol = await listen('carol', '--exec', 'echo pong', '--reply')
  const { envelopeId: replyId } = jsonOf(await machine.run(['request', 'carol', 'ping', '--json']))
  const [request] = await sentOf('--limit', '1')
  expect(request).toMatchObject({ isRequest: true, reply: { envelopeId: replyId, isError: false } })
  expect((await machine.run(['sent', '--limit', '1'])).stdout).toMatch(/ \(request\) +answered \d\d:\d\d by carol\/\S+/)
  const [reply] = await sentOf('--profile', 'carol')
  expect(reply).toMatchObject({ envelopeId: replyId, inReplyTo: request.envelopeId, session: expect.any(String) })
  await carol.interrupt()
})
