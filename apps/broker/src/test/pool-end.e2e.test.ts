/** The end of a pool through a running broker: what is refused from then on, and who works for it no longer. */
import { connect, type PeerEvent } from '@sealpost/sdk'
import type { PeerKey } from '@sealpost/std'
import { expect, test } from 'vitest'
import { until } from './process.ts'
import { type Place, World } from './world.ts'

const keyOf = ({ identity }: Place): PeerKey => identity.signing.publicKey

test('nobody writes to it again, its members leave it, and it is listed no more', async () => {
  await using world = await World.open()
  const [annPlace, bobPlace, catPlace] = [await world.enrol(), await world.enrol(), await world.enrol()]
  const events: PeerEvent[] = []
  const ann = await connect(annPlace)
  const bob = await connect({ ...bobPlace, onEvent: (event) => events.push(event) })
  const cat = await connect(catPlace)
  const pool = await ann.pools.create('crew', [keyOf(bobPlace)])
  const [atBob, atCat] = [await bob.pools.find(pool.id), await cat.pools.find(pool.id)]
  await atBob.join()
  await atCat.send('before')
  await expect(atBob.delete()).rejects.toMatchObject({ code: 'not_owner' })
  await pool.delete()
  await pool.delete() // once more is as good
  await until('bob is told', () => events.some(({ type }) => type === 'pool_left'))
  await expect(atCat.send('after')).rejects.toMatchObject({ code: 'unknown_pool' })
  expect([pool.isDeleted, pool.members]).toEqual([true, []])
  await expect(pool.add(keyOf(catPlace))).rejects.toMatchObject({ code: 'unknown_pool' })
  for (const peer of [ann, bob, cat]) {
    expect(await peer.pools.list()).toEqual([])
    await expect(peer.pools.find(pool.id)).rejects.toMatchObject({ code: 'unknown_pool' })
  }
  await Promise.all([ann, bob, cat].map((peer) => peer.close()))
})

test('one peer founds a limited number of pools, and ends none to found more', async () => {
  await using world = await World.open({ POOLS_PER_OWNER: '2' })
  const [annPlace, bobPlace] = [await world.enrol(), await world.enrol()]
  const [ann, bob] = [await connect(annPlace), await connect(bobPlace)]
  const found = (name: string) => ann.pools.create(name, [keyOf(bobPlace)])
  const [one] = [await found('one'), await found('two')]
  await expect(found('three')).rejects.toMatchObject({ code: 'too_many_own_pools' })
  await bob.pools.create('of bob', [keyOf(annPlace)])
  await one.delete()
  await expect(found('three')).rejects.toMatchObject({ code: 'too_many_own_pools' })
  await Promise.all([ann, bob].map((peer) => peer.close()))
})
