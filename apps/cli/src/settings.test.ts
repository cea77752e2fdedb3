import { expect, test } from 'vitest'
import { withoutSecrets } from './settings.ts'

const kept = [
  'PATH',
  'HOME',
  'LANG',
  'SEALPOST_HOME',
  'SEALPOST_PROFILE',
  'XDG_CONFIG_HOME',
  'SSH_AUTH_SOCK',
  'KEYBOARD',
]
const dropped = [
  ...['SEALPOST_ADMIN_TOKEN', 'SEALPOST_ADMIN_TOKEN_FILE', 'SEALPOST_PASSPHRASE', 'DATABASE_URL', 'ADMIN_DATABASE_URL'],
  ...['BROKER_DATABASE_URL', 'DATABASE_URL_FILE', 'NATS_URL', 'PGPASSWORD', 'GITHUB_TOKEN', 'AWS_SECRET_ACCESS_KEY'],
  ...['AWS_ACCESS_KEY_ID', 'SERVICE_API_KEY', 'npm_config_token', 'GOOGLE_APPLICATION_CREDENTIALS'],
]
const all = Object.fromEntries([...kept, ...dropped].map((name) => [name, 'x']))

test('a program is passed no secret', () => {
  expect(Object.keys(withoutSecrets(all, []))).toEqual(kept)
})

test('but for one that is named', () => {
  expect(Object.keys(withoutSecrets(all, ['SERVICE_API_KEY']))).toEqual([...kept, 'SERVICE_API_KEY'])
})
