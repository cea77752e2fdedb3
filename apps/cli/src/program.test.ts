import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Command } from 'commander'
import { afterAll, describe, expect, test } from 'vitest'
import { platformStreams } from './output.ts'
import { sealpost, sealpostFor } from './program.ts'
import { eachCommand } from './shell.ts'
import { runHere } from './test/cli.ts'

const home = mkdtempSync(join(tmpdir(), 'sealpost-cli-test-'))
afterAll(() => rmSync(home, { recursive: true, force: true }))

const run = (...words: string[]) => runHere(words, { SEALPOST_HOME: home })

describe('an invalid command line ends with exit code 2 and one clear sentence', () => {
  test.each([
    [['bogus'], "unknown command 'bogus'"],
    [['listn'], 'Did you mean listen?'],
    [['send'], "missing required argument 'TO'"],
    [['send', 'bob', 'a', 'b'], 'too many arguments'],
    [['send', 'bob', 'a', '--ttl', 'soon'], 'Use a duration such as 30s, 5m, 2h or 14d.'],
    [['send', 'bob', 'a', '--priority', 'urgent'], 'Allowed choices are now, next, low.'],
    [['send', 'bob', 'a', '--every-device', '--in', '1h'], "option '--every-device' cannot be used with"],
    [['send', 'bob,carol', 'a', '--all'], 'need a single peer as TO'],
    [['request', 'bob', 'a', '--file', 'x'], 'either TEXT or --file'],
    [['listen', '--count', '0'], 'Use a whole number from 1'],
    [['peers', '--profile', '../x'], 'The name of a profile contains only letters'],
    [['join', 'sealpost1:AAAA'], 'This is not an invite'],
    [['invite', 'show', 'hello'], 'This is not an invite'],
    [['invite', 'revoke', 'hello'], 'Give the id of the invite'],
    [['consent', 'set', 'closed'], 'Allowed choices are open, contacts.'],
    [['consent', 'allow'], "missing required argument 'NAME'"],
    [['key', 'turn'], "unknown command 'turn'"],
    [['state', 'set'], "missing required argument 'KEY'"],
    [['state', 'replay'], "required option '--at <TIME>' not specified"],
    [['state', 'replay', '--at', 'soon'], 'Use a time such as 2026-11-22T14:03Z, or an age such as 2h.'],
    [['history', '--from', '2026-13-40'], 'Use a time such as'],
    [['space', 'open', '--history-for', 'some'], 'Allowed choices are none, joined, all.'],
    [['space', 'open', '--keep-size', 'much'], 'Use a size such as 500MB or 10GB.'],
    [['completion', 'tcsh'], 'Allowed choices are bash, zsh, fish.'],
    [['dead', 'list'], 'DATABASE_URL is not set'],
    [['dead', 'purge'], 'Give the IDs of the dead letters, or --all'],
    [['dead', 'redrive', 'x'], 'The ID x is not a number'],
  ])('%j', async (words, sentence) => {
    const { code, out, err } = await run(...words)
    expect(code).toBe(2)
    expect(out).toBe('')
    expect(err).toContain(sentence)
  })

  test('which names an empty argument or option, in every command', async () => {
    const places: string[][] = []
    eachCommand(await sealpost(() => async () => undefined), ({ registeredArguments: [argument] }, path) => {
      if (argument?.required) places.push([...path.slice(1)])
    })
    expect(places.length).toBeGreaterThan(40)
    for (const words of places) {
      const { code, err } = await run(...words, '')
      expect([words, code, err]).toEqual([words, 2, expect.stringMatching(/ is empty\.|is invalid|required|Choose/)])
    }
    expect(await run('send', ' ', 'text')).toMatchObject({ err: expect.stringContaining('The argument TO is empty.') })
    expect(await run('listen', '--as', '')).toMatchObject({ err: expect.stringContaining('value of --as is empty.') })
  })

  test('which is JSON with --json', async () => {
    for (const words of [['bogus'], ['up', '--port', 'abc'], ['dead', 'list']]) {
      const { code, out, err } = await run('--json', ...words)
      expect([code, out, JSON.parse(err)]).toEqual([2, '', { error: { code: 'usage', message: expect.any(String) } }])
    }
  })

  test('without arguments the help is shown on stderr', async () => {
    expect(await run()).toMatchObject({ code: 2, out: '', err: expect.stringContaining('Usage: sealpost') })
  })
})

test('a profile without keys or membership is reported as not found', async () => {
  for (const words of [['status'], ['invite', 'create'], ['listen'], ['peers']])
    expect((await run(...words)).code).toBe(3)
})

test('keys are generated once and never overwritten', async () => {
  const made = await run('keygen', '--profile', 'desk', '--json')
  expect(made.code).toBe(0)
  expect(JSON.parse(made.out)).toMatchObject({ profile: 'desk', key: expect.stringMatching(/^[0-9a-f]{64}$/) })
  const again = await run('keygen', '--profile', 'desk', '--json')
  expect(again.code).toBe(5)
  expect(JSON.parse(again.err)).toMatchObject({ error: { code: 'key_file_exists' } })
})

test('every command has a description and examples', async () => {
  const silent: string[] = []
  eachCommand(await sealpost(() => () => Promise.resolve()), (command, path) => {
    let help = ''
    command.configureOutput({ writeOut: (text) => (help += text) }).outputHelp()
    if (!command.description() || !/Examples:\n {2}\S/.test(help)) silent.push(path.join(' '))
  })
  expect(silent).toEqual([])
})

test('a run loads the commands named in its arguments, or all commands if none is named', async () => {
  const names = async (...words: string[]) => {
    const program = await sealpostFor(words, () => () => Promise.resolve(), platformStreams)
    return program.commands.map((command) => command.name())
  }
  const all = (await sealpost(() => () => Promise.resolve())).commands.map((command) => command.name())
  expect(all.length).toBeGreaterThan(20)
  for (const name of all.filter((each) => each !== 'completion'))
    expect(await names('--profile', 'desk', name, '--help')).toEqual([name, 'completion'])
  expect(await names('--profile', 'send', 'listen')).toEqual(['send', 'listen', 'completion'])
  for (const words of [[], ['--help'], ['sned'], ['completion', 'bash']]) expect(await names(...words)).toEqual(all)
})

test('dead letters have the same commands and options on the database and by a broker', async () => {
  const program = await sealpost(() => () => Promise.resolve())
  const below = (command: Command, name: string) => command.commands.find((each) => each.name() === name)!
  const wordsOf = (dead: Command) =>
    dead.commands.map((command) => [
      command.name(),
      command.description(),
      ...command.options.map(({ flags }) => flags),
    ])
  const words = wordsOf(below(program, 'dead'))
  expect(words.map(([name]) => name)).toEqual(['list', 'redrive', 'purge'])
  expect(wordsOf(below(below(program, 'admin'), 'dead'))).toEqual(words)
})
