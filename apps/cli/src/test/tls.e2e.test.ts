/** Tests commands with a TLS broker and a private authority, and warnings without TLS. */
import { join } from 'node:path'
import { TestAuthority } from '@sealpost/broker-program/testing'
import { expect, test } from 'vitest'
import { type Ended, failureOf, jsonLinesOf, Machine, startUp } from './cli.ts'

const UNENCRYPTED = '(unencrypted_transport)'
/** Returns the checks of `doctor --json` by name. */
const checksOf = (ended: Ended) => Object.fromEntries(jsonLinesOf(ended).map((check) => [check.name, check]))

test('up with a certificate prints wss, and only clients that trust its authority can connect', async () => {
  await using machine = await Machine.make()
  const authority = TestAuthority.make(machine.folder)
  const { cert, key } = await authority.certify()
  const trusting = { NODE_EXTRA_CA_CERTS: authority.file }
  const words = ['--port', '0', '--host', '0.0.0.0', '--url', 'wss://localhost:1', '--tls-cert', cert, '--tls-key', key]
  const first = await startUp(machine, words)
  expect(first.facts.url).toBe('wss://localhost:1')
  expect(first.process.stderr).not.toContain(UNENCRYPTED)
  await first.process.interrupt()

  // The environment has the files; the address is the broker's real one.
  const up = await startUp(machine, [], { TLS_CERT: cert, TLS_KEY: key })
  expect(up.facts.url).toMatch(/^wss:\/\/127\.0\.0\.1:\d+$/)
  const { stdout } = await machine.run(['invite', 'create', '--url', up.facts.url, '--quiet'], { env: trusting })
  const joining = ['join', stdout.trim(), '--name', 'bob', '--profile', 'bob']
  const refused = await machine.run([...joining, '--json'])
  expect(failureOf(refused)).toEqual([4, 'certificate_untrusted'])
  const joined = await machine.run(joining, { env: trusting })
  expect([joined.code, joined.stderr]).toEqual([0, expect.not.stringContaining(UNENCRYPTED)])

  const bob = ['--profile', 'bob']
  const sent = await machine.run(['send', 'bob', 'to myself', ...bob], { env: trusting })
  expect([sent.code, sent.stderr]).toEqual([0, expect.any(String)])
  const unsent = await machine.run(['send', 'bob', 'later', '--json', ...bob])
  expect(failureOf(unsent)).toEqual([4, 'certificate_untrusted'])

  const trusted = checksOf(await machine.run(['doctor', '--json', ...bob], { env: trusting }))
  expect(trusted).toMatchObject({ transport: { outcome: 'ok' }, 'round trip': { outcome: 'ok' } })
  const distrusted = checksOf(await machine.run(['doctor', '--json', ...bob]))
  expect(distrusted.broker).toMatchObject({ outcome: 'failed', code: 'certificate_untrusted' })
  await up.process.interrupt()
})

test('up, join and doctor warn if plain text leaves the machine, and only then', async () => {
  await using machine = await Machine.make()
  const open = await startUp(machine, ['--port', '0', '--host', '0.0.0.0'])
  expect(open.process.stderr).toContain(UNENCRYPTED)
  const { stdout } = await machine.run(['invite', 'create', '--quiet'])
  const joined = await machine.run(['join', stdout.trim(), '--name', 'bob', '--profile', 'bob'])
  expect([joined.code, joined.stderr]).toEqual([0, expect.stringContaining(UNENCRYPTED)])
  const doctor = await machine.run(['doctor', '--json', '--profile', 'bob'])
  expect(doctor.code).toBe(0)
  expect(checksOf(doctor).transport).toMatchObject({ outcome: 'warning', code: 'unencrypted_transport' })
  await open.process.interrupt()

  const own = await startUp(machine, ['--data', join(machine.folder, 'own'), '--port', '0', '--profile', 'carol'])
  expect(own.process.stderr).not.toContain(UNENCRYPTED)
  const carol = ['--profile', 'carol']
  const inside = await machine.run(['invite', 'create', '--quiet', ...carol])
  const silent = await machine.run(['join', inside.stdout.trim(), '--name', 'dan', '--profile', 'dan'])
  expect([silent.code, silent.stderr]).toEqual([0, expect.not.stringContaining(UNENCRYPTED)])
  expect(checksOf(await machine.run(['doctor', '--json', ...carol])).transport).toMatchObject({
    outcome: 'ok',
  })
  await own.process.interrupt()
})

test.each([
  ['half of a pair', ['--tls-cert', 'cert.pem'], 2, 'usage'],
  ['an address without TLS', ['--tls-cert', 'c', '--tls-key', 'k', '--url', 'ws://broker.example'], 2, 'usage'],
  ['a file that is not there', ['--tls-cert', 'c', '--tls-key', 'k'], 1, 'tls_certificate_unreadable'],
])('up with %s ends with a code', async (_, words, code, name) => {
  await using machine = await Machine.make()
  const ended = await machine.run(['up', '--json', '--data', join(machine.folder, 'data'), '--port', '0', ...words])
  expect(failureOf(ended)).toEqual([code, name])
})
