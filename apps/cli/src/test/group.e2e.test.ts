/** Groups from the command line: who is in, who gets what, and what is said of it. */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { letIn, Machine, startUp } from './cli.ts'

let machine: Machine

beforeEach(async () => {
  machine = await Machine.make()
  await startUp(machine, ['--port', '0', '--name', 'alice'])
  await letIn(machine, 'bob')
  await letIn(machine, 'carol')
})
afterEach(() => machine[Symbol.asyncDispose]())

const json = ({ stdout }: { stdout: string }) => JSON.parse(stdout)

test('a group is made, written to, changed and shown', async () => {
  const made = json(await machine.run(['group', 'create', 'crew', 'bob', 'carol', '--json']))
  expect(made).toMatchObject({ name: 'crew', epoch: 1 })
  expect(made.members).toHaveLength(3)
  const sent = await machine.run(['group', 'send', 'crew', 'lunch?'])
  expect([sent.code, sent.stderr]).toEqual([0, expect.stringContaining('stored for 2 of 2 in crew, 6 bytes')])
  const heard = json(await machine.run(['listen', '--count', '1', '--json', '--profile', 'bob']))
  expect(heard).toMatchObject({ text: 'lunch?', group: { id: made.id, name: 'crew' } })
  const atCarol = await machine.run(['listen', '--count', '1', '--profile', 'carol'])
  expect(atCarol.stdout).toMatch(/alice in crew {2}lunch\?/)
  expect(json(await machine.run(['group', 'remove', 'crew', 'carol', '--json']))).toMatchObject({ epoch: 2 })
  const later = json(await machine.run(['group', 'send', 'crew', 'without her', '--json']))
  expect(later.members).toHaveLength(1)
  expect((await machine.run(['group', 'list', '--profile', 'bob'])).stdout).toContain(made.id)
  expect((await machine.run(['group', 'list', '--profile', 'carol'])).stdout).not.toContain(made.id)
  expect((await machine.run(['group', 'show', made.id])).stdout).toMatch(/members +.*you/)
})

test('a deleted group is gone for everybody, and its name is free', async () => {
  const made = json(await machine.run(['group', 'create', 'crew', 'bob', 'carol', '--json']))
  await machine.run(['group', 'send', 'crew', 'last words'])
  const deleted = await machine.run(['group', 'delete', 'crew', '--json'])
  expect([deleted.code, json(deleted)]).toEqual([0, { deleted: made.id }])
  const listed = await machine.run(['group', 'list', '--json'])
  expect([listed.code, listed.stdout]).toEqual([0, ''])
  expect((await machine.run(['group', 'send', 'crew', 'x', '--profile', 'bob'])).code).toBe(3)
  const heard = json(await machine.run(['listen', '--count', '1', '--json', '--profile', 'bob']))
  expect(heard).toMatchObject({ text: 'last words', group: { id: made.id, name: 'crew' } })
  const again = await machine.run(['group', 'create', 'crew', 'bob'])
  expect([again.code, again.stdout]).toEqual([0, expect.not.stringContaining(made.id)])
})

test('what can not be done says why', async () => {
  await machine.run(['group', 'create', 'crew', 'bob', 'carol'])
  const code = async (...words: string[]) => {
    const { code, stderr } = await machine.run(['group', ...words, '--json'])
    return [code, JSON.parse(stderr.trim().split('\n').at(-1)!).error.code]
  }
  expect(await code('add', 'crew', 'carol', '--profile', 'bob')).toEqual([4, 'not_owner'])
  expect(await code('delete', 'crew', '--profile', 'bob')).toEqual([4, 'not_owner'])
  expect(await code('send', 'nobody', 'x')).toEqual([3, 'unknown_group'])
  await machine.run(['group', 'create', 'crew', 'bob'])
  expect(await code('send', 'crew', 'x')).toEqual([2, 'group_ambiguous'])
})
