/** Pools from the command line: work for free workers. */
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

test('each worker that listens gets work, and each message goes to one', async () => {
  const made = json(await machine.run(['pool', 'create', 'crew', 'bob', 'carol', '--json']))
  expect(made).toMatchObject({ name: 'crew', epoch: 1 })
  expect(made.members).toHaveLength(2)
  for (const text of ['one', 'two']) {
    const sent = await machine.run(['pool', 'send', 'crew', text])
    expect([sent.code, sent.stderr]).toEqual([0, expect.stringContaining('stored for crew, 3 bytes')])
  }
  const listen = (profile: string) =>
    machine.run(['listen', '--pool', 'crew', '--count', '1', '--json', '--profile', profile])
  const heard = [json(await listen('bob')), json(await listen('carol'))]
  expect(heard.map(({ text }) => text)).toEqual(['one', 'two'])
  expect(heard[0]).toMatchObject({ pool: { id: made.id }, group: null })
  expect(json(await machine.run(['pool', 'remove', 'crew', 'carol', '--json']))).toMatchObject({ epoch: 2 })
  expect((await machine.run(['pool', 'list', '--profile', 'carol'])).stdout).toContain(made.id)
  expect((await machine.run(['pool', 'show', made.id])).stdout).toMatch(/members +bob/)
})

test('what can not be done says why', async () => {
  await machine.run(['pool', 'create', 'crew', 'bob'])
  const code = async (...words: string[]) => {
    const { code, stderr } = await machine.run([...words, '--json'])
    return [code, JSON.parse(stderr.trim().split('\n').at(-1)!).error.code]
  }
  expect(await code('pool', 'add', 'crew', 'carol', '--profile', 'bob')).toEqual([4, 'not_owner'])
  expect(await code('listen', '--pool', 'crew', '--profile', 'carol')).toEqual([4, 'not_in_pool'])
  expect(await code('pool', 'send', 'nobody', 'x')).toEqual([3, 'unknown_pool'])
  const unheard = await machine.run(['listen', '--pool', 'nobody', '--json'])
  expect([unheard.code, unheard.stdout]).toEqual([3, ''])
  expect(JSON.parse(unheard.stderr)).toMatchObject({ error: { code: 'unknown_pool' } }) // and nothing before it
  await machine.run(['pool', 'create', 'crew', 'bob'])
  expect(await code('pool', 'send', 'crew', 'x')).toEqual([2, 'pool_ambiguous'])
})

test('a deleted pool is gone for everybody', async () => {
  const made = json(await machine.run(['pool', 'create', 'crew', 'bob', '--json']))
  const deleted = await machine.run(['pool', 'delete', 'crew', '--json'])
  expect([deleted.code, json(deleted)]).toEqual([0, { deleted: made.id }])
  expect((await machine.run(['pool', 'list', '--profile', 'bob'])).stdout).not.toContain('crew')
  expect((await machine.run(['pool', 'send', made.id, 'x', '--profile', 'bob'])).code).toBe(3)
})
