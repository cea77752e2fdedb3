import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { configReference, printConfig, readConfig, settings } from './config.ts'

const DATABASE_URL = 'postgres://user:secret@localhost/db'
const errorsOf = (env: Record<string, string>) => {
  const read = readConfig({ DATABASE_URL, ...env })
  return read.ok ? [] : read.errors
}
const valuesOf = (env: Record<string, string> = {}) => {
  const read = readConfig({ DATABASE_URL, ...env })
  if (!read.ok) throw new Error(read.errors.join())
  return read.config
}

test('only the database setting is required', () => {
  expect(readConfig({})).toEqual({
    ok: false,
    errors: [
      expect.stringMatching(
        /^DATABASE_URL is not set: Postgres 15 or newer, as postgres:\/\/user:password@host:port\/database; /,
      ),
    ],
  })
  expect(valuesOf()).toMatchObject({ PORT: 7450, AUTHORITIES: [], BROKER_KEY_FILE: '', LIMITS: 'on' })
})

test('the private port defaults to the port above the public one', () => {
  expect(valuesOf().ADMIN_PORT).toBe(7451)
  expect(valuesOf({ PORT: '7460' }).ADMIN_PORT).toBe(7461)
  expect(valuesOf({ PORT: '0' }).ADMIN_PORT).toBe(0)
  expect(valuesOf({ PORT: '0', ADMIN_PORT: '7451' }).ADMIN_PORT).toBe(7451)
  expect(valuesOf({ ADMIN_PORT: '0' }).ADMIN_PORT).toBe(0)
  expect(errorsOf({ PORT: '65535' })).toEqual(['ADMIN_PORT must be set if PORT is 65535.'])
  expect(valuesOf({ PORT: '65535', ADMIN_PORT: '7451' }).ADMIN_PORT).toBe(7451)
})

test.each([
  ['PORT', '70000', 'PORT must be a port (0-65535), not "70000".'],
  ['PORT', '80.5', 'PORT must be a port (0-65535), not "80.5".'],
  ['PORT', '-1', 'PORT must be a port (0-65535), not "-1".'],
  ['ADMIN_PORT', '0x50', 'ADMIN_PORT must be a port (0-65535), not "0x50".'],
  ['LIMITS', 'yes', 'LIMITS must be on or off, not "yes".'],
  ['LOG_LEVEL', 'loud', 'LOG_LEVEL must be debug, info, warn, error or silent, not "loud".'],
  ['RATE_BURST', '0', 'RATE_BURST must be a whole number of envelopes, at least 1, not "0".'],
  ['HEARTBEAT_MS', '500', 'HEARTBEAT_MS must be a whole number of milliseconds, at least 2000, not "500".'],
  ['DEDUPE_MS', '59999', 'DEDUPE_MS must be a whole number of milliseconds, at least 60000, not "59999".'],
  ['POLL_MS', '1e3', 'POLL_MS must be a whole number of milliseconds, at least 1, not "1e3".'],
  ['POLL_MS', '3000000000', 'POLL_MS must be a whole number of milliseconds, at least 1, not "3000000000".'],
  ['LEASE_MS', '600000', 'LEASE_MS must be a whole number of milliseconds, from 1 to 300000, not "600000".'],
  [
    'ORIGINS',
    'https://a.example, null',
    'ORIGINS must be origins such as https://console.example, separated by commas, not "https://a.example, null".',
  ],
  [
    'ORIGINS',
    'https://a.example/',
    'ORIGINS must be origins such as https://console.example, separated by commas, not "https://a.example/".',
  ],
  [
    'AUTHORITIES',
    'http://',
    'AUTHORITIES must be names such as broker.example:443, separated by commas, not "http://".',
  ],
  ['BUS', 'redis', 'BUS must be auto, postgres, nats or memory, not "redis".'],
  ['BUS', 'nats', 'BUS=nats requires NATS_URL.'],
  [
    'NATS_URL',
    'http://name:password@a.example',
    'NATS_URL must be URLs such as nats://name:password@nats.example:4222, separated by commas.',
  ],
  ['TTL_SECONDS', '9999999', 'TTL_SECONDS (9999999) must not exceed TTL_SECONDS_MAX (2592000).'],
])('%s=%s is reported in one sentence', (name, value, sentence) => {
  expect(errorsOf({ [name]: value })).toEqual([sentence])
})

test('all errors are reported at once, without secrets', () => {
  const errors = errorsOf({ DATABASE_URL: '', PORT: 'x', LIMITS: 'x', HEARTBEAT_MS: '' })
  expect(errors.map((error) => error.split(' ')[0])).toEqual(['DATABASE_URL', 'PORT', 'LIMITS'])
})

test('authorities are normalized to the form that peers sign', () => {
  const { AUTHORITIES, ORIGINS } = valuesOf({
    AUTHORITIES: ' Broker.Example, other:8443,,',
    ORIGINS: 'https://a.example',
  })
  expect([AUTHORITIES, ORIGINS]).toEqual([['broker.example:443', 'other:8443'], ['https://a.example']])
})

test('a value can be read from a file', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sealpost-test-'))
  const path = join(folder, 'url')
  writeFileSync(path, 'postgres://file\n')
  expect(valuesOf({ DATABASE_URL_FILE: path }).DATABASE_URL).toBe('postgres://file')
  expect(errorsOf({ DATABASE_URL_FILE: join(folder, 'absent') })).toEqual(["Can't read the file in DATABASE_URL_FILE."])
  rmSync(folder, { recursive: true })
})

test('the printed configuration hides secrets', () => {
  const printed = printConfig(valuesOf())
  expect(printed.split('\n')).toHaveLength(Object.keys(settings).length)
  expect(printed).toContain('DATABASE_URL=(hidden)')
  expect(printed).toContain('PORT=7450')
  expect(printed).not.toContain('secret')
})

test('the reference page is up to date (bun scripts/reference.ts)', () => {
  const page = join(import.meta.dirname, '../../../../docs/reference/config.md')
  expect(readFileSync(page, 'utf8')).toBe(configReference())
})
