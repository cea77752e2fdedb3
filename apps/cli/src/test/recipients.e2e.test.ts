/** Tests messages to several recipients, delayed messages, and texts that become files. */
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { failureOf, jsonOf, Machine } from './cli.ts'

let machine: Machine
beforeAll(async () => {
  machine = await Machine.withBroker('bob', 'carol')
})
afterAll(() => machine[Symbol.asyncDispose]())

const heardBy = async (profile: string, ...words: string[]) =>
  jsonOf(await machine.run(['listen', '--count', '1', '--json', '--profile', profile, ...words]))

test('a message to a list of peers and groups has an outcome for each recipient', async () => {
  const { id } = jsonOf(await machine.run(['group', 'create', 'crew', 'carol', '--json']))
  const sent = jsonOf(await machine.run(['send', 'bob,@crew', 'lunch?', '--json']))
  expect(sent).toMatchObject({
    bytes: 6,
    recipients: [
      { group: null, code: null },
      { group: id, code: null },
    ],
  })
  expect(await heardBy('bob')).toMatchObject({ text: 'lunch?', group: null })
  expect(await heardBy('carol')).toMatchObject({ text: 'lunch?', group: { name: 'crew' } })
  const code = async (...words: string[]) => failureOf(await machine.run(['send', ...words, '--json']))
  expect(await code('bob,nobody', 'x')).toEqual([3, 'name_unknown'])
  expect(await code('bob,@nobody', 'x')).toEqual([3, 'unknown_group'])
  expect(await code('bob,', 'x')).toEqual([2, 'usage'])
  expect(await code('@everybody', 'x')).toEqual([2, 'usage'])
  expect(await code('bob,carol', 'x', '--no-wait')).toEqual([2, 'usage'])
  const all = jsonOf(await machine.run(['send', '@everybody', 'hello', '--yes', '--json']))
  expect(all.recipients).toHaveLength(2)
  expect(await heardBy('bob')).toMatchObject({ text: 'hello' }) // nothing arrived of the refused commands
})

test('a delayed message arrives when it is due, also in a group', async () => {
  await machine.run(['group', 'create', 'late', 'bob'])
  const heardAfter = async (delayMs: number, ...words: string[]) => {
    const atMs = Date.now()
    expect((await machine.run(words)).code).toBe(0)
    const heard = await heardBy('bob')
    expect(Date.now() - atMs).toBeGreaterThanOrEqual(delayMs)
    return heard
  }
  expect((await machine.run(['send', 'bob', 'much later', '--in', '1h'])).code).toBe(0)
  expect((await heardAfter(0, 'send', 'bob', 'now')).text).toBe('now')
  expect((await heardAfter(1_000, 'send', 'bob', 'later', '--in', '1s')).text).toBe('later')
  const inGroup = await heardAfter(1_000, 'group', 'send', 'late', 'later still', '--in', '1s')
  expect(inGroup).toMatchObject({ text: 'later still', group: null })
  const code = async (...words: string[]) => failureOf(await machine.run(['send', 'bob', 'x', ...words, '--json']))
  expect(await code('--at', '2020-01-01T00:00')).toEqual([2, 'usage'])
  expect(await code('--at', 'soon')).toEqual([2, 'usage'])
  expect(await code('--in', '1h', '--at', '12:00')).toEqual([2, 'usage'])
  expect(await code('--in', '300d')).toEqual([6, 'delay_too_long'])
})

test('a text over the limit of a message arrives as a file with a preview, from every command that sends', async () => {
  await machine.run(['group', 'create', 'readers', 'bob'])
  await machine.run(['pool', 'create', 'workers', 'bob'])
  const text = 'Zürich 🙂 '.repeat(850_000)
  const stdin = { stdin: text }
  expect(Buffer.byteLength(text)).toBeGreaterThan(10 * 2 ** 20)
  const files = join(machine.folder, 'files')
  const one = jsonOf(await machine.run(['send', 'bob', '--json'], stdin))
  expect(one.file).toEqual({ name: 'message.txt', bytes: Buffer.byteLength(text) })
  const heard = await heardBy('bob', '--files', files)
  expect(heard.text).toMatch(/^Zürich 🙂 .*\n\[…\] The attached file contains the complete text/s)
  expect(await Bun.file(heard.file.path).text()).toBe(text)
  const short = { stdin: 'x'.repeat(70_000) }
  for (const words of [
    ['send', 'bob,carol'],
    ['group', 'send', 'readers'],
    ['pool', 'send', 'workers'],
    ['send', 'bob', '--every-device'],
  ]) {
    expect(await machine.run(words, short)).toMatchObject({ code: 0 })
    const from = words[0] === 'pool' ? ['--pool', 'workers'] : []
    expect(await heardBy('bob', '--files', files, ...from)).toMatchObject({ file: { bytes: 70_000 } })
  }
})
