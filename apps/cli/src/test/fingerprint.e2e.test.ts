/** Fingerprints on the command line: no member can have one as a name, and each stands for its key. */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { letIn, Machine, startUp } from './cli.ts'

let machine: Machine
beforeEach(async () => {
  machine = await Machine.make()
  await startUp(machine, ['--port', '0', '--name', 'alice'])
  for (const name of ['carol', 'bob']) await letIn(machine, name)
})
afterEach(() => machine[Symbol.asyncDispose]())

const json = ({ stdout }: { stdout: string }) => JSON.parse(stdout)
const codeOf = ({ stderr }: { stderr: string }) => JSON.parse(stderr.trim().split('\n').at(-1)!).error.code

async function peerNamed(name: string): Promise<{ peer: string; fingerprint: string }> {
  const { stdout } = await machine.run(['peers', '--json'])
  const peers = stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  return peers.flat().find((peer) => peer.name === name)
}

test('nobody enrols under the fingerprint of another member, or under its beginning', async () => {
  const { fingerprint } = await peerNamed('carol')
  const { invite } = json(await machine.run(['invite', 'create', '--json']))
  const names = [fingerprint, fingerprint.toLowerCase(), fingerprint.replaceAll('-', ''), 'NV2N-HQ7V']
  for (const name of names) {
    const ended = await machine.run(['join', invite, '--name', name, '--profile', 'impostor', '--json'])
    expect([ended.code, codeOf(ended)]).toEqual([2, 'name_malformed'])
  }
})

test('every command that takes a name takes a fingerprint, and pins nothing', async () => {
  const [{ peer, fingerprint }, alice] = [await peerNamed('carol'), await peerNamed('alice')]
  for (const to of [fingerprint, fingerprint.replaceAll('-', '').toLowerCase()])
    expect((await machine.run(['send', to, 'hi', '--profile', 'bob'])).code).toBe(0)
  const heard = await machine.run(['listen', '--count', '2', '--json', '--profile', 'carol'])
  expect(
    heard.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line).text),
  ).toEqual(['hi', 'hi'])
  expect(json(await machine.run(['consent', 'allow', fingerprint, '--json', '--profile', 'bob'])).allowed).toEqual([
    peer,
  ])
  const { stdout } = await machine.run(['device', 'list', alice.fingerprint, '--profile', 'bob'])
  expect(stdout).toMatch(/^LABEL/)
  const absent = fingerprint.replace(/^./, (first) => (first === '0' ? '2' : '0'))
  const unknown = await machine.run(['send', absent, 'hi', '--profile', 'bob', '--json'])
  expect([unknown.code, codeOf(unknown)]).toEqual([3, 'name_unknown'])
})
