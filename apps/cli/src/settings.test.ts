import { expect, test } from 'vitest'
import { environmentForExec, parseTimestamp } from './settings.ts'

const passed = [
  ...['PATH', 'HOME', 'USER', 'SHELL', 'LANG', 'LC_ALL', 'LC_CTYPE', 'TERM', 'TZ', 'TMPDIR'],
  ...['SEALPOST_HOME', 'SEALPOST_PROFILE', 'XDG_CONFIG_HOME', 'XDG_RUNTIME_DIR', 'NODE_EXTRA_CA_CERTS'],
]
const kept = [
  ...['SEALPOST_ADMIN_TOKEN', 'SEALPOST_ADMIN_TOKEN_FILE', 'SEALPOST_PASSPHRASE', 'DATABASE_URL', 'ADMIN_DATABASE_URL'],
  ...['PGPASSWORD', 'MYSQL_PWD', 'DB_PASS', 'DB_URL', 'PG_URL', 'MONGODB_URI', 'AMQP_URL', 'STRIPE_KEY', 'OPENAI_KEY'],
  ...['MASTER_KEY', 'JWT', 'GH_PAT', 'SENTRY_DSN', 'SESSION_COOKIE', 'STORAGE_CONNECTION_STRING', 'AWS_ACCESS_KEY_ID'],
  ...['HTTPS_PROXY', 'SSH_AUTH_SOCK', 'NODE_OPTIONS', 'LD_PRELOAD', 'LC_API_KEY', 'path', 'Temp', 'EDITOR'],
]
const of = (names: readonly string[]) => Object.fromEntries(names.map((name) => [name, 'x']))
const namesFor = (names: readonly string[], named: readonly string[], platform: NodeJS.Platform = 'linux') =>
  Object.keys(environmentForExec(of(names), named, platform))

test('a program is passed the variables it needs to run, and no others', () => {
  expect(namesFor([...passed, ...kept], [])).toEqual(passed)
})

test('a program is also passed the named variables', () => {
  const named = ['STRIPE_KEY', 'EDITOR', 'NOT_SET']
  expect(namesFor([...passed, ...kept], named)).toEqual([...passed, 'STRIPE_KEY', 'EDITOR'])
})

test('on Windows variables match in any case, and no secret is passed there either', () => {
  const windows = ['Path', 'SystemRoot', 'ComSpec', 'windir', 'TEMP', 'USERPROFILE', 'ProgramFiles(x86)']
  expect(namesFor([...windows, ...kept], [], 'win32')).toEqual([...windows, 'path', 'Temp'])
})

test.each([
  ['2026-11-22T14:03Z', '2026-11-22T14:03:00.000Z', 0],
  ['2026-11-22T14:03:07.25Z', '2026-11-22T14:03:07.250Z', 0],
  ['2026-11-22T14:03:07.123456Z', '2026-11-22T14:03:07.123Z', 456],
  ['2026-11-22T14:03:07+02:00', '2026-11-22T12:03:07.000Z', 0],
  ['2026-11-22', '2026-11-22T00:00:00.000Z', 0],
])('%s is a valid time', (text, ms, rest) => {
  expect(parseTimestamp(text).us).toBe(new Date(ms).getTime() * 1000 + rest)
})

test('a duration is a time that long ago', () => {
  const { us } = parseTimestamp('2h')
  expect(Math.abs(Date.now() - 2 * 3600_000 - us / 1000)).toBeLessThan(60_000)
})

test.each(['soon', '2026-13-40', '2026-11-22T14', '14:03', '2', ''])('%j is not a valid time', (text) => {
  expect(() => parseTimestamp(text)).toThrow('Use a time such as')
})
