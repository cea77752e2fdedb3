import { expect, test } from 'vitest'
import { readArguments } from './arguments.ts'

function refusalOf(words: readonly string[], env: Readonly<Record<string, string>> = {}) {
  let err = ''
  const code = readArguments(words, env, { writeErr: (text) => (err += text), writeOut: () => undefined })
  return { code, err }
}

test.each([
  [['--json', '/absent/result.json'], 'there is no folder /absent'],
  [['--json', '.'], 'that is a folder'],
  [['1'], 'peers'],
  [['5', 'many'], 'messages'],
  [['--seconds', '5'], '--rate'],
  [['--nonsense'], '--nonsense'],
  [['--soak', '20'], 'a time like 90s, 20m or 1h'],
  [['--soak', '2s'], 'from 5 to'],
  [['--soak', '24h', '--rate', '40000'], 'too many messages to number'],
  [['--backlog', '5'], 'go with --soak'],
  [['5', '--rate', '9', '--pack', 'off'], '--pack is for a burst'],
  [['5', '9', '--pack', 'no'], 'Allowed choices are on, off'],
  [['--soak', '10s', '--hold-transaction', '10'], 'shorter than the soak'],
  [['--soak', '10s', '--sweep'], '--soak and --sweep exclude each other'],
  [['--idle', '5', '--baseline'], '--idle and --baseline exclude each other'],
  [['--group', '5', '--idle', '5'], '--idle and --group exclude each other'],
  [['5', '10', '--cross', '0.5'], '--cross needs a second shard'],
  [['5', '10', '--cross', '2'], 'a share like 0.5'],
  [['5', '10', '--meshes', '3'], '3 meshes need two peers each'],
  [['5', '10', '--shards', '2', '--baseline'], '--baseline is about one broker'],
  [['5', '--sweep'], '--sweep begins with 10 peers'],
])('%j is refused with the usage and exit code 2', (words, mention) => {
  const { code, err } = refusalOf(words)
  expect(code).toBe(2)
  expect(err).toContain(mention)
  expect(err).toContain('Usage: bun scripts/load-test.ts')
})

test('cells have a Postgres each, so they refuse the one of DATABASE_URL', () => {
  const words = ['5', '10', '--cells', '2']
  const { code, err } = refusalOf(words, { DATABASE_URL: 'postgres://localhost/postgres' })
  expect([code, err]).toEqual([2, expect.stringContaining('it goes without DATABASE_URL')])
  expect(readArguments(words, {})).toMatchObject({ peers: 5, messages: 10, spread: { cells: 2 } })
})
