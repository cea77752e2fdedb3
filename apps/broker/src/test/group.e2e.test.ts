/** Tests groups through a running broker: one body, and an envelope for each current member. */

import { changeGroup, createGroup, endGroup, type GroupStatement, readGroup } from '@sealpost/identity'
import { groupsOf, type PendingGroupSend } from '@sealpost/sdk/groups'
import { MemoryStore } from '@sealpost/sdk/memory-store'
import type { GroupId, PeerKey } from '@sealpost/std'
import { describe, expect, test } from 'vitest'
import { keyOf, Member } from './member.ts'
import { until } from './process.ts'
import { sharedWorlds } from './shared-worlds.ts'
import { envelopeTo, randomHex, type WireClient } from './wire.ts'
import type { Place, World } from './world.ts'

const shared = sharedWorlds()

const BRISK = { SWEEP_MS: '50', POLL_MS: '100' }

const enterAll = (world: World, places: readonly Place[]) =>
  Promise.all(places.map((place) => Member.enter(world, place)))

/** Returns each member's result: `stored`, or the refusal's code. */
async function faresOf({ stored }: PendingGroupSend): Promise<Record<PeerKey, string>> {
  const outcomes = await stored
  return Object.fromEntries(outcomes.map(({ peer, error }) => [peer, error?.code ?? 'stored']))
}

async function bytesStored({ db, meshId }: World) {
  const [row] = await db.run(
    (sql) => sql<{ bodies: number; bodyBytes: number; rows: number; queueBytes: number }[]>`
      select (select count(*) from shared_body where mesh_id = ${meshId})::int as bodies,
        (select coalesce(sum(length(bytes)), 0) from shared_body where mesh_id = ${meshId})::int as "bodyBytes",
        count(*)::int as rows, coalesce(sum(length(envelope)), 0)::int as "queueBytes"
      from message_queue where mesh_id = ${meshId}`,
  )
  return row!
}

/** Sends one member a broadcast sealed for this roster. */
function say(client: WireClient, { groupId: group, epoch: rosterEpoch }: Roster, to: Place): void {
  const terms = { receipts: 'none', thread: '00'.repeat(16), hops: 0, noAutoReply: false } as const
  const envelopes = [envelopeTo(to, { isHead: true })]
  const message = { bodyId: randomHex(32), body: new Uint8Array(60), terms, envelopes }
  client.send({ type: 'broadcast', group, rosterEpoch, ...message })
}

type Roster = Pick<GroupStatement, 'groupId' | 'epoch'>

async function set(client: WireClient, { bytes: statement }: Pick<GroupStatement, 'bytes'>): Promise<string> {
  const ref = Math.floor(Math.random() * 1000)
  client.send({ type: 'setGroup', ref, statement })
  const answer = await client.next('groupSet')
  expect(answer.ref).toBe(ref)
  return answer.outcome
}

test('a 64 KiB broadcast to 100 members is stored once and reaches every member, online or not', async () => {
  await using world = await shared(BRISK)
  const [ownerPlace, ...places] = await world.enrolMany(101)
  const owner = await Member.enter(world, ownerPlace!)
  const group = await groupsOf(owner.peer).create('all hands', places.map(keyOf))
  const body = crypto.getRandomValues(new Uint8Array(64 * 1024))
  const posted = await group.send(body, { receipts: 'end' })
  expect(Object.values(await faresOf(posted))).toEqual(Array.from({ length: 100 }, () => 'stored'))
  expect(posted.members.size).toBe(100)
  const stored = await bytesStored(world)
  expect(stored).toMatchObject({ bodies: 1, bodyBytes: 64 * 1024 + 40, rows: 100 })
  expect(stored.queueBytes).toBeLessThan(100 * 400)
  const members = await enterAll(world, places)
  await until('all have it', () => members.every(({ received }) => received.length === 1))
  for (const { received } of members) {
    expect(Buffer.compare(received[0]!.body, body)).toBe(0)
    expect(received[0]!.group).toEqual({ id: group.id, name: 'all hands', epoch: 1 })
  }
  await until('the receipts', () => owner.all('receipt').length === 100)
  expect(new Set(owner.all('receipt').map(({ recipient }) => recipient))).toEqual(new Set(places.map(keyOf)))
})

describe('a removed member', () => {
  test('receives no later messages, cannot decrypt them, and cannot send to the group', async () => {
    await using world = await shared(BRISK)
    const [ann, bob, cat] = await Member.enterMany(world, 3)
    const group = await groupsOf(ann.peer).create('crew', [bob.peer.key, cat.peer.key])
    const atCat = await groupsOf(cat.peer).find(group.id)
    await (await group.send('before')).stored
    await until('cat has it', () => cat.received.length === 1)
    await group.remove(cat.peer.key)
    expect(group.epoch).toBe(2)
    expect(await faresOf(await group.send('after'))).toEqual({ [bob.peer.key]: 'stored' })
    await until('bob has both', () => bob.received.length === 2)
    expect(bob.texts).toEqual(['before', 'after'])
    expect(cat.texts).toEqual(['before'])
    await until('cat hears of it', () => atCat.epoch === 2)
    await expect(atCat.send('hello?')).rejects.toMatchObject({ code: 'not_in_group' })
    await expect(atCat.add(cat.peer.key)).rejects.toMatchObject({ code: 'not_owner' })
  })

  test('is skipped by a sender that missed the removal: the sender reseals the message once for the current members', async () => {
    await using world = await shared(BRISK)
    const [ann, cat, dan] = await Member.enterMany(world, 3)
    const bobPlace = await world.enrol()
    const store = new MemoryStore()
    const group = await groupsOf(ann.peer).create('crew', [keyOf(bobPlace), cat.peer.key])
    const bob = await Member.enter(world, bobPlace, { store })
    const atBob = await groupsOf(bob.peer).find(group.id)
    world.broker.signal('SIGKILL')
    await until('bob is alone', () => !bob.peer.isOnline)
    const posted = await atBob.send('to whom it may concern')
    // Bob could reconnect first and send with a current roster, so close him.
    await bob.peer.close()
    await posted.stored
    await world.restart()
    await until('ann is back', () => ann.peer.isOnline && cat.peer.isOnline && dan.peer.isOnline)
    await group.remove(cat.peer.key)
    await group.add(dan.peer.key)
    const again = await Member.enter(world, bobPlace, { store: new MemoryStore(store.records) })
    await until('ann has it', () => ann.texts.length === 1)
    await until('told of both', () => again.all('sent').length + again.all('send_failed').length === 2)
    expect(again.all('sent').map(({ to }) => to)).toEqual([ann.peer.key])
    expect(again.all('send_failed').map(({ to, error }) => [to, error.code])).toEqual([[cat.peer.key, 'stale_roster']])
    expect(cat.texts).toEqual([])
  })
})

describe('a broker that colludes with a member', () => {
  test('cannot swap the body of a message, even with one from another group', async () => {
    await using world = await shared(BRISK)
    const [ann, bob] = [await Member.enter(world), await world.enrol()]
    const [one, two] = [
      await groupsOf(ann.peer).create('one', [keyOf(bob)]),
      await groupsOf(ann.peer).create('two', [keyOf(bob)]),
    ]
    await (await one.send('for one')).stored
    await (await two.send('for two')).stored
    await (await one.send('left alone')).stored
    // Swap the bodies of the first two messages.
    await world.db.run(
      (sql) => sql`
        with b as (select body_id, (select min(id) from message_queue m where m.body_id = s.body_id) as id
          from shared_body s where mesh_id = ${world.meshId} order by 2 limit 2), p as (select array_agg(body_id order by id) as ids from b)
        update message_queue q set body_id = case when q.body_id = p.ids[1] then p.ids[2] else p.ids[1] end
        from p where q.body_id = any (p.ids)`,
    )
    const reader = await Member.enter(world, bob)
    await until('the third arrives', () => reader.received.length === 1)
    expect(reader.texts).toEqual(['left alone'])
    expect(reader.all('tamper').map(({ reason }) => reason)).toEqual(['body_swapped', 'body_swapped'])
  })

  test("cannot restore an earlier group statement or create a group in the owner's name", async () => {
    await using world = await shared(BRISK)
    const [ann, bob] = await Member.enterMany(world, 2)
    const group = await groupsOf(ann.peer).create('crew', [bob.peer.key])
    const [former] = await world.db.run(
      (sql) => sql<{ statement: Uint8Array }[]>`select statement from peer_group where group_id = ${group.id}`,
    )
    await group.rename('other crew')
    expect((await groupsOf(bob.peer).list()).map(({ name }) => name)).toEqual(['other crew'])
    await world.db.run(
      (sql) =>
        sql`update peer_group set statement = ${former!.statement as unknown as string}, epoch = 1 where group_id = ${group.id}`,
    )
    expect((await groupsOf(bob.peer).list()).map(({ name }) => name)).toEqual(['other crew'])
    await until('it is told', () => bob.all('group_tamper').length > 0)
    expect(bob.all('group_tamper')[0]).toMatchObject({ group: group.id, reason: 'statement_rolled_back' })
    await world.db.run(
      (sql) =>
        sql`update peer_group set statement = overlay(statement placing '\\x00' from 90) where group_id = ${group.id}`,
    )
    await groupsOf(bob.peer).list()
    expect(bob.all('group_tamper').at(-1)).toMatchObject({ group: null, reason: 'statement_forged' })
  })
})

test("group messages and direct messages keep their sender's order", async () => {
  await using world = await shared(BRISK)
  const [ann, bob] = await Member.enterMany(world, 2)
  const group = await groupsOf(ann.peer).create('crew', [bob.peer.key])
  const sends: Promise<unknown>[] = []
  for (let n = 0; n < 50; n++)
    sends.push(
      n % 3 === 0 ? group.send(String(n)) : ann.peer.send(bob.peer.key, String(n), n % 3 === 1 ? {} : { hops: 1 }),
    )
  await Promise.all(sends)
  await until('all of it', () => bob.received.length === 50)
  expect(bob.texts).toEqual(Array.from({ length: 50 }, (_, n) => String(n)))
  expect(bob.all('gap')).toEqual([])
})

test('a message stored while the broker is down is sent once after a restart', async () => {
  await using world = await shared(BRISK)
  const places = await world.enrolMany(4)
  const store = new MemoryStore()
  const first = await Member.enter(world, places[0]!, { store })
  const group = await groupsOf(first.peer).create('crew', places.slice(1).map(keyOf))
  world.broker.signal('SIGKILL')
  await until('alone', () => !first.peer.isOnline)
  const posted = await group.send('on the train')
  await first.peer.close()
  expect(new Set(Object.values(await faresOf(posted)))).toEqual(new Set(['kept_for_later']))
  await world.restart()
  const later = await Member.enter(world, places[0]!, { store: new MemoryStore(store.records) })
  await until('all are told', () => later.all('sent').length === 3)
  const members = await enterAll(world, places.slice(1))
  await until('all have it', () => members.every(({ received }) => received.length > 0))
  for (const { texts } of members) expect(texts).toEqual(['on the train'])
})

test('broadcasts in flight arrive complete and exactly once after the broker is killed', async () => {
  await using world = await shared(BRISK)
  const members = await Member.enterMany(world, 8)
  const [first, ...others] = members as [Member, ...Member[]]
  const group = await groupsOf(first.peer).create(
    'crew',
    others.map(({ peer }) => peer.key),
  )
  const own = await Promise.all(members.map(({ peer }) => groupsOf(peer).find(group.id)))
  const posted: PendingGroupSend[] = []
  for (let n = 0; n < 40; n++) for (const [i, at] of own.entries()) posted.push(await at.send(`${i} ${n}`))
  await until('some are through', () => members.some(({ peer }) => peer.counters.acked > 30))
  world.broker.signal('SIGKILL')
  await world.restart()
  const fares = await Promise.all(posted.map(faresOf))
  expect(new Set(fares.flatMap((fare) => Object.values(fare)))).toEqual(new Set(['stored']))
  await until('all have all', () => members.every(({ received }) => received.length >= 7 * 40))
  for (const [at, { texts }] of members.entries()) {
    const expected = members.flatMap((_, i) => (i === at ? [] : Array.from({ length: 40 }, (_, n) => `${i} ${n}`)))
    const ofSender = (i: number, of: string[]) => of.filter((text) => text.startsWith(`${i} `))
    for (const i of members.keys()) expect(ofSender(i, texts)).toEqual(ofSender(i, expected))
    expect(texts).toHaveLength(expected.length)
  }
})

test('a group of 100 stores concurrent messages from 50 senders and refuses none', async () => {
  await using world = await shared()
  const members = await Member.enterMany(world, 100)
  const [first, ...others] = members as [Member, ...Member[]]
  const group = await groupsOf(first.peer).create(
    'all hands',
    others.map(({ peer }) => peer.key),
  )
  const senders = await Promise.all(members.slice(0, 50).map(({ peer }) => groupsOf(peer).find(group.id)))
  const posted = await Promise.all(senders.flatMap((sender, i) => [0, 1].map((n) => sender.send(`${i} ${n}`))))
  const fares = await Promise.all(posted.map(faresOf))
  expect(fares.flatMap((fare) => Object.values(fare)).filter((fare) => fare !== 'stored')).toEqual([])
  const expected = 100 * 99
  const count = () => members.reduce((sum, { received }) => sum + received.length, 0)
  await until('all of it', () => count() >= expected, 120_000)
  expect(count()).toBe(expected)
  for (const { peer } of members) expect(peer.counters).toMatchObject({ nacked: 0, tampered: 0 })
})

test('the broker accepts a group statement only from the owner, newer than the current one, and in its own mesh', async () => {
  await using world = await shared()
  const [ann, bob] = await world.enrolMany(2)
  const [atAnn, atBob] = [await world.wire(ann), await world.wire(bob)]
  const draft = { meshId: world.meshId, name: 'crew', members: [keyOf(bob)] }
  const first = createGroup(ann.identity.signing, draft)
  const second = changeGroup(ann.identity.signing, first, { name: 'other crew' })
  expect(await set(atAnn, first)).toBe('done')
  expect(await set(atAnn, first)).toBe('done')
  expect((await atBob.next('groupList')).statements).toEqual([first.bytes])
  expect(await set(atBob, second)).toBe('not_owner')
  expect(await set(atAnn, second)).toBe('done')
  expect(await set(atAnn, first)).toBe('stale')
  expect(await set(atAnn, { bytes: second.bytes.map((byte) => byte ^ 1) })).toBe('malformed')
  const elsewhere = createGroup(ann.identity.signing, { ...draft, meshId: await world.mesh() })
  expect(await set(atAnn, elsewhere)).toBe('malformed')
  await world.db.run(
    (sql) => sql`
      insert into peer_group (mesh_id, group_id, owner, epoch, statement)
      select mesh_id, gen_random_uuid(), owner, 1, statement from peer_group, generate_series(1, 999)
      where mesh_id = ${world.meshId}`,
  )
  expect(await set(atAnn, createGroup(ann.identity.signing, draft))).toBe('too_many')
})

test('the broker lists the groups of a mesh in pages', async () => {
  await using world = await shared()
  const ann = await world.enrol()
  const client = await world.wire(ann)
  const draft = { meshId: world.meshId, name: 'crew', members: [keyOf(ann)] }
  const groups = Array.from({ length: 20 }, () => createGroup(ann.identity.signing, draft))
  for (const [ref, { bytes: statement }] of groups.entries()) client.send({ type: 'setGroup', ref, statement })
  for (const _ of groups) expect((await client.next('groupSet')).outcome).toBe('done')
  const ids = groups.map(({ groupId }) => groupId).sort()
  const page = async (after: GroupId) => {
    client.send({ type: 'groups', ref: 7, after })
    const { statements, isLast } = await client.next('groupList')
    return { ids: statements.map((bytes) => readGroup(bytes)!.groupId), isLast }
  }
  expect(await page('0'.repeat(32) as GroupId)).toEqual({ ids: ids.slice(0, 16), isLast: false })
  expect(await page(ids[15]!)).toEqual({ ids: ids.slice(16), isLast: true })
})

test("a restarted broker knows a group's roster before it accepts messages for former members", async () => {
  await using world = await shared()
  const [ann, bob] = await world.enrolMany(2)
  const founder = await world.wire(ann)
  const first = createGroup(ann.identity.signing, { meshId: world.meshId, name: 'crew', members: [keyOf(bob)] })
  const second = changeGroup(ann.identity.signing, first, { name: 'other crew' })
  for (const group of [first, second]) expect(await set(founder, group)).toBe('done')
  world.broker.signal('SIGKILL')
  await world.restart()
  const client = await world.wire(ann)
  say(client, first, bob)
  expect((await client.next('nack')).items).toMatchObject([{ code: 'stale_roster', retryAfterMs: 0 }])
  say(client, second, bob)
  expect((await client.next('ack')).items).toHaveLength(1)
})

describe('deleting a group', () => {
  test('informs its members, refuses new messages, and still delivers earlier ones', async () => {
    await using world = await shared()
    const [annPlace, bobPlace, catPlace] = await world.enrolMany(3)
    const [ann, bob] = [await Member.enter(world, annPlace), await Member.enter(world, bobPlace)]
    const group = await groupsOf(ann.peer).create('crew', [keyOf(bobPlace), keyOf(catPlace)])
    const atBob = await groupsOf(bob.peer).find(group.id)
    await (await group.send('before')).stored
    await expect(atBob.delete()).rejects.toMatchObject({ code: 'not_owner' })
    await group.delete()
    await group.delete() // a second deletion succeeds too
    const deleted = { type: 'group_deleted', group: group.id, name: 'crew' }
    await until('bob learns that it is deleted', () => atBob.isDeleted)
    expect([ann.events.at(-1), bob.events.at(-1)]).toEqual([deleted, deleted])
    expect([group.isDeleted, group.members, atBob.members]).toEqual([true, [], []])
    for (const { peer } of [ann, bob]) {
      expect(await groupsOf(peer).list()).toEqual([])
      await expect(groupsOf(peer).find(group.id)).rejects.toMatchObject({ code: 'unknown_group' })
    }
    for (const one of [group, atBob]) await expect(one.send('after')).rejects.toMatchObject({ code: 'unknown_group' })
    await expect(group.add(keyOf(bobPlace))).rejects.toMatchObject({ code: 'unknown_group' })
    const cat = await Member.enter(world, catPlace)
    await until('cat has it', () => cat.texts.length === 1)
    expect(cat.received.map((message) => [message.group?.name, message.text()])).toEqual([['crew', 'before']])
  })

  test('refuses each envelope from a sender that missed the deletion, with a code', async () => {
    await using world = await shared()
    const [annPlace, bobPlace] = await world.enrolMany(2)
    const ann = await Member.enter(world, annPlace)
    const group = await groupsOf(ann.peer).create('crew', [keyOf(bobPlace)])
    const elsewhere = await world.wire(bobPlace)
    await group.delete()
    expect((await elsewhere.next('groupList')).statements).toHaveLength(1)
    say(elsewhere, { groupId: group.id, epoch: 1 }, annPlace)
    expect((await elsewhere.next('nack')).items).toMatchObject([{ code: 'unknown_group', retryAfterMs: 0 }])
    elsewhere.destroy()
  })

  test('survives a broker restart, even after its row is removed', async () => {
    await using world = await shared()
    const [ann, bob] = await world.enrolMany(2)
    const first = createGroup(ann.identity.signing, { meshId: world.meshId, name: 'crew', members: [keyOf(bob)] })
    const founder = await world.wire(ann)
    expect(await set(founder, first)).toBe('done')
    expect(await set(founder, endGroup(ann.identity.signing, first))).toBe('done')
    expect(await set(founder, first)).toBe('stale')
    for (const forgotten of [false, true]) {
      if (forgotten) await world.db.run((sql) => sql`delete from peer_group where mesh_id = ${world.meshId}`)
      world.broker.signal('SIGKILL')
      await world.restart()
      const client = await world.wire(ann)
      say(client, first, bob)
      expect((await client.next('nack')).items).toMatchObject([{ code: 'unknown_group' }])
      client.destroy()
    }
    expect(await world.count('message_queue')).toBe(0)
  })

  test("frees a slot in its owner's quota", async () => {
    await using world = await shared({ GROUPS_PER_OWNER: '2' })
    const [annPlace, bobPlace] = await world.enrolMany(2)
    const [ann, bob] = [await Member.enter(world, annPlace), await Member.enter(world, bobPlace)]
    const found = (name: string) => groupsOf(ann.peer).create(name, [keyOf(bobPlace)])
    const [one] = [await found('one'), await found('two')]
    await expect(found('three')).rejects.toMatchObject({ code: 'too_many_own_groups' })
    await groupsOf(bob.peer).create('of bob', [keyOf(annPlace)])
    await one.delete()
    await found('three')
    expect((await groupsOf(ann.peer).list()).map(({ name }) => name).sort()).toEqual(['of bob', 'three', 'two'])
  })
})
