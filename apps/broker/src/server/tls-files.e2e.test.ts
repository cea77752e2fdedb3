/** Tests which certificates the public port refuses, and which changes it adopts while it runs. */
import { copyFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type CertificateFiles, replaceFile, TestAuthority, tlsSettingsOf } from '@sealpost/broker-program/testing'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import type { Log } from '../telemetry/log.ts'
import { temporaryFolder } from '../test/world.ts'
import { readTls, TlsWatch } from './tls-files.ts'

let folder: string
let authority: TestAuthority
let good: CertificateFiles
let other: CertificateFiles
beforeAll(async () => {
  folder = await temporaryFolder()
  authority = TestAuthority.make(folder)
  good = await authority.certify()
  other = await authority.certify()
})
afterEach(() => void vi.useRealTimers())
afterAll(() => rm(folder, { recursive: true, force: true }))

const written = async (name: string, text: string): Promise<string> => {
  await writeFile(join(folder, name), text)
  return join(folder, name)
}
const textOf = (path: string) => Bun.file(path).text()

test('without the settings there is no certificate', async () => {
  expect(await readTls({ TLS_CERT: '', TLS_KEY: '' })).toBeNull()
})

test('a certificate with its chain and key is accepted, and its expiry is reported', async () => {
  const chain = await written('chain.pem', (await textOf(good.cert)) + (await textOf(authority.file)))
  const tls = await readTls({ TLS_CERT: chain, TLS_KEY: good.key })
  expect(tls!.notAfterMs - Date.now()).toBeLessThanOrEqual(2 * 86_400_000)
  expect(tls!.notAfterMs - Date.now()).toBeGreaterThan(86_400_000)
})

const refusals: [string, () => Promise<CertificateFiles>][] = [
  ['tls_certificate_unreadable', async () => ({ ...good, cert: join(folder, 'none.pem') })],
  ['tls_key_unreadable', async () => ({ ...good, key: folder })],
  ['tls_certificate_malformed', async () => ({ ...good, cert: await written('words.pem', 'no certificate') })],
  ['tls_certificate_malformed', async () => ({ ...good, cert: good.key })],
  [
    'tls_certificate_malformed',
    async () => {
      const broken = '-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n'
      return { ...good, cert: await written('broken-chain.pem', (await textOf(good.cert)) + broken) }
    },
  ],
  ['tls_key_malformed', async () => ({ ...good, key: good.cert })],
  [
    'tls_key_malformed',
    async () => {
      const locked = join(folder, 'locked.pem')
      Bun.spawnSync(['openssl', 'ec', '-in', good.key, '-aes128', '-passout', 'pass:hunter2', '-out', locked])
      return { ...good, key: locked }
    },
  ],
  ['tls_key_mismatched', async () => ({ ...good, key: other.key })],
  ['tls_certificate_expired', () => authority.certify({ days: -1 })],
]
test.each(refusals)('%s', async (code, files) => {
  const refused = readTls(tlsSettingsOf(await files()))
  await expect(refused).rejects.toMatchObject({ code, message: expect.stringMatching(new RegExp(`\\(${code}\\)\\.$`)) })
  await expect(refused).rejects.not.toThrow(/PRIVATE KEY|BEGIN|hunter2/)
})

test('tls_certificate_not_yet_valid', async () => {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.parse('2020-01-01') })
  await expect(readTls(tlsSettingsOf(good))).rejects.toMatchObject({ code: 'tls_certificate_not_yet_valid' })
})

test('a changed pair is served; a half-changed pair is not, and is logged once', async () => {
  const files = { cert: join(folder, 'live.pem'), key: join(folder, 'live-key.pem') }
  await copyFile(good.cert, files.cert)
  await copyFile(good.key, files.key)
  const settings = tlsSettingsOf(files)
  const [served, logged]: [string[], unknown[]] = [[], []]
  const log: Log = {
    ...{ debug: () => undefined, warn: () => undefined },
    info: (event) => void logged.push(event),
    error: (_, fields) => void logged.push(fields?.code),
  }
  const renew = ({ cert }: { cert: string }) => void served.push(cert)
  const watch = new TlsWatch(settings, (await readTls(settings))!, { log, renew })
  await watch.look()
  expect([served, logged]).toEqual([[], []])
  await replaceFile(files.cert, other.cert)
  await watch.look()
  await watch.look()
  expect([served, logged]).toEqual([[], ['tls_key_mismatched']])
  await replaceFile(files.key, other.key)
  await watch.look()
  await watch.look()
  expect(served).toEqual([await textOf(other.cert)])
  expect(logged).toEqual(['tls_key_mismatched', 'tls.renewed'])
  watch.stop()
})
