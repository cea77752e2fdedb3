/** Tests that profiles use forward secrecy, and show it. */
import { join } from 'node:path'
import { readKeyFile } from '@sealpost/identity/key-file'
import { openDatabase } from '@sealpost/pg'
import { claimPrekeys, HttpAccess } from '@sealpost/sdk/prekeys'
import { mailboxRecords } from '@sealpost/sdk/sessions'
import { expect, test } from 'vitest'
import { AS_ALICE, errorOf, jsonLinesOf, jsonOf, letIn, Machine, ownerUrl, startUp, type Up } from './cli.ts'
import { Agent } from './mcp.ts'

test('two profiles use ratchets without an option, and their commands show it and open such messages', async () => {
  await using machine = await Machine.withBroker('bob')
  await publishPrekeys(machine, 'bob')
  expect((await machine.run(['send', 'bob', 'only for you'])).code).toBe(0)
  const members = jsonLinesOf(await machine.run(['peers', '--json']))
  expect(members.find(({ name }) => name === 'bob')).toMatchObject({ sealing: 'ratchet' })
  expect(jsonOf(await machine.run(['status', '--json']))).toMatchObject({ ratchets: 1 })
  const waiting = jsonLinesOf(await machine.run(['inbox', '--json', '--profile', 'bob']))
  expect(waiting).toMatchObject([{ text: 'only for you' }])
  const heard = jsonLinesOf(await machine.run(['listen', '--count', '1', '--json', '--profile', 'bob']))
  expect(heard).toMatchObject([{ text: 'only for you' }])
})

test('a user removes the pin of a peer that has lost its prekeys, also while other processes have stores open', async () => {
  await using machine = await Machine.make()
  const up = await startUp(machine, AS_ALICE)
  await letIn(machine, 'bob')
  await publishPrekeys(machine, 'bob')
  expect((await machine.run(['send', 'bob', 'ratcheted'])).code).toBe(0)
  await using agent = await Agent.start(machine)
  expect((await agent.call('send_message', { to: 'bob', text: 'ratcheted too' })).isError).toBe(false)
  const { peers } = (await agent.call('list_peers', { nameContains: 'bob' })).structured
  expect(peers).toMatchObject([{ name: 'bob', sealing: 'ratchet' }])
  await deletePrekeys(up)
  const refused = await machine.run(['send', 'bob', 'in another lane', '--priority', 'now', '--json'])
  expect(errorOf(refused)).toMatchObject({ code: 'ratchet_required' })
  const refusedAgent = await agent.call('send_message', { to: 'bob', text: 'in another lane', priority: 'now' })
  expect(refusedAgent.error).toMatchObject({ code: 'ratchet_required' })
  for (const { message } of [errorOf(refused), refusedAgent.error!])
    expect(message).toContain('`sealpost peers --forget-ratchets NAME`')

  const forget = async () => jsonOf(await machine.run(['peers', '--forget-ratchets', 'bob', '--json', '--quiet']))
  const first = await forget()
  expect(first).toMatchObject({ name: 'bob', hadRatchets: true, sessionsInUse: [expect.any(String)] })
  expect(await pinsOf(machine)).toBe(0)
  const sent = await machine.run(['send', 'bob', 'in another lane', '--priority', 'now'])
  expect(sent).toMatchObject({ code: 0 })
  await agent.client.close()
  expect(await forget()).toMatchObject({ hadRatchets: true, sessionsInUse: [] })
  expect(await forget()).toMatchObject({ hadRatchets: false, sessionsInUse: [] })
  const unknown = await machine.run(['peers', '--forget-ratchets', 'nobody', '--json'])
  expect([unknown.code, errorOf(unknown).code]).toEqual([3, 'name_unknown'])
})

/** Returns the number of pins in the store of the member `alice`. */
async function pinsOf(machine: Machine): Promise<number> {
  const records = await mailboxRecords(join(machine.folder, 'profiles', 'default'))
  return records.filter((record) => record.kind === 'ratchetPeer' && record.isPinned).length
}

async function deletePrekeys(up: Up): Promise<void> {
  const db = await openDatabase(await ownerUrl(up), { connections: 1 })
  await db.run((sql) => sql`delete from prekey_statement`)
  await db.close()
}

async function publishPrekeys(machine: Machine, name: string): Promise<void> {
  await using _agent = await Agent.start(machine, ['--profile', name])
  await expect.poll(() => hasPrekeys(machine, name), { timeout: 60_000 }).toBe(true)
}

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
