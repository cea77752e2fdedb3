/** The end of a group through a running broker: who hears of it, what is refused from then on, and what still arrives. */
import { createGroup, endGroup, type GroupStatement } from '@sealpost/identity'
import { connect, type Peer, type PeerEvent } from '@sealpost/sdk'
import type { PeerKey } from '@sealpost/std'
import { expect, test } from 'vitest'
import { until } from './process.ts'
import { envelopeTo, randomHex, WireClient } from './wire.ts'
import { type Place, World } from './world.ts'

const keyOf = ({ identity }: Place): PeerKey => identity.signing.publicKey

async function enter(place: Place): Promise<{ peer: Peer; events: PeerEvent[]; texts: string[] }> {
  const [events, texts]: [PeerEvent[], string[]] = [[], []]
  const peer = await connect({ ...place, onEvent: (event) => events.push(event) })
  peer.onMessage((message) => void texts.push(`${message.group?.name}: ${message.text()}`))
  return { peer, events, texts }
}

function say(client: WireClient, group: GroupStatement, to: Place): void {
  const terms = { receipts: 'none', thread: '00'.repeat(16), hops: 0, noAutoReply: false } as const
  const roster = { group: group.groupId, rosterEpoch: group.epoch }
  const envelopes = [envelopeTo(to, { isHead: true })]
  client.send({ type: 'broadcast', ...roster, bodyId: randomHex(32), body: new Uint8Array(60), terms, envelopes })
}

async function set(client: WireClient, { bytes: statement }: GroupStatement): Promise<string> {
  client.send({ type: 'setGroup', ref: 1, statement })
  return (await client.next('groupSet')).outcome
}

test('its members are told, nobody writes to it again, and what was sent before arrives', async () => {
  await using world = await World.open()
  const [annPlace, bobPlace, catPlace] = [await world.enrol(), await world.enrol(), await world.enrol()]
  const [ann, bob] = [await enter(annPlace), await enter(bobPlace)]
  const group = await ann.peer.groups.create('crew', [keyOf(bobPlace), keyOf(catPlace)])
  const atBob = await bob.peer.groups.find(group.id)
  await (await group.send('before')).stored
  await expect(atBob.delete()).rejects.toMatchObject({ code: 'not_owner' })
  await group.delete()
  await group.delete() // once more is as good
  const deleted = { type: 'group_deleted', group: group.id, name: 'crew' }
  await until('bob is told', () => atBob.isDeleted)
  expect([ann.events.at(-1), bob.events.at(-1)]).toEqual([deleted, deleted])
  expect([group.isDeleted, group.members, atBob.members]).toEqual([true, [], []])
  for (const { peer } of [ann, bob]) {
    expect(await peer.groups.list()).toEqual([])
    await expect(peer.groups.find(group.id)).rejects.toMatchObject({ code: 'unknown_group' })
  }
  for (const one of [group, atBob]) await expect(one.send('after')).rejects.toMatchObject({ code: 'unknown_group' })
  await expect(group.add(keyOf(bobPlace))).rejects.toMatchObject({ code: 'unknown_group' })
  const cat = await enter(catPlace)
  await until('cat has it', () => cat.texts.length === 1)
  expect(cat.texts).toEqual(['crew: before'])
  await Promise.all([ann, bob, cat].map(({ peer }) => peer.close()))
})

test('who has not heard of it is refused for each member, with a code', async () => {
  await using world = await World.open()
  const [annPlace, bobPlace] = [await world.enrol(), await world.enrol()]
  const ann = await enter(annPlace)
  const group = await ann.peer.groups.create('crew', [keyOf(bobPlace)])
  const elsewhere = await WireClient.enter(bobPlace)
  await group.delete()
  expect((await elsewhere.next('groupList')).statements).toHaveLength(1)
  const roster = { groupId: group.id, epoch: 1 } as GroupStatement
  say(elsewhere, roster, annPlace)
  expect((await elsewhere.next('nack')).items).toMatchObject([{ code: 'unknown_group', retryAfterMs: 0 }])
  elsewhere.destroy()
  await ann.peer.close()
})

test('it outlives the broker, and is refused also when nobody remembers it', async () => {
  await using world = await World.open()
  const [ann, bob] = [await world.enrol(), await world.enrol()]
  const first = createGroup(ann.identity.signing, { meshId: world.meshId, name: 'crew', members: [keyOf(bob)] })
  const founder = await WireClient.enter(ann)
  expect(await set(founder, first)).toBe('done')
  expect(await set(founder, endGroup(ann.identity.signing, first))).toBe('done')
  expect(await set(founder, first)).toBe('stale')
  for (const forgotten of [false, true]) {
    if (forgotten) await world.db.run((sql) => sql`delete from peer_group`)
    world.broker.signal('SIGKILL')
    await world.restart()
    const client = await WireClient.enter(ann)
    say(client, first, bob)
    expect((await client.next('nack')).items).toMatchObject([{ code: 'unknown_group' }])
    client.destroy()
  }
  expect(await world.count('message_queue')).toBe(0)
})

test('it leaves room for another one of its owner', async () => {
  await using world = await World.open({ GROUPS_PER_OWNER: '2' })
  const [annPlace, bobPlace] = [await world.enrol(), await world.enrol()]
  const [ann, bob] = [await enter(annPlace), await enter(bobPlace)]
  const found = (name: string) => ann.peer.groups.create(name, [keyOf(bobPlace)])
  const [one] = [await found('one'), await found('two')]
  await expect(found('three')).rejects.toMatchObject({ code: 'too_many_own_groups' })
  await bob.peer.groups.create('of bob', [keyOf(annPlace)])
  await one.delete()
  await found('three')
  expect((await ann.peer.groups.list()).map(({ name }) => name).sort()).toEqual(['of bob', 'three', 'two'])
  await Promise.all([ann, bob].map(({ peer }) => peer.close()))
})
