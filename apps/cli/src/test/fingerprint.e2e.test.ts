/** Tests fingerprints on the command line: no member can have one as a name, and each identifies its key. */
import { beforeEach, expect, test } from 'vitest'
import { failureOf, jsonLinesOf, jsonOf, Machine } from './cli.ts'

let machine: Machine
beforeEach(async () => {
  machine = await Machine.withBroker('carol', 'bob')
  return () => machine[Symbol.asyncDispose]()
})

async function peerNamed(name: string): Promise<{ peer: string; fingerprint: string }> {
  return jsonLinesOf(await machine.run(['peers', '--json'])).find((peer) => peer.name === name)
}

test("nobody can enrol under another member's fingerprint or a prefix of it", async () => {
  const { fingerprint } = await peerNamed('carol')
  const { invite } = jsonOf(await machine.run(['invite', 'create', '--json']))
  const names = [fingerprint, fingerprint.toLowerCase(), fingerprint.replaceAll('-', ''), 'NV2N-HQ7V']
  for (const name of names) {
    const ended = await machine.run(['join', invite, '--name', name, '--profile', 'impostor', '--json'])
    expect(failureOf(ended)).toEqual([2, 'name_malformed'])
  }
})

test('every command that takes a name takes a fingerprint, and pins nothing', async () => {
  const [{ peer, fingerprint }, alice] = [await peerNamed('carol'), await peerNamed('alice')]
  for (const to of [fingerprint, fingerprint.replaceAll('-', '').toLowerCase()])
    expect((await machine.run(['send', to, 'hi', '--profile', 'bob'])).code).toBe(0)
  const heard = await machine.run(['listen', '--count', '2', '--json', '--profile', 'carol'])
  expect(jsonLinesOf(heard).map(({ text }) => text)).toEqual(['hi', 'hi'])
  expect(jsonOf(await machine.run(['consent', 'allow', fingerprint, '--json', '--profile', 'bob'])).allowed).toEqual([
    peer,
  ])
  const { stdout } = await machine.run(['device', 'list', alice.fingerprint, '--profile', 'bob'])
  expect(stdout).toMatch(/^LABEL/)
  const absent = fingerprint.replace(/^./, (first) => (first === '0' ? '2' : '0'))
  const unknown = await machine.run(['send', absent, 'hi', '--profile', 'bob', '--json'])
  expect(failureOf(unknown)).toEqual([3, 'name_unknown'])
})
