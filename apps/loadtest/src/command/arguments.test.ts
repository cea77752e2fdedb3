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
  [['--against', 'kafka'], 'There is no "kafka"'],
  [['--against', 'relay', '--against', 'redis'], '--against relay goes alone'],
  [['--against', 'relay', '--rounds', '2'], '--rounds goes with --against redis, nats or nats-sync'],
  [['--against', 'redis', '--rounds', '0'], 'a whole number from 1 to 100'],
  [['--against', 'redis', '--rate', '100'], '--rate and --against redis exclude each other'],
  [['--against', 'nats', '--form', 'json'], '--form json and --against nats exclude each other'],
  [['--against', 'nats-sync', '--shards', '2'], '--against is about one broker'],
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

test('other servers are compared once each, by two client programs, unless more is asked', () => {
  const programs = { redis: undefined, nats: '/opt/nats-server' }
  const args = ['--against', 'redis', '--against', 'nats', '--against', 'redis']
  expect(readArguments(args, { NATS_SERVER: '/opt/nats-server', REDIS_SERVER: '' })).toMatchObject({
    comparison: { rivals: ['redis', 'nats'], rounds: 1, programs },
    ...{ against: null, generators: 2, seconds: 10, peers: 100, messages: 1000 },
  })
  expect(readArguments([...args, '--rounds', '5', '--seconds', '3', '--generators', '4'], {})).toMatchObject({
    ...{ comparison: { rounds: 5 }, generators: 4, seconds: 3 },
  })
  expect(readArguments(['--against', 'relay'], {})).toMatchObject({ against: 'relay', comparison: null })
})

test('a comparison with other servers starts its own broker', () => {
  const env = { BROKER_WS_URL: 'ws://127.0.0.1:7450', DATABASE_URL: 'postgres://localhost/postgres' }
  const { code, err } = refusalOf(['--against', 'redis'], env)
  expect([code, err]).toEqual([2, expect.stringContaining('it goes without BROKER_WS_URL')])
})
