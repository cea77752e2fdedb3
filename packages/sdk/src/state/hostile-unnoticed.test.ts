/**
 * Tests attacks by a hostile broker on state and history that no member detects. `docs/STATE.md` lists these tests. If
 * a later SDK detects an attack, its test fails and must move to the other list.
 */
import type { Identity } from '@sealpost/identity'
import { expect, test } from 'vitest'
import { MemoryStore } from '../stores/memory-store.ts'
import type { Stored } from '../test/space-broker.ts'
import { all, Space } from '../test/states.ts'
import { openState } from './index.ts'

const code = (of: string) => expect.objectContaining({ code: of })
const keyOf = ({ signing }: Identity) => signing.publicKey

async function world() {
  const space = await Space.make()
  const [ann, bob] = [await space.open(space.owner), await space.open()]
  await ann.state.maintainKeys()
  for (const text of ['one', 'two', 'three']) await ann.state.set('topic', text)
  await ann.state.set('other', 'x')
  return { space, broker: space.broker, ann, bob }
}

test('the newest values and events are withheld from a member that knows none of them', async () => {
  const { broker, bob } = await world()
  const isOld = ({ seq }: { seq?: unknown }) => Number(seq) <= 2
  broker.bend = (lines) => lines.filter(isOld)
  broker.bendAnswer = (said) => ('lastSeq' in said ? { ...said, lastSeq: 2 } : said)
  const cat = await openState({ ...broker.placeOf(bob.identity), onEvent: (event) => bob.told.push(event) })
  expect(await all(cat.list())).toEqual([])
  expect(await all(cat.history())).toHaveLength(2)
  expect(bob.told).toEqual([])
})

test('the beginning of a history is omitted, as if it had expired', async () => {
  const { broker, bob } = await world()
  broker.bend = (lines) => lines.filter(({ seq }) => Number(seq) > 2)
  expect(await all(bob.state.history())).toHaveLength(2)
  broker.bend = () => []
  expect(await all(bob.state.history())).toEqual([])
  expect(bob.told).toEqual([])
})

test('a replay of a past time omits a key, or contains an older value', async () => {
  const { broker, bob } = await world()
  const at = { us: broker.events.at(-1)!.atUs }
  const one = Buffer.from(broker.events[0]!.value).toString('base64')
  broker.bend = ([topic]) => [{ ...topic!, value: one, seq: 1, at: broker.events[0]!.atUs }]
  const then = await all(bob.state.replay({ at }))
  expect([then.map((entry) => entry.text()), bob.told]).toEqual([['one'], []])
})

test("two members see different states, as long as neither learns of the other's state", async () => {
  const { broker, ann, bob } = await world()
  expect((await bob.state.get('topic'))?.text()).toBe('three')
  const show = (present: ReadonlyMap<string, Stored>) => {
    broker.standing.clear()
    for (const [key, stored] of present) broker.standing.set(key, stored)
  }
  const before = new Map(broker.standing)
  await ann.state.set('topic', 'for ann')
  const forAnn = new Map(broker.standing)
  show(before)
  await bob.state.set('topic', 'for bob')
  expect((await bob.state.get('topic'))?.text()).toBe('for bob')
  show(forAnn)
  expect((await ann.state.get('topic'))?.text()).toBe('for ann')
  expect([ann.told, bob.told]).toEqual([[], []])
  // Both values have revision 4, so a member that sees both detects the attack.
  await expect(bob.state.get('topic')).rejects.toThrow(code('state_rolled_back'))
})

test('in the space of a mesh, a revoked member can still read, and so can a member that the broker fabricated', async () => {
  const { broker, ann, bob } = await world()
  broker.keptIn.add(keyOf(bob.identity)) // the broker still serves a member that an admin has revoked
  const mallory = broker.join()
  await ann.state.maintainKeys()
  await ann.state.set('topic', 'between us')
  expect((await bob.state.get('topic'))?.text()).toBe('between us')
  const state = await openState(broker.placeOf(mallory))
  expect((await state.get('topic'))?.text()).toBe('between us')
  expect([broker.keyEpoch, ann.told]).toEqual([1, []])
})

test('in the space of a mesh, the broker chooses the first owner, unless the member names the owner', async () => {
  const space = await Space.make()
  const { broker } = space
  const bob = broker.join()
  expect((await space.open(bob)).told).toEqual([])
  const named = openState({ ...broker.placeOf(bob), owner: keyOf(bob) })
  await expect(named).rejects.toThrow(code('space_forged'))
})

test('a removed group member can still read while the newest statement is withheld from all others', async () => {
  const space = await Space.make({}, { inGroup: 1 })
  const { broker } = space
  const [, bobsKeys] = [...broker.members.values()] as [Identity, Identity]
  const store = new MemoryStore()
  const ann = await space.open(space.owner, store)
  const bob = await space.open(bobsKeys)
  const withheld = broker.group!
  space.nameMembers([])
  const newest = broker.group!
  broker.group = withheld
  await ann.state.maintainKeys()
  await ann.state.set('topic', 'us two')
  expect((await bob.state.get('topic'))?.text()).toBe('us two')
  expect(ann.told).toEqual([])
  // Once she has seen the newest statement, she detects a rollback, also in a later process with her store.
  broker.group = newest
  await ann.state.maintainKeys()
  broker.group = withheld
  await expect(space.open(space.owner, new MemoryStore(store.records))).rejects.toThrow(code('space_forged'))
})
