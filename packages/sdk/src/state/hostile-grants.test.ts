/** Tests how a hostile broker may try to give the keys of a space to outsiders. */
import {
  changeGroup,
  generateBoxKeys,
  type Identity,
  NO_LINK,
  newSpaceKey,
  openGrant,
  sealGrant,
} from '@sealpost/identity'
import { expect, test } from 'vitest'
import { KeyEpochs } from '../keys/key-epochs.ts'
import { MemoryStore } from '../stores/memory-store.ts'
import { Space } from '../test/states.ts'
import type { StateEvent } from './entry-verifier.ts'
import { openState } from './index.ts'

const code = (of: string) => expect.objectContaining({ code: of })
const keyOf = ({ signing }: Identity) => signing.publicKey

/** Returns a group of three members that have the first key. The broker still serves one of them after its removal. */
async function crew(terms = {}) {
  const space = await Space.make(terms, { inGroup: 2 })
  const { broker } = space
  const [, bobsKeys, catsKeys] = [...broker.members.values()] as [Identity, Identity, Identity]
  const store = new MemoryStore()
  const ann = await space.open(space.owner, store)
  const [bob, cat] = [await space.open(bobsKeys), await space.open(catsKeys)]
  await ann.state.set('topic', 'all of us')
  expect((await cat.state.get('topic'))?.text()).toBe('all of us')
  const removeCat = () => {
    broker.keptIn.add(keyOf(catsKeys))
    space.nameMembers([bobsKeys])
  }
  const annAgain = () => space.open(space.owner, new MemoryStore(store.records))
  return { space, broker, ann, annAgain, bob, cat, removeCat }
}

type Crew = Awaited<ReturnType<typeof crew>>

/** Checks that Cat, whom the broker still serves, can't open later values. */
async function catIsOut({ broker, bob, cat }: Crew): Promise<void> {
  expect((await cat.state.status()).departed).toBe(0)
  expect(broker.keyEpoch).toBe(2)
  await bob.state.maintainKeys()
  await bob.state.set('topic', 'us two')
  await expect(cat.state.get('topic')).rejects.toThrow(code('key_missing'))
}

test('a removed member cannot read later values, even if the broker denies the departure', async () => {
  const its = await crew()
  its.removeCat()
  await its.ann.state.maintainKeys()
  await catIsOut(its)
  expect((await its.ann.state.get('topic'))?.text()).toBe('us two')
})

/** Opens a state for a member of the group whose peer has seen this statement in mail. */
async function openAfterMail({ broker }: Space, identity: Identity, statement: () => Uint8Array) {
  const told: StateEvent[] = []
  const onEvent = (event: StateEvent) => void told.push(event)
  return { state: await openState({ ...broker.placeOf(identity), statement, onEvent }), told }
}

test('a writer that has learned in mail of a removal changes the key before it writes', async () => {
  const its = await crew()
  const { space, broker, bob } = its
  const writer = await openAfterMail(space, bob.identity, () => broker.group!.bytes)
  its.removeCat()
  expect(broker.keyEpoch).toBe(1)
  await writer.state.set('topic', 'us two')
  await catIsOut(its)
  expect(writer.told).toEqual([])
})

test('a writer that has learned in mail of a removal writes nothing if the broker denies the removal', async () => {
  const { space, broker, bob, cat } = await crew()
  const [group, before] = [broker.group!, broker.events.length]
  const newest = changeGroup(space.owner.signing, group, {
    members: group.members.filter((key) => key !== keyOf(cat.identity)),
  })
  let seen = group
  const writer = await openAfterMail(space, bob.identity, () => seen.bytes)
  seen = newest
  await expect(writer.state.set('topic', 'us two')).rejects.toThrow(code('space_forged'))
  expect(writer.told).toMatchObject([{ type: 'space_forged', reason: 'its group is older than one seen before' }])
  expect([broker.events.length, broker.keyEpoch]).toEqual([before, 1])
})

test('a second statement of one epoch is refused, also by a later process', async () => {
  const { space, broker, ann, annAgain } = await crew()
  const group = broker.group!
  broker.group = changeGroup(space.owner.signing, group, { name: 'the crew' })
  await ann.state.maintainKeys()
  broker.group = changeGroup(space.owner.signing, group, { name: 'our crew' })
  const forged = expect.objectContaining({ message: expect.stringContaining('two statements with one epoch') })
  await expect(ann.state.maintainKeys()).rejects.toThrow(forged)
  await expect(annAgain()).rejects.toThrow(forged)
})

test('a later process detects that a member was removed in the meantime, with and without a store', async () => {
  const withStore = await crew()
  withStore.removeCat()
  await withStore.annAgain()
  await catIsOut(withStore)
  const without = await crew()
  without.removeCat()
  await without.space.open(without.bob.identity)
  await catIsOut(without)
})

test('a peer that joined and left between two checks of a member cannot read later values', async () => {
  const its = await crew()
  const { broker, space, ann, bob, cat } = its
  const davesKeys = broker.join()
  space.nameMembers([bob.identity, cat.identity, davesKeys])
  const dave = await space.open(davesKeys)
  await bob.state.maintainKeys()
  expect((await dave.state.get('topic'))?.text()).toBe('all of us')
  expect(broker.keyEpoch).toBe(1)
  broker.keptIn.add(keyOf(dave.identity))
  space.nameMembers([bob.identity, cat.identity])
  await ann.state.maintainKeys() // Ann has not seen the statement that lists the peer, so she grants it nothing.
  await ann.state.set('topic', 'us three')
  await expect(dave.state.get('topic')).rejects.toThrow(code('key_missing'))
})

test('a peer added to a group whose history is readable by all gets the current key', async () => {
  const its = await crew()
  const { broker, space, ann, annAgain, bob, cat } = its
  const others = [bob.identity, cat.identity]
  const [davesKeys, evesKeys] = [broker.join(), broker.join()]
  space.nameMembers([...others, davesKeys])
  const dave = await space.open(davesKeys)
  await ann.state.maintainKeys()
  expect((await dave.state.get('topic'))?.text()).toBe('all of us')
  space.nameMembers([...others, davesKeys, evesKeys])
  const eve = await space.open(evesKeys)
  await ann.state.close()
  await annAgain()
  expect((await eve.state.get('topic'))?.text()).toBe('all of us')
  expect(broker.keyEpoch).toBe(1)
})

test('a new member gets no earlier keys, even if the broker reports that it was granted the first key', async () => {
  const { broker, space, ann, bob, cat } = await crew({ historyFor: 'joined' })
  const davesKeys = broker.join()
  space.nameMembers([bob.identity, cat.identity, davesKeys])
  const dave = await space.open(davesKeys)
  const asOld = (one: unknown) => ({ ...(one as object), keyEpoch: 1 })
  broker.bendAnswer = (said) => ({
    ...said,
    ...('lacking' in said && { lacking: [] }),
    ...('members' in said && { members: (said.members as unknown[]).map(asOld) }),
  })
  await ann.state.maintainKeys()
  expect(broker.keyEpoch).toBe(2)
  await expect(dave.state.get('topic')).rejects.toThrow(code('key_missing'))
})

test('a member that vouches for future statements loses access to new keys when it is removed', async () => {
  const space = await Space.make({}, { inGroup: 2 })
  const { broker } = space
  const [, bobsKeys, catsKeys] = [...broker.members.values()] as [Identity, Identity, Identity]
  const [key, nameKey] = [newSpaceKey(), newSpaceKey()]
  broker.keyEpoch = 1
  for (const identity of [space.owner, bobsKeys, catsKeys]) {
    const place = { meshId: broker.meshId, spaceId: broker.spaceId, keyEpoch: 1 }
    const terms = {
      ...place,
      granter: keyOf(catsKeys),
      member: keyOf(identity),
      groupEpoch: 2 ** 31 - 1,
      link: NO_LINK,
    }
    const grant = { ...terms, nameKey, keys: [{ keyEpoch: 1, key }] }
    broker.give(keyOf(identity), sealGrant(catsKeys.signing, grant, identity.box.publicKey))
  }
  const ann = await space.open(space.owner)
  const cat = await space.open(catsKeys)
  await ann.state.set('topic', 'all of us')
  expect((await cat.state.get('topic'))?.text()).toBe('all of us')
  broker.keptIn.add(keyOf(catsKeys))
  space.nameMembers([bobsKeys])
  await ann.state.maintainKeys()
  await ann.state.set('topic', 'us two')
  await expect(cat.state.get('topic')).rejects.toThrow(code('key_missing'))
})

/** Returns a space in which Bob has rotated his box key, and his former key was stolen. */
async function rotated() {
  const space = await Space.make()
  const { broker } = space
  const store = new MemoryStore()
  const ann = await space.open(space.owner, store)
  const stolen = broker.join()
  const { signing } = stolen
  const bob = { signing, box: generateBoxKeys(2) }
  const goBack = () => broker.boxKeys.set(signing.publicKey, stolen.box)
  broker.boxKeys.set(signing.publicKey, bob.box)
  await ann.state.maintainKeys()
  expect((await space.open(bob)).state.hasKeys).toBe(true)
  const opens = ({ box }: Identity) =>
    broker.grants.some((grant) => openGrant(grant.box, signing.publicKey, [box]) !== null)
  expect([opens(bob), opens(stolen)]).toEqual([true, false])
  broker.grants = broker.grants.filter(({ peer }) => peer !== signing.publicKey) // simulates a member that can't open its grants
  return { space, ann, store, bob, goBack, opensForThief: () => opens(stolen) }
}

const refused = (bob: Identity) => ({ type: 'key_refused', author: keyOf(bob), reason: 'binding_rolled_back' })

test('no grant is sealed to a box key that is older than the known one, and the report names the member', async () => {
  const { ann, bob, goBack, opensForThief } = await rotated()
  goBack()
  await ann.state.maintainKeys()
  expect(opensForThief()).toBe(false)
  expect(ann.told).toMatchObject([refused(bob)])
})

test('a later process with the store seals no grant to an older box key', async () => {
  const { space, ann, store, bob, goBack, opensForThief } = await rotated()
  await ann.state.close()
  goBack()
  const again = await space.open(space.owner, new MemoryStore(store.records))
  expect(opensForThief()).toBe(false)
  expect(again.told).toMatchObject([refused(bob)])
})

test('no grant is sealed to a box key older than one that the same process has seen with its messages', async () => {
  const space = await Space.make()
  const { broker } = space
  const bob = broker.join()
  const keyEpochs = new KeyEpochs({ self: keyOf(space.owner) })
  keyEpochs.raise(keyOf(bob), 2)
  const told: StateEvent[] = []
  const place = broker.placeOf(space.owner)
  await openState({ ...place, keyEpochs, onEvent: (event) => told.push(event) })
  expect(broker.grants.map(({ peer }) => peer)).toEqual([keyOf(space.owner)])
  expect(told).toMatchObject([refused(bob)])
})
