/** Tests that profiles use forward secrecy, and show it. */
import { join } from 'node:path'
import { readKeyFile } from '@sealpost/identity/key-file'
import { claimPrekeys, HttpAccess } from '@sealpost/sdk/prekeys'
import { expect, test } from 'vitest'
import { jsonLinesOf, Machine } from './cli.ts'
import { Agent } from './mcp.ts'

test('two profiles use ratchets without an option, and their commands show it and open such messages', async () => {
  await using machine = await Machine.withBroker('bob')
  const bob = await Agent.start(machine, ['--profile', 'bob'])
  await expect.poll(() => hasPrekeys(machine, 'bob'), { timeout: 60_000 }).toBe(true)
  await bob[Symbol.asyncDispose]()
  expect((await machine.run(['send', 'bob', 'only for you'])).code).toBe(0)
  const members = jsonLinesOf(await machine.run(['peers', '--json']))
  expect(members.find(({ name }) => name === 'bob')).toMatchObject({ sealing: 'ratchet' })
  const waiting = jsonLinesOf(await machine.run(['inbox', '--json', '--profile', 'bob']))
  expect(waiting).toMatchObject([{ text: 'only for you' }])
  const heard = jsonLinesOf(await machine.run(['listen', '--count', '1', '--json', '--profile', 'bob']))
  expect(heard).toMatchObject([{ text: 'only for you' }])
})

/** Claims a prekey of the member, to find out whether there is one. */
async function hasPrekeys(machine: Machine, name: string): Promise<boolean> {
  const folderOf = (profile: string) => join(machine.folder, 'profiles', profile)
  const identityOf = async (profile: string) => {
    const { contents } = await readKeyFile(join(folderOf(profile), 'key.json'))
    if (contents.kind !== 'peer') throw new Error('a profile has the keys of a peer')
    return contents.identity
  }
  const { signing } = await identityOf(name)
  const { url, brokerKey, meshId } = await Bun.file(join(folderOf('default'), 'membership.json')).json()
  const access = new HttpAccess({ url, brokerKey, meshId, identity: await identityOf('default') })
  const [claim] = await claimPrekeys(access, [signing.publicKey])
  await access.close()
  return claim?.ok === true
}
