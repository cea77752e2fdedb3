/** Tests state and history on the command line, with a broker: who receives the keys, and what they can then read. */
import { beforeAll, expect, test } from 'vitest'
import { failureOf, jsonLinesOf, letIn, Machine } from './cli.ts'

let machine: Machine
beforeAll(async () => {
  machine = await Machine.withBroker('bob')
  return () => machine[Symbol.asyncDispose]()
})

/** Returns the parsed JSON, or a failure's code. */
async function run(...words: string[]) {
  const ended = await machine.run([...words, '--json'])
  return ended.code === 0 ? jsonLinesOf(ended) : failureOf(ended)
}
const asBob = ['--profile', 'bob']

test('a member with the keys reads, watches and replays values that were set', async () => {
  expect(await run('state', 'set', 'topic', 'tea')).toEqual([3, 'space_unknown'])
  expect(await run('space', 'open', ...asBob)).toEqual([4, 'not_owner'])
  expect(await run('space', 'open')).toMatchObject([{ historyFor: 'all', keyEpoch: 1, members: 2, lacking: [] }])
  expect(await run('state', 'set', 'topic', 'tea')).toMatchObject([{ revision: 1, seq: 1 }])
  const [set] = await run('state', 'set', 'topic', 'coffee', '--if-revision', '1', ...asBob)
  expect(set).toMatchObject({ revision: 2, seq: 2 })
  expect(await run('state', 'set', 'topic', 'x', '--if-revision', '1')).toEqual([5, 'state_conflict'])
  await letIn(machine, 'carol')
  expect(await run('state', 'get', 'topic', '--profile', 'carol')).toEqual([4, 'key_missing'])
  await run('state', 'delete', 'topic')
  expect(await run('state', 'get', 'topic')).toEqual([3, 'key_unknown'])
  const then = await run('state', 'replay', '--at', set.at, '--profile', 'carol')
  expect(then).toMatchObject([{ key: 'topic', text: 'coffee', seq: 2 }])
  const watching = machine.start(['state', 'watch', '--after', '1', '--count', '3', '--json', ...asBob])
  await watching.until('it has what was before', (its) => its.lines.length === 2)
  await run('state', 'set', 'plan', 'b')
  const watched = jsonLinesOf(await watching.ended())
  expect(watched.map(({ type, key, seq }) => [type, key, seq])).toEqual([
    ['set', 'topic', 2],
    ['deleted', 'topic', 3],
    ['set', 'plan', 4],
  ])
  expect(await run('history', '--limit', '2')).toMatchObject([{ seq: 1 }, { seq: 2 }])
  expect((await machine.run(['state', 'list', ...asBob])).stdout).toMatch(/plan +b +1 /)
})

test('in a group only members can read, and with history for `joined` a member sees nothing from before it joined', async () => {
  await run('group', 'create', 'crew', 'bob')
  await letIn(machine, 'dave')
  const crew = ['--group', 'crew']
  expect(await run('space', 'open', '--history-for', 'joined', ...crew)).toMatchObject([{ members: 2, keyEpoch: 1 }])
  await run('state', 'set', 'topic', 'before', ...crew)
  expect(await run('state', 'list', ...crew, '--profile', 'dave')).toEqual([3, 'unknown_group'])
  await run('group', 'add', 'crew', 'dave')
  expect(await run('space', 'show', ...crew)).toMatchObject([{ members: 3, keyEpoch: 2, lacking: [] }])
  await run('state', 'set', 'plan', 'after', ...crew, ...asBob)
  expect(await run('state', 'list', ...crew, '--profile', 'dave')).toMatchObject([{ key: 'plan', text: 'after' }])
  const unkept = await machine.run(['group', 'send', 'crew', 'hi', '--keep', '--json'])
  expect(jsonLinesOf(unkept)).toMatchObject([{ members: [{ code: 'not_kept' }, { code: 'not_kept' }] }])
  const [terms] = await run('space', 'open', '--messages', ...crew)
  expect(terms, 'what is not said stays').toMatchObject({ historyFor: 'joined', keepsMessages: true })
  const [sent] = await run('group', 'send', 'crew', 'hello, crew', '--keep', ...asBob)
  expect(sent.members.map(({ code }: { code: string | null }) => code)).toEqual([null, null])
  await run('group', 'send', 'crew', 'not for the record', ...asBob)
  const kept = await run('history', ...crew, '--profile', 'dave')
  expect(kept.map(({ type, text }) => [type, text ?? null])).toEqual([
    ['sealed', null],
    ['set', 'after'],
    ['message', 'hello, crew'],
  ])
  await run('group', 'remove', 'crew', 'bob')
  await run('space', 'show', ...crew)
  expect(await run('space', 'show', ...crew, '--profile', 'dave')).toMatchObject([{ members: 2, keyEpoch: 3 }])
})

test('conversations count what others have written since this profile read the history, which can be read backwards', async () => {
  await run('group', 'create', 'desk', 'bob')
  const desk = ['--group', 'desk']
  expect(await run('conversations', ...asBob)).not.toContainEqual(expect.objectContaining({ group: { name: 'desk' } }))
  await run('space', 'open', '--messages', ...desk)
  for (const text of ['one', 'two', 'three']) await run('group', 'send', 'desk', text, '--keep')
  const ofDesk = async (...as: string[]) =>
    (await run('conversations', ...as)).find(({ group }: { group: { name: string } }) => group.name === 'desk')
  expect(await ofDesk(...asBob)).toMatchObject({ unread: 3, last: { preview: 'three' } })
  expect(await ofDesk()).toMatchObject({ unread: 0, last: { preview: 'three' } })
  expect(await run('history', ...desk, '--newest', '--limit', '2', ...asBob)).toMatchObject([
    { text: 'three', seq: 3 },
    { text: 'two', seq: 2 },
  ])
  expect(await run('history', ...desk, '--before', '2', ...asBob)).toMatchObject([{ text: 'one', seq: 1 }])
  expect(await ofDesk(...asBob)).toMatchObject({ unread: 0 })
  expect(await run('history', ...desk, '--files', ...asBob)).toEqual([])
  expect(await run('history', ...desk, '--newest', '--from', '2h')).toEqual([2, 'usage'])
})
