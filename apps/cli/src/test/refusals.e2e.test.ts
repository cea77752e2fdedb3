/** Tests the errors of commands that need no broker. */
import { createServer } from 'node:net'
import { createInvite, generateSigningKeys, ready } from '@sealpost/identity'
import type { MeshId, PeerKey } from '@sealpost/std'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { Profile } from '../profile/profile.ts'
import { errorOf, Machine } from './cli.ts'

let machine: Machine

beforeAll(async () => {
  await ready()
  machine = await Machine.make()
  const profile = new Profile({ home: `${machine.folder}/profiles` }, 'default')
  await profile.makeKeys()
  await profile.writeMembership({
    url: `ws://127.0.0.1:${await closedPort()}`,
    brokerKey: 'ab'.repeat(32) as PeerKey,
    meshId: 'cd'.repeat(16) as MeshId,
    name: 'alice',
  })
})
afterAll(() => machine[Symbol.asyncDispose]())

/** Returns a port on which nobody listens. */
function closedPort(): Promise<number> {
  const listener = createServer()
  return new Promise((resolve) => {
    listener.listen(0, '127.0.0.1', () => {
      const { port } = listener.address() as { port: number }
      listener.close(() => resolve(port))
    })
  })
}

const peer = 'ef'.repeat(32)

test.each([
  [['dead', 'list'], 2],
  [['send', peer, '--file', '/nowhere/at/all'], 3],
  [['status', '--profile', 'nobody'], 3],
  [['keygen'], 5],
  [['send', peer, '--file', '/dev/zero'], 1],
  [['request', peer, '--file', '/dev/zero'], 6],
  [['peers'], 7],
] as [string[], number][])('sealpost %j, with keys and without a broker, ends with %i', async (words, code) => {
  const ended = await machine.run(words)
  expect(ended.code, ended.stderr).toBe(code)
  expect(ended.stderr).not.toBe('')
  expect(ended.stderr).not.toContain('    at ') // no stack trace
})

test('a message that no broker accepts in time is stored for later, and the output reports it', async () => {
  const late = await machine.run(['send', peer, 'hi', '--timeout', '1s'])
  expect(late).toMatchObject({
    code: 124,
    stderr: expect.stringContaining('The next command of this profile sends it'),
  })
})

test('with --json an error is one object on stderr, and stdout stays empty', async () => {
  const ended = await machine.run(['send', peer, '--json', '--file', '/nowhere'])
  expect(ended.stdout).toBe('')
  expect(errorOf(ended)).toEqual({ code: 'file_missing', message: 'There is no file at /nowhere.' })
})

test('joining with an invite for an unreachable broker can be retried with the same keys', async () => {
  const invite = createInvite(generateSigningKeys(), {
    meshId: 'cd'.repeat(16) as MeshId,
    url: `ws://127.0.0.1:${await closedPort()}`,
    brokerKey: 'ab'.repeat(32) as PeerKey,
  })
  const shown = await machine.run(['invite', 'show', invite, '--json'])
  expect(JSON.parse(shown.stdout)).toMatchObject({ role: 'member', usesMax: 1 })
  for (let attempt = 1; attempt <= 2; attempt++)
    expect((await machine.run(['join', invite, '--profile', 'late'])).code).toBe(7)
})

test('help and version are not errors, and help shows examples', async () => {
  expect(await machine.run(['--version'])).toMatchObject({
    code: 0,
    stdout: expect.stringMatching(/^\d+\.\d+\.\d+\n$/),
  })
  for (const words of [['--help'], ['send', '--help'], ['invite', 'create', '-h'], ['dead', '--help']])
    expect(await machine.run(words)).toMatchObject({ code: 0, stdout: expect.stringContaining('Examples:') })
})
