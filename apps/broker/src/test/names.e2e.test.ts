/** Tests which names a broker accepts, whatever the client signs. */

import {
  changeGroup,
  changePool,
  createDeviceInvite,
  createGroup,
  createInvite,
  createPool,
  endGroup,
  type GroupStatement,
  generateIdentity,
  type PoolStatement,
} from '@sealpost/identity'
import { connect } from '@sealpost/sdk'
import { groupsOf } from '@sealpost/sdk/groups'
import { join, joinAsDevice } from '@sealpost/sdk/join'
import { poolsOf } from '@sealpost/sdk/pools'
import { usersOf } from '@sealpost/sdk/users'
import type { PeerNo } from '@sealpost/std'
import { putGroup, putPool } from '@sealpost/store'
import { expect, test } from 'vitest'
import { sharedWorlds } from './shared-worlds.ts'
import type { WireClient } from './wire.ts'

const shared = sharedWorlds()

async function outcomeOf(client: WireClient, { bytes: statement }: GroupStatement | PoolStatement, isPool = false) {
  client.send({ type: isPool ? 'setPool' : 'setGroup', ref: 1, statement })
  return (await client.next('groupSet')).outcome
}

test('no group or pool can be created or renamed with a reserved name; an existing one keeps its name', async () => {
  await using world = await shared()
  const ann = await world.enrol()
  const { signing } = ann.identity
  const client = await world.wire(ann)
  const { meshId } = world
  const members = [signing.publicKey]
  const [row] = await world.db.run(
    (sql) => sql<{ peer: PeerNo }[]>`select peer_no as peer from member where mesh_id = ${meshId}`,
  )
  const owner = { meshId, peer: row!.peer }
  // The last two are the ASCII forms of a name of two scripts and of no name.
  for (const name of ['crew ', 'crew (you)', '-crew', 'a/b', 'xn--pypal-4ve', 'xn--9999']) {
    expect(await outcomeOf(client, createGroup(signing, { meshId, name, members }))).toBe('malformed')
    expect(await outcomeOf(client, createPool(signing, { meshId, name, members }), true)).toBe('malformed')
  }
  const group = createGroup(signing, { meshId, name: 'old (crew)', members })
  const pool = createPool(signing, { meshId, name: 'old, pool', members })
  await putGroup(world.db, owner, { ...group, statement: group.bytes })
  await putPool(world.db, owner, { ...pool, statement: pool.bytes })
  expect(await outcomeOf(client, changeGroup(signing, group, { name: 'new (crew)' }))).toBe('malformed')
  expect(await outcomeOf(client, changePool(signing, pool, { name: 'new, pool' }), true)).toBe('malformed')
  expect(await outcomeOf(client, changeGroup(signing, group, { members }))).toBe('done')
  expect(await outcomeOf(client, changePool(signing, pool, { members }), true)).toBe('done')
  expect(await outcomeOf(client, endGroup(signing, group))).toBe('done')
})

test('no device can join with a reserved label', async () => {
  await using world = await shared()
  const { url, brokerKey, meshId, identity } = await world.enrol()
  for (const label of ['my (phone)', 'phone ', '--phone', 'xn--pypal-4ve', 'xn--9999']) {
    const invite = createDeviceInvite(identity.signing, { url, brokerKey, meshId, label })
    const joining = joinAsDevice({ invite, identity: generateIdentity() })
    await expect(joining).rejects.toMatchObject({ code: 'name_malformed' })
  }
})

test('Unicode names of members, devices, groups and pools arrive in Unicode form', async () => {
  await using world = await shared()
  const admin = await world.enrolAdmin('admin')
  const { url, brokerKey, meshId } = admin
  const invite = createInvite(admin.identity.signing, { url, brokerKey, meshId })
  const identity = generateIdentity()
  expect((await join({ invite, identity, name: 'Zoe\u0308' })).name).toBe('Zo\u00eb')
  await using zoe = await connect({ url, brokerKey, meshId, identity })
  await using peer = await connect(admin)
  expect((await peer.members()).map(({ name }) => name)).toContain('Zo\u00eb')
  const group = await groupsOf(zoe).create('会議', [peer.key])
  expect([group.name, (await groupsOf(peer).list())[0]!.name]).toEqual(['会議', '会議'])
  const pool = await poolsOf(zoe).create('работа', [peer.key])
  await pool.rename('очередь')
  expect((await poolsOf(peer).list())[0]!.name).toBe('очередь')
  const device = generateIdentity()
  const joined = await joinAsDevice({ invite: usersOf(zoe).inviteDevice('ноутбук'), identity: device })
  expect([joined.name, joined.label]).toEqual(['Zo\u00eb/ноутбук', 'ноутбук'])
  expect(await usersOf(peer).devices(zoe.key)).toMatchObject([{ label: 'ноутбук' }])
  expect(() => usersOf(zoe).inviteDevice('p\u0430ypal')).toThrow('A label')
  const other = createInvite(admin.identity.signing, { url, brokerKey, meshId })
  const lookalike = join({ invite: other, identity: generateIdentity(), name: 'ZOË' })
  await expect(lookalike).rejects.toMatchObject({ code: 'name_taken' })
})
