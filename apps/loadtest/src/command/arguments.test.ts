import { expect, test } from 'vitest'
import { readArguments } from './arguments.ts'

function refusalOf(words: readonly string[], env: Readonly<Record<string, string>> = {}) {
  let err = ''
  const code = readArguments(words, env, { writeErr: (text) => (err += text), writeOut: () => undefined })
  return { code, err }
}

test.each([
  [['--json', '/absent/result.json'], 'there is no folder /absent'],
  [['--json', '.'], 'this is a folder'],
  [['1'], 'peers'],
  [['5', 'many'], 'messages'],
  [['--seconds', '5'], '--rate'],
  [['--nonsense'], '--nonsense'],
  [['--soak', '20'], 'a duration such as 90s, 20m or 1h'],
  [['--soak', '2s'], 'from 5 to'],
  [['--soak', '24h', '--rate', '40000'], 'too many messages: choose'],
  [['--backlog', '5'], 'require --soak'],
  [['5', '--rate', '9', '--pack', 'off'], '--pack requires a burst'],
  [['5', '9', '--pack', 'no'], 'Allowed choices are on, off'],
  [['--soak', '10s', '--hold-transaction', '10'], 'shorter than the soak'],
  [['--soak', '10s', '--sweep'], '--soak and --sweep exclude each other'],
  [['--idle', '5', '--baseline'], '--idle and --baseline exclude each other'],
  [['--group', '5', '--idle', '5'], '--idle and --group exclude each other'],
  [['5', '10', '--cross', '0.5'], '--cross requires a second shard'],
  [['5', '10', '--cross', '2'], 'a share from 0 to 1'],
  [['5', '10', '--meshes', '3'], '3 meshes require at least two peers each'],
  [['5', '10', '--shards', '2', '--baseline'], '--baseline requires one broker'],
  [['--against', 'kafka'], 'There is no "kafka"'],
  [['--against', 'relay', '--against', 'redis'], '--against relay excludes any other --against'],
  [['--against', 'relay', '--rounds', '2'], '--rounds requires --against redis, nats or nats-sync'],
  [['--against', 'redis', '--rounds', '0'], 'a whole number from 1 to 100'],
  [['--against', 'redis', '--rate', '100'], '--rate and --against redis exclude each other'],
  [['--against', 'nats', '--form', 'json'], '--form json and --against nats exclude each other'],
  [['--against', 'nats-sync', '--shards', '2'], '--against requires one broker'],
  [['5', '--sweep'], '--sweep requires at least 10 peers'],
])('%j is refused with exit code 2 and a hint at the help', (words, mention) => {
  const { code, err } = refusalOf(words)
  expect(code).toBe(2)
  expect(err).toContain(mention)
  expect(err).toContain('add --help')
})

test('each cell needs its own Postgres, so cells refuse DATABASE_URL', () => {
  const words = ['5', '10', '--cells', '2']
  const { code, err } = refusalOf(words, { DATABASE_URL: 'postgres://localhost/postgres' })
  expect([code, err]).toEqual([2, expect.stringContaining('excludes DATABASE_URL')])
  expect(readArguments(words, {})).toMatchObject({ peers: 5, messages: 10, spread: { cells: 2 } })
})

test('each other server is compared once, with two client programs by default', () => {
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
  expect([code, err]).toEqual([2, expect.stringContaining('excludes BROKER_WS_URL')])
})
