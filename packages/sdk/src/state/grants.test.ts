/** Tests which members receive which keys of a space, from whom, and when the key changes. */
import { expect, test } from 'vitest'
import { MemoryStore } from '../stores/memory-store.ts'
import { all, Space } from '../test/states.ts'

const code = (of: string) => expect.objectContaining({ code: of })
const valuesOf = async (member: Awaited<ReturnType<Space['open']>>) =>
  (await all(member.state.list())).map((entry) => entry.text())

test('the first member makes the keys, and a member that sees a new member grants them to it', async () => {
  const space = await Space.make({ historyFor: 'all' })
  const ann = await space.open(space.owner)
  await ann.state.set('topic', 'tea')
  const bob = await space.open()
  expect(bob.state.hasKeys).toBe(false)
  await expect(bob.state.get('topic')).rejects.toThrow(code('key_missing'))
  await ann.state.maintainKeys()
  expect((await bob.state.get('topic'))?.text()).toBe('tea')
  const cat = await space.open()
  await bob.state.maintainKeys()
  expect(await valuesOf(cat)).toEqual(['tea'])
  expect(space.broker.keyEpoch).toBe(1)
})

test.each(['joined', 'none'] as const)(
  'with history for %s a new member cannot read earlier values',
  async (historyFor) => {
    const space = await Space.make({ historyFor })
    const ann = await space.open(space.owner)
    await ann.state.set('topic', 'before')
    await ann.state.set('other', 'before')
    const bob = await space.open()
    await ann.state.maintainKeys()
    expect(space.broker.keyEpoch).toBe(2)
    expect(await valuesOf(bob)).toEqual([])
    await expect(bob.state.get('topic')).rejects.toThrow(code('key_missing'))
    await ann.state.set('topic', 'after')
    expect((await bob.state.get('topic'))?.text()).toBe('after')
    // Earlier members know the earlier values; new ones can replace values that they can't read.
    expect(await bob.state.set('other', 'mine')).toMatchObject({ revision: 2 })
    expect(await valuesOf(ann)).toEqual(['after', 'mine'])
  },
)

test('when a member has left, later values are under a key that it was never given', async () => {
  const space = await Space.make({}, { inGroup: 2 })
  const [bobsKeys, catsKeys] = [...space.broker.members.values()].slice(1) as [never, never]
  const ann = await space.open(space.owner)
  const bob = await space.open(bobsKeys)
  const cat = await space.open(catsKeys)
  await ann.state.set('topic', 'all of us')
  expect((await cat.state.get('topic'))?.text()).toBe('all of us')
  space.nameMembers([bob.identity])
  await bob.state.maintainKeys()
  expect(space.broker.keyEpoch).toBe(2)
  // Ann was not notified, but the broker refuses the old key, so she looks for a newer one.
  expect(await ann.state.set('topic', 'us two')).toMatchObject({ revision: 2 })
  expect((await bob.state.get('topic'))?.text()).toBe('us two')
  const forCat = space.broker.grants.filter(({ peer }) => peer === cat.identity.signing.publicKey)
  expect(forCat).toEqual([])
  await expect(cat.state.get('topic')).rejects.toThrow(code('space_unknown'))
})

test('a member that returns is treated as new: with history for members, it cannot read what was written meanwhile', async () => {
  const space = await Space.make({ historyFor: 'joined' })
  const ann = await space.open(space.owner)
  const bob = await space.open()
  await ann.state.maintainKeys()
  space.broker.leave(bob.identity)
  await ann.state.maintainKeys()
  await ann.state.set('topic', 'meanwhile')
  space.broker.join(bob.identity)
  await ann.state.maintainKeys()
  expect(await valuesOf(bob)).toEqual([])
  await ann.state.set('topic', 'again')
  expect(await valuesOf(bob)).toEqual(['again'])
})

test('of two members that change the key at once one succeeds, and both continue', async () => {
  const space = await Space.make({ historyFor: 'joined' })
  const [ann, bob] = [await space.open(space.owner), await space.open()]
  await ann.state.maintainKeys()
  await bob.state.maintainKeys()
  const before = space.broker.keyEpoch
  const cat = await space.open()
  await Promise.all([ann.state.maintainKeys(), bob.state.maintainKeys()])
  expect(space.broker.keyEpoch).toBe(before + 1)
  await ann.state.set('topic', 'tea')
  expect([await valuesOf(bob), await valuesOf(cat)]).toEqual([['tea'], ['tea']])
})

test('a member without a store can request its keys again; with a store, the broker may delete them', async () => {
  const space = await Space.make()
  const ann = await space.open(space.owner)
  const bob = await space.open()
  await ann.state.maintainKeys()
  await bob.state.set('topic', 'tea')
  expect(await valuesOf(await space.open(bob.identity))).toEqual(['tea'])
  const store = new MemoryStore()
  await space.open(bob.identity, store)
  const next = await space.open(bob.identity, new MemoryStore(store.records))
  expect(await valuesOf(next)).toEqual(['tea'])
})
