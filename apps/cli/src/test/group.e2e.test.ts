/** Tests groups and pools on the command line: members, recipients, and refusals. */
import { beforeEach, expect, test } from 'vitest'
import { failureOf, jsonOf, Machine } from './cli.ts'

let machine: Machine
beforeEach(async () => {
  machine = await Machine.withBroker('bob', 'carol')
  return () => machine[Symbol.asyncDispose]()
})

test('a group is created, written to, changed and shown', async () => {
  const made = jsonOf(await machine.run(['group', 'create', 'crew', 'bob', 'carol', '--json']))
  expect(made).toMatchObject({ name: 'crew', epoch: 1 })
  expect(made.members).toHaveLength(3)
  const sent = await machine.run(['group', 'send', 'crew', 'lunch?'])
  expect([sent.code, sent.stderr]).toEqual([0, expect.stringContaining('stored for 2 of 2 in crew, 6 bytes')])
  const heard = jsonOf(await machine.run(['listen', '--count', '1', '--json', '--profile', 'bob']))
  expect(heard).toMatchObject({ text: 'lunch?', group: { id: made.id, name: 'crew' } })
  const atCarol = await machine.run(['listen', '--count', '1', '--profile', 'carol'])
  expect(atCarol.stdout).toMatch(/alice \([\w-]{9}\) in crew {2}lunch\?/)
  expect(jsonOf(await machine.run(['group', 'remove', 'crew', 'carol', '--json']))).toMatchObject({ epoch: 2 })
  const later = jsonOf(await machine.run(['group', 'send', 'crew', 'without her', '--json']))
  expect(later.members).toHaveLength(1)
  expect((await machine.run(['group', 'list', '--profile', 'bob'])).stdout).toContain(made.id)
  expect((await machine.run(['group', 'list', '--profile', 'carol'])).stdout).not.toContain(made.id)
  expect((await machine.run(['group', 'show', made.id])).stdout).toMatch(/members +.*you/)
})

test('a deleted group is gone for all members, and its name is available again', async () => {
  const made = jsonOf(await machine.run(['group', 'create', 'crew', 'bob', 'carol', '--json']))
  await machine.run(['group', 'send', 'crew', 'last words'])
  const deleted = await machine.run(['group', 'delete', 'crew', '--json'])
  expect([deleted.code, jsonOf(deleted)]).toEqual([0, { deleted: made.id }])
  const listed = await machine.run(['group', 'list', '--json'])
  expect([listed.code, listed.stdout]).toEqual([0, ''])
  expect((await machine.run(['group', 'send', 'crew', 'x', '--profile', 'bob'])).code).toBe(3)
  const heard = jsonOf(await machine.run(['listen', '--count', '1', '--json', '--profile', 'bob']))
  expect(heard).toMatchObject({ text: 'last words', group: { id: made.id, name: 'crew' } })
  const again = await machine.run(['group', 'create', 'crew', 'bob'])
  expect([again.code, again.stdout]).toEqual([0, expect.not.stringContaining(made.id)])
})

test('impossible group commands are refused with a reason', async () => {
  await machine.run(['group', 'create', 'crew', 'bob', 'carol'])
  const code = async (...words: string[]) => failureOf(await machine.run(['group', ...words, '--json']))
  expect(await code('add', 'crew', 'carol', '--profile', 'bob')).toEqual([4, 'not_owner'])
  expect(await code('delete', 'crew', '--profile', 'bob')).toEqual([4, 'not_owner'])
  expect(await code('send', 'nobody', 'x')).toEqual([3, 'unknown_group'])
  await machine.run(['group', 'create', 'crew', 'bob'])
  expect(await code('send', 'crew', 'x')).toEqual([2, 'group_ambiguous'])
})

test('each listening worker gets messages, and each message goes to one of them', async () => {
  const made = jsonOf(await machine.run(['pool', 'create', 'crew', 'bob', 'carol', '--json']))
  expect(made).toMatchObject({ name: 'crew', epoch: 1 })
  expect(made.members).toHaveLength(2)
  for (const text of ['one', 'two']) {
    const sent = await machine.run(['pool', 'send', 'crew', text])
    expect([sent.code, sent.stderr]).toEqual([0, expect.stringContaining('stored for crew, 3 bytes')])
  }
  const listen = (profile: string) =>
    machine.run(['listen', '--pool', 'crew', '--count', '1', '--json', '--profile', profile])
  const heard = [jsonOf(await listen('bob')), jsonOf(await listen('carol'))]
  expect(heard.map(({ text }) => text)).toEqual(['one', 'two'])
  expect(heard[0]).toMatchObject({ pool: { id: made.id }, group: null })
  expect(jsonOf(await machine.run(['pool', 'remove', 'crew', 'carol', '--json']))).toMatchObject({ epoch: 2 })
  expect((await machine.run(['pool', 'list', '--profile', 'carol'])).stdout).toContain(made.id)
  expect((await machine.run(['pool', 'show', made.id])).stdout).toMatch(/members +bob/)
})

test('impossible pool commands are refused with a reason', async () => {
  await machine.run(['pool', 'create', 'crew', 'bob'])
  const code = async (...words: string[]) => failureOf(await machine.run([...words, '--json']))
  expect(await code('pool', 'add', 'crew', 'carol', '--profile', 'bob')).toEqual([4, 'not_owner'])
  expect(await code('listen', '--pool', 'crew', '--profile', 'carol')).toEqual([4, 'not_in_pool'])
  expect(await code('pool', 'send', 'nobody', 'x')).toEqual([3, 'unknown_pool'])
  const unheard = await machine.run(['listen', '--pool', 'nobody', '--json'])
  expect([unheard.code, unheard.stdout]).toEqual([3, ''])
  expect(JSON.parse(unheard.stderr)).toMatchObject({ error: { code: 'unknown_pool' } }) // nothing precedes the error
  await machine.run(['pool', 'create', 'crew', 'bob'])
  expect(await code('pool', 'send', 'crew', 'x')).toEqual([2, 'pool_ambiguous'])
})

test('a deleted pool is gone for all members', async () => {
  const made = jsonOf(await machine.run(['pool', 'create', 'crew', 'bob', '--json']))
  const deleted = await machine.run(['pool', 'delete', 'crew', '--json'])
  expect([deleted.code, jsonOf(deleted)]).toEqual([0, { deleted: made.id }])
  expect((await machine.run(['pool', 'list', '--profile', 'bob'])).stdout).not.toContain('crew')
  expect((await machine.run(['pool', 'send', made.id, 'x', '--profile', 'bob'])).code).toBe(3)
})

test('a member leaves: the owner removes the member, whose commands decline the group until then', async () => {
  await machine.run(['group', 'create', 'crew', 'bob', 'carol'])
  expect((await machine.run(['group', 'leave', 'crew', '--profile', 'bob'])).code).toBe(0)
  await machine.run(['group', 'send', 'crew', 'declined'])
  await machine.run(['send', 'bob', 'direct'])
  expect(jsonOf(await machine.run(['listen', '--count', '1', '--json', '--profile', 'bob'])).text).toBe('direct')
  const alice = machine.start(['listen'])
  await alice.until('bob is removed', ({ stderr }) => stderr.includes('has left a group of yours'))
  expect((await alice.interrupt()).stdout).toBe('')
  expect(jsonOf(await machine.run(['group', 'show', 'crew', '--json'])).members).toHaveLength(2)
  expect(failureOf(await machine.run(['group', 'leave', 'crew', '--profile', 'bob', '--json']))).toEqual([
    3,
    'unknown_group',
  ])
  await machine.run(['group', 'add', 'crew', 'bob'])
  await machine.run(['group', 'send', 'crew', 'welcome back'])
  expect(jsonOf(await machine.run(['listen', '--count', '1', '--json', '--profile', 'bob'])).text).toBe('welcome back')
})
