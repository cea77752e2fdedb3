/** Tests which names a broker accepts, whatever the client signs. */

import {
  changeGroup,
  changePool,
  createDeviceInvite,
  createGroup,
  createPool,
  endGroup,
  type GroupStatement,
  generateIdentity,
  type PoolStatement,
} from '@sealpost/identity'
import { joinAsDevice } from '@sealpost/sdk/join'
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
  for (const name of ['crew ', 'crew (you)', '-crew', 'a/b']) {
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
  for (const label of ['my (phone)', 'phone ', '--phone']) {
    const invite = createDeviceInvite(identity.signing, { url, brokerKey, meshId, label })
    const joining = joinAsDevice({ invite, identity: generateIdentity() })
    await expect(joining).rejects.toMatchObject({ code: 'name_malformed' })
  }
})
